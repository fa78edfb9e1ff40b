"""The table of a sweep: one line a row as it finishes, and the best configuration of every size at
the end.

Plain text of fixed columns, the same in a terminal and through a pipe. Only knobs that take more
than one value get a column. A library that is forced to something has rows of its own, which are
neither its own choice, that ours are compared with, nor among the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from collbench.bench.runner import is_peer
from collbench.results.record import Record
from collbench.results.statistics import best, interval
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.spec.knobs import AXES, KNOB, KNOBS, UNASKED, Knob
from collbench.util.units import format_rate, format_size, format_time_us, rate_gbs, to_us

WIDE_COLUMNS = 120
# those that may have a column: the algorithm always has one
_SHOWN = (*AXES, *KNOBS[1:])
_BEYOND = ", by copy engines: wires are rated by what stores get"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns of one sweep; `asked` are the knobs that take several values because they were
    asked to.
    """

    knobs: tuple[Knob, ...]
    asked: frozenset[str]
    is_wide: bool
    has_ceilings: bool = False
    algo_width: int = 9

    def heading(self) -> str:
        """The line above the rows."""
        cells = [
            f"{'size':>6}",
            f"{'algo':<{self.algo_width}}",
            *[f"{knob.short:<{knob.width}}" for knob in self.knobs],
            f"{'time us':>9}",
        ]
        if self.is_wide:
            cells += [f"{'low':>9}", f"{'high':>9}", f"{'algbw':>7}"]
        cells += [f"{'busbw':>7}"]
        if self.is_wide:
            cells += [f"{'of max':>6}"] if self.has_ceilings else []
            cells += [f"{'wrong':>6}", f"{'iters':>5}"]
        return "  ".join([*cells, "notes"])

    def line(self, record: Record) -> str:
        """One row; what was not measured says why."""
        cells = [
            f"{format_size(record.size_bytes):>6}",
            f"{record.algo:<{self.algo_width}}",
            *[f"{self._knob(record, knob):<{knob.width}}" for knob in self.knobs],
        ]
        if record.time_us is None or record.algbw_gbs is None or record.busbw_gbs is None:
            return "  ".join([*cells, f"{record.status}: {record.reason}"])
        cells.append(f"{format_time_us(record.time_us):>9}")
        if self.is_wide:
            cells += [
                f"{format_time_us(time):>9}"
                for time in (record.time_low_us or 0, record.time_high_us or 0)
            ]
            cells.append(f"{format_rate(record.algbw_gbs):>7}")
        cells.append(f"{format_rate(record.busbw_gbs):>7}")
        if self.is_wide:
            if self.has_ceilings:
                cells.append(f"{'-' if record.percent is None else f'{record.percent:.0f}%':>6}")
            cells += [f"{'-' if record.wrong is None else record.wrong:>6}", f"{record.iters:>5}"]
        return "  ".join([*cells, record.notes]).rstrip()

    def waived(self, records: Sequence[Record]) -> list[str]:
        """Rows that were waived, a line for each reason: what its rows do not share is `*`, sizes
        are from the smallest to the largest.
        """
        by_reason: dict[str, list[Record]] = {}
        for record in records:
            by_reason.setdefault(record.reason, []).append(record)
        return [
            self.line(rows[0]) if len(rows) == 1 else self._line_of(rows)
            for rows in by_reason.values()
        ]

    def _line_of(self, rows: Sequence[Record]) -> str:
        sizes = sorted({row.size_bytes for row in rows})
        algo = replace(KNOB["algo"], width=self.algo_width)
        cells = [f"{'-'.join(map(format_size, dict.fromkeys((sizes[0], sizes[-1])))):>6}"]
        for knob in (algo, *self.knobs):
            texts = {self._knob(row, knob) for row in rows}
            cells.append(f"{texts.pop() if len(texts) == 1 else '*':<{knob.width}}")
        return "  ".join([*cells, f"waived, {len(rows)} points: {rows[0].reason}"])

    def _knob(self, record: Record, knob: Knob) -> str:
        value = getattr(record, knob.name)
        is_unasked = is_peer(record.backend) and value == UNASKED.get(knob.name)
        return "" if is_unasked and knob.name != "algo" else knob.text(value)


