"""Traces of cases: what `trace` and `sweep --trace` measure."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

from collbench.analysis.gpu_traces import (
    clocks,
    on_one_clock,
    rank_trace,
    record_count,
    stage_actors,
)
from collbench.analysis.launch_graph import launch_graph
from collbench.analysis.trace_summary import ChainCosts
from collbench.backends.cpu.trace import TracedSession, TraceOrder
from collbench.backends.cuda.backend import BACKEND as CUDA
from collbench.bench.runner import cores_of, session_options
from collbench.launch.group import Group
from collbench.machine.host import usable_cores
from collbench.planning.lowering import actors
from collbench.planning.plan import Plan
from collbench.pricing.constants import cpu_costs, gpu_costs
from collbench.pricing.cpus import cpu_price
from collbench.results.trace import Trace
from collbench.spec.case import Case
from collbench.spec.options import Settings
from collbench.util.errors import CollbenchError, UnavailableError
from collbench.util.units import format_size

_PAIRS, _WARM_UP = 50, 3  # of a traced launch and one that is not
_MOST_DEFAULT_RANKS = 8
_MOST_ACTIONS = 200_000  # of all ranks and launches: a file of 100 MB


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


def traced(plan: Plan, case: Case, group: Group, launches: int, timeout_s: float) -> Trace:
    """The last launches, traced; of all, the cost of tracing. Raises CollbenchError if the result
    is wrong.
    """
    if case.backend == "cuda":
        return _traced_on_gpus(plan, case, group, launches, timeout_s)
    pairs = max(_PAIRS, launches)
    order = TraceOrder((0.0,) * plan.n, _WARM_UP + pairs, has_plain=True)
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


def _traced_on_gpus(plan: Plan, case: Case, group: Group, launches: int, timeout_s: float) -> Trace:
    pairs = _WARM_UP + max(_PAIRS, launches)
    stages = [stage_actors(plan, rank) for rank in range(plan.n)]
    settings = Settings(hot=True, timeout_s=timeout_s)
    with closing(CUDA.open(group, [plan], session_options(settings, group))) as session:
        stamps, seconds, wrong = session.trace(plan, pairs, [record_count(one) for one in stages])
    _refuse_wrong(wrong)
    traces = [
        [rank_trace(own, one) for own, one in zip(stages, ranks, strict=True)]
        for ranks in stamps[_WARM_UP:]
    ]
    found = clocks(plan, stages, traces)
    graphs = [
        launch_graph(
            plan,
            stages,
            [on_one_clock(*one) for one in zip(ranks, found.offsets_s, strict=True)],
            is_serial=False,
        )
        for ranks in traces[-launches:]
    ]
    slowest = [[max(times) for times in zip(*ranks, strict=True)] for ranks in seconds[_WARM_UP:]]
    return Trace(
        title=_title(case, plan),
        names=_names(group, plan.n),
        launches=tuple(graphs),
        clock_error_s=found.error_s,
        slowdowns=tuple(stamped_s / plain_s for plain_s, stamped_s in slowest),
    )


def _refuse_wrong(wrong: int) -> None:
    if wrong:
        raise CollbenchError(f"{wrong} elements of the result are wrong", "run a sweep")


def _title(case: Case, plan: Plan) -> str:
    channels = f"{plan.channels} channel{'s' * (plan.channels > 1)}"
    return (
        f"{case.op} {format_size(case.size_bytes)} by {case.algo} {plan.proto} {plan.transport},"
        f" {plan.n} ranks, {channels}"
    )


def _names(group: Group, n: int) -> tuple[str, ...]:
    if not group.ranks or len(set(group.hosts)) == 1:
        return tuple(f"rank {rank}" for rank in range(n))
    return tuple(f"rank {rank} on {host}" for rank, host in enumerate(group.hosts))


def chain_costs(plan: Plan, case: Case, group: Group) -> ChainCosts:
    """The constants that price chains of a plan; of GPUs those of the reference machine."""
    if case.backend == "cuda":
        gpus = gpu_costs()
        kind = gpus.kinds[plan.proto]
        return ChainCosts(
            kind=kind,
            launch_s=gpus.launch_us * 1e-6,
            hop_s=kind.hop_us * 1e-6,
            price_s=None,
            machine=gpus.name,
        )
    on = replace(cpu_costs(), cores=cores_of(group))
    return ChainCosts(
        kind=on.kinds[plan.proto],
        launch_s=on.launch_us * 1e-6,
        hop_s=on.hop_us * 1e-6,
        price_s=cpu_price(plan, on),
        machine=on.name,
    )
