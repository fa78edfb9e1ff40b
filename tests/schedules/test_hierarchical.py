"""Several hosts: what crosses the network is what the definition demands, for any number of hosts,
ranks on them and numbering of the ranks.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from shlex import split

import pytest

from collbench.backends import reference
from collbench.backends.cpu import backend as cpu
from collbench.bench.points import plan_points
from collbench.bench.ranks import ranks_of
from collbench.bench.sweep import Sweep, cases
from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError
from collbench.core.world import World, host_numbers
from collbench.launch.local import LocalGroup
from collbench.planning.layout import along, lay_out, registered
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import between_hosts, pair_traffic, pull_zero_copy
from collbench.schedules.verify.check import check
from collbench.schedules.zero_copy import push_zero_copy
from tests.support.batteries import assert_right, placements, problem, random_inputs, roots
from tests.support.commands import Says
from tests.support.tiers import tiered

Hosts = tuple[int, ...]
SHAPES = ((2, 2), (2, 4), (3, 2), (4, 4), (2, 8), (8, 2))  # hosts, ranks of each
SERVED: tuple[OpName, ...] = ("allreduce", "reducescatter", "allgather", "broadcast", "reduce")
UNEQUAL: tuple[Hosts, ...] = (
    (0, 0, 0, 1, 1, 2),
    (0, 1, 2, 2, 2),
    (0, 1, 1, 0, 0, 1, 1),
    (0, 1, 0, 2, 0, 1, 3, 3),
)


def numberings(hosts: int, size: int) -> tuple[Hosts, Hosts]:
    """Ranks counted host by host, and dealt to the hosts in turn."""
    n = hosts * size
    return tuple(rank // size for rank in range(n)), tuple(rank % hosts for rank in range(n))


EQUAL = tuple(hosts for shape in SHAPES for hosts in numberings(*shape))


def schedule_of(op: OpName, hosts: Hosts, root: int = 0, algo: str = "hierarchical") -> Schedule:
    return along(op, algo, len(hosts), root, (), hosts)


def crossings(schedule: Schedule, hosts: Hosts) -> dict[tuple[int, int], Fraction]:
    """The traffic of pairs of ranks on different hosts."""
    return {
        pair: share
        for pair, share in pair_traffic(schedule).items()
        if hosts[pair[0]] != hosts[pair[1]]
    }


def some_roots(op: OpName, n: int) -> Sequence[int]:
    """All, or of many ranks the first, one in the middle and the last."""
    known = roots(op, n)
    return known if len(known) <= 8 else (0, n // 2 + 1, n - 1)


@tiered(("op", "shape", "numbering"), product(SERVED, SHAPES, (0, 1)), 3, ids=str)
def test_proved_and_right(op: OpName, shape: tuple[int, int], numbering: int) -> None:
    hosts = numberings(*shape)[numbering]
    n = len(hosts)
    for root in some_roots(op, n):
        schedule = schedule_of(op, hosts, root)
        for in_place in placements(op):
            check(schedule, slots=2, in_place=in_place)
            check(schedule, slots=8, slices=2, in_place=in_place)
            what = problem(op, n, root=root, count=4 * n + 3, in_place=in_place)
            for direct in (False, True):
                assert_right(
                    lay_out(what, schedule, direct=direct, slots=2, channels=2, chunk_bytes=32)
                )
            if n <= 6:
                check(push_zero_copy(schedule, in_place=in_place), slots=2, in_place=in_place)


@pytest.mark.parametrize("hosts", EQUAL, ids=str)
def test_between_hosts_goes_what_the_definition_demands_in_equal_parts(hosts: Hosts) -> None:
    """A host must send its sum, or its blocks, once to wherever they are needed: no algorithm sends
    less.
    """
    n, h = len(hosts), max(hosts) + 1
    once, all_blocks = Fraction(1), Fraction(h - 1, h)
    least = {
        "allreduce": 2 * all_blocks,
        "allgather": all_blocks,
        "reducescatter": all_blocks,
        "broadcast": once,
        "reduce": once,
    }
    for op in SERVED:
        schedule = schedule_of(op, hosts, root := n - 1 if collective(op).is_rooted else 0)
        assert between_hosts(schedule, hosts) == least[op]
        found = crossings(schedule, hosts)
        assert set(found.values()) == {least[op] * h / n}
        ends = h if op in ("allreduce", "allgather", "reducescatter") else h - 1
        assert len(found) == ends * n // h
        entered = Counter(hosts[target] for _, target in found)
        assert set(entered.values()) == {n // h}
        assert (hosts[root] in entered) == (op != "broadcast")


@pytest.mark.parametrize("hosts", [*EQUAL, *UNEQUAL], ids=str)
@tiered("op", SERVED, 1)
def test_rings_enter_and_leave_every_host_once(hosts: Hosts, op: OpName) -> None:
    for root in some_roots(op, len(hosts)):
        schedule = schedule_of(op, hosts, root, "ring")
        check(schedule, slots=2)
        pairs = crossings(schedule, hosts)
        into, out = Counter(hosts[b] for _, b in pairs), Counter(hosts[a] for a, _ in pairs)
        assert max(*into.values(), *out.values()) == 1
        assert len(pairs) == (max(hosts) if collective(op).is_rooted else max(hosts) + 1)


JOINED = list(product(["tree", "chain"], ["allreduce", "broadcast", "reduce"], [*EQUAL, *UNEQUAL]))


@tiered(("algo", "op", "hosts"), JOINED, 16, ids=str)
def test_trees_join_hosts_by_one_link_fewer_than_there_are(
    algo: str, hosts: Hosts, op: OpName
) -> None:
    """Of each tree and in each direction that it carries: a tree of ranks would cross between hosts
    wherever its numbering happens to.
    """
    trees, ways = 2 if algo == "tree" else 1, 2 if op == "allreduce" else 1
    for root in some_roots(op, len(hosts)):
        schedule = schedule_of(op, hosts, root, algo)
        for in_place in (False, True):
            check(schedule, slots=2, in_place=in_place)
        check(pull_zero_copy(schedule, in_place=False), slots=2)
        joined = {
            (rank, edge)
            for rank in range(schedule.n)
            for track in schedule.program(rank)
            for steps in track.rounds
            for step in steps
            for edge in step.send
            if hosts[rank] != hosts[edge.peer]
        }
        assert len(joined) == trees * ways * max(hosts)
        assert set(
            Counter((hosts[rank], hosts[edge.peer], edge.port) for rank, edge in joined).values()
        ) == {1}


def test_a_tree_of_two_hosts_sends_half_of_what_one_of_ranks_does() -> None:
    hosts = numberings(2, 8)[0]
    assert between_hosts(schedule_of("allreduce", hosts, algo="tree"), hosts) == 1
    assert between_hosts(registered("allreduce", "tree", World(n=16)), hosts) == 2


@pytest.mark.parametrize("hosts", UNEQUAL, ids=str)
def test_unequal_hosts_are_refused_with_the_reason(hosts: Hosts) -> None:
    with pytest.raises(ScheduleError, match="as many ranks on every host; they have "):
        schedule_of("allreduce", hosts)


def test_hosts_of_one_rank_are_a_ring_and_one_host_is_refused() -> None:
    for op in SERVED[:3]:
        assert pair_traffic(schedule_of(op, (0, 1, 2, 3, 4))) == pair_traffic(
            registered(op, "ring", World(n=5))
        )
    with pytest.raises(ScheduleError, match="hierarchical needs ranks on several hosts"):
        schedule_of("allreduce", ())
    assert pair_traffic(registered("allreduce", "hierarchical", World(n=4))) == pair_traffic(
        registered("allreduce", "twoshot", World(n=4))
    )


def test_side_by_side_in_orders_of_the_wires() -> None:
    hosts = (0, 0, 0, 1, 1, 1)
    both = along("allreduce", "hierarchical", 6, 0, ((0, 1, 2, 3, 4, 5), (2, 0, 1, 3, 5, 4)), hosts)
    check(both, slots=2)
    assert between_hosts(both, hosts) == 1 and both.chunks["in"] == 12


def test_plans_of_one_shape_are_equal_and_one_host_changes_nothing() -> None:
    assert host_numbers(["node7", "node7", "node2"]) == host_numbers(["a", "a", "b"]) == (0, 0, 1)
    case = Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20)
    alone, near, dealt = (
        resolve(case, Limits(hosts=hosts)) for hosts in ((), (0, 0, 1, 1), (0, 1, 0, 1))
    )
    assert (alone.case, alone.plan.digest) == (resolve(case).case, resolve(case).plan.digest)
    assert len({choice.plan.digest for choice in (alone, near, dealt)}) == 3
    assert near.plan.digest == resolve(case, Limits(hosts=(0, 0, 1, 1))).plan.digest


@pytest.mark.exhaustive
def test_cpu_equals_reference() -> None:
    """Four ranks of this host, of which the schedules believe that they are on two."""
    plans = []
    for hosts, op in product(((0, 1, 0, 1), (0, 0, 1, 1)), SERVED):
        root = 2 if collective(op).is_rooted else 0
        for algo in ("hierarchical", "ring", "tree"):
            if (algo, op) not in (("tree", "allgather"), ("tree", "reducescatter")):
                schedule, what = (
                    schedule_of(op, hosts, root, algo),
                    problem(op, 4, root=root, count=611),
                )
                layout = partial(lay_out, what, schedule, slots=3, channels=2, chunk_bytes=256)
                plans.append(layout(direct=algo == "hierarchical"))
    with closing(cpu.CpuSession(LocalGroup(), plans, hot=True)) as session:
        for seed, plan in enumerate(plans):
            inputs = random_inputs(plan.problem, seed)
            wanted = reference.ReferenceSession().once(plan, inputs)
            for rank, output in enumerate(session.once(plan, inputs)):
                if collective(plan.problem.op).wants(plan.n, plan.problem.root, rank):
                    assert output.tobytes() == wanted[rank].tobytes(), (rank, plan.problem)


def test_the_group_tells_schedules_their_hosts() -> None:
    group = LocalGroup()
    group.hosts = ("b", "b", "a", "a")  # as under a launcher, as far as planning asks
    where = ranks_of(["reference"], None, group, (), None)
    case = Case(op="allreduce", backend="reference", ranks=4, size_bytes=1 << 20)
    assert where.has_hosts and where.limits(case, Limits()).hosts == ()  # none but the group's
    (point,) = plan_points([case], group, where=where)
    assert point.case.algo == "hierarchical" and point.is_choice and point.plan is not None
    assert between_hosts(point.plan.schedule, (0, 0, 1, 1)) == 1


def test_one_host_leaves_it_out() -> None:
    everything = Sweep(sizes=(1024,), op=("allreduce",))
    assert {"hierarchical"} == {case.algo for case in cases(everything, {})} - {
        case.algo for case in cases(everything, {}, has_hosts=False)
    }


@pytest.mark.exhaustive
def test_on_two_described_hosts_it_uses_every_network_card(says: Says, tmp_path: Path) -> None:
    machine = tmp_path / "two.toml"
    told = (Path(__file__).parent.parents[1] / "profiles/machines/hgx-h100.toml").read_text()
    machine.write_text(told.replace("[topology]\n", "[topology]\nhosts = 2\n", 1))
    args = split("--sizes 64M --op allreduce --algo ring,hierarchical,oneshot --channels 16")
    args += ["--chunk", "64K", "--machine", str(machine)]
    rows = {
        words[1]: words
        for line in says(0, "sweep", "--backend", "model", *args).out.splitlines()
        if (words := line.split()) and "modelled" in words
    }
    rate = {algo: float(words[words.index("modelled") - 1]) for algo, words in rows.items()}
    # by eight network cards, and not the 50 GB/s of one
    assert min(rate["hierarchical"], rate["ring"]) > 100
    assert rate["hierarchical"] > 5 * rate["oneshot"]


def test_hosts_on_one_nvlink_switch_are_one() -> None:
    where = ranks_of(["model"], "gb200-nvl72", LocalGroup(), (), None)
    assert not where.has_hosts
    case = Case(op="allreduce", backend="model", ranks=16, size_bytes=1 << 20)
    assert where.limits(case, Limits()).hosts == ()
