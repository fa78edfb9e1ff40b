"""Orders of ranks that follow the links: rings and chains. Pure: a topology in, orders out. How
fast they run here is not its business.

Where GPUs are wired to each other by NVLinks without a switch, as many rings as there are links to
use, none of which share a link in one direction: cycles that are walked both ways (DGX-1: 2,
DGX-1V: 3). Elsewhere one order that crosses far hops least: behind an NVSwitch any order, on PCIe
trees the one that leaves every switch and socket once. The same links give the same orders on every
computer, the lexicographically smallest where several are as good. Over several hosts there are as
many of these as NICs that a host has, each of which leaves the hosts by NICs of its own (rails).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations, groupby, pairwise, permutations

from collbench.core.errors import UsageError
from collbench.core.grouping import grouped
from collbench.machine.topology.hosts import equal_hosts, nodes_of, part
from collbench.machine.topology.model import GPU_LINKS, Topology
from collbench.machine.topology.packing import LOOKS, Budget, Order, packed_chains, packed_rings
from collbench.machine.topology.paths import CLASS_ORDER, Path, joined, path

WayOf = Callable[[str, str], Path]
_MOST_AT_ONCE = 256  # ranks of which every pair is looked at, where they are on several hosts
_DIRECT = ("NVL", "XGMI")  # classes of which rates differ by the number of links


def rings(topology: Topology, gpus: Sequence[str] | None = None) -> tuple[Order, ...]:
    """Orders of ranks for rings, one a channel; rank r runs on gpus[r] (default: topology.gpus).
    Raises UsageError for GPUs that are not there.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> rings(machine_topology("dgx-2"))
    ((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),)
    >>> for ring in rings(machine_topology("dgx-1")):
    ...     print(*ring)
    0 1 2 3 7 5 6 4
    0 4 6 5 7 3 2 1
    0 2 6 7 4 5 1 3
    0 3 1 5 4 7 6 2
    """
    return _orders(topology, _names(topology, gpus), is_closed=True)


def trees(topology: Topology, gpus: Sequence[str] | None = None) -> tuple[Order, ...]:
    """Orders of ranks for chains and trees, whose messages go both ways between neighbours, one a
    channel. Otherwise as rings.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> trees(machine_topology("a100-pairs")), len(trees(machine_topology("dgx-1v")))
    (((0, 1, 2, 3),), 3)
    """
    return _orders(topology, _names(topology, gpus), is_closed=False)


@lru_cache(maxsize=64)  # clusters that differ in their costs alone share a topology
def _orders(topology: Topology, names: tuple[str, ...], *, is_closed: bool) -> tuple[Order, ...]:
    """Of rings, or of chains."""
    if len(names) < 3:
        return (tuple(range(len(names))),)
    links = _links_between(topology, names)
    packed = packed_rings(links) if is_closed else packed_chains(links)
    return packed or _rails(topology, names, _tour(topology, names, is_closed=is_closed))


def ring_rate_gbs(topology: Topology, orders: Sequence[Order]) -> float | None:
    """GB/s that all rings carry at once, by usable rates: each ring's slowest link, shared by all
    hops over it. None if a rate is unknown.

    >>> from collbench.machine.topology.machines import machine_topology
    >>> [
    ...     round(ring_rate_gbs(m, rings(m)))
    ...     for m in map(machine_topology, ("dgx-1", "dgx-1v", "pcie-4", "pcie-2x2"))
    ... ]
    [64, 120, 12, 6]
    """
    names = [gpu.id for gpu in topology.gpus]
    way = _way_of(topology, len(names))
    hops = [
        [
            _directed(way(names[a], names[b]))
            for a, b in zip(order, order[1:] + order[:1], strict=True)
        ]
        for order in orders
    ]
    uses = Counter((a, b) for ring in hops for hop in ring for a, b, _ in hop)
    total = 0.0
    for ring in hops:
        rates = [rate / uses[a, b] if rate else None for hop in ring for a, b, rate in hop]
        known = [rate for rate in rates if rate is not None]
        if not all(ring) or len(known) < len(rates):
            return None
        total += min(known)
    return total


def _names(topology: Topology, gpus: Sequence[str] | None) -> tuple[str, ...]:
    """Ids of the GPUs of ranks."""
    there = [node.id for node in topology.gpus]
    names = tuple(there if gpus is None else gpus)
    if lost := [name for name in names if name not in there]:
        raise UsageError(
            f"topology {topology.name} has no GPU {', '.join(lost)}",
            f"its GPUs: {', '.join(there) or 'none'}",
        )
    if len(set(names)) < len(names):
        raise UsageError(f"a GPU comes twice in {', '.join(names)}")
    if not names:
        raise UsageError(f"topology {topology.name} has no GPU")
    return names


def _directed(way: Path) -> list[tuple[str, str, float | None]]:
    """The links of a way as (from, to, GB/s); none if the way is not sure."""
    if not way.is_sure:
        return []
    return [
        (a, b, link.usable_gbs) for (a, b), link in zip(pairwise(way.nodes), way.links, strict=True)
    ]


def _links_between(topology: Topology, names: Sequence[str]) -> list[list[int]]:
    """NVLinks or xGMI between every two ranks, those through a switch aside."""
    rank_of = {name: rank for rank, name in enumerate(names)}
    links = [[0] * len(names) for _ in names]
    for link in topology.links:
        if link.kind in GPU_LINKS and link.a in rank_of and link.b in rank_of:
            a, b = rank_of[link.a], rank_of[link.b]
            links[a][b] += link.count
            links[b][a] += link.count
    return links


def _tour(topology: Topology, names: Sequence[str], *, is_closed: bool) -> Order:
    """The order with the fewest far hops: fewest of the farthest kind first, then of the next."""
    n = len(names)
    hosts = [topology.by_id[name].host for name in names]
    if n > _MOST_AT_ONCE and len(set(hosts)) > 1:
        return _tour_by_host(topology, names, hosts)
    costs = _costs(topology, names)
    if len({costs[a][b] for a, b in combinations(range(n), 2)}) < 2:
        return tuple(range(n))
    bound = _bound(costs, is_closed=is_closed)
    order, cost = _nearest(costs, is_closed=is_closed)
    steps = LOOKS // n**2
    exact = _branch(costs, bound + 1, Budget(steps), is_closed=is_closed)
    return exact or _branch(costs, cost, Budget(steps), is_closed=is_closed) or order


def _rails(topology: Topology, names: Sequence[str], order: Order) -> tuple[Order, ...]:
    """The order, and those that begin each host with another GPU where that is as good and no NIC
    is used twice in one direction. Only that order unless it takes the hosts one after the other.
    """
    hosts = [topology.by_id[names[rank]].host for rank in order]
    by_host = [
        tuple(rank for rank, _ in group)
        for _, group in groupby(zip(order, hosts, strict=True), lambda pair: pair[1])
    ]
    width = len(by_host[0])
    if len(by_host) < 2 or len(by_host) != len(set(hosts)) or {*map(len, by_host)} != {width}:
        return (order,)
    rails: list[Order] = []
    used: set[tuple[str, bool]] = set()
    way = _way_of(topology, len(names))
    worst = _worst_inside(way, names, by_host)
    for turn in range(width):
        turned = [ranks[turn:] + ranks[:turn] for ranks in by_host]
        nics = _nics_between(topology, way, names, turned)
        is_apart = bool(nics) and not used & nics
        if not rails or (is_apart and _worst_inside(way, names, turned) == worst):
            rails.append(tuple(rank for ranks in turned for rank in ranks))
            used |= nics
    return tuple(rails)


def _way_of(topology: Topology, ranks: int) -> WayOf:
    """What finds ways: for many ranks put together from those inside hosts."""
    return by_parts(topology) if ranks > _MOST_AT_ONCE else partial(path, topology)


def _worst_inside(way: WayOf, names: Sequence[str], by_host: Sequence[Order]) -> list[int]:
    """The farthest class of a hop within each host."""
    return [
        max((CLASS_ORDER[way(names[a], names[b]).kind] for a, b in pairwise(ranks)), default=0)
        for ranks in by_host
    ]


def _nics_between(
    topology: Topology, way: WayOf, names: Sequence[str], by_host: Sequence[Order]
) -> set[tuple[str, bool]]:
    """The NICs that the hops from host to host pass, around and back to the first, and whether they
    send.
    """
    ends = [(ranks[0], ranks[-1]) for ranks in by_host]
    around = zip(ends, [*ends[1:], ends[0]], strict=True)
    return {
        (node, topology.by_id[node].host == topology.by_id[names[leaving]].host)
        for (_, leaving), (entering, _) in around
        for node in way(names[leaving], names[entering]).nodes
        if topology.by_id[node].kind == "nic"
    }


def _tour_by_host(topology: Topology, names: Sequence[str], hosts: Sequence[int]) -> Order:
    """Host by host, each in the order of the chain with the fewest far hops; hosts that an NVSwitch
    joins follow each other. A hop between hosts is of the farthest class: no order has fewer.
    """
    same = {host: group[0] for group in equal_hosts(topology) for host in group}
    inner: dict[object, Order] = {}
    domains = grouped((_domain(topology, host), host) for host in dict.fromkeys(hosts))
    ranks = grouped((host, rank) for rank, host in enumerate(hosts))
    order: list[int] = []
    for host in (host for domain in domains.values() for host in domain):
        own = [names[rank] for rank in ranks[host]]
        key = same[host], tuple(topology.by_id[name].index for name in own)
        if key not in inner:
            inner[key] = _tour(part(topology, host), own, is_closed=False)
        order += [ranks[host][place] for place in inner[key]]
    return tuple(order)


def _domain(topology: Topology, host: int) -> object:
    """What joins the GPUs of a host to those of others: an NVSwitch, else the host alone."""
    gpus = (node for node in nodes_of(topology, host) if node.kind == "gpu")
    ends = (link.other(gpu.id) for gpu in gpus for link in topology.bundles(gpu.id))
    return next((end for end in ends if topology.by_id[end].host < 0), host)


def _costs(topology: Topology, names: Sequence[str]) -> list[list[int]]:
    """What a hop between two ranks costs: by class of way, NVLinks by rate too; one hop of a level
    costs more than a ring full of the level below.

    A GPU in a narrower slot is as slow wherever it stands in a ring: widths of PCIe do not count.
    """
    n = len(names)
    pairs: dict[tuple[int, int], tuple[int, float]] = {}
    for a, b in permutations(range(n), 2):
        way = path(topology, names[a], names[b])
        rate = -(way.usable_gbs or 0.0) if way.kind in _DIRECT else 0.0
        pairs[a, b] = CLASS_ORDER[way.kind], rate
    price = {level: (n + 1) ** place for place, level in enumerate(sorted(set(pairs.values())))}
    return [
        [0 if a == b else price[min(pairs[a, b], pairs[b, a])] for b in range(n)] for a in range(n)
    ]


def _bound(costs: list[list[int]], *, is_closed: bool) -> int:
    """No order costs less: of the groups that hops up to a level join, a ring leaves each at least
    once, and a chain all but one.
    """
    n = len(costs)
    levels = sorted({costs[a][b] for a in range(n) for b in range(n) if a != b})
    hops = n if is_closed else n - 1
    total = levels[0] * hops
    for low, high in pairwise(levels):
        groups = _groups(costs, low)
        total += (high - low) * ((groups if is_closed else groups - 1) if groups > 1 else 0)
    return total


def _groups(costs: list[list[int]], level: int) -> int:
    """How many groups hops up to that level leave."""
    left, groups = set(range(len(costs))), 0
    while left:
        groups += 1
        queue = [left.pop()]
        while queue:
            rank = queue.pop()
            near = {there for there in left if costs[rank][there] <= level}
            left -= near
            queue.extend(near)
    return groups


def _nearest(costs: list[list[int]], *, is_closed: bool) -> tuple[Order, int]:
    """From rank 0 always to the nearest rank that is left, and its cost."""
    order, left = [0], set(range(1, len(costs)))
    while left:
        here = order[-1]
        order.append(min(left, key=lambda rank: (costs[here][rank], rank)))
        left.remove(order[-1])
    return tuple(order), sum(
        costs[a][b] for a, b in pairwise([*order, *order[: 1 if is_closed else 0]])
    )


def _branch(costs: list[list[int]], limit: int, budget: Budget, *, is_closed: bool) -> Order:
    """The cheapest order that costs less than the limit, the lexicographically smallest; nothing if
    none was found. Rings start at rank 0.
    """
    best: Order = ()
    walk: list[int] = []
    left = list(range(len(costs)))

    def extend(spent: int) -> None:
        nonlocal limit, best
        if not left:
            cost = spent + (costs[walk[-1]][0] if is_closed else 0)
            if cost < limit:
                limit, best = cost, tuple(walk)
            return
        for there in tuple(left) if walk or not is_closed else (0,):
            here = spent + (costs[walk[-1]][there] if walk else 0)
            if here >= limit or budget.is_spent():
                continue
            walk.append(there)
            left.remove(there)
            if here + _span(costs, there, left, is_closed=is_closed) < limit:
                extend(here)
            left.append(walk.pop())
            left.sort()

    extend(0)
    return best


def _span(costs: list[list[int]], here: int, left: Sequence[int], *, is_closed: bool) -> int:
    """What joins this rank, those that are left and rank 0 at least: a spanning tree (Prim)."""
    ends = [*left, 0] if is_closed and here else list(left)
    reach = {rank: costs[here][rank] for rank in ends}
    total = 0
    while reach:
        nearest = min(reach, key=reach.__getitem__)
        total += reach.pop(nearest)
        further = costs[nearest]
        for rank, far in reach.items():
            if further[rank] < far:
                reach[rank] = further[rank]
    return total


@lru_cache(maxsize=4)  # with the parts of each
def by_parts(topology: Topology) -> Callable[[str, str], Path]:
    """The function path() of a topology: inside a host by its part alone, between hosts
    by the parts of both and what they share. The whole is searched only where that finds nothing.

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
