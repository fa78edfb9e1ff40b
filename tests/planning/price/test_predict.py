"""Prediction: it asks what a sweep of the model asks, closed forms meet what is played, and changes
of the machine have their effect.
"""

import math
from dataclasses import replace

import pytest

from collbench.bench.points import plan_points
from collbench.bench.ranks import ranks_of
from collbench.core.case import Case
from collbench.core.collectives import OPS, OpName
from collbench.core.errors import RefusedError, UsageError
from collbench.launch.local import LocalGroup
from collbench.machine.topology.machines import machine_topology
from collbench.planning.changes import changed
from collbench.planning.chooser import limits_of, planned
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from collbench.planning.predict import Point, Prediction
from collbench.planning.price.cluster import CONSTANTS, Cluster, cluster_of
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.far import Far
from collbench.planning.price.gpus import Network
from collbench.planning.price.ways import NIC, RATES, unknown_links
from collbench.planning.selection import algorithms_of
from tests.planning.price.test_prices import on_links
from tests.support.tables import cells_of
from tests.support.tiers import tiered
from tests.support.topologies import of_few_gpus


def cluster(name: str) -> Cluster:
    return cluster_of(machine_topology(name), name, gpu_costs(name))


HGX = cluster("hgx-h100")
SMALL = HGX.with_gpus(2)
FLAT = HGX.with_gpus(1)  # every hop is over the network


@tiered(("name",), [(name,) for name in of_few_gpus()], 1)
def test_a_sweep_of_the_model_and_a_prediction_say_the_same(name: str) -> None:
    """Also where the links have ring orders of their own."""
    topology, size = machine_topology(name), 224 << 20
    ranks, where = len(topology.gpus), ranks_of(("model",), name, LocalGroup(), (), None)
    ring = Case(op="allreduce", backend="model", algo="ring", ranks=ranks, size_bytes=size)
    opened = replace(ring, algo="auto")
    points = plan_points([ring, opened], LocalGroup(), where=where)
    links = where.links["model"]
    prediction, hosts = Prediction(cluster(name), "allreduce"), len(topology.hosts)
    for point, algo in zip(points, ("ring", "auto"), strict=False):
        assert point.plan is not None
        found = prediction.of(hosts, size, algo)
        assert found is not None
        assert found.seconds == pytest.approx(links.price(point.plan), rel=1e-6)
        assert found.algo == point.case.algo
        least = links.ceiling(point.case, point.plan)
        assert least is None or found.busbw_gbs("allreduce") <= least.gbs * (1 + 1e-9)


