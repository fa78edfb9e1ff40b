"""Carry out `explain`: measure the tool's choice, its neighbours and MPI, and trace one launch."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from collbench.analysis.trace_summary import summary
from collbench.bench.runner import Measurement, SweepPoint, plan_points
from collbench.cli._options import width
from collbench.cli._rank0 import drive_on_rank0, group_here
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.cli._traces import chain_costs, default_ranks, traced
from collbench.launch.group import Group
from collbench.launch.launcher import launcher
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.report.tables.explain import Explanation, Neighbour, explain_lines
from collbench.results.record import Record
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.schedules.passes import traffic
from collbench.spec.case import Case
from collbench.spec.knobs import KNOB
from collbench.spec.options import Settings
from collbench.util.errors import UnavailableError

_REPEATS = 5
_TRACED = 20  # launches
_FACTORS = (0.5, 2.0)  # of a knob that is a number
_NUMBERS = ("channels", "slots", "chunk")


def run_explain(options: Options) -> int:
    """The whole command; returns the exit code."""
    timeout_s = options["timeout"] or 10.0
    under = launcher()
    ranks = under.size if under is not None else options["ranks"] or default_ranks()
    case = Case(op=options["op"], backend="cpu", ranks=ranks, size_bytes=options["size"])
    group = group_here(timeout_s)
    return drive_on_rank0(group, lambda: _drive(group, case, timeout_s))


def _drive(group: Group, case: Case, timeout_s: float) -> int:
    (own,) = plan_points([case], group)
    if own.plan is None or own.waived:
        raise UnavailableError(own.waived or "no plan", "change --op or --size")
    plan = own.plan
    points: dict[Case, tuple[str, SweepPoint]] = {own.case: ("", own)}
    for flag, neighbour in _neighbours(case, own.case):
        (point,) = plan_points([neighbour], group)
        if point.plan is not None and not point.waived:
            points.setdefault(point.case, (flag, point))
    (mpi,) = plan_points([replace(case, backend="mpi", algo="library", proto="")], group)
    rows, why_no_mpi = _measured([*(point for _, point in points.values()), mpi], group, timeout_s)
    chosen, *others = rows[: len(points)]
    flags = [flag for flag, _ in points.values()][1:]
    trace = traced(plan, own.case, group, _TRACED, timeout_s)
    costs = chain_costs(plan, own.case, group)
    found = Explanation(
        row=chosen,
        origin=own.origin,
        hops=plan.proof.hops,
        hops_s=plan.proof.hops * costs.hop_s,
        sent=traffic(plan.schedule).sent,
        bytes_s=_bytes_s(plan, own.case, costs.kind.send_gbs),
        machine=costs.machine,
        trace=summary(trace, costs),
        neighbours=tuple(Neighbour(flag, row) for flag, row in zip(flags, others, strict=True)),
        library=rows[-1],
        why_no_library=why_no_mpi,
    )
    say("\n".join(explain_lines(found, width(sys.stdout))))
    return 0


def _neighbours(case: Case, own: Case) -> Iterator[tuple[str, Case]]:
    """The case with one knob given, and how that is written. own: the case as it was chosen."""
    for name in ALGORITHMS.names():
        if case.op in ALGORITHMS.load(name).SERVES:
            yield f"--algo {name}", replace(case, algo=name)
    for name in PROTOCOLS.names():
        yield f"--proto {name}", replace(case, proto=name)
    for name in _NUMBERS:
        for factor in _FACTORS:
            value = int(getattr(own, name) * factor)
            if value > 0:
                text = f"{KNOB[name].flag} {KNOB[name].text(value)}"
                yield text, replace(own, **{name: value})  # type: ignore[arg-type]  # is a number


def _measured(points: list[SweepPoint], group: Group, timeout_s: float) -> tuple[list[Record], str]:
    """The rows of the points, and why the last one has no time. Raises UnavailableError if another
    has none.
    """
    measurement = Measurement(points, group, Settings(repeats=_REPEATS, timeout_s=timeout_s))
    with closing(measurement):
        measurement.open()
        found = {row.point: row for row in measurement.records()}
        rows = [found[measurement.key_of(point)] for point in points]
    for row in rows[:-1]:
        if row.status != "ok":
            raise UnavailableError(f"{row.status}: {row.reason}", "change --op or --size")
    return rows, rows[-1].reason if rows[-1].status != "ok" else ""


def _bytes_s(plan: Plan, case: Case, send_gbs: float) -> float:
    """Seconds that the busiest rank needs to send its bytes."""
    return float(traffic(plan.schedule).sent) * case.size_bytes / (send_gbs * 1e9)
