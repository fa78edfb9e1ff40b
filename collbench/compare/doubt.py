"""Why a set of rows cannot show which configuration is best, and what to do about it. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collbench.compare.best import Summary
from collbench.core.limits import ADVISED_REPEATS, MOSTLY
from collbench.core.record import Record
from collbench.core.rows import CORES, DISTURBED, has_note, is_noise, is_timed, times_of
from collbench.core.text import titled, wrapped
from collbench.core.verdict import is_noisy

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
    timed = [row for row in summary.rows if is_timed(row)]
    if len(timed) == 1:
        return doubt_of_one(timed[0])
    noise = [row for row in timed if is_noise(row)]
    has_answers = any(best.is_certain for best in summary.every_best)
    if not timed or (has_answers and len(noise) <= MOSTLY * len(timed)):
        return None
    share = f"all {len(timed)}" if len(noise) == len(timed) else f"{len(noise)} of {len(timed)}"
    if has_answers:
        headline = f"Most rows are noise ({share}): few answers below are certain."
    elif noise and all(len(best.rows) == 1 for best in summary.every_best):
        headline = f"The times are noise ({share} rows): none of them is certain."
    else:
        why = f"{share} rows are noise" if noise else "there is one repeat of each row"
        headline = (
            f"Cannot tell which configuration is best: {why}. No winner and no crossover is"
            " claimed."
        )
    return doubt_of(headline, noise, max(len(times_of(row)) for row in timed))


def doubt_of_one(row: Record) -> Doubt | None:
    """The doubt about a row that stands alone; None if its repeats agree, or it has no time."""
    if not (is_timed(row) and is_noise(row)):
        return None
    return doubt_of("The time is noise: it is not certain.", [row], len(times_of(row)))


def doubt_of_changes(rows: Sequence[Record], name: str) -> Doubt | None:
    """The doubt about a file that is compared with another; None if most rows are not noise."""
    timed = [row for row in rows if is_timed(row)]
    noise = [row for row in timed if is_noise(row)]
    if len(noise) <= MOSTLY * len(timed):
        return None
    return doubt_of(
        f"{name}: {len(noise)} of {len(timed)} rows are noise. What differs below may be the load"
        " of the machine and not what was measured.",
        noise,
        max(len(times_of(row)) for row in timed),
    )


def doubt_of(headline: str, noise: Sequence[Record], repeats: int) -> Doubt:
    """Why rows are noise, if any are, and what to do. repeats: how many rows have at most."""
    more_repeats = f"measure more repeats (--repeats {ADVISED_REPEATS})"
    if not noise:
        return Doubt(
            headline=headline,
            reasons=("one repeat does not show how far two runs of the same thing differ",),
            remedies=(more_repeats,),
        )
    reasons, remedies = _disturbances(noise), ["end other processes (top shows them)"]
    crowded = _crowded(noise)
    if crowded is not None:
        ranks, cores = crowded
        reasons.append(f"{ranks} ranks ran on {cores} cores, which leaves none for anything else")
        fewer = max(2, cores - 1)
        remedies.append(
            f"measure fewer ranks (--ranks {fewer})"
            if fewer < ranks
            else f"take a host with more than {cores} cores"
        )
    if not reasons:
        reasons.append("the rows do not show the cause; load of other processes is the usual one")
    if spread := [row for row in noise if is_noisy(times_of(row))]:
        reasons.append(_spread(spread))
    if repeats < ADVISED_REPEATS:
        remedies.append(more_repeats)
    return Doubt(headline=headline, reasons=tuple(reasons), remedies=tuple(remedies))


def _spread(rows: Sequence[Record]) -> str:
    """How far repeats of one row differ."""
    shares = [(max(times_of(row)) - min(times_of(row))) / median(times_of(row)) for row in rows]
    return (
        f"repeats of one row differ by {100 * median(shares):.0f}% of its time in the median,"
        f" up to {100 * max(shares):.0f}%"
    )


def _crowded(rows: Sequence[Record]) -> tuple[int, int] | None:
    """The most ranks on one host, and its cores, where they are no fewer; None if unknown."""
    counts = [
        (row.ranks // max(1, row.hosts), int(cores[1]))
        for row in rows
        if (cores := CORES.search(row.device)) is not None
    ]
    return max((one for one in counts if one[0] >= one[1]), default=None)


def _disturbances(rows: Sequence[Record]) -> list[str]:
    """What the notes say of the machine. A row that is noisy although its repeats agree was
    measured while other processes had the cores.
    """
    count = Counter(
        name
        for row in rows
        for name in DISTURBED
        if any(word.startswith(name) for word in row.notes.split())
    )
    if loaded := sum(has_note(row, "noisy") and not is_noisy(times_of(row)) for row in rows):
        count["other-processes"] = max(count["other-processes"], loaded)
    return [
        f"{_DISTURBANCES[name]} in {count[name]} row{'s' * (count[name] > 1)}"
        for name in DISTURBED
        if count[name]
    ]


def doubt_lines(summary: Summary, columns: int) -> list[str]:
    """That the rows do not show what is best, why, and what to do; nothing where they do."""
    return lines_of(doubt(summary), columns)


def lines_of(known: Doubt | None, columns: int) -> list[str]:
    """A doubt as text; nothing where there is none."""
    if known is None:
        return []
    parts = (("why", known.reasons), ("what to do", known.remedies))
    told = [(title, "; ".join(texts)) for title, texts in parts]
    return [*wrapped(known.headline, columns), *titled(told, 12, columns), ""]
