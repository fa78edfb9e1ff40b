"""Which configuration is best at every size of every workload, and whether that is certain. Pure.

`best_of` is the only place that decides it: the closing table of a sweep, the report of one file,
plots and pages show its answer.

1. Our rows compete; where a file has none of ours, those of the library do.
2. A row is beaten if another one's median is less by LEAST_GAIN and by SURE_Z standard deviations.
   These come from how far repeats of like rows differ, so that no single repeat decides.
3. One row that is not beaten is the winner. Several are tied, and the simplest leads with its own
   time: the fastest of many is also the luckiest, and it is not claimed.
4. Where all rows are noise, or the fastest has one repeat only, nothing is decided. Noise has no
   ratios either: the row with the least median stands alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Literal, NamedTuple

from collbench.core.grouping import grouped
from collbench.core.knobs import UNASKED
from collbench.core.limits import LEAST_GAIN, SURE_Z
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.rows import (
    KNOB_FIELDS,
    Workload,
    by_workload,
    configuration,
    distinguishing_knobs,
    fastest,
    has_note,
    is_noise,
    is_own_choice,
    is_price,
    label,
    median_of,
    own_form,
    repeat_scale_of,
    shown_us,
    times_of,
)
from collbench.core.units import format_size
from collbench.core.verdict import (
    Interval,
    Verdict,
    by_median,
    by_square,
    is_separated,
    middle,
    moderated,
    ratio_of,
    verdict_of,
)

# only: nothing competes with it. cannot tell: noise, or too few repeats.
Certainty = Literal["only", "winner", "tie", "cannot tell"]
_LEAST_LOG = math.log(LEAST_GAIN)
KNOBS_WITH_EFFECT = ("algo", "proto", *KNOB_FIELDS)
UNCERTAIN = "cannot tell"
UNCERTAIN_MARK = " ?"  # after the fastest row where nothing is decided
# From the simplest on: first by the number of rounds, then by how much a rank must keep track of.
# What is not listed comes after these, by name.
SIMPLE_ALGORITHMS = (
    "library",
    "direct",
    "star",
    "oneshot",
    "twoshot",
    "chain",
    "ring",
    "halving",
    "tree",
)
# From the simplest on: data and a counter; a flag in every 8 bytes; a flag in every 128 bytes.
SIMPLE_PROTOCOLS = ("", "simple", "ll", "sentinel", "ll128")


class Best(NamedTuple):
    """The best configuration of a workload at one size.

    leaders: the tied rows, the simplest first; one row unless certainty is "tie", and the fastest
    row where it is "cannot tell". rows: those that competed. time_us, busbw_gbs, percent, gain,
    peers and excess are those of the first leader; of a tie that is the simplest and not the
    fastest, which would be the luckiest. busbw_gbs is None where the file has none. gain: the time
    of the runner-up, tied or not, over its time. peers: the same of the fastest of each library's
    own choices: its row in `rivals`. excess: the same of the tool's own choice, which is `choice`.
    """

    certainty: Certainty
    leaders: tuple[Record, ...]
    rows: Sequence[Record]
    time_us: float
    busbw_gbs: float | None
    percent: float | None
    runner_up: Record | None
    gain: Interval | None
    peers: Mapping[str, Interval]
    rivals: Mapping[str, Record]
    choice: Record | None
    excess: Interval | None

    @property
    def of_max(self) -> float | None:
        """Percent of the nearer one of two bounds, as of a row; None of noise."""
        if is_noise(self.row):
            return None
        bounds = self.percent, 100 * (self.row.floor_us or 0) / self.time_us
        return max(filter(None, bounds), default=None)

    @property
    def row(self) -> Record:
        return self.leaders[0]

    @property
    def is_certain(self) -> bool:
        """Whether the answer may be claimed, be it a tie."""
        return self.certainty != UNCERTAIN

    def verdict_of_peer(self, peer: str) -> Verdict:
        """Whether the leader is faster than a library."""
        return verdict_of(self.peers.get(peer), is_certain=self.is_certain)

    def is_level_with(self, row: Record | None) -> bool:
        """Whether the repeats do not show that a row is slower than the first leader."""
        return not self.is_certain or any(row is leader for leader in self.leaders)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSpan:
    """Neighbouring sizes whose first leader has the same value of a knob; None where nothing is
    decided.
    """

    value: str | None
    first_bytes: int
    last_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything that one set of rows shows; by workload, then size, ascending. asked: of each
    backend, the knobs that tell its rows apart. peers: libraries that ours are compared with.
    has_launches: whether launches of any row were timed one by one. forms: of each library, the
    user buffers or algorithms of its own choices.
    """

    rows: Sequence[Record]
    knobs: Mapping[str, tuple[str, ...]]
    workloads: Mapping[Workload, Mapping[int, Sequence[Record]]]
    best: Mapping[Workload, Mapping[int, Best]]
    peers: tuple[str, ...]
    has_launches: bool
    forms: Mapping[str, frozenset[str]]
    errors: "Errors"

    @property
    def every_best(self) -> list[Best]:
        return [best for sizes in self.best.values() for best in sizes.values()]


