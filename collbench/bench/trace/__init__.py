"""Traces of launches: what every step waited for, the critical path, tables and pages."""
