"""Traces of cases on CPUs: what `trace` and `sweep --trace` measure."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

from collbench.analysis.launch_graph import launch_graph
from collbench.analysis.trace_summary import ChainCosts
from collbench.backends.cpu.trace import TracedSession, TraceOrder
from collbench.bench.runner import cores_of
from collbench.launch.group import Group
from collbench.planning.lowering import actors
from collbench.planning.plan import Plan
from collbench.pricing.constants import cpu_costs
from collbench.pricing.cpus import cpu_price
from collbench.results.trace import Trace
from collbench.spec.case import Case
from collbench.util.errors import CollbenchError, UnavailableError
from collbench.util.units import format_size

_PAIRS, _WARM_UP = 50, 3  # of a traced launch and one that is not
_MOST_ACTIONS = 200_000  # of all ranks and launches: a file of 100 MB


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
    pairs = max(_PAIRS, launches)
    order = TraceOrder((0.0,) * plan.n, _WARM_UP + pairs, has_plain=True)
    with closing(TracedSession(group, [plan], hot=True)) as session:
        found = session.trace(plan, order, timeout_s)
    if found.wrong:
        raise CollbenchError(f"{found.wrong} elements of the result are wrong", "run a sweep")
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


def chain_costs(plan: Plan, group: Group) -> ChainCosts:
    on = replace(cpu_costs(), cores=cores_of(group))
    return ChainCosts(
        kind=on.kinds[plan.proto],
        launch_s=on.launch_us * 1e-6,
        hop_s=on.hop_us * 1e-6,
        price_s=cpu_price(plan, on),
        machine=on.name,
    )
