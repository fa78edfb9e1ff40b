"""Prediction: textbooks' formulas come out, rules of growth give what is played on more hosts, and
a change of the machine has its effect.
"""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from collbench.planning.price.fabric import NIC, RATES, fabric_of
from collbench.planning.price.growth import SLOTS, Growth
from collbench.planning.price.lanes import Lanes, Values, links_of, play, probes
from collbench.planning.price.prediction import Algorithm, Machine, predict

from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.planning.plan import Kernel, along, lay_out
from collbench.planning.price.changes import changed
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.events import events_of
from collbench.planning.price.gpus import gpu_price
from collbench.schedules.algorithms import needs_hosts
from collbench.spec.case import Problem
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import RefusedError, ScheduleError, UsageError
from tests.support.batteries import PAIRS
from tests.support.tiers import tiered

HGX = fabric_of(machine_topology("hgx-h100"), "hgx-h100")
MACHINE = Machine(fabric=HGX, costs=gpu_costs("hgx-h100"), factors={}, seconds={})
SMALL = replace(MACHINE, fabric=HGX.with_gpus(2))
FLAT = HGX.with_gpus(1)  # every hop is over the network
ALPHA_S, GBS = 3e-6, 40.0
LANE = probes()
PROFILES = Path(__file__).parents[2] / "profiles" / "machines"


def only_links(piece_bytes: float) -> Lanes:
    """A lane where a hop takes ALPHA_S and NICs are the only limit."""
    one, plain = np.ones(1), probes()
    return replace(
        plain,
        piece_bytes=np.array([piece_bytes]),
        hop_s=dict.fromkeys(plain.hop_s, ALPHA_S * one),
        share={rate: (GBS / 50.0 if rate == NIC else 1e9) * one for rate in RATES},
    )


def whole(seconds: float, growth: Growth, hosts: int, size: float) -> float:
    """Seconds of one launch of an allreduce of that size, in one loop, by the rule of growth."""
    lanes = only_links(size / growth.parts(hosts))
    price = growth.price(lanes, np.ones(1), np.array([hosts]))
    assert price.is_sure[0]
    return float(price.seconds[0]) / seconds


@pytest.mark.parametrize("hosts", [4, 1024, 16384])
def test_formulas_of_textbooks_come_out(hosts: int) -> None:
    """alpha-beta on a flat network, for any number of hosts."""
    size, n = 1e9, hosts
    beta_s = size / (GBS * 1e9)
    steps = int(np.log2(n))
    formulas = {
        "ring": 2 * (n - 1) * (ALPHA_S + beta_s / n),
        "halving": 2 * steps * ALPHA_S + 2 * (n - 1) / n * beta_s,
        "oneshot": ALPHA_S + (n - 1) * beta_s,
        "twoshot": 2 * ALPHA_S + 2 * (n - 1) / n * beta_s,
        "star": 2 * ALPHA_S + 2 * (n - 1) * beta_s,  # the parameter server
    }
    for algo, seconds in formulas.items():
        growth = Growth(FLAT, "allreduce", algo)
        assert whole(seconds, growth, hosts, size) == pytest.approx(1, rel=1e-6), algo
    assert Growth(FLAT, "allreduce", "ring").hops(hosts) == (2 * (n - 1), 2 * (n - 1))


def settings(algorithm: Algorithm, hosts: int) -> tuple[Lanes, Values, Values]:
    """Some lanes of an algorithm, their loops and domains."""
    lanes = [
        lane for size in (1 << 10, 1 << 20, 1 << 26) for lane in algorithm.settings(hosts, size)
    ][::3]
    return (
        algorithm.values(lanes),
        np.array([lane.loops for lane in lanes]),
        np.array([lane.domains for lane in lanes]),
    )


@pytest.mark.parametrize(
    ("op", "algo", "hosts"),
    tiered(
        [(*pair, hosts) for pair, hosts in product(PAIRS, (7, 32))],
        [("allreduce", "ring", 7), ("alltoall", "direct", 7)],
    ),
)
def test_a_rule_gives_what_is_played_on_more_hosts(op: OpName, algo: str, hosts: int) -> None:
    """On hosts that had no part in the rule. Where it says that it is sure, it is."""
    algorithm = Algorithm(machine=SMALL, op=op, name=algo)
    growth, _ = algorithm.growth(hosts)
    try:
        lanes, loops, domains = settings(algorithm, hosts)
    except ScheduleError:
        pytest.skip("grows by no rule, and is left out")
    price = growth.price(lanes, loops, domains)
    assert isinstance(growth, Growth)
    if growth.rule.next(hosts) != hosts:
        return  # the price of the next power of two
    seconds, busy = growth.played(hosts, lanes, loops)
    seconds = np.max([seconds, *busy.values()], axis=0)
    sure = price.is_sure
    assert sure.any()
    assert price.seconds[sure] == pytest.approx(seconds[sure], rel=0.1)
    assert growth.hops(hosts) == tuple(map(round, growth._hops_played(hosts)))


