"""Traces of cases: what `trace` measures."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace

from collbench.backends.cpu.trace import RankTrace, TracedSession, TraceOrder
from collbench.backends.cuda.backend import BACKEND as CUDA
from collbench.backends.cuda.backend import CudaSession
from collbench.backends.cuda.rank import StampedLaunches, StampOrder
from collbench.bench.points import cores_of, session_options
from collbench.bench.trace.chain_model import ChainCosts
from collbench.bench.trace.gpus import (
    Clocks,
    clock_plan,
    clocks,
    first_stamp_ns,
    offset_s,
    on_one_clock,
    rank_trace,
    record_count,
    stage_actors,
    tick_s,
)
from collbench.bench.trace.graph import launch_graph
from collbench.core.case import Case
from collbench.core.errors import CollbenchError, UnavailableError
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.options import Settings
from collbench.core.text import counted
from collbench.core.trace import Trace
from collbench.core.units import format_size
from collbench.device.card import all_reach_each_other, model_of_all
from collbench.machine.formats import described
from collbench.planning.lowering import TrackActions, actors
from collbench.planning.plan import Plan
from collbench.planning.price.constants import GpuCosts, costs_here, cpu_costs, gpu_costs
from collbench.planning.price.gpus import payload_gbs
from collbench.planning.price.work import cpu_price, used_channels

_PAIRS, _WARM_UP = 50, 3  # of a traced launch and one that is not
_CLOCKS = StampOrder(launches=43, kept=40)  # that align clocks, without the first
_MOST_DEFAULT_RANKS = 8
_MOST_ACTIONS = 200_000  # of all ranks and launches: a file of 100 MB
Seconds = tuple[float, ...]


def default_ranks() -> int:
    """Ranks on CPUs where nobody says how many."""
    return min(max(usable_cores(), 2), _MOST_DEFAULT_RANKS)


def refuse_too_many(plans: Iterable[Plan], launches: int) -> None:
    """Raise UnavailableError if traces would have more actions than a viewer can open."""
    actions = sum(plan.action_count() * plan.n for plan in plans) * launches
    if actions > _MOST_ACTIONS:
        raise UnavailableError(
            f"{actions} actions in the launches of all ranks, at most {_MOST_ACTIONS}",
            "trace fewer launches or smaller sizes",
        )


def traced(
    plan: Plan,
    case: Case,
    group: Group,
    launches: int,
    timeout_s: float,
    gpus: Sequence[int] = (),
    delays_s: Seconds = (),
) -> Trace:
    """The last launches, traced; of all, the cost of tracing. gpus: of the ranks, if not all.
    delays_s: of each rank, for tests. Raises CollbenchError if the result is wrong.
    """
    if case.backend == "cuda":
        settings = Settings(hot=True, timeout_s=timeout_s, gpus=tuple(gpus))
        return _traced_on_gpus(plan, case, group, launches, settings, delays_s)
    pairs = max(_PAIRS, launches)
    order = TraceOrder(delays_s or (0.0,) * plan.n, _WARM_UP + pairs)
    with closing(TracedSession(group, [plan], hot=True)) as session:
        found = session.trace(plan, order, timeout_s)
    _refuse_wrong(found.wrong)
    by_rank = [actors(plan, rank) for rank in range(plan.n)]
    graphs = [launch_graph(plan, by_rank, ranks) for ranks in found.launches[_WARM_UP:]]
    slowdowns = [
        graph.total_s / plain_s
        for graph, plain_s in zip(graphs, found.plain_s[_WARM_UP:], strict=True)
    ]
    return Trace(
        title=_title(case, plan),
        names=_names(group, plan.n),
        launches=tuple(graphs[-launches:]),
        clock_error_s=found.clock_error_s,
        slowdowns=tuple(slowdowns),
    )


def _traced_on_gpus(
    plan: Plan, case: Case, group: Group, launches: int, settings: Settings, delays_s: Seconds
) -> Trace:
    timing = clock_plan(plan, has_peers=all_reach_each_other())
    order = StampOrder(_WARM_UP + max(_PAIRS, launches), launches, delays_s)
    with closing(CUDA.open(group, [plan, timing], session_options(settings, group))) as session:
        before = _stamped(session, timing, _CLOCKS)
        found = _stamped(session, plan, order)
        after = _stamped(session, timing, _CLOCKS)
    zeros_ns = [first_stamp_ns(rank.stamps[0]) for rank in before]
    first, last = (_clocks(timing, ranks, zeros_ns) for ranks in (before, after))
    stages = [stage_actors(plan, rank) for rank in range(plan.n)]
    graphs = []
    for ranks in _launches(stages, found, zeros_ns):
        offsets_s = [offset_s(first, last, rank, one.arrived) for rank, one in enumerate(ranks)]
        moved = [on_one_clock(*one) for one in zip(ranks, offsets_s, strict=True)]
        graphs.append(launch_graph(plan, stages, moved, is_serial=False))
    pairs = list(zip(*(rank.seconds for rank in found), strict=True))[_WARM_UP:]
    slowest = [[max(times) for times in zip(*ranks, strict=True)] for ranks in pairs]
    return Trace(
        title=_title(case, plan),
        names=_names(group, plan.n),
        launches=tuple(graphs),
        clock_error_s=max(first.error_s, last.error_s),
        clock_limit_s=max(first.limit_s, last.limit_s),
        slowdowns=tuple(stamped_s / plain_s for plain_s, stamped_s in slowest),
    )


def _stamped(session: CudaSession, plan: Plan, order: StampOrder) -> list[StampedLaunches]:
    """What every rank has to say. Raises CollbenchError if a result is wrong."""
    records = [record_count(stage_actors(plan, rank)) for rank in range(plan.n)]
    found = session.trace(plan, order, records)
    _refuse_wrong(sum(rank.wrong for rank in found))
    return found


def _launches(
    stages: Sequence[Sequence[TrackActions]],
    found: Sequence[StampedLaunches],
    zeros_ns: Sequence[int],
) -> list[list[RankTrace]]:
    """Of each launch what every rank did, by its own clock."""
    return [
        [rank_trace(*one) for one in zip(stages, stamps, zeros_ns, strict=True)]
        for stamps in zip(*(rank.stamps for rank in found), strict=True)
    ]


def _clocks(plan: Plan, found: Sequence[StampedLaunches], zeros_ns: Sequence[int]) -> Clocks:
    stages = [stage_actors(plan, rank) for rank in range(plan.n)]
    ticks_s = [tick_s(rank.stamps) for rank in found]
    return clocks(plan, stages, _launches(stages, found, zeros_ns), max(ticks_s))


def _refuse_wrong(wrong: int) -> None:
    if wrong:
        raise CollbenchError(f"{wrong} elements of the result are wrong", "run a sweep")


def _title(case: Case, plan: Plan) -> str:
    channels = counted(plan.channels, "channel")
    return (
        f"{case.op} {format_size(case.size_bytes)} by {case.algo} {plan.proto} {plan.transport},"
        f" {plan.n} ranks, {channels}"
    )


def _names(group: Group, n: int) -> tuple[str, ...]:
    if not group.ranks or len(set(group.hosts)) == 1:
        return tuple(f"rank {rank}" for rank in range(n))
    return tuple(f"rank {rank} on {host}" for rank, host in enumerate(group.hosts))


def chain_costs(plan: Plan, case: Case, group: Group) -> ChainCosts:
    """The constants that price chains of a plan: those of this machine, else of the reference
    machine.
    """
    if case.backend == "cuda":
        gpus = gpu_costs(costs_here("gpu", model_of_all()))
        kind = gpus.kinds["ce" if plan.transport == "ce" else plan.proto]
        return ChainCosts(
            kind=kind,
            launch_s=None,
            hop_s=kind.hop_us * 1e-6,
            price_s=None,
            machine=gpus.name,
            wire_gbs=_wire_gbs(plan, gpus),
            channels=used_channels(plan),
        )
    on = replace(cpu_costs(), cores=cores_of(group))
    return ChainCosts(
        kind=on.kinds[plan.proto],
        launch_s=on.launch_us * 1e-6,
        hop_s=on.hop_us * 1e-6,
        price_s=cpu_price(plan, on),
        machine=on.name,
    )


def _wire_gbs(plan: Plan, gpus: GpuCosts) -> float | None:
    """What a link of the machine that has these constants carries of payload, if it is known."""
    topology = described(gpus.name)
    return None if topology is None else payload_gbs(topology, plan.proto, gpus)
