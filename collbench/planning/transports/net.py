"""net: messages of MPI. A connection has a FIFO at both ends, in memory of each rank's own, and a
proxy of each rank moves the slots.

Here is which pairs of ranks it joins; the proxies that move slots are backends/_proxy.py, for
processors, and backends/_gpu_net.py.
"""

from collections.abc import Hashable, Sequence

Domains = tuple[int, ...]


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why ranks on those hosts cannot use it: messages reach every host."""
    return ""


def domains(transport: str, hosts: Sequence[Hashable]) -> Domains:
    """The island of every rank, numbered by its first: its ranks share memory, and messages join it
    to the others. () if there is only one.

    `net` makes every rank one of its own, `auto` every host; the others are one island whatever the
    hosts (see their why_not).

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
    places = list(dict.fromkeys(hosts))
    return (
        tuple(places.index(host) for host in hosts)
        if transport == "auto" and len(places) > 1
        else ()
    )


def label(found: Domains, inside: str = "shm") -> str:
    """The roads that those islands leave: memory, messages or both. inside: what joins the ranks of
    one.

    >>> label(()), label((0, 1, 2)), label((0, 0, 1), "p2p")
    ('shm', 'net', 'p2p+net')
    """
    return inside if not found else "net" if len(set(found)) == len(found) else f"{inside}+net"


def seats(found: Domains, n: int) -> list[int]:
    """The number of every rank among those of its island.

    >>> seats((0, 1, 0), 3), seats((), 3)
    ([0, 0, 1], [0, 1, 2])
    """
    return [found[:rank].count(found[rank]) for rank in range(n)] if found else list(range(n))
