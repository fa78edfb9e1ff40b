"""net: messages of MPI. A connection has a FIFO at both ends, in memory of each rank's own, and a proxy of each rank moves the slots.

Here is which pairs of ranks it joins; the proxy that moves slots for processors is backends/_proxy.py.
"""

from collections.abc import Hashable, Sequence

Islands = tuple[int, ...]


def why_not(hosts: Sequence[Hashable]) -> str:
    """Why ranks on those hosts cannot use it: messages reach every host."""
    return ""


def islands(transport: str, hosts: Sequence[Hashable]) -> Islands:
    """The island of every rank, numbered by its first: its ranks share memory, and messages join it to the others. () if there is only one.

    `shm` is one island whatever the hosts (see shm.why_not), `net` makes every rank one of its own, `auto` every host.

    >>> islands("auto", ["a", "b", "a"]), islands("auto", ["a", "a"]), islands("net", ["a", "a"]), islands("shm", ["a", "a"])
    ((0, 1, 0), (), (0, 1), ())
    """
    if transport == "net":
        return tuple(range(len(hosts)))
    places = list(dict.fromkeys(hosts))
    return tuple(places.index(host) for host in hosts) if transport == "auto" and len(places) > 1 else ()


def label(found: Islands) -> str:
    """The roads that those islands leave: memory, messages or both.

    >>> label(()), label((0, 1, 2)), label((0, 0, 1))
    ('shm', 'net', 'shm+net')
    """
    return "shm" if not found else "net" if len(set(found)) == len(found) else "shm+net"


def seats(found: Islands, n: int) -> list[int]:
    """The number of every rank among those of its island.

    >>> seats((0, 1, 0), 3), seats((), 3)
    ([0, 0, 1], [0, 1, 2])
    """
    return [found[:rank].count(found[rank]) for rank in range(n)] if found else list(range(n))
