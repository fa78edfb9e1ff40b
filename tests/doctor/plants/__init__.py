"""Planted faults, a file for each check: PLANTS."""
