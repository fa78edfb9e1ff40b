"""Carry out `hunt --blame`: trace a collective, say what took its time, and confirm it."""

import sys
from collections.abc import Sequence
from contextlib import closing
from statistics import median

from collbench.backends import FAMILY
from collbench.backends.cpu.trace import TracedSession, TraceOrder
from collbench.bench.points import plan_points
from collbench.bench.rank0 import drive_on_rank0, group_here
from collbench.bench.ranks import Ranks
from collbench.bench.trace.blame import Blame, blame, is_saved
from collbench.bench.trace.blame_table import as_json, lines
from collbench.core.case import Case
from collbench.core.errors import CollbenchError, UnavailableError, UsageError
from collbench.core.files import check_writable, write_document
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.launcher import launcher
from collbench.core.options import Options
from collbench.core.screen import remark, say, width
from collbench.core.text import counted
from collbench.planning.lowering import actors
from collbench.planning.plan import Plan
from collbench.planning.selection import algorithms_of

_SIZE_BYTES = 1 << 20
_LEAST_CORES, _MOST_CORES = 3, 8
_LAUNCHES, _WARM_UP = 10, 2
_RING = "ring"  # whose links can be left out, which confirms a verdict


class _Experiment:
    """Ranks that run a case, and for a ring the orders without one of its links, by that link."""

    def __init__(self, group: Group, case: Case, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.plan = _plan(group, case)
        n = self.plan.n
        links = [(rank, (rank + 1) % n) for rank in range(n)] if case.algo == _RING else []
        self.without = {
            link: _plan(group, case, order) for link in links if (order := _order_without(n, link))
        }
        self._session = TracedSession(group, [self.plan, *self.without.values()], hot=True)

    def blame(self, plan: Plan, delays_s: Sequence[float] = ()) -> Blame:
        """What the launches of a plan show, the first of which warm up."""
        order = TraceOrder(
            tuple(delays_s) or (0.0,) * plan.n, _WARM_UP + _LAUNCHES, is_input_late=True
        )
        traced = self._session.trace(plan, order, self.timeout_s)
        if traced.wrong:
            wrong = counted(traced.wrong, "element")
            raise CollbenchError(f"{wrong} of the result came out wrong", "run a sweep")
        by_rank = [actors(plan, rank) for rank in range(plan.n)]
        return blame(plan, by_rank, traced.launches[_WARM_UP:])

    def close(self) -> None:
        """End the ranks."""
        self._session.close()


def _plan(group: Group, case: Case, order: tuple[int, ...] = ()) -> Plan:
    """The plan of the case, with its ranks in an order if one is given. Raises UsageError for what
    nothing can run, UnavailableError for what cannot run here.
    """
    (point,) = plan_points([case], group, where=Ranks(orders=(order,) if order else ()))
    if point.plan is None or point.waived:
        is_asked = not FAMILY.load(case.backend).why_not(group) and point.plan is None
        error = UsageError if is_asked else UnavailableError
        raise error(point.waived, "give another --op, --algo or --size")
    return point.plan


def run_blame(options: Options) -> int:
    """The whole command; returns the exit code."""
    timeout_s = options["timeout"] or 10.0
    under = launcher()
    ranks = options["ranks"] or min(max(usable_cores(), _LEAST_CORES), _MOST_CORES)
    group = group_here(timeout_s)
    case = Case(
        op=options["op"],
        backend="cpu",
        algo=options["algo"] or (_RING if _RING in algorithms_of(options["op"]) else "auto"),
        proto="simple",
        ranks=under.size if under is not None else ranks,
        size_bytes=options["size"] or _SIZE_BYTES,
    )
    return drive_on_rank0(group, lambda: _drive(options, group, case, timeout_s))


def _drive(options: Options, group: Group, case: Case, timeout_s: float) -> int:
    if options["json"] not in (None, "-"):
        check_writable(options["json"], "--json")
    with closing(_Experiment(group, case, timeout_s)) as experiment:
        plan = experiment.plan
        found = experiment.blame(plan)
        names = _names(group, plan.n)
        is_confirmed, text = _confirmed(experiment, found, names) if found.part else (False, "")
    if options["json"] is not None:
        hosts = ", ".join(dict.fromkeys(group.hosts))
        document = as_json(found, names, hosts, text, is_confirmed=is_confirmed)
        write_document(document, options["json"], "--json")
    out = sys.stderr if options["json"] == "-" else sys.stdout
    shown = lines(found, names, text, width(out), is_confirmed=is_confirmed)
    say("\n".join(shown), file=out)
    remark(
        f"{case.op} by {plan.schedule.name} of {plan.n} ranks, {_LAUNCHES} launches, result"
        " compared; waits polled by the ranks themselves"
    )
    return 1 if found.part is not None and is_confirmed else 0


def _confirmed(experiment: _Experiment, found: Blame, names: Sequence[str]) -> tuple[bool, str]:
    """Whether runs without the cause save what they should, and what is said of it. Runs with and
    without it take turns.
    """
    assert found.part is not None
    kind, key = found.part
    plan, delays, how = experiment.plan, [0.0] * experiment.plan.n, "with all others as late"
    if kind == "late":
        delays = [0.0 if rank in key else found.excess_s for rank in range(plan.n)]
    elif kind == "link" and key in experiment.without:
        plan, how = experiment.without[key], "in an order without this link"
    else:
        return False, "Not confirmed: there is no run of this algorithm without it."
    first = experiment.blame(plan, delays)
    with_it = [*found.totals_s, *experiment.blame(experiment.plan).totals_s]
    second = experiment.blame(plan, delays)
    without = [*first.totals_s, *second.totals_s]
    is_confirmed = is_saved(with_it, without, found.excess_s)
    took = f"{median(without) * 1e3:.3g} ms, not {median(with_it) * 1e3:.3g}"
    if not is_confirmed and (kept := _end_that_kept_it(found, first, second, names)):
        return True, f"Confirmed, but not the link alone: {how} a launch takes {took}, and {kept}."
    return (
        is_confirmed,
        f"{'Confirmed' if is_confirmed else 'Not confirmed'}: {how} a launch takes {took}.",
    )


def _end_that_kept_it(found: Blame, first: Blame, second: Blame, names: Sequence[str]) -> str:
    """The end of a slow link whose other links are slow as well, by both runs without the link."""
    parts = {one.part for one in (first, second)}
    if found.part is None or found.part[0] != "link" or len(parts) > 1 or None in parts:
        return ""
    (again,) = parts
    assert again is not None
    for place, what in ((0, "sends slowly to"), (1, "receives slowly from")):
        if again[0] == "link" and again[1][place] == found.part[1][place]:
            return f"{names[again[1][place]]} {what} {names[again[1][1 - place]]}, too"
    return ""


def _order_without(n: int, link: tuple[int, ...]) -> tuple[int, ...]:
    """An order of ranks in which the second of a link does not follow the first.

    >>> _order_without(4, (1, 2)), _order_without(3, (0, 1)), _order_without(2, (0, 1))
    ((0, 1, 3, 2), (0, 2, 1), ())
    """
    if n < 3:
        return ()
    order = list(range(n))
    _, b = link
    place, after = b, (b + 1) % n
    order[place], order[after] = order[after], order[place]
    start = order.index(0)
    return (*order[start:], *order[:start])


def _names(group: Group, n: int) -> list[str]:
    """The hosts, or the ranks where hosts have several."""
    if group.ranks and len(set(group.hosts)) == n:
        return list(group.hosts)
    return [f"rank {rank}" for rank in range(n)]
