"""Rings and chains from the links: permutations that use each link once, as many as there can be,
and the same ones every time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.core.errors import UsageError
from collbench.machine.topology import rings as rings_module
from collbench.machine.topology.hosts import repeated
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import path
from collbench.machine.topology.rates import nvlink_link, pcie_link
from collbench.machine.topology.rings import by_parts, ring_rate_gbs, rings, trees
from tests.support.machines import two_hosts
from tests.support.tiers import tiered
from tests.support.topologies import WIRED

Order = tuple[int, ...]


def mesh(link_counts: dict[tuple[int, int], int], n: int) -> Topology:
    """GPUs with NVLinks between some of them, and a PCIe switch above all."""
    gpus = tuple(Node(id=f"gpu{rank}", kind="gpu", index=rank) for rank in range(n))
    links = [
        nvlink_link(f"gpu{a}", f"gpu{b}", 2, count)
        for (a, b), count in link_counts.items()
        if count
    ]
    return Topology(
        name="mesh",
        nodes=(*gpus, Node(id="pci0", kind="pci")),
        links=(*links, *(pcie_link(gpu.id, "pci0", 3, 16) for gpu in gpus)),
    )


def hops(order: Order, *, is_closed: bool = True) -> Iterator[tuple[int, int]]:
    return pairwise((*order, order[0]) if is_closed else order)


def wires_of(topology: Topology) -> Counter[tuple[int, int]]:
    """NVLinks in each direction between ranks."""
    rank = {gpu.id: place for place, gpu in enumerate(topology.gpus)}
    found: Counter[tuple[int, int]] = Counter()
    for link in topology.links:
        if link.kind == "nvlink" and link.a in rank and link.b in rank:
            found[rank[link.a], rank[link.b]] += link.count
            found[rank[link.b], rank[link.a]] += link.count
    return found


@tiered("name", WIRED, 7)
def test_orders_are_permutations_and_always_the_same(name: str) -> None:
    topology = machine_topology(name)
    ranks = list(range(len(topology.gpus)))
    for search in (rings, trees):
        orders = search(topology)
        assert orders and all(sorted(order) == ranks for order in orders)
        assert orders == search(machine_topology(name))


@pytest.mark.parametrize(("name", "count"), [("dgx-1", 4), ("dgx-1v", 6)])
def test_rings_use_every_link_once_in_each_direction(name: str, count: int) -> None:
    topology = machine_topology(name)
    found = rings(topology)
    assert Counter(hop for ring in found for hop in hops(ring)) == wires_of(topology)
    assert len(found) == len(set(found)) == count


@pytest.mark.parametrize(("name", "count"), [("dgx-1", 2), ("dgx-1v", 3)])
def test_chains_share_no_link(name: str, count: int) -> None:
    topology = machine_topology(name)
    found = trees(topology)
    used = Counter(tuple(sorted(hop)) for chain in found for hop in hops(chain, is_closed=False))
    assert len(set(found)) == count
    assert all(times <= wires_of(topology)[hop[0], hop[1]] for hop, times in used.items())


def test_a_shared_link_is_shared() -> None:
    """An order that crosses between sockets at every hop puts two hops each way on their link."""
    topology = machine_topology("pcie-2x2")
    assert ring_rate_gbs(topology, [(0, 2, 1, 3)]) == pytest.approx(3)
    assert ring_rate_gbs(topology, [(0, 1, 2, 3), (0, 1, 2, 3)]) == pytest.approx(6)


def test_an_unknown_rate_is_unknown() -> None:
    topology = mesh({}, 3)
    links = (*topology.links[:2], Link(a="gpu2", b="pci0", kind="pcie"))
    assert (
        ring_rate_gbs(Topology(name="odd", nodes=topology.nodes, links=links), [(0, 1, 2)]) is None
    )
    apart = Topology(name="apart", nodes=topology.nodes, links=links[:2])
    assert rings(apart) == ((0, 1, 2),) and ring_rate_gbs(apart, rings(apart)) is None


def shuffled(order: Sequence[int]) -> Topology:
    """gn5 with its GPUs numbered across the slots, as some servers do."""
    topology = machine_topology("gn5-8xp100")
    new = {f"gpu{old}": f"gpu{number}" for old, number in enumerate(order)}
    nodes = [
        Node(
            id=new.get(node.id, node.id),
            kind=node.kind,
            index=order[node.index] if node.kind == "gpu" else node.index,
        )
        for node in topology.nodes
    ]
    links = [
        Link(a=new.get(link.a, link.a), b=link.b, kind=link.kind, usable_gbs=link.usable_gbs)
        for link in topology.links
    ]
    return Topology(name="shuffled", nodes=tuple(nodes), links=tuple(links))


@given(st.permutations(range(8)))
def test_a_ring_on_a_tree_leaves_each_switch_and_socket_once(order: list[int]) -> None:
    topology = shuffled(order)
    names = [gpu.id for gpu in topology.gpus]
    [ring], [chain] = rings(topology), trees(topology)
    kinds = Counter(path(topology, names[a], names[b]).kind for a, b in hops(ring))
    assert kinds == {"PIX": 4, "PHB": 2, "SYS": 2}
    assert Counter(
        path(topology, names[a], names[b]).kind for a, b in hops(chain, is_closed=False)
    ) == {"PIX": 4, "PHB": 2, "SYS": 1}
    assert ring_rate_gbs(topology, [ring]) == 6


@pytest.mark.exhaustive
@settings(max_examples=20)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=16), st.data())
def test_odd_trees_are_crossed_least(parents: list[int], data: st.DataObject) -> None:
    """Any number of GPUs, of any width, below five switches of two sockets."""
    lanes = data.draw(
        st.lists(st.sampled_from([8, 16]), min_size=len(parents), max_size=len(parents))
    )
    gpus = [Node(id=f"gpu{rank}", kind="gpu", index=rank) for rank in range(len(parents))]
    ends = [
        *(Node(id=f"pci{number}", kind="pci") for number in range(5)),
        Node(id="cpu0", kind="cpu"),
        Node(id="cpu1", kind="cpu"),
    ]
    links = [
        pcie_link(f"gpu{rank}", f"pci{number}", 3, lanes[rank])
        for rank, number in enumerate(parents)
    ]
    links += [pcie_link(f"pci{number}", f"cpu{number % 2}", 3, 16) for number in range(5)]
    topology = Topology(
        name="odd",
        nodes=(*gpus, *ends),
        links=(*links, Link(a="cpu0", b="cpu1", kind="socket", usable_gbs=6.0)),
    )
    groups = [len({number for number in parents if number % 2 == side}) for side in (0, 1)]
    is_one = min(groups) == 0
    [ring], [chain] = rings(topology), trees(topology)
    for order, is_closed in ((ring, True), (chain, False)):
        kinds = Counter(
            path(topology, f"gpu{a}", f"gpu{b}").kind for a, b in hops(order, is_closed=is_closed)
        )
        assert kinds["SYS"] == (0 if is_one else 2 if is_closed else 1)
        assert kinds["PHB"] == (
            max(groups)
            if is_one and is_closed and max(groups) > 1
            else sum(max(0, group - 1) for group in groups)
        )


@pytest.mark.parametrize(
    "order", [tuple(range(8)), (0, 2, 4, 6, 1, 3, 5, 7), (7, 1, 5, 3, 0, 6, 2, 4)]
)
def test_ties_go_to_the_smallest_order(order: Order) -> None:
    topology = shuffled(order)
    names = [gpu.id for gpu in topology.gpus]

    @cache
    def far(a: int, b: int) -> int:
        return {"PIX": 1, "PHB": 10, "SYS": 100}[path(topology, names[a], names[b]).kind]

    least = min(
        ((0, *rest) for rest in permutations(range(1, 8))),
        key=lambda ring: (sum(far(a, b) for a, b in hops(ring)), ring),
    )
    assert rings(topology) == (least,)


def most_rings(free: Counter[tuple[int, int]], n: int) -> int:
    """As many as there can be, by trying everything."""
    best = 0
    for rest in permutations(range(1, n)):
        ring = (0, *rest)
        if all(free[hop] > 0 for hop in hops(ring)):
            taken = Counter(free)
            taken.subtract(hops(ring))
            best = max(best, 1 + most_rings(taken, n))
    return best


@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_four_gpus_get_as_many_rings_as_there_can_be(counts: list[int]) -> None:
    topology = mesh(dict(zip(combinations(range(4), 2), counts, strict=True)), 4)
    link_counts = wires_of(topology)
    most = most_rings(link_counts, 4)
    found = rings(topology)
    if not most:
        assert len(found) == 1
        return
    # one order stands for both links of bundles that are all double
    each = 2 if set(counts) <= {0, 2} and len(found) < most else 1
    assert len(found) * each == most
    used = Counter(hop for ring in found for hop in hops(ring))
    assert all(used[hop] * each <= link_counts[hop] for hop in used)


@pytest.mark.exhaustive
@settings(max_examples=12)
@given(st.integers(3, 8), st.data())
def test_rings_of_any_mesh_share_no_link(n: int, data: st.DataObject) -> None:
    pairs = list(combinations(range(n), 2))
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    topology = mesh(dict(zip(pairs, counts, strict=True)), n)
    link_counts, found = wires_of(topology), rings(topology)
    assert all(sorted(ring) == list(range(n)) for ring in (*found, *trees(topology)))
    used = Counter(hop for ring in found for hop in hops(ring))
    assert len(found) == 1 or all(used[hop] <= link_counts[hop] for hop in used)


@pytest.mark.parametrize(
    ("n", "links", "count"),
    [(3, 1, 2), (4, 1, 2), (4, 2, 6), (4, 12, 6), (5, 1, 4), (7, 1, 6), (8, 1, 7)],
)
def test_full_meshes(n: int, links: int, count: int) -> None:
    """Four GPUs with a link between every two have no three rings (K4 and K6 have no directed
    decomposition, all other full meshes do).
    """
    assert len(rings(mesh(dict.fromkeys(combinations(range(n), 2), links), n))) == count


@pytest.mark.parametrize(
    ("gpus", "count"),
    [
        (("gpu0", "gpu1", "gpu2", "gpu3"), 4),
        (("gpu0", "gpu3"), 1),
        (("gpu3", "gpu2", "gpu1", "gpu5", "gpu6", "gpu7", "gpu4", "gpu0"), 6),
        (("gpu6",), 1),
        (("gpu0", "gpu5", "gpu6"), 1),
    ],
)
def test_ranks_may_run_on_some_gpus_only(gpus: tuple[str, ...], count: int) -> None:
    found = rings(machine_topology("dgx-1v"), gpus)
    assert len(found) == count
    assert all(sorted(ring) == list(range(len(gpus))) for ring in found)


def test_gpus_that_are_not_there_are_refused() -> None:
    topology = machine_topology("dgx-1")
    for gpus, told in (
        (["gpu0", "gpu8"], "gpu8"),
        (["gpu0", "gpu0"], "twice"),
        ([], "no GPU"),
        (["nic0"], "nic0"),
    ):
        with pytest.raises(UsageError, match=told):
            rings(topology, gpus)


def test_hard_and_large_machines_end() -> None:
    """Searches count their steps: a full mesh of 16, a sparse one without a ring, and 64 GPUs of 8
    hosts all get an answer.
    """
    assert len(rings(mesh(dict.fromkeys(combinations(range(16), 2), 1), 16))) >= 8
    # 7 GPUs wired to 9 others: no ring, and many walks that end nowhere
    sides = {(a, b): 1 for a in range(7) for b in range(7, 16)}
    assert len(rings(mesh(sides, 16))) == 1
    cluster = repeated(machine_topology("hgx-h100"), 8)
    orders = rings(cluster)
    assert len(orders) == 8 and all(sorted(one) == list(range(64)) for one in orders)
    assert ring_rate_gbs(cluster, orders) == pytest.approx(8 * 47.89, abs=0.1)


def test_many_hosts_are_entered_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 256 ranks not every pair is looked at: host by host, which costs no far hop more."""
    four = two_hosts(hosts=4)
    exact = rings(four), trees(four), ring_rate_gbs(four, rings(four))
    monkeypatch.setattr(rings_module, "_MOST_AT_ONCE", 1)
    assert (rings(four), trees(four), ring_rate_gbs(four, rings(four))) == exact
    many = two_hosts(hosts=140)
    assert rings(many) == (tuple(range(280)),)
    assert ring_rate_gbs(many, rings(many)) == pytest.approx(23.94, abs=0.01)
    assert rings(repeated(machine_topology("gh200"), 257)) == (tuple(range(257)),)


def test_ways_by_parts_are_those_of_the_whole() -> None:
    topology = machine_topology("gb200-nvl72")
    way = by_parts(topology)
    for gpu in topology.gpus[::7]:
        for end in (*topology.gpus[::5], *topology.of_kind("nic")[::9]):
            assert way(gpu.id, end.id).order()[:3] == path(topology, gpu.id, end.id).order()[:3]