def far_and_played(
    on: Cluster, op: OpName, algo: str, domains: int, size_bytes: int
) -> list[tuple[float, float]]:
    """What closed forms give for plans, and the same plans played on as many domains."""
    base = max(2, 16 // on.width)
    far, links, found = Far(on, op, algo), on.links(domains), []
    case = Case(
        op=op, backend="model", algo=algo, ranks=base * on.width, size_bytes=size_bytes
    ).rounded()
    for few, plan in planned(case, Limits(), on.links(base)):
        many = replace(
            few,
            ranks=domains * on.width,
            channels=plan.channels,
            chunk=plan.chunk_bytes,
            slots=plan.slots,
            slices=plan.slices if plan.proto == "simple" else 0,
        )
        try:
            seconds = far.seconds(plan, domains, size_bytes)
            played = resolve(many, limits_of(many, Limits(), links)).plan
        except UsageError as error:
            assert any(word in error.message for word in ("rule", "ends of", "are allowed"))
            continue
        found.append((seconds, links.price(played)))
    return found


@tiered(
    ("op", "algo"),
    [(op, algo) for op in OPS for algo in algorithms_of(op)],
    [("broadcast", "chain")],
)
def test_closed_forms_meet_what_is_played(op: OpName, algo: str) -> None:
    """On eight domains, of which none is in the form that grows with every host."""
    for size in (1 << 10, 1 << 20, 1 << 26):
        for seconds, played in far_and_played(SMALL, op, algo, 8, size):
            assert seconds == pytest.approx(played, rel=0.05)


@pytest.mark.parametrize("hosts", [32, 1024, 16384])
def test_formulas_of_textbooks_come_out(hosts: int) -> None:
    """alpha-beta on a flat network where NICs are the only limit, for any number of hosts."""
    alpha_s, gbs = 3e-6, 40.0
    network = Network(seconds={"net": alpha_s})
    rates = {rate: gbs / 50.0 if rate == NIC else 1e6 for rate in RATES}
    on = replace(FLAT, costs=on_links(), rates=rates, network=network)
    size, n = 1 << 30, hosts
    beta_s, steps = size / (gbs * 1e9), int(math.log2(n))
    formulas = {
        "ring": 2 * (n - 1) * (alpha_s + beta_s / n),
        "halving": 2 * steps * alpha_s + 2 * (n - 1) / n * beta_s,
        "twoshot": 2 * alpha_s + 2 * (n - 1) / n * beta_s,
    }
    case = Case(
        op="allreduce",
        backend="model",
        proto="simple",
        ranks=16,
        size_bytes=size,
        channels=1,
        chunk=size // 256,
        slices=1,
    )
    for algo, seconds in formulas.items():
        own = replace(case, algo=algo)
        limits = Limits(memory_bytes=1 << 40)
        ((_, plan),) = planned(own, limits, on.links(16))
        found = Far(on, "allreduce", algo).seconds(plan, hosts, size)
        assert found == pytest.approx(seconds, rel=0.03), algo


@pytest.mark.exhaustive
def test_hops_are_those_of_the_schedule() -> None:
    assert Far(FLAT, "allreduce", "ring").hops(1024) == (2 * 1023, 2 * 1023)
    found = Prediction(HGX, "allreduce")
    point = found.of(2, 1 << 10, "ring")
    assert point is not None
    assert found.hops(point) == (point.plan.proof.hops, found.hops(point)[1])
    assert 0 < found.hops(point)[1] < found.hops(point)[0]


def test_the_work_does_not_grow_with_the_hosts() -> None:
    """No schedule of many ranks is built."""
    built = []
    for hosts in (16, 2048):
        prediction = Prediction(SMALL, "allgather")
        point = prediction.of(hosts, 1 << 20, "ring")
        assert point is not None and point.ranks == 2 * hosts
        (form,) = prediction.far(prediction.on(hosts)[0], "ring").forms
        built.append(sorted(form._schedules))
    assert built[0] == built[1]
    assert max(built[0]) <= 8


def test_what_is_best_in_the_middle_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = Prediction(SMALL, "allgather").of(1, 1 << 20, "ring")
    assert point is not None
    found = Prediction(HGX, "allreduce")

    def best(hosts: int, size: int) -> Point:
        return replace(point, algo="tree" if 8 << 10 <= size < 128 << 10 else "ring")

    monkeypatch.setattr(found, "best", best)
    assert found.ranges(1, [1 << 10, 1 << 20]) == [
        ("ring", 1 << 10, 4 << 10),
        ("tree", 8 << 10, 64 << 10),
        ("ring", 128 << 10, 1 << 20),
    ]


def test_what_obeys_no_rule_is_left_out_with_the_reason() -> None:
    """Halves need a power of two: with 100 hosts folding makes it slower than with 128."""
    prediction = Prediction(FLAT, "allreduce")
    assert prediction.of(64, 1 << 26, "halving") is not None
    assert prediction.of(100, 1 << 26, "halving") is None
    assert prediction.reasons["halving"] == {100: "its price follows no rule of growth"}


def test_less_than_an_element_for_each_rank_has_no_price() -> None:
    prediction = Prediction(SMALL, "alltoall")
    assert prediction.best(64, 8) is None and prediction.best(1, 4) is None
    assert prediction.best(1, 8) is not None


def test_a_change_has_its_effect() -> None:
    large, tiny = 1 << 30, 4096

    def gain(text: str, op: OpName, hosts: int, size: int) -> float:
        before, after = (
            Prediction(machine, op).best(hosts, size) for machine in (SMALL, changed(SMALL, [text]))
        )
        assert before is not None and after is not None
        return before.seconds / after.seconds

    assert gain("nvlink=half", "sendrecv", 1, large) == pytest.approx(0.5, rel=0.05)
    assert gain("nvlink=half", "alltoall", 1, tiny) == pytest.approx(1, rel=0.05)
    # a PCIe link of 47.9 GB/s is between a GPU and its NIC of 50
    assert gain("nic=2", "sendrecv", 4, large) == pytest.approx(1, rel=0.01)
    assert gain("nic=half", "alltoall", 4, large) == pytest.approx(25 / 47.9, rel=0.05)
    # of two rails, half of what leaves a host changes the rail
    between_rails = pytest.approx(50 / 47.9 / 2, rel=0.05)
    assert gain("oversubscription=4", "alltoall", 4, large) == between_rails
    assert gain("latency.net=1us", "alltoall", 4, tiny) > 1.2


def test_a_launch_is_set_by_itself_and_what_cold_data_costs_by_itself() -> None:
    """Also where a launch costs nothing in the machine file."""

    def seconds(size: int, *texts: str) -> float:
        point = Prediction(changed(SMALL, texts), "sendrecv").best(1, size)
        assert point is not None
        return point.seconds

    small, large = 1 << 10, 4 << 20
    assert seconds(small, "launch=5us") - seconds(small, "launch=3us") == pytest.approx(
        2e-6, rel=0.05
    )
    assert seconds(small, "cold=9us") == seconds(small)
    more = 9e-6 - SMALL.costs.cold_us * 1e-6
    assert seconds(large, "cold=9us") - seconds(large) == pytest.approx(more, rel=0.05)
    nothing = replace(SMALL, costs=replace(SMALL.costs, launch_us=0.0))
    assert changed(nothing, ["launch=3us"]).costs.launch_us == pytest.approx(3)


@pytest.mark.exhaustive
def test_a_time_depends_on_all_constants_together_as_on_one() -> None:
    """All latencies up and all rates down by one percent: one percent more."""
    prediction = Prediction(SMALL, "alltoall")
    for size, first in ((1 << 10, "messages"), (1 << 28, "pcie")):
        point = prediction.best(64, size)
        assert point is not None
        slopes = prediction.elasticities(point)
        assert set(slopes) == set(CONSTANTS)
        rates = {*RATES, "cta", "memory"}
        total = sum(-slope if name in rates else slope for name, slope in slopes.items())
        assert total == pytest.approx(1, abs=0.05)
        assert next(iter(slopes)) == first


@pytest.mark.parametrize(("text", "word"), cells_of(__file__, "no-changes.tsv"))
def test_what_is_no_change_is_refused(text: str, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(HGX, [text])
    assert word in f"{caught.value.message} {caught.value.hint}"


def test_changes_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        changed(HGX, ["nic=2", "nic=half"])
    with pytest.raises(RefusedError, match="8 GPUs"):
        changed(HGX, ["gpus=9"])


@pytest.mark.exhaustive
def test_domains_of_72_are_priced_by_narrower_ones() -> None:
    rack = cluster("gb200-nvl72")
    assert (rack.width, rack.hosts, rack.nics) == (72, 18, 72)
    assert unknown_links(rack.domain) == ("NVLink-C2C",)
    prediction = Prediction(rack, "allgather")
    point = prediction.of(36, 1 << 30, "hierarchical")
    assert point is not None and point.ranks == 144
    assert prediction.hops(point) == (2, 1)
    # a rank sends half of the blocks over the network, or its share to 71 others
    assert point.busy[NIC] == pytest.approx((1 << 30) / 144 / 50e9, rel=0.05)
    with pytest.raises(RefusedError, match="whole NVLink domains"):
        rack.on(20)
    with pytest.raises(RefusedError, match="no NIC"):
        Prediction(cluster("rtx4090x4"), "allreduce").best(2, 1024)
