"""RankLinks from traffic and links, against figures worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from collbench.bench.tables.run import tail_lines
from collbench.bench.tables.sweep import ceiling_lines
from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.world import World
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.rates import Engine, best_gbs, nvlink_link, pcie, pcie_link
from collbench.planning.chooser import cheapest
from collbench.planning.layout import registered
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.planner import resolve
from collbench.planning.price.bound import Bound, bound, efficiency
from collbench.planning.selection import algorithms_of
from collbench.schedules.passes import pair_traffic, traffic
from tests.benchmarks.recorded_ceilings import links_of
from tests.core.test_record import ROW
from tests.support.tiers import tiered

GEN3 = pcie(3, 16).usable_gbs
STORES_GBS = best_gbs(nvlink_link("gpu0", "nvs0", 4, 18), "stores") or 0.0


def gpus(n: int) -> tuple[Node, ...]:
    return tuple(Node(id=f"gpu{k}", kind="gpu", index=k) for k in range(n))


def on_a_switch(n: int) -> Topology:
    return Topology(
        name="switch",
        nodes=(Node(id="pci", kind="pci"), *gpus(n)),
        links=tuple(pcie_link("pci", f"gpu{k}", 3, 16) for k in range(n)),
    )


def behind_nvswitch(n: int) -> Topology:
    return Topology(
        name="nvs",
        nodes=(Node(id="nvs0", kind="nvswitch"), *gpus(n)),
        links=tuple(nvlink_link(f"gpu{k}", "nvs0", 4, 18) for k in range(n)),
    )


def two_sockets() -> Topology:
    nodes = (*gpus(4), Node(id="cpu0", kind="cpu"), Node(id="cpu1", kind="cpu"))
    links = (
        *(pcie_link(f"cpu{k // 2}", f"gpu{k}", 3, 16) for k in range(4)),
        Link(a="cpu0", b="cpu1", kind="socket", raw_gbs=9.6, usable_gbs=6.0),
    )
    return Topology(name="two sockets", nodes=nodes, links=links)


def busbw(topology: Topology, op: str, algo: str, n: int) -> tuple[float, str]:
    schedule = registered(op, algo, World(n=n))
    found = bound(topology, [f"gpu{k}" for k in range(n)], pair_traffic(schedule))
    assert found is not None
    return found.gbs * collective(op).factor(n), found.limit


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize(
    ("op", "algo"),
    [*((op, "ring") for op in ("allreduce", "allgather", "reducescatter")), ("alltoall", "direct")],
)
def test_a_ring_fills_every_link_of_a_switch(op: str, algo: str, n: int) -> None:
    found, limit = busbw(on_a_switch(n), op, algo, n)
    assert found == pytest.approx(GEN3)
    assert limit.endswith("PCIe 3.0 x16")


def test_what_most_passes_limits() -> None:
    """The root of a star takes in n-1 vectors and gives out as many. Between sockets pass one step
    of a ring, and of a direct allgather four of the twelve blocks, each a quarter of S.
    """
    assert busbw(on_a_switch(4), "allreduce", "star", 4)[0] == pytest.approx(GEN3 / 3 * 1.5)
    found, limit = busbw(two_sockets(), "allreduce", "ring", 4)
    assert found == pytest.approx(6.0)
    assert limit == "GPU1 -> GPU2, socket link"
    assert busbw(two_sockets(), "allgather", "direct", 4)[0] == pytest.approx(6.0 / (4 / 4) * 0.75)


def test_what_joins_the_gpus_is_named_as_in_tuning_files() -> None:
    named = {name: links_of(name).joined(4) for name in ("hgx-h200", "dgx-1", "pcie-4")}
    assert named == {"hgx-h200": "NVLink", "dgx-1": "NVLink", "pcie-4": "PCIe"}
    assert links_of("gb200-nvl72").joined(72) == "NVLink"


def ceilings_by(transports: Sequence[str], case: Case, links: RankLinks) -> list[Bound]:
    """The ceiling of a case by each transport."""
    chosen = [resolve(replace(case, transport=transport), Limits()) for transport in transports]
    found = [links.ceiling(one.case, one.plan) for one in chosen]
    assert None not in found
    return [one for one in found if one is not None]


def test_each_transport_has_a_ceiling_of_its_own() -> None:
    """Host memory is reached over PCIe, whatever else joins the GPUs; engines copy faster than
    kernels store.
    """
    links = links_of("h200x4-vm")
    case = Case(op="allreduce", algo="ring", backend="cuda", ranks=4, size_bytes=1 << 28)
    p2p, shm = ceilings_by(("p2p", "shm"), case, links)
    assert p2p.gbs == pytest.approx(STORES_GBS)
    assert shm.gbs == pytest.approx(pcie(5, 16).usable_gbs)
    assert "PCIe 5.0 x16" in shm.limit
    links = RankLinks(behind_nvswitch(2), ["gpu0", "gpu1"])
    case = Case(op="broadcast", backend="cuda", ranks=2, size_bytes=1 << 28)
    p2p, copied = ceilings_by(("p2p", "ce"), case, links)
    assert p2p.gbs < copied.gbs < 450
    assert copied.text == "copy engines over GPU0 -> GPU1, NVLink 4 x18"


def test_a_way_through_another_gpu_is_limited_by_a_link_that_is_there() -> None:
    """On DGX-1 no NVLink joins GPU 3 and GPU 4: what one sends the other takes two links."""
    found = bound(machine_topology("dgx-1"), [f"gpu{k}" for k in range(8)], {(3, 4): Fraction(1)})
    assert found is not None
    assert found.limit == "GPU3 -> GPU0, NVLink 1 x1"


def test_unknown_rates_make_no_ceiling() -> None:
    topology = Topology(
        name="unknown", nodes=gpus(2), links=(Link(a="gpu0", b="gpu1", kind="nvlink", count=4),)
    )
    assert bound(topology, ["gpu0", "gpu1"], {(0, 1): Fraction(1)}) is None
    case = Case(op="allreduce", backend="model", ranks=2, size_bytes=1024)
    assert cheapest(case, Limits(), RankLinks(topology, ["gpu0", "gpu1"])) == case


def test_a_protocol_takes_its_share_and_a_library_is_measured_by_the_best_of_ours() -> None:
    ceilings = RankLinks(behind_nvswitch(4), [f"gpu{k}" for k in range(4)])
    ring = Case(op="allreduce", backend="cuda", algo="ring", ranks=4, size_bytes=1 << 24)
    for proto in ("simple", "ll", "ll128"):
        choice = resolve(replace(ring, proto=proto))
        found = ceilings.ceiling(choice.case, choice.plan)
        assert found is not None
        assert found.gbs == pytest.approx(STORES_GBS * efficiency(proto))
    best = ceilings.ceiling(replace(ring, backend="nccl", algo="library"), None)
    assert best is not None and best.gbs == pytest.approx(STORES_GBS)


@pytest.mark.parametrize("op", ["allreduce", "allgather", "reducescatter", "broadcast", "reduce"])
@pytest.mark.parametrize(
    ("machine", "links", "link_gbs"), [("dgx-1", 4, 16.0), ("dgx-1v", 6, 20.0)]
)
def test_a_library_may_use_all_links_of_a_cube(
    machine: str, links: int, link_gbs: float, op: OpName
) -> None:
    """NCCL runs a ring on every NVLink that a GPU has: the best of ours in the numbering of the
    ranks is no bound for it.
    """
    case = Case(op=op, backend="nccl", algo="library", ranks=8, size_bytes=1 << 24)
    found = links_of(machine).ceiling(case, None)
    assert found is not None
    assert found.gbs == pytest.approx(links * link_gbs)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_pairs_add_up_to_what_the_busiest_rank_sends(n: int) -> None:
    for op in ("allreduce", "allgather", "broadcast", "alltoall"):
        for algo in algorithms_of(op):
            if algo == "halving" and n == 3:
                continue
            schedule = registered(op, algo, World(n=n))
            sent = [Fraction(0)] * n
            for (source, _), share in pair_traffic(schedule).items():
                sent[source] += share
            assert max(sent) == traffic(schedule).sent


@pytest.mark.parametrize(
    ("op", "backend", "policy", "engine"),
    [
        ("allgather", "nccl", "DEFAULT", "stores"),
        ("allgather", "nccl", "EFFICIENCY|ZERO", "copy engines"),
        ("allreduce", "nccl", "2", "stores"),
        ("allreduce", "mpi", "", "copy engines"),
    ],
)
def test_a_library_is_held_against_the_engine_that_it_may_use(
    monkeypatch: pytest.MonkeyPatch, op: OpName, backend: str, policy: str, engine: Engine
) -> None:
    monkeypatch.setenv("NCCL_CTA_POLICY", policy)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    ceilings = RankLinks(behind_nvswitch(2), ["gpu0", "gpu1"])
    case = Case(op=op, backend=backend, algo="library", ranks=2, size_bytes=1 << 24)
    found = ceilings.ceiling(case, None)
    assert found is not None and found.engine == engine
    assert found.gbs == best_gbs(ceilings.topology.links[0], engine)


def test_a_link_that_nobody_measured_carries_copies_at_its_line_rate() -> None:
    for link in (pcie_link("a", "b", 5, 16), nvlink_link("a", "b", 5, 18)):
        assert best_gbs(link, "copy engines") == link.raw_gbs
        assert best_gbs(link, "stores") == link.usable_gbs
    assert best_gbs(Link(a="a", b="b", kind="nvlink"), "stores") is None


def test_each_ceiling_names_the_algorithm_that_it_is_of() -> None:
    rows = [
        replace(ROW, algo=algo, ceiling_gbs=ceiling, busbw_gbs=busbw, percent=100 * busbw / ceiling)
        for algo, ceiling, busbw in (("ring", 60.0, 6.0), ("twoshot", 26.4, 8.2))
    ]
    (line,) = ceiling_lines(rows, 160)
    assert "highest ceiling 60.00 GB/s by the links, of ring simple (" in line
    assert line.endswith("; best 8.20, of twoshot simple")
    tail = " ".join(tail_lines(rows, 1, 2.0, "", 200))
    assert "8.20 GB/s, twoshot at 4K, 31.1% (29.9-32.4) of the ceiling of twoshot simple (" in tail


@tiered(
    ("machine", "ranks", "published_gbs"),
    [("hgx-h100", 8, 482.0), ("hgx-b200", 8, 838.0), ("gb200-nvl72", 72, 847.0)],
    [("hgx-h100", 8, 482.0)],
)
def test_sums_in_the_switch_raise_the_ceiling_of_libraries(
    monkeypatch: pytest.MonkeyPatch, machine: str, ranks: int, published_gbs: float
) -> None:
    """What is published of healthy machines, with NCCL's default, is below it."""
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    of_library = Case(op="allreduce", backend="nccl", ranks=ranks, size_bytes=1 << 30)
    top = links_of(machine).ceiling(of_library, None)
    assert top is not None and published_gbs < top.gbs < 2 * published_gbs
    assert top.limit.endswith("sums in the switch (NVLS)")
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    plain = links_of(machine).ceiling(of_library, None)
    assert plain is not None and plain.gbs < top.gbs and "NVLS" not in plain.limit
    monkeypatch.delenv("NCCL_NVLS_ENABLE")
    same = links_of(machine).ceiling(replace(of_library, op="allgather"), None)
    assert same is not None and "NVLS" not in same.limit


def test_no_switch_and_no_old_gpu_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    for name in ("dgx-2", "dgx-a100", "dgx-1v", "l40s-8"):
        ranks = len(machine_topology(name).gpus)
        case = Case(op="allreduce", backend="nccl", ranks=ranks, size_bytes=1 << 30)
        top = links_of(name).ceiling(case, None)
        assert top is not None and "NVLS" not in top.limit
