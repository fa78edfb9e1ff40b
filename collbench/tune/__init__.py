"""Finds the best configuration of this machine by measuring, and keeps it as a tuning file."""
