"""shm: memory of one host that both ends map. The CPUs themselves read and write slots and flags,
and read the buffers that are pulled zero-copy.
"""

from collections.abc import Hashable, Sequence

NEEDS_PEERS, IN_DOMAIN, BESIDE_NET, FIFOS = False, True, True, 1


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why ranks on those hosts (one name a rank) cannot use it, or an empty text.

    >>> why_not(["a", "a"]), why_not(["a", "b"])
    ('', 'the ranks are on 2 hosts and share no memory; start them on one host')
    """
    different = len(set(hosts))
    return (
        f"the ranks are on {different} hosts and share no memory; start them on one host"
        if different > 1
        else ""
    )
