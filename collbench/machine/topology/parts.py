"""Ways in topologies of many hosts: inside a host by its part alone, between hosts by the parts of
both and what they share. The whole is searched only where that finds nothing.
"""

from collections.abc import Callable
from functools import lru_cache

from collbench.machine.topology.hosts import part
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import Path, joined, path


@lru_cache(maxsize=4)  # with the parts of each
def by_parts(topology: Topology) -> Callable[[str, str], Path]:
    """The function path() of a topology, of which each host is looked at alone.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> nvl = machine_topology("gb200-nvl72")
    >>> by_parts(nvl)("gpu0", "gpu71").label, by_parts(nvl)("gpu0", "gpu1").label
    ('NV18', 'NV18')
    """
    parts: dict[int, Topology] = {}

    def way(a: str, b: str) -> Path:
        one, other = (topology.by_id[name].host for name in (a, b))
        for host in {one, other} - parts.keys():
            parts[host] = part(topology, host)
        if one == other:
            found = path(parts[one], a, b)
            return found if found.links else path(topology, a, b)
        shared = [
            node.id
            for node in parts[one].nodes
            if topology.by_id[node.id].host < 0 and node.id in parts[other].by_id
        ]
        ways = [
            joined(topology, path(parts[one], a, end), path(parts[other], b, end)) for end in shared
        ]
        best = min((way for way in ways if way.links), key=Path.order, default=None)
        return best if best is not None else path(topology, a, b)

    return way
