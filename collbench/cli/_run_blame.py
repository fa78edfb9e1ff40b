"""Carry out `hunt --blame`: trace launches, follow them to their root, and run again without it."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from collbench.analysis.blame import Blame, Cause, blame
from collbench.backends.cpu.backend import BACKEND, CpuSession
from collbench.bench.runner import plan_points, session_options
from collbench.cli._files import write_document
from collbench.cli._screen import say
from collbench.launch.group import Group
from collbench.planning.plan import Plan
from collbench.report.tables.blame import Confirmation, as_json, lines, verdict
from collbench.schedules.algorithms import algorithms_of
from collbench.spec.case import Case
from collbench.spec.collectives import OpName
from collbench.spec.options import Settings
from collbench.util.errors import UnavailableError
from collbench.util.units import format_size

_LAUNCHES = 30
_RING = "ring"  # whose order decides which links there are


def run_blame(group: Group, ranks: int, op: OpName, size_bytes: int, json: str | None) -> int:
    """Trace, show and write; returns the exit code: 1 if something stands out and a second run
    confirms it.
    """
    out = sys.stderr if json == "-" else sys.stdout
    algo = _RING if _RING in algorithms_of(op, has_hosts=False) else "auto"
    case = Case(op=op, backend="cpu", ranks=ranks, size_bytes=size_bytes, algo=algo)
    # whose flags are apart from the data
    case = replace(case, proto="simple").rounded()
    plan = _plan(group, case)
    say(
        f"# {op} of {format_size(size_bytes)} by {algo}, {ranks} ranks on CPUs, {_LAUNCHES} traced"
        " launches",
        file=out,
    )
    found = _traced(group, plan, [0.0] * ranks)
    second = _again(group, case, plan, found) if found.root else None
    say("\n".join(lines(found, ranks)), file=out)
    say(f"\n{verdict(found, second)}", file=out)
    if json is not None:
        write_document(as_json(found, second), json, "--json")
    return int(second is not None and second.is_met(found))


def _plan(group: Group, case: Case, order: tuple[int, ...] = ()) -> Plan:
    """The plan of a case; order: of a ring."""
    (point,) = plan_points([case], group, orders=lambda _: (order,) if order else ())
    if point.plan is None or point.waived:
        raise UnavailableError(point.waived or "it cannot be planned", "give another --size")
    return point.plan


def _traced(group: Group, plan: Plan, delays_s: Sequence[float]) -> Blame:
    session: CpuSession = BACKEND.open(group, [plan], session_options(Settings(hot=True), group))
    try:
        launches = session.traced(plan, _LAUNCHES, delays_s)
    finally:
        session.close()
    return blame(launches, [(one.src, one.dst) for one in plan.connections])


def _again(group: Group, case: Case, plan: Plan, found: Blame) -> Confirmation:
    """A second run: the others enter as late as the late rank, or a ring without the slow link."""
    root, ranks = found.root, case.ranks
    assert root is not None
    if root.kind == "late":
        delays = [0.0 if rank == root.a else found.excess_s[root] for rank in range(ranks)]
        return Confirmation(
            changed=f"when the others enter as much later as rank {root.a} did",
            seconds=_traced(group, plan, delays).seconds,
        )
    order = _order_without(root, ranks) if root.kind == "link" else ()
    if not order:
        return Confirmation(
            changed="",
            reason="no order of so few ranks avoids the link"
            if root.kind == "link"
            else "the work of a rank cannot be left out",
        )
    other = _plan(group, case, order)
    return Confirmation(
        changed=f"by a ring in the order {', '.join(map(str, order))}, which has no such link",
        seconds=_traced(group, other, [0.0] * ranks).seconds,
    )


def _order_without(link: Cause, ranks: int) -> tuple[int, ...]:
    """An order of a ring in which no rank sends over a link, if there is one.

    >>> _order_without(Cause("link", 1, 2), 4), _order_without(Cause("link", 0, 1), 2)
    ((1, 0, 2, 3), ())
    """
    for first in range(ranks):
        order = list(range(ranks))
        second = (first + 1) % ranks
        order[first], order[second] = order[second], order[first]
        steps = set(zip(order, [*order[1:], order[0]], strict=True))
        if (link.a, link.b) not in steps and (link.b, link.a) not in steps:
            return tuple(order)
    back = tuple(reversed(range(ranks)))
    steps = set(zip(back, [*back[1:], back[0]], strict=True))
    return back if (link.a, link.b) not in steps else ()
