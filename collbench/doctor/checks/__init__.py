"""The checks of `collbench doctor`: one file each, with the members that doctor/check.py names.

The name of a file, with hyphens, is the check's identifier on the command line.
"""