class Errors:
    """How far the median of each row's repeats may be off, as a standard deviation of logarithms:
    from its own repeats and those of like rows, of the same backend and a similar size.
    """

    def __init__(self, rows: Iterable[Record]) -> None:
        spreads: dict[tuple[str, int], list[float]] = {}
        for row in rows:
            if (scale := repeat_scale_of(row)) == scale:  # NaN differs from itself
                count = len(times_of(row))
                spread = scale * by_median(count) / by_square(count)
                spreads.setdefault(_kind(row), []).append(spread)
        self._typical = {kind: middle(known) for kind, known in spreads.items()}

    def of(self, row: Record) -> float:
        """Of one row; NaN where no row has two repeats, 0 of a price."""
        if is_price(row):
            return 0.0
        typical = self._typical.get(_kind(row), math.nan)
        return moderated(repeat_scale_of(row), len(times_of(row)), typical)

    def ratio(self, slower: Record, faster: Record) -> Interval:
        """The time of a row over that of another, with its interval, NaN where it is not known."""
        scale = math.hypot(self.of(slower), self.of(faster))
        return ratio_of(median_of(slower) / median_of(faster), scale)


def _kind(row: Record) -> tuple[str, int]:
    """Rows that are alike: of one backend, and of sizes within a factor of 16."""
    return row.backend, row.size_bytes.bit_length() // 4


def summarise(rows: Sequence[Record]) -> Summary:
    """The summary of rows."""
    workloads = by_workload(rows)
    knobs = distinguishing_knobs(workloads)
    errors = Errors(
        chain.from_iterable(chain.from_iterable(sizes.values() for sizes in workloads.values()))
    )
    best = {
        workload: {size: best_of(here, knobs, errors) for size, here in sizes.items()}
        for workload, sizes in workloads.items()
    }
    peers = {peer for sizes in best.values() for one in sizes.values() for peer in one.peers}
    forms: dict[str, set[str]] = {}
    for row in filter(is_own_choice, rows):
        forms.setdefault(row.backend, set()).add(own_form(row))
    return Summary(
        rows=rows,
        knobs=knobs,
        workloads=workloads,
        best=best,
        peers=tuple(sorted(peers)),
        has_launches=any(row.max_us is not None for row in rows),
        forms={peer: frozenset(kinds) for peer, kinds in forms.items()},
        errors=errors,
    )


def candidates(rows: Sequence[Record]) -> list[Record]:
    """Ours, or the library's rows where there are none of ours."""
    return [row for row in rows if not is_peer(row.backend)] or list(rows)


