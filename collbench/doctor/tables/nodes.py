"""The nodes whose checks were saved: the last verdict, how far it drifted, and since when."""

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from collbench.core.limits import FAR, HISTORY_RUNS, LEAST_SEGMENT
from collbench.core.text import table
from collbench.core.verdict import Array, noise_scale, segments
from collbench.doctor.check_verdict import SEVERITY, Verdict
from collbench.doctor.saved_checks import TIME, SavedCheck, own_level


class NodeState(NamedTuple):
    """A node. checks: how many of its newest kind. slower_by_percent: the time of its number that
    moved most: of a node that fails the last check over the good ones, else the last level over the
    first; None with fewer than HISTORY_RUNS checks. what, since: that number, and the day from
    which it is so; "" where nothing has moved for good.
    """

    host: str
    checks: int
    day: str
    verdict: Verdict
    slower_by_percent: float | None
    what: str
    since: str


def states_of(nodes: Mapping[str, Sequence[SavedCheck]]) -> list[NodeState]:
    """The nodes, the worst first: by verdict, then by how much slower they are."""
    states = [_state_of(host, checks) for host, checks in nodes.items()]
    return sorted(
        states,
        key=lambda one: (SEVERITY.index(one.verdict), -(one.slower_by_percent or 0.0), one.host),
    )


def _state_of(host: str, checks: Sequence[SavedCheck]) -> NodeState:
    last = checks[-1]
    mine = [one for one in checks if one.kind == last.kind]
    moved = _failure(mine)
    if moved is None and last.values and len(mine) >= HISTORY_RUNS:
        moved = _drift(mine)
    if moved is None:
        return NodeState(host, len(mine), last.day, last.verdict, None, "", "")
    drift, what, since = moved
    percent = round(100 * math.expm1(drift), 1)
    return NodeState(host, len(mine), last.day, last.verdict, percent, what, since)


def _failure(checks: Sequence[SavedCheck]) -> tuple[float, str, str] | None:
    """Of a node whose last checks failed: how much longer its worst number takes than in the good
    ones, as a logarithm, its name and the day of the first that failed; None if nothing says so.
    """
    good = [one for one in checks if one.is_reference]
    failed = list(takewhile(lambda one: not one.is_reference, reversed(checks)))
    if not failed:
        return None
    slower = {}
    for key, value in failed[0].values.items():
        if past := [one.values[key] for one in good if key in one.values]:
            sign = 1 if key.endswith(TIME) else -1
            slower[key] = sign * math.log(value / own_level(past, key))
    worst = max(slower, key=slower.__getitem__, default="")
    if not worst or slower[worst] <= 0:
        return None
    return slower[worst], _name(worst), failed[-1].day


def _name(key: str) -> str:
    """The name of a number without its unit."""
    return key.rpartition(", ")[0]


def _drift(checks: Sequence[SavedCheck]) -> tuple[float, str, str]:
    """Of the number that moved most between the first checks and the last ones: by how much, as a
    logarithm of its time, its name and the day of the last change; 0 where it has one level.
    """
    keys = list(checks[-1].values)
    if all(list(one.values) == keys for one in checks):  # as a rule, and in a third of the time
        numbers = [list(one.values.values()) for one in checks]
    else:
        keys = [key for key in keys if sum(key in one.values for one in checks) > 1]
        numbers = [[one.values.get(key, math.nan) for key in keys] for one in checks]
    logs = np.log(numbers)
    logs *= [1 if key.endswith(TIME) else -1 for key in keys]  # as times: more is slower
    first, late = (
        _middles(part)
        for part in (logs[: max(LEAST_SEGMENT, len(logs) // 3)], logs[-LEAST_SEGMENT:])
    )
    moved = np.nan_to_num(np.abs(late - first))
    if not len(moved):
        return 0.0, "", ""
    place = int(np.argmax(moved))
    series = logs[:, place]
    scale = noise_scale(series)
    if moved[place] <= FAR * scale:  # else nothing can have changed by as much
        return 0.0, "", ""
    known = np.flatnonzero(~np.isnan(series))
    changes, levels = segments(series[known].tolist(), scale)
    if not changes:
        return 0.0, "", ""
    return levels[-1] - levels[0], _name(keys[place]), checks[int(known[changes[-1]])].day


def _middles(part: Array) -> Array:
    """The median of each column, NaN where it has nothing."""
    ordered = np.sort(part, axis=0)
    counts = (~np.isnan(part)).sum(axis=0)
    middle: Array = ordered[np.maximum(counts - 1, 0) // 2, np.arange(part.shape[1])]
    return middle


def _slower_by(percent: float | None) -> str:
    """Of a node; `same` where no level has changed."""
    if percent is None:
        return "-"
    return f"{percent:+.1f}%" if percent else "same"


def node_lines(states: Sequence[NodeState], columns: int) -> list[str]:
    """A line a node."""
    rows = [
        (
            one.host,
            f"{one.checks}",
            one.day,
            one.verdict,
            _slower_by(one.slower_by_percent),
            one.since,
            one.what,
        )
        for one in states
    ]
    heads = ("node", "checks", "last", "verdict", "slower by", "since", "what")
    return table(heads, rows, {1, 4}, columns)
