"""P2P: a GPU reaches the memory of another over NVLink or PCIe, by peer access in one process or by
CUDA IPC between processes of a host.
"""

from collections.abc import Hashable, Sequence

NEEDS_PEERS, IN_DOMAIN, BESIDE_NET, FIFOS = True, True, True, 1


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why connections between ranks on these hosts cannot use it, or an empty text.

    >>> why_not(["a", "a"]), why_not(["a", "b"])
    ('', 'the ranks are on 2 hosts: GPUs reach the memory of their own host only')
    """
    different = len(set(hosts))
    return (
        ""
        if different <= 1
        else f"the ranks are on {different} hosts: GPUs reach the memory of their own host only"
    )