def best_of(rows: Sequence[Record], knobs: Mapping[str, Sequence[str]], errors: Errors) -> Best:
    """The best of the rows of one workload and size."""
    able = candidates(rows)
    are_noise = all(map(is_noise, able))
    certainty, leaders = _decision(able, knobs, errors, are_noise=are_noise)
    row = leaders[0]
    others = [other for other in able if other is not row]
    runner_up = fastest(others) if others else None
    choice = next(
        (other for other in able if has_note(other, "auto") and other.backend == row.backend), None
    )

    def slowdown(other: Record | None) -> Interval | None:
        """The time of another row over that of the leader; None of noise."""
        return None if other is None or are_noise else errors.ratio(other, row)

    own = grouped((one.backend, one) for one in rows if is_own_choice(one))
    rivals = {
        peer: fastest(of_peer)
        for peer, of_peer in own.items()
        if not (row.backend == peer and is_own_choice(row))
    }
    slowdowns = {peer: slowdown(rival) for peer, rival in rivals.items()}
    return Best(
        certainty=certainty,
        leaders=leaders,
        rows=able,
        time_us=median_of(row),
        busbw_gbs=row.busbw_gbs,
        percent=(
            100 * row.busbw_gbs / row.ceiling_gbs
            if row.busbw_gbs is not None and row.ceiling_gbs and not is_noise(row)
            else None
        ),
        runner_up=runner_up,
        gain=slowdown(runner_up),
        peers={peer: ratio for peer, ratio in slowdowns.items() if ratio is not None},
        rivals=rivals,
        choice=choice,
        excess=slowdown(choice),
    )


def _decision(
    able: Sequence[Record], knobs: Mapping[str, Sequence[str]], errors: Errors, *, are_noise: bool
) -> tuple[Certainty, tuple[Record, ...]]:
    if are_noise:
        return "cannot tell", (min(able, key=shown_us),)
    first = fastest(able)
    if len(able) == 1:
        return "only", (first,)
    if len(times_of(first)) < 2 and not is_price(first):
        return "cannot tell", (first,)
    tied = _unbeaten(able, errors)
    if len(tied) == 1:
        return "winner", tuple(tied)
    return "tie", tuple(sorted(tied, key=lambda row: simplicity(row, knobs)))


def _unbeaten(rows: Sequence[Record], errors: Errors) -> Sequence[Record]:
    """The rows that no other row beats: by LEAST_GAIN, and by SURE_Z of what repeats allow. A
    single repeat beats nothing, unless it is a price.
    """
    known = [(math.log(median_of(row)), errors.of(row), row) for row in rows]
    rivals: list[tuple[float, float]] = []
    for time, error, row in sorted(known, key=itemgetter(0)):
        if len(times_of(row)) < 2 and not is_price(row):
            continue
        if not rivals or error < rivals[-1][1]:  # the others beat nothing that these do not
            rivals.append((time, error))
    return [
        row
        for time, error, row in known
        if not any(
            time - rival >= _LEAST_LOG and time - rival > SURE_Z * math.hypot(error, its_error)
            for rival, its_error in rivals
        )
    ]


def simplicity(row: Record, knobs: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """The order in which tied rows lead: those that are not noise; the fewest knobs set; then
    SIMPLE_ALGORITHMS, SIMPLE_PROTOCOLS, and the smallest values of the knobs.
    """
    names = knobs.get(row.backend, ())
    values = [getattr(row, name) for name in names]
    return (
        is_noise(row),
        sum(value != UNASKED[name] for name, value in zip(names, values, strict=True)),
        _rank(SIMPLE_ALGORITHMS, row.algo),
        _rank(SIMPLE_PROTOCOLS, row.proto),
        row.backend,
        values,
    )


def _rank(order: Sequence[str], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order)), name