def test_what_a_few_ranks_do_stands_for_all() -> None:
    """Ranks around a ring, and ranks that exchange halves: each played, and two of them."""
    for algo in ("ring", "halving", "twoshot", "hierarchical"):
        growth = Growth(HGX.with_gpus(2), "allreduce", algo)
        schedule = growth.schedule(4)
        few, every = (
            events_of(schedule, slices=1, loops=1, launches=1, slots=4, few=number)
            for number in (growth.few(4), 0)
        )
        assert growth.few(4) == 2
        assert 4 * len(few.events) == len(every.events)
        on_two, on_all = (
            play(
                events, links_of(events.ports, HGX.with_gpus(2), (0,), is_folded=is_folded), LANE, 1
            )
            for events, is_folded in ((few, True), (every, False))
        )
        assert on_two.ends[0] == pytest.approx(on_all.ends[0], rel=1e-9)


def many_hosts(folder: Path, hosts: int) -> Topology:
    """A profile with more hosts."""
    file = folder / f"{hosts}.toml"
    text = (PROFILES / "hgx-h100.toml").read_text()
    file.write_text(text.replace("[topology]\n", f"[topology]\nhosts = {hosts}\n", 1))
    return machine_topology(str(file))


def off(op: OpName, algo: str, hosts: int, folder: Path) -> list[float]:
    """How far prices at once are from the price of the model, which plays each rank: as logarithms,
    for schedules in one order of the ranks.
    """
    algorithm = Algorithm(machine=MACHINE, op=op, name=algo)
    growth, domains = algorithm.growth(hosts)
    assert isinstance(growth, Growth)
    if len(growth.turns_on(domains)) > 1:
        return []
    machine, n = many_hosts(folder, hosts), 8 * hosts
    blocks = n if collective(op).size_in_blocks else 1
    host_of = tuple(rank // 8 for rank in range(n)) if hosts > 1 else ()
    found = []
    for lane in algorithm.settings(hosts, 1 << 24)[::7]:
        plan = lay_out(
            Problem(
                op=op,
                n=n,
                root=0,
                block_count=(1 << 22) // blocks,
                dtype="float32",
                redop="sum",
                in_place=False,
            ),
            along(op, algo, n, 0, (tuple(range(n)),) if hosts > 1 else (), host_of),
            channels=lane.setting.channels,
            slots=SLOTS if lane.setting.proto == "simple" else 2 * SLOTS - 1,
            chunk_bytes=max(16, lane.setting.chunk_bytes // growth.widest(domains)),
            kernel=Kernel(proto=lane.setting.proto, threads=512),
            transport="p2p",
        )
        seconds, _ = growth.played(domains, algorithm.values([lane]), np.array([lane.loops]))
        found.append(float(np.log(seconds[0] / gpu_price(plan, machine, MACHINE.costs))))
    return found


@pytest.mark.parametrize(
    ("op", "algo", "hosts"), [("allgather", "ring", 1), ("scatter", "star", 2)]
)
def test_many_prices_at_once_are_those_of_plans(
    op: OpName, algo: str, hosts: int, tmp_path: Path
) -> None:
    errors = off(op, algo, hosts, tmp_path)
    assert errors == pytest.approx([0.0] * len(errors), abs=0.02)
    assert len(errors) > 2


@pytest.mark.exhaustive
def test_prices_at_once_are_near_those_of_all_plans(tmp_path: Path) -> None:
    """On 8 to 32 ranks. Where tracks meet at a link, they are played in one order for all sizes."""
    errors: list[float] = []
    for (op, algo), hosts in product(PAIRS, (1, 2, 4)):
        if hosts > 1 or not needs_hosts(algo):
            try:
                errors += off(op, algo, hosts, tmp_path)
            except ScheduleError as error:
                assert "grow" in error.message
    sizes = np.abs(errors)
    print(len(sizes), np.quantile(sizes, (0.5, 0.9, 0.95, 1)))
    assert np.median(sizes) < 0.01
    assert np.quantile(sizes, 0.9) < 0.15


def test_the_work_does_not_grow_with_the_hosts() -> None:
    """No schedule of many ranks is built."""
    built = []
    for hosts in (16, 2048):
        algorithm = Algorithm(machine=SMALL, op="allgather", name="ring")
        found, reasons = algorithm.points([hosts], [1 << 20])
        assert found[hosts, 1 << 20].lane.ranks == 2 * hosts
        assert not reasons
        growth, _ = algorithm.growth(hosts)
        assert isinstance(growth, Growth)
        built.append(sorted(growth._schedules))
    assert built[0] == built[1]
    assert max(built[0]) == 8


def test_what_obeys_no_rule_is_left_out_with_the_reason() -> None:
    """Halves need a power of two: with 100 hosts folding makes it slower than with 128."""
    flat = replace(MACHINE, fabric=FLAT)
    found, reasons = Algorithm(machine=flat, op="allreduce", name="halving").points(
        [64, 100], [1 << 26]
    )
    assert [hosts for hosts, _ in found] == [64]
    assert reasons == {100: "its price follows no rule of growth"}


def test_a_change_has_its_effect() -> None:
    large, tiny = 1 << 30, 4096

    def gain(text: str, op: OpName, hosts: int, size: int) -> float:
        before, after = (
            predict(machine, op, [hosts], [size]).at(hosts, size)[0].seconds
            for machine in (SMALL, changed(SMALL, [text]))
        )
        return before / after

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
    free = replace(SMALL, costs=replace(SMALL.costs, launch_us=SMALL.costs.pdl_us))

    def seconds(size: int, *texts: str) -> float:
        return predict(changed(free, texts), "sendrecv", [1], [size]).at(1, size)[0].seconds

    small, large = 1 << 10, 4 << 20
    assert seconds(small, "launch=3us") - seconds(small) == pytest.approx(
        3e-6 - SMALL.costs.pdl_us * 1e-6, rel=0.05
    )
    assert seconds(small, "cold=9us") == seconds(small)
    more = 9e-6 - SMALL.costs.cold_us * 1e-6
    assert seconds(large, "cold=9us") - seconds(large) == pytest.approx(more, rel=0.05)
    nothing = replace(SMALL, costs=replace(SMALL.costs, launch_us=0.0))
    assert changed(nothing, ["launch=3us"]).costs.launch_us == pytest.approx(3)


def test_a_time_depends_on_all_constants_together_as_on_one() -> None:
    """All latencies up and all rates down by one percent: one percent more."""
    prediction = predict(SMALL, "alltoall", [64], [1 << 10, 1 << 28])
    for size, first in ((1 << 10, "messages"), (1 << 28, "pcie")):
        slopes = prediction.elasticities(prediction.at(64, size)[0])
        rates = {*RATES, "cta", "memory"}
        total = sum(-slope if name in rates else slope for name, slope in slopes.items())
        assert total == pytest.approx(1, abs=0.05)
        assert next(iter(slopes)) == first


def test_changes_that_are_none_are_refused() -> None:
    for text, word in (
        ("nvlnk=half", "nvlink"),
        ("nvlink", "nothing called"),
        ("nvlink=fast", "no value"),
        ("latency.net=5", "no value"),
        ("nic=0", "no value"),
        ("oversubscription=5us", "no value"),
    ):
        with pytest.raises(UsageError) as caught:
            changed(MACHINE, [text])
        assert word in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(UsageError, match="twice"):
        changed(MACHINE, ["nic=2", "nic=half"])
    with pytest.raises(RefusedError, match="8 GPUs"):
        changed(MACHINE, ["gpus=9"])


def test_domains_of_72_are_priced_by_narrower_ones() -> None:
    """Over them a hierarchical algorithm sends by all NICs; the others are played at 4, 6 and 8
    ranks a domain.
    """
    rack = fabric_of(machine_topology("gb200-nvl72"), "gb200-nvl72")
    assert (rack.width, rack.hosts, rack.nics) == (72, 18, 72)
    assert rack.unknown == ("NVLink-C2C",)
    algorithm = Algorithm(
        machine=replace(MACHINE, fabric=rack), op="allgather", name="hierarchical"
    )
    found, reasons = algorithm.points([36], [1 << 30])
    point = found[36, 1 << 30]
    assert not reasons
    assert point.lane.ranks == 144
    assert point.hops == (2, 1)
    # a rank sends half of the blocks over the network, or its share to 71 others
    assert point.busy[NIC] == pytest.approx((1 << 30) / 144 / 50e9, rel=0.05)
    with pytest.raises(RefusedError, match="whole NVLink domains"):
        rack.on(20)
    with pytest.raises(RefusedError, match="no NIC"):
        predict(
            replace(MACHINE, fabric=fabric_of(machine_topology("rtx4090x4"), "rtx4090x4")),
            "allreduce",
            [2],
            [1024],
        )
