"""What is linked to what, how fast the links are, and what it allows: pure functions of a topology
from any source.
"""
