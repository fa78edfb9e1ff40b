"""The transports: one a file, found by the file's name.

Each says `why_not` some hosts cannot use it, and for GPUs: NEEDS_PEERS: they must reach each
other's memory. IN_DOMAIN: it joins those that share memory. BESIDE_NET: messages may join these
with others. FIFOS: of a connection, each with its memory.
"""

from collbench.core.registry import Family

FAMILY = Family(__name__, __path__, "transport")
