"""Sweeps read back: what is best, what changed, whether it is normal. Below the reports; nothing
here measures or prints.
"""
