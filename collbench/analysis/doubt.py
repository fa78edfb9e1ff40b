"""Why a set of rows cannot show which configuration is best, and what to do about it. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collbench.analysis.best import Summary
from collbench.analysis.rows import DISTURBED, Row

MOSTLY = 0.5  # share of rows that are noise: from here on the report says so first
LEAST_REPEATS = 9  # that are advised: from 6 on an interval leaves the slowest and fastest out
MORE_REPEATS = 3  # times as many as were measured
_CORES = re.compile(r"\((\d+) cores\)")  # in `device` of rows that CPUs measured
_DISTURBANCES = {
    "other-processes": "other processes were busy",
    "throttled": "clocks were throttled",
    "clocks-low": "clocks were low",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """What cannot be told, why, and what to do."""

    headline: str
    reasons: tuple[str, ...]
    remedies: tuple[str, ...]


def doubt(summary: Summary) -> Doubt | None:
    """The doubt about a summary; None if some size is decided and most rows are not noise."""
    timed = [row for row in summary.rows if row.status == "ok" and row.times_us]
    noise = [row for row in timed if row.is_noise]
    if not timed or (
        any(best.is_certain for best in summary.every_best) and len(noise) <= MOSTLY * len(timed)
    ):
        return None
    share = f"all {len(timed)}" if len(noise) == len(timed) else f"{len(noise)} of {len(timed)}"
    if any(best.is_certain for best in summary.every_best):
        headline = f"Most rows are noise ({share}): few answers below are certain."
    else:
        why = f"{share} rows are noise" if noise else "there is one repeat of each row"
        headline = (
            f"Cannot tell which configuration is best: {why}. No winner and no crossover is"
            " claimed."
        )
    repeats = max(LEAST_REPEATS, MORE_REPEATS * max(len(row.times_us) for row in timed))
    more_repeats = f"measure more repeats (--repeats {repeats})"
    if not noise:
        return Doubt(
            headline=headline,
            reasons=("one repeat does not show how far two runs of the same thing differ",),
            remedies=(more_repeats,),
        )
    crowded = _crowded(noise)
    disturbances = _disturbances(noise)
    reasons = [_spread(noise)]
    if crowded is not None:
        ranks, cores = crowded
        reasons.append(f"{ranks} ranks ran on {cores} cores, which leaves none for anything else")
    reasons += disturbances
    if crowded is None and not disturbances:
        reasons.append("the rows do not show the cause; load of other processes is the usual one")
    remedies = ["end other processes", more_repeats]
    if crowded is not None:
        ranks, cores = crowded
        fewer = max(2, cores - 1)
        remedies.insert(
            0,
            f"measure fewer ranks (--ranks {fewer})"
            if fewer < ranks
            else f"take a host with more than {cores} cores",
        )
    return Doubt(headline=headline, reasons=tuple(reasons), remedies=tuple(remedies))


def _spread(rows: Sequence[Row]) -> str:
    """How far repeats of one row differ."""
    shares = [(max(row.times_us) - min(row.times_us)) / median(row.times_us) for row in rows]
    return (
        f"repeats of one row differ by {100 * median(shares):.0f}% of its time in the median,"
        f" up to {100 * max(shares):.0f}%"
    )


def _crowded(rows: Sequence[Row]) -> tuple[int, int] | None:
    """The most ranks on one host, and its cores, where they are no fewer; None if unknown."""
    counts = [
        (row.ranks // max(1, row.hosts), int(cores[1]))
        for row in rows
        if (cores := _CORES.search(row.device)) is not None
    ]
    return max((one for one in counts if one[0] >= one[1]), default=None)


def _disturbances(rows: Sequence[Row]) -> list[str]:
    """What the notes say of the machine."""
    count = Counter(
        name
        for row in rows
        for name in DISTURBED
        if any(word.startswith(name) for word in row.notes.split())
    )
    return [f"{_DISTURBANCES[name]} in {count[name]} rows" for name in DISTURBED if count[name]]
