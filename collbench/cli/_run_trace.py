"""Carry out `trace`: a case to traced launches, these to files and to the screen."""

import sys
from contextlib import closing
from dataclasses import replace

from collbench.analysis.launch_graph import launch_graph
from collbench.analysis.trace_summary import ChainCosts, summary
from collbench.backends.cpu.trace import TracedSession, TraceOrder
from collbench.bench.runner import cores_of, plan_points
from collbench.cli._files import check_writable, write_document
from collbench.cli._options import remark, width
from collbench.cli._rank0 import drive_on_rank0, group_here
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.launch.group import Group
from collbench.launch.launcher import launcher
from collbench.machine.host import usable_cores
from collbench.planning.lowering import actors
from collbench.planning.plan import Plan
from collbench.pricing.constants import cpu_costs
from collbench.pricing.cpus import cpu_price
from collbench.report.chrome_trace import chrome_trace
from collbench.report.page.trace import trace_page
from collbench.report.tables.trace import trace_json, trace_lines
from collbench.results.trace import Trace
from collbench.spec.case import Case
from collbench.util.errors import CollbenchError, UnavailableError
from collbench.util.units import format_size, format_time_us, to_us

_FILES = ("out", "html", "json")
_MOST_DEFAULT_RANKS = 8
_PAIRS, _WARM_UP = 50, 3  # of a traced launch and one that is not
_MOST_ACTIONS = 200_000  # of all ranks and launches: a file of 100 MB


def run_trace(options: Options) -> int:
    """The whole command; returns the exit code."""
    timeout_s = options["timeout"] or 10.0
    under = launcher()
    ranks = options["ranks"] or min(max(usable_cores(), 2), _MOST_DEFAULT_RANKS)
    group = group_here(timeout_s)
    case = Case(
        op=options["op"],
        backend="cpu",
        algo=options["algo"],
        proto=options["proto"],
        transport=options["transport"],
        ranks=under.size if under is not None else ranks,
        size_bytes=options["size"],
    )
    if options["channels"] is not None:
        case = replace(case, channels=options["channels"])
    return drive_on_rank0(group, lambda: _drive(options, group, case, timeout_s))


def _drive(options: Options, group: Group, case: Case, timeout_s: float) -> int:
    for name in _FILES:
        if options[name] not in (None, "-"):
            check_writable(options[name], f"--{name}")
    plan, case = _planned(case, group)
    trace = _measured(plan, case, group, options["launches"], timeout_s)
    costs = _costs(plan, group)
    found = summary(trace, costs)
    if options["out"] is not None:
        write_document(chrome_trace([trace]), options["out"], "--out")
    if options["html"] is not None:
        write_document(trace_page(trace, found, costs), options["html"], "--html")
    if options["json"] is not None:
        write_document(trace_json(trace, found, costs), options["json"], "--json")
    is_document = any(options[name] == "-" for name in _FILES)
    out = sys.stderr if is_document else sys.stdout
    say("\n".join(trace_lines(trace, found, costs, width(out))), file=out)
    if found.slowdown is not None:
        middle, low, high = ((value - 1) * 100 for value in found.slowdown)
        remark(
            f"result compared; a traced launch takes {middle:+.1f} % ({low:+.1f} to {high:+.1f}) of"
            f" one that is not, in {len(trace.slowdowns)} pairs"
        )
    if trace.clock_error_s:
        error_us = format_time_us(to_us(trace.clock_error_s))
        remark(f"clocks of different hosts are known to {error_us} us")
    return 0


def _planned(case: Case, group: Group) -> tuple[Plan, Case]:
    """The plan of the case, and the case with what was chosen."""
    (point,) = plan_points([case], group)
    if point.plan is None or point.waived:
        raise UnavailableError(point.waived or "no plan", "change --op, --algo, --proto or --size")
    return point.plan, point.case


def _measured(plan: Plan, case: Case, group: Group, launches: int, timeout_s: float) -> Trace:
    """The last launches, traced; of all, the cost of tracing. Raises CollbenchError if the result
    is wrong.
    """
    actions = plan.action_count() * plan.n * launches
    if actions > _MOST_ACTIONS:
        raise UnavailableError(
            f"{actions} actions in the launches of all ranks, at most {_MOST_ACTIONS}",
            "use fewer --launches or a smaller --size",
        )
    pairs = max(_PAIRS, launches)
    order = TraceOrder((0.0,) * plan.n, _WARM_UP + pairs, has_plain=True)
    with closing(TracedSession(group, [plan], hot=True)) as session:
        traced = session.trace(plan, order, timeout_s)
    if traced.wrong:
        raise CollbenchError(f"{traced.wrong} elements of the result are wrong", "run a sweep")
    by_rank = [actors(plan, rank) for rank in range(plan.n)]
    graphs = [launch_graph(plan, by_rank, ranks) for ranks in traced.launches[_WARM_UP:]]
    slowdowns = [
        graph.total_s / plain_s
        for graph, plain_s in zip(graphs, traced.plain_s[_WARM_UP:], strict=True)
    ]
    return Trace(
        title=_title(case, plan),
        names=_names(group, plan.n),
        launches=tuple(graphs[-launches:]),
        clock_error_s=traced.clock_error_s,
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


def _costs(plan: Plan, group: Group) -> ChainCosts:
    on = replace(cpu_costs(), cores=cores_of(group))
    return ChainCosts(
        kind=on.kinds[plan.proto],
        launch_s=on.launch_us * 1e-6,
        hop_s=on.hop_us * 1e-6,
        price_s=cpu_price(plan, on),
        machine=on.name,
    )
