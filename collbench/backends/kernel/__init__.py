"""Somebody's kernel, of a Python file that the user names, on CPUs and on GPUs."""