def table_of(
    requested: Sequence[Case], resolved: Sequence[Case], columns: int, *, has_ceilings: bool = False
) -> Table:
    """The columns for a sweep: knobs that differ between its points, those included that were
    waived.
    """

    def varies(knob: Knob) -> bool:
        # what follows from the rest where the tool decides is shown only if it was asked for
        cases = requested if knob.stage else resolved
        ours, theirs = (
            {getattr(case, knob.name) for case in cases if is_peer(case.backend) == is_theirs}
            for is_theirs in (False, True)
        )
        return (
            len(ours) > 1
            or len(theirs) > 1
            or (knob.name not in UNASKED and len(ours | theirs) > 1)
        )

    asked = frozenset(
        knob.name
        for knob in _SHOWN
        if len({getattr(case, knob.name) for case in requested if not is_peer(case.backend)}) > 1
    )
    return Table(
        knobs=tuple(knob for knob in _SHOWN if knob.name in asked or varies(knob)),
        asked=asked,
        is_wide=columns >= WIDE_COLUMNS,
        has_ceilings=has_ceilings,
        algo_width=max([9, *(len(case.algo) for case in resolved)]),
    )


def ceiling_lines(records: Sequence[Record]) -> list[str]:
    """The highest ceiling of every collective and number of ranks, how near its best row came, and
    the hop that sets it.
    """
    best_rows: dict[tuple[str, int], Record] = {}
    highest: dict[tuple[str, int], Record] = {}
    for record in records:
        if (
            record.ceiling_gbs is not None
            and record.busbw_gbs is not None
            and not is_peer(record.backend)
        ):
            key = record.op, record.ranks
            best_rows[key] = max(
                best_rows.get(key, record), record, key=lambda row: row.busbw_gbs or 0.0
            )
            highest[key] = max(
                highest.get(key, record), record, key=lambda row: row.ceiling_gbs or 0.0
            )
    return [
        f"{op} of {ranks} ranks: at most {format_rate(highest[op, ranks].ceiling_gbs or 0.0)} GB/s"
        f" by the wires ({highest[op, ranks].limit}); best {format_rate(row.busbw_gbs or 0.0)}"
        + (_BEYOND if row.transport == "ce" and (row.percent or 0.0) > 100.0 else "")
        for (op, ranks), row in best_rows.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Winner:
    """The chosen row of a problem and the repeats that had no part in choosing it (all, if there
    was no choice).
    """

    record: Record
    repeats: tuple[int, ...]
    peers: dict[str, Record]
    choice: Record | None

    def excess(self) -> str:
        """How much longer the tool's own choice takes, repeat by repeat, in percent."""
        if self.choice is None:
            return f"{'-':>6}"
        theirs, ours = self.choice.repeat_times_us, self.record.repeat_times_us
        ratio = median(theirs[k] / ours[k] for k in self.repeats if k < len(theirs))
        return f"{100 * (ratio - 1):>+5.1f}%"

    @property
    def seconds(self) -> float:
        return median(self.record.repeat_times_us[k] for k in self.repeats) / 1e6

    def ratio(self, peer: str) -> str:
        """The peer's time over ours, repeat by repeat: median and interval."""
        if peer not in self.peers:
            return f"{'-':>18}"
        theirs, ours = self.peers[peer].repeat_times_us, self.record.repeat_times_us
        ratios = [theirs[k] / ours[k] for k in self.repeats if k < len(theirs)]
        found = interval(ratios)
        return (
            f"{found.median:>6.2f}"
            f" {f'{found.low:.2f}-{found.high:.2f}' if len(ratios) > 1 else '-':>11}"
        )


def best_lines(records: Sequence[Record], table: Table) -> list[str]:
    """The fastest configuration of every problem, with its time on repeats that did not choose it,
    and libraries' times over it.
    """
    problems: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.status == "ok":
            # which wins nothing over what was measured
            is_price = "modelled" in record.notes.split()
            same: tuple[object, ...] = (
                record.ranks,
                record.op,
                record.dtype,
                record.redop,
                record.root,
                record.placement,
                record.size_bytes,
                is_price,
            )
            problems.setdefault(same, []).append(record)
    winners = {
        same: winner
        for same, rows in problems.items()
        if len(rows) > 1 and (winner := _winner(rows)) is not None
    }
    if not winners:
        return []
    peers = sorted({peer for winner in winners.values() for peer in winner.peers})
    names = [("ranks", 0), ("op", 1), ("dtype", 2), ("redop", 3), ("root", 4), ("placement", 5)]
    shown = [(title, place) for title, place in names if len({same[place] for same in winners}) > 1]
    widths = {
        title: max(len(title), *(len(str(same[place])) for same in winners))
        for title, place in shown
    }
    knobs = [
        knob
        for knob in table.knobs
        if knob.name in table.asked and (knob.name in UNASKED or knob.name == "backend")
    ]
    chosen = {
        same: _configuration(winner.record, records, knobs) for same, winner in winners.items()
    }
    wide = max(map(len, chosen.values()))
    has_choice = any(
        winner.choice is not None and winner.choice is not winner.record
        for winner in winners.values()
    )
    heading = [
        f"{'size':>6}",
        *[f"{title:<{widths[title]}}" for title, _ in shown],
        f"{'best':<{wide}}",
        f"{'time us':>8}",
        f"{'busbw':>7}",
    ]
    heading += [f"{'auto':>6}"] if has_choice else []
    lines = ["  ".join([*heading, *[f"{'x ' + peer:>6} {'interval':>11}" for peer in peers]])]
    for same, winner in winners.items():
        row, seconds = winner.record, winner.seconds
        busbw = rate_gbs(row.size_bytes, seconds) * collective(row.op).factor(row.ranks)
        cells = [
            f"{format_size(row.size_bytes):>6}",
            *[f"{same[place]!s:<{widths[title]}}" for title, place in shown],
        ]
        cells += [
            f"{chosen[same]:<{wide}}",
            f"{format_time_us(to_us(seconds)):>8}",
            f"{format_rate(busbw):>7}",
        ]
        cells += [winner.excess()] if has_choice else []
        lines.append("  ".join([*cells, *[winner.ratio(peer) for peer in peers]]).rstrip())
    return lines


def _winner(rows: Sequence[Record]) -> _Winner | None:
    """The best of our rows of one problem."""
    ours = [row for row in rows if not is_peer(row.backend)]
    if not ours:
        return None
    found = best([row.repeat_times_us for row in ours])
    record = ours[found.index]
    is_choice = len(ours) > 1 and found.is_held_out
    repeats = (
        tuple(range(1, len(record.repeat_times_us), 2))
        if is_choice
        else tuple(range(len(record.repeat_times_us)))
    )
    choice = next((row for row in ours if "auto" in row.notes.split()), None)
    return _Winner(
        record=record,
        repeats=repeats,
        peers={row.backend: row for row in rows if _is_own_choice(row)},
        choice=choice,
    )


def _is_own_choice(row: Record) -> bool:
    """Whether a library did it as it does by itself."""
    return all(getattr(row, name) == unasked for name, unasked in UNASKED.items())


def _configuration(record: Record, records: Sequence[Record], knobs: Sequence[Knob]) -> str:
    """What to ask for to get this row again: the algorithm, and the knobs that our rows vary."""
    ours = [row for row in records if not is_peer(row.backend)]
    asked = [
        f"{knob.flag} {knob.text(getattr(record, knob.name))}"
        for knob in knobs
        if len({getattr(row, knob.name) for row in ours}) > 1
    ]
    return " ".join([record.algo, *asked])
