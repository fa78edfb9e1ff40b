"""net: messages of MPI. A connection has a FIFO at both ends, in each rank's own memory, and a
proxy of each rank moves the slots.

The proxies that move slots are in backends/net: one for CPUs and one for GPUs.
"""

from collections.abc import Hashable, Sequence

NEEDS_PEERS, IN_DOMAIN, BESIDE_NET, FIFOS = False, False, False, 2


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why ranks on those hosts cannot use it: messages reach every host."""
    return ""
