"""What one file says: the best configuration of every problem, where the best changes, and what
each knob is worth. Pure.

The best is chosen on some repeats and reported on the others, as at the end of a sweep. Libraries
are peers that ours are compared with; where a file has none of ours, the best of the library's rows
is told, forced ones among them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from collbench.analysis.rows import (
    KNOBS,
    LEAST_GAIN,
    Problem,
    Row,
    asked_knobs,
    by_problem,
    chosen,
    collector_at_rest,
    configuration,
    is_separated,
    middle,
    ratio,
    rows_of,
)
from collbench.results.statistics import Interval
from collbench.util.units import format_size

if TYPE_CHECKING:
    import pandas as pd

WORTH = ("algo", "proto", *KNOBS)
# Largest size of a band and its name: latency; the middle, where protocols change; and what the
# wires bound.
BANDS = (
    (64 << 10, "up to 64K"),
    (1 << 20, "128K-1M"),
    (16 << 20, "2-16M"),
    (64 << 20, "32-64M"),
    (1 << 30, "128M-1G"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The best row of a problem and size. time_us, busbw_gbs, gain and peers are of repeats that
    had no part in choosing it, if is_held_out.

    busbw_gbs is None where the file has none. gain is the runner-up's time over its own, peers that
    of each library's own choice; is_clear: intervals of all repeats of the first two do not touch.
    excess: how many times as long the tool's own choice takes.
    """

    row: Row
    rows: int
    time_us: float
    busbw_gbs: float | None
    percent: float | None
    is_held_out: bool
    is_clear: bool
    runner_up: Row | None
    gain: Interval | None
    peers: Mapping[str, Interval]
    excess: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Sizes in a row at which the same value of a knob is best, or not told from the best."""

    value: str
    first_bytes: int
    last_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a knob is worth at one size: the time of its worst value over that of its best, the rest
    as in the best configuration.
    """

    factor: float
    best: object
    worst: object
    values: int
    is_clear: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All that a file says; by problem, then size."""

    rows: Sequence[Row]
    asked: Mapping[str, tuple[str, ...]]
    problems: Mapping[Problem, Mapping[int, Sequence[Row]]]
    winners: Mapping[Problem, Mapping[int, Winner]]
    peers: tuple[str, ...]


@collector_at_rest()
def answers(frame: "pd.DataFrame") -> Answers:
    """The answers of a frame."""
    rows = rows_of(frame)
    problems = by_problem(rows)
    winners = {
        problem: {size: winner(here) for size, here in sizes.items()}
        for problem, sizes in problems.items()
    }
    peers = sorted(
        {peer for sizes in winners.values() for found in sizes.values() for peer in found.peers}
    )
    return Answers(
        rows=rows,
        asked=asked_knobs(problems),
        problems=problems,
        winners=winners,
        peers=tuple(peers),
    )


def candidates(rows: Sequence[Row]) -> list[Row]:
    """Ours, or the library's rows where there are none of ours."""
    return [row for row in rows if not row.is_library] or list(rows)


def winner(rows: Sequence[Row]) -> Winner:
    """The best of the rows of one problem and size."""
    able = candidates(rows)
    row = chosen(able)
    is_held_out = len(able) > 1 and len(row.times_us) > 1
    repeats = range(1 if is_held_out else 0, len(row.times_us), 2 if is_held_out else 1)
    others = [other for other in able if other is not row]
    second = chosen(others) if others else None
    time_us = middle(row.times_us, repeats)
    busbw = (
        row.busbw_gbs * middle(row.times_us) / time_us if row.busbw_gbs == row.busbw_gbs else None
    )
    choice = next(
        (other for other in able if other.backend == row.backend and other.has_note("auto")), None
    )
    peers = {
        other.backend: told
        for other in rows
        if other is not row
        and other.is_own_choice
        and (told := ratio(other.times_us, row.times_us, _shared(other, row, repeats))) is not None
    }
    return Winner(
        row=row,
        rows=len(able),
        time_us=time_us,
        busbw_gbs=busbw,
        is_held_out=is_held_out,
        runner_up=second,
        peers=peers,
        percent=(
            100 * busbw / row.ceiling_gbs if busbw is not None and row.ceiling_gbs > 0 else None
        ),
        is_clear=second is not None and is_separated(row.times_us, second.times_us),
        gain=(
            ratio(second.times_us, row.times_us, _shared(second, row, repeats))
            if second is not None
            else None
        ),
        excess=(
            ratio(choice.times_us, row.times_us, _shared(choice, row, repeats))
            if choice is not None
            else None
        ),
    )


def _shared(other: Row, row: Row, repeats: Sequence[int]) -> Sequence[int]:
    """The repeats to compare on: those held out, or all that both have where the other has none of
    those.
    """
    return (
        repeats
        if any(k < len(other.times_us) for k in repeats)
        else range(min(len(other.times_us), len(row.times_us)))
    )


