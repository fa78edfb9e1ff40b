"""Prices of plans: known formulas come out, every schedule has one, and they follow the links."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from collbench.core.case import Case
from collbench.core.collectives import OpName
from collbench.core.errors import UsageError
from collbench.core.world import World
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.rates import pcie, pcie_link
from collbench.planning.layout import lay_out, registered
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.price.constants import GpuCosts, costs_text, cpu_costs, gpu_costs
from collbench.planning.price.events import events_of
from collbench.planning.price.gpus import gpu_price, plan_bound, site_of
from collbench.planning.price.work import cpu_price
from collbench.schedules.passes import traffic
from tests.support.batteries import PAIRS, plan_of, problem
from tests.support.tables import values_of
from tests.support.tiers import tiered
from tests.support.topologies import of_few_gpus

ON_ONE_HOST = [pair for pair in PAIRS if pair[1] != "hierarchical"]
LINKS = machine_topology("hgx-h100")
FREE = {"step_us": 0.0, "take_us": 0.0, "post_us": 0.0, "hop_us": 1e-9, "link_share": 1.0}
FAST = {"read_gbs": 1e8, "write_gbs": 1e8, "send_gbs": 1e8}


def on_links() -> GpuCosts:
    """GPUs that take no time themselves: only links do."""
    own = gpu_costs()
    kinds = {kind: replace(one, **FREE, **FAST) for kind, one in own.kinds.items()}
    return replace(
        own, kinds=kinds, launch_us=0.0, cta_us=0.0, pdl_us=0.0, cold_us=0.0, memory_gbs=1e8
    )


def price(plan: Plan, machine: Topology, costs: GpuCosts, *, is_alone: bool = False) -> float:
    """Seconds of a plan, rank r on the r-th GPU."""
    gpus = [gpu.id for gpu in machine.gpus[: plan.n]]
    return gpu_price(plan, site_of(machine, gpus, costs), is_alone=is_alone)


def case_on(machine: Topology, text: str, **knobs: Any) -> Plan:
    """The plan of a case on the GPUs of a machine, whose knobs are a text and more."""
    case = Case(**{"backend": "model", **values_of(text), **knobs})
    ceilings = RankLinks(machine, [gpu.id for gpu in machine.gpus])
    limits = ceilings.described(Limits(memory_bytes=1 << 34), case.ranks)
    return resolve(case, replace(limits, orders=ceilings.orders_for(case))).plan


def on_one_switch(gpus: int) -> Topology:
    """So many GPUs at one PCIe switch."""
    nodes = (Node(id=f"gpu{k}", kind="gpu", index=k, facts=(("sm", "60"),)) for k in range(gpus))
    return Topology(
        name="one switch",
        nodes=(Node(id="pci0", kind="pci"), *nodes),
        links=tuple(pcie_link("pci0", f"gpu{k}", 3, 16) for k in range(gpus)),
    )


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("chunks", [1, 2, 4, 16, 64])
def test_a_launch_alone_takes_the_time_of_its_pipeline(chunks: int, ranks: int) -> None:
    """A broadcast of N bytes in S chunks along K ranks: N(S+K-2)/(SB). Launches that follow each
    other take N/B, whatever S and K are.
    """
    size, machine = 64 << 20, on_one_switch(8)
    plan = case_on(
        machine,
        "op=broadcast algo=chain proto=simple channels=16",
        ranks=ranks,
        size_bytes=size,
        chunk=size // chunks // 16,
    )
    bytes_s = pcie(3, 16).usable_gbs * 1e9
    wanted = size * (chunks + ranks - 2) / (chunks * bytes_s)
    assert price(plan, machine, gpu_costs(), is_alone=True) == pytest.approx(wanted, rel=0.02)
    assert price(plan, machine, gpu_costs()) == pytest.approx(size / bytes_s, rel=0.03)


MACHINES = of_few_gpus()
LOOP = 8 << 20
PARTS = (1, 4, 7, 8, 9, 10, 12, 14, 16, 17, 20, 23, 24, 28, 32, 36, 40, 48)  # eighths of loops


def in_loops(machine: Topology, algo: str, proto: str) -> list[float]:
    """Prices of allreduces of one configuration, by their loops, none faster than the links."""
    ranks, found = len(machine.gpus), []
    for part in PARTS:
        plan = case_on(
            machine,
            "op=allreduce channels=2 chunk=256K slots=8 threads=512",
            algo=algo,
            proto=proto,
            ranks=ranks,
            size_bytes=LOOP * part // 8,
            direct="off" if proto == "simple" else "auto",
            slices=4 if proto == "simple" else 0,
        )
        gpus = [gpu.id for gpu in machine.gpus]
        least = plan_bound(plan, site_of(machine, gpus, gpu_costs()))
        found.append(price(plan, machine, gpu_costs()))
        assert least is not None and found[-1] >= least.seconds
    return found


@tiered(
    ("name", "proto"),
    [(name, proto) for name in MACHINES for proto in ("simple", "ll")],
    [("hgx-h100", "ll"), ("pcie-4", "simple")],
)
def test_prices_rise_with_the_size(name: str, proto: str) -> None:
    """The protocols of a machine take its algorithms in turns."""
    algo = ("ring", "tree")[(MACHINES.index(name) + (proto == "ll")) % 2]
    found = in_loops(machine_topology(name), algo, proto)
    assert found == sorted(found)


def test_a_loop_that_is_not_full_costs_its_part() -> None:
    found = dict(zip(PARTS, in_loops(machine_topology("dgx-1"), "tree", "simple"), strict=True))
    for whole in (24, 32, 40):
        assert found[whole] == pytest.approx((found[whole - 8] + found[whole + 8]) / 2, rel=0.05)
    for half in (20, 28, 36):
        assert found[half] == pytest.approx((found[half - 4] + found[half + 4]) / 2, rel=0.02)


def test_sizes_between_two_loops_are_not_those_of_the_next() -> None:
    """On eight H100 300 MiB took as long as 400, and `auto` took another algorithm there."""
    machine = machine_topology("hgx-h100")
    rates = []
    for size in (256, 300, 336, 400):
        plan = case_on(
            machine, "op=allreduce algo=ring proto=simple ranks=8", size_bytes=size << 20
        )
        rates.append((size << 20) / price(plan, machine, gpu_costs()))
    assert min(rates) == pytest.approx(max(rates), rel=0.03)


@pytest.mark.parametrize(("op", "algo"), [("allreduce", "ring"), ("allgather", "direct")])
def test_large_sizes_come_to_the_ceiling_of_their_links(op: OpName, algo: str) -> None:
    plan = case_on(LINKS, "proto=simple ranks=8 size_bytes=1G transport=p2p", op=op, algo=algo)
    shares = {"allreduce": Fraction(14, 8), "allgather": Fraction(7, 8)}
    wanted = (1 << 30) * float(shares[op]) / 364.5e9
    assert price(plan, LINKS, on_links()) == pytest.approx(wanted, rel=0.05)
    assert price(plan, LINKS, gpu_costs()) > wanted


def test_lines_with_flags_take_their_bytes_on_the_links() -> None:
    seconds = {
        proto: price(
            case_on(LINKS, "op=alltoall algo=direct ranks=8 size_bytes=256M", proto=proto),
            LINKS,
            on_links(),
        )
        for proto in ("simple", "ll128", "ll")
    }
    assert seconds["ll"] == pytest.approx(2 * seconds["simple"], rel=0.05)
    assert seconds["ll128"] == pytest.approx(16 / 15 * seconds["simple"], rel=0.05)


@pytest.mark.parametrize(
    ("cost", "op", "algo", "times"),
    [("hop_us", "allreduce", "ring", 2), ("take_us", "alltoall", "direct", 1)],
)
def test_each_hop_and_message_has_its_price(cost: str, op: str, algo: str, times: int) -> None:
    """A ring of n ranks has 2(n-1) hops; in a direct exchange a rank takes n-1 messages."""
    kinds = {kind: replace(one, **{cost: 1.0}) for kind, one in on_links().kinds.items()}
    costs = replace(on_links(), kinds=kinds)
    for ranks in (2, 4, 8):
        plan = case_on(LINKS, "proto=ll size_bytes=64", op=op, algo=algo, ranks=ranks)
        assert price(plan, LINKS, costs) == pytest.approx(times * 1e-6 * (ranks - 1), rel=0.01)


def test_more_channels_make_a_cta_no_limit() -> None:
    prices = [
        price(
            case_on(
                LINKS,
                "op=allreduce algo=ring proto=simple ranks=8 size_bytes=256M",
                channels=channels,
            ),
            LINKS,
            gpu_costs(),
        )
        for channels in (1, 4, 16, 32)
    ]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > 10 * prices[-1]


def test_gpus_without_peer_access_go_through_the_host() -> None:
    machine = machine_topology("rtx4090x8")
    plan = case_on(machine, "op=allreduce algo=ring ranks=8 size_bytes=64M")
    assert plan.transport == "shm"
    peers = replace(machine, p2p={})
    assert case_on(peers, "op=allreduce algo=ring ranks=8 size_bytes=64M").transport == "p2p"


def test_peer_access_halves_the_hops_of_small_messages() -> None:
    """What goes through host memory is stored there, and fetched from there."""
    machine = machine_topology("gn5-8xp100")
    near, far = (
        price(
            case_on(machine, "op=allreduce algo=ring proto=ll ranks=2 size_bytes=8", transport=by),
            machine,
            replace(gpu_costs(), launch_us=0.0, cta_us=0.0),
        )
        for by in ("p2p", "shm")
    )
    assert far == pytest.approx(2 * near, rel=0.2)


def test_a_ring_over_hosts_is_limited_by_its_network() -> None:
    machine = machine_topology("pcie-4-ib2")
    assert len(machine.hosts) > 1
    near, far = (
        case_on(machine, "op=sendrecv algo=direct size_bytes=64M", ranks=ranks) for ranks in (4, 8)
    )
    assert price(far, machine, gpu_costs()) > price(near, machine, gpu_costs())


@tiered(("op", "algo", "n"), [(*pair, n) for pair, n in product(ON_ONE_HOST, (2, 3, 4, 8))], 12)
def test_every_schedule_has_a_price(op: OpName, algo: str, n: int) -> None:
    on = cpu_costs()
    small, large = (
        cpu_price(plan_of(problem(op, n, count=count), algo, channels=2), on)
        for count in (999, 1 << 20)
    )
    assert 0 < small < large < 10  # tiny chunks, and four ranks a core
    for proto, direct in product(("ll", "ll128", "simple"), ("off", "auto")):
        plan = case_on(
            LINKS, "size_bytes=1M", op=op, algo=algo, proto=proto, ranks=n, direct=direct
        )
        assert 0 < price(plan, LINKS, gpu_costs()) < 1


def test_one_rank_stands_for_all_where_the_links_treat_all_alike() -> None:
    """Priced as rank by rank: with the GPUs in two names the shortcut is not taken."""
    for op, algo in (("allreduce", "ring"), ("alltoall", "direct"), ("allreduce", "twoshot")):
        plan = case_on(LINKS, "proto=simple ranks=4 size_bytes=16M", op=op, algo=algo)
        events = [
            events_of(plan.schedule, slices=1, loops=1, launches=2, slots=plan.slots, few=few)
            for few in (1, 4)
        ]
        assert 4 * len(events[0].events) == len(events[1].events)


def test_more_ranks_than_cores_take_longer() -> None:
    on = cpu_costs()

    def seconds(n: int) -> float:
        plan = plan_of(problem("allreduce", n, count=1 << 18), "ring", chunk_bytes=1 << 16)
        return cpu_price(plan, on)

    assert seconds(2) < seconds(4) < seconds(8)


def test_bytes_of_the_traffic_are_those_that_events_move() -> None:
    schedule = registered("allreduce", "ring", World(n=4))
    plan = lay_out(problem("allreduce", 4, count=1 << 20), schedule)
    events = events_of(plan.schedule, slices=1, loops=1, launches=1, slots=4, few=1)
    moved = sum(pieces for event in events.events for _, pieces in event.sent)
    assert moved * Fraction(1, 4) == traffic(schedule).sent


def test_fewer_threads_are_slower_and_so_is_data_in_no_cache() -> None:
    own = gpu_costs()
    kinds = {kind: replace(one, thread_power=0.5) for kind, one in own.kinds.items()}
    costs = replace(own, kinds=kinds, cold_us=7.0, cache_mib=50.0)

    def seconds(size: int, on: GpuCosts, **knobs: Any) -> float:
        plan = case_on(LINKS, "op=sendrecv algo=direct ranks=2", size_bytes=size, **knobs)
        return price(plan, LINKS, on)

    way = {"proto": "ll", "channels": 1}
    few, many = (seconds(1 << 18, costs, threads=threads, **way) for threads in (128, 512))
    assert 1.5 < few / many <= 2.1
    alike = (seconds(1 << 18, on_links(), threads=threads, **way) for threads in (128, 512))
    assert len(set(alike)) == 1
    warm, cold = (seconds(size, costs, **way) - seconds(size, replace(costs, cold_us=0.0), **way)
                  for size in (1 << 18, 2 << 20))  # fmt: skip
    assert warm == 0
    assert cold == pytest.approx(7e-6)


def test_a_machine_file_may_leave_out_what_has_a_default(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = costs_text(gpu_costs(), "a sweep")
    optional = ("cold_us", "cache_mib", "thread_power")
    file.write_text("".join(line for line in text.splitlines(keepends=True)
                            if not line.startswith(optional)))  # fmt: skip
    found = gpu_costs(str(file))
    assert (found.cold_us, found.cache_mib, found.kinds["ll"].thread_power) == (0.0, 50.0, 0.0)
    power = f"thread_power = {found.kinds['ce'].thread_power:g}"
    for number, wrong in enumerate(("thread_power = 50", "thread_power = -1", "thread_powr = 1")):
        file = tmp_path / f"wrong{number}.toml"
        file.write_text(text.replace(power, wrong))
        with pytest.raises(UsageError, match=wrong.split()[0]):
            gpu_costs(str(file))


def test_a_protocol_without_constants_costs_what_one_like_it_does(tmp_path: Path) -> None:
    """So a new protocol is priced before anybody measured it, with files of before."""
    file = tmp_path / "mine.toml"
    without, _, _ = costs_text(cpu_costs(), "a sweep").partition("\n[cpu.kinds.ll128]")
    file.write_text(without)
    found = cpu_costs(str(file)).kinds
    assert found["ll128"] == found["ll"] != found["simple"]
    file = tmp_path / "no-ll.toml"
    file.write_text(without.replace("kinds.ll]", "kinds.lll]"))
    with pytest.raises(UsageError, match="must have simple, ll, and may have ll128"):
        cpu_costs(str(file))
