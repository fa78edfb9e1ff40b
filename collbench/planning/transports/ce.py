"""ce: the copy engine of the sender's GPU writes the receiver's memory; kernels only wait."""

from collections.abc import Hashable, Sequence

from collbench.planning.transports import p2p

NEEDS_PEERS, IN_DOMAIN, BESIDE_NET, FIFOS = True, True, False, 1


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why connections between ranks on these hosts cannot use it, or an empty text.

    >>> why_not(["a", "a"]), why_not(["a", "b"])
    ('', 'the ranks are on 2 hosts: GPUs reach the memory of their own host only')
    """
    return p2p.why_not(hosts)