def best_text(names: Iterable[str], certainty: Certainty) -> str:
    """The configurations that lead, the simplest by name; of a tie how many they are.

    >>> best_text(["ring ll"], "winner"), best_text(["ring ll"], "cannot tell")
    ('ring ll', 'ring ll ?')
    >>> best_text(["direct ll", "star ll"], "tie")
    'direct ll (1 of 2)'
    """
    first, *others = dict.fromkeys(names)
    if certainty == UNCERTAIN:
        return first + UNCERTAIN_MARK
    return f"{first} (1 of {1 + len(others)})" if others else first


def best_label(best: Best, knobs: Mapping[str, Sequence[str]], *, has_backend: bool = False) -> str:
    """The leaders, as tables name them."""
    names = [label(row, knobs, has_backend=has_backend) for row in best.leaders]
    return best_text(names, best.certainty)


def spans(sizes: Mapping[int, Best], name: str) -> list[KnobSpan]:
    """Where the leader's value of a knob changes with the size; empty if no size had a choice of
    that knob, or none is decided.
    """
    has_choice = any(
        best.is_certain and len({getattr(row, name) for row in best.rows} - {""}) > 1
        for best in sizes.values()
    )
    values = {
        size: str(getattr(best.row, name)) or UNASKED["algo"] if best.is_certain else None
        for size, best in (sizes.items() if has_choice else ())
    }
    groups = [(value, list(group)) for value, group in groupby(values, key=values.__getitem__)]
    return [
        KnobSpan(value=value, first_bytes=group[0], last_bytes=group[-1]) for value, group in groups
    ]


def span_text(spans_of_knob: Sequence[KnobSpan]) -> str:
    """Spans in words.

    >>> span_text(
    ...     [
    ...         KnobSpan(value="ll", first_bytes=8, last_bytes=1024),
    ...         KnobSpan(value=None, first_bytes=2048, last_bytes=2048),
    ...         KnobSpan(value="simple", first_bytes=4096, last_bytes=65536),
    ...     ]
    ... )
    'll to 1K, cannot tell 2K, simple from 4K'
    """
    if len(spans_of_knob) == 1:
        return f"{spans_of_knob[0].value} at all sizes"
    parts = []
    for number, span in enumerate(spans_of_knob):
        first, last = format_size(span.first_bytes), format_size(span.last_bytes)
        value = span.value or UNCERTAIN
        if number == 0:
            parts.append(f"{value} to {last}")
        elif number == len(spans_of_knob) - 1:
            parts.append(f"{value} from {first}")
        else:
            parts.append(f"{value} {first}-{last}" if first != last else f"{value} {first}")
    return ", ".join(parts)


def configurations(summary: Summary) -> dict[tuple[object, ...], list[Record]]:
    """The rows of every workload and configuration by size: the curves of time against size."""
    curves: dict[tuple[object, ...], list[Record]] = {}
    for workload, sizes in summary.workloads.items():
        for row in chain.from_iterable(sizes.values()):
            name = workload, configuration(row, summary.knobs)
            curves.setdefault(name, []).append(row)
    return curves


def effect_of(best: Best, knobs: Mapping[str, Sequence[str]], name: str) -> float | None:
    """The effect of a knob beside the best row: the time of its slowest value over that of its
    fastest, the rest as in that row; None if the repeats show none of LEAST_GAIN or more.
    """
    names = ("algo", "proto", *knobs.get(best.row.backend, ()))
    if name not in names:
        return None
    others = attrgetter("backend", *[other for other in names if other != name])
    rest = others(best.row)
    # of each value the fastest row: what no knob tells apart is no effect of this one
    least: dict[object, Record] = {}
    for row in best.rows:
        if others(row) == rest and not is_own_choice(row):
            value = getattr(row, name)
            least[value] = min(least.get(value, row), row, key=median_of)
    fast, slow = (most(least.values(), key=median_of, default=best.row) for most in (min, max))
    factor = median_of(slow) / median_of(fast)
    is_clear = factor >= LEAST_GAIN and is_separated(times_of(fast), times_of(slow))
    return factor if is_clear else None