def spans(sizes: Mapping[int, Sequence[Row]], name: str) -> list[Span]:
    """Where the best value of a knob changes with the size. A value is kept until another is told
    to be faster than it.

    Sizes at which only one value ran are left out: they show no choice.
    """
    found: list[Span] = []
    for size, rows in sizes.items():
        groups: dict[str, list[Row]] = {}
        for row in candidates(rows):
            value = str(getattr(row, name))
            if value not in ("", "library"):
                groups.setdefault(value, []).append(row)
        if len(groups) < 2:
            continue
        fastest = {value: chosen(group) for value, group in groups.items()}
        value = str(getattr(chosen(list(fastest.values())), name))
        if (
            found
            and found[-1].value in fastest
            and not _is_faster(fastest[value], fastest[found[-1].value])
        ):
            value = found[-1].value
        if found and found[-1].value == value:
            found[-1] = Span(value=value, first_bytes=found[-1].first_bytes, last_bytes=size)
        else:
            found.append(Span(value=value, first_bytes=size, last_bytes=size))
    return found


def _is_faster(row: Row, other: Row) -> bool:
    """Whether it is told to be faster, and by enough to speak of; of single repeats, which tell
    nothing more, by the latter alone.
    """
    is_single = min(len(row.times_us), len(other.times_us)) < 2
    return middle(other.times_us) >= LEAST_GAIN * middle(row.times_us) and (
        is_single or is_separated(row.times_us, other.times_us)
    )


def span_text(found: Sequence[Span]) -> str:
    """Spans in words.

    >>> span_text(
    ...     [
    ...         Span(value="ll", first_bytes=8, last_bytes=1024),
    ...         Span(value="simple", first_bytes=4096, last_bytes=65536),
    ...     ]
    ... )
    'll to 1K, simple from 4K'
    """
    if len(found) == 1:
        return f"{found[0].value} at all sizes"
    parts = []
    for place, span in enumerate(found):
        first, last = format_size(span.first_bytes), format_size(span.last_bytes)
        if place == 0:
            parts.append(f"{span.value} to {last}")
        elif place == len(found) - 1:
            parts.append(f"{span.value} from {first}")
        else:
            parts.append(
                f"{span.value} {first}-{last}" if first != last else f"{span.value} {first}"
            )
    return ", ".join(parts)


def worth(
    rows: Sequence[Row], top: Row, asked: Mapping[str, Sequence[str]], name: str
) -> Worth | None:
    """What a knob is worth at one problem and size, the rest as in the best row; None where it took
    one value there.
    """
    names = ("algo", "proto", *asked.get(top.backend, ()))
    if name not in names:
        return None
    others = attrgetter("backend", *[other for other in names if other != name])
    rest = others(top)
    least: dict[object, Row] = {}  # of each value: what no knob tells apart is no worth of this one
    for row in candidates(rows):
        if others(row) == rest and not row.is_own_choice:
            value = getattr(row, name)
            if value not in least or middle(row.times_us) < middle(least[value].times_us):
                least[value] = row
    if len(least) < 2:
        return None
    ordered = sorted(least.values(), key=lambda row: middle(row.times_us))
    fast, slow = ordered[0], ordered[-1]
    return Worth(
        factor=middle(slow.times_us) / middle(fast.times_us),
        best=getattr(fast, name),
        worst=getattr(slow, name),
        values=len(least),
        is_clear=is_separated(fast.times_us, slow.times_us),
    )


def bands(
    rows: Sequence[Row], peer: str = "nccl"
) -> dict[Problem, list[tuple[int, Interval] | None]]:
    """Of each problem and band, the size with the lowest ratio of a peer's own choice to ours, and
    that ratio.

    Ours is the row marked auto, or the only one: of a sweep of `--algo auto --channels 24`, which
    asks what is best with 24.
    """
    found: dict[Problem, list[tuple[int, Interval] | None]] = {}
    for problem, sizes in by_problem(rows).items():
        worst: list[tuple[int, Interval] | None] = [None] * len(BANDS)
        for size, here in sizes.items():
            own = [row for row in here if not row.is_library]
            ours = (
                own[0]
                if len(own) == 1
                else next((row for row in own if row.has_note("auto")), None)
            )
            theirs = next((row for row in here if row.backend == peer and row.is_own_choice), None)
            place = next((k for k, (last, _) in enumerate(BANDS) if size <= last), None)
            if ours is None or theirs is None or place is None:
                continue
            told, so_far = ratio(theirs.times_us, ours.times_us), worst[place]
            if told is not None and (so_far is None or told.median < so_far[1].median):
                worst[place] = size, told
        if any(worst):
            found[problem] = worst
    return found


def curves(found: Answers) -> dict[tuple[object, ...], list[Row]]:
    """Rows of every problem and configuration, sizes ascending; the curves that time against size
    makes.
    """
    lines: dict[tuple[object, ...], list[Row]] = {}
    for problem, sizes in found.problems.items():
        for rows in sizes.values():
            for row in rows:
                lines.setdefault((problem, configuration(row, found.asked)), []).append(row)
    return lines
