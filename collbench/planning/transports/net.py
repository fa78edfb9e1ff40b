"""net: messages of MPI. A connection has a FIFO at both ends, in each rank's own memory, and a
proxy of each rank moves the slots.

This module says which pairs of ranks it joins. The proxies that move slots are in backends/net: one
for CPUs and one for GPUs.
"""

from collections.abc import Hashable, Sequence

NEEDS_PEERS, IN_DOMAIN, BESIDE_NET, FIFOS = False, False, False, 2
Domains = tuple[int, ...]


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why ranks on those hosts cannot use it: messages reach every host."""
    return ""


def domains(transport: str, hosts: Sequence[Hashable]) -> Domains:
    """The shared-memory domain of every rank, numbered by its first rank. Messages join a domain to
    the others. () if there is only one.

    With `net` every rank is a domain of its own, with `auto` every host is one. With the others all
    ranks are one domain, whatever the hosts (see their why_not).

    >>> (
    ...     domains("auto", ["a", "b", "a"]),
    ...     domains("auto", ["a", "a"]),
    ...     domains("net", ["a", "a"]),
    ...     domains("shm", ["a", "a"]),
    ... )
    ((0, 1, 0), (), (0, 1), ())
    """
    if transport == "net":
        return tuple(range(len(hosts)))
    names = list(dict.fromkeys(hosts))
    return (
        tuple(names.index(host) for host in hosts) if transport == "auto" and len(names) > 1 else ()
    )


def label(of_ranks: Domains, inside: str = "shm") -> str:
    """The transports that those domains need: memory, messages or both. inside: the transport of a
    domain.

    >>> label(()), label((0, 1, 2)), label((0, 0, 1), "p2p")
    ('shm', 'net', 'p2p+net')
    """
    if not of_ranks:
        return inside
    return "net" if len(set(of_ranks)) == len(of_ranks) else f"{inside}+net"


def seats(of_ranks: Domains, n: int) -> list[int]:
    """The number of every rank among those of its domain.

    >>> seats((0, 1, 0), 3), seats((), 3)
    ([0, 0, 1], [0, 1, 2])
    """
    if not of_ranks:
        return list(range(n))
    return [of_ranks[:rank].count(of_ranks[rank]) for rank in range(n)]
