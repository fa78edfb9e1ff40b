"""collbench: how fast the GPUs of a machine or a cluster can talk to each other, why not faster,
and what to change.
"""

__version__ = "0.1.0"
