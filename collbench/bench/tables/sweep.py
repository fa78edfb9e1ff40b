"""The table of a sweep: one line a row as it finishes, and the best configuration of every size at
the end.

Plain text of fixed columns, the same in a terminal and through a pipe. Only knobs that take more
than one value get a column. A library that is forced to something has rows of its own, which are
neither its own choice, that ours are compared with, nor among the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collbench.compare.best import Best, best_text, summarise
from collbench.compare.rows import as_written, times_of
from collbench.compare.tables.distribution import LAUNCH_TIME_NAMES, launch_time_text
from collbench.compare.tables.summary import (
    auto_text,
    busbw_text,
    doubt_lines,
    form_heading,
    has_forms,
    peer_legend,
    rival_text,
    speedup_text,
)
from collbench.core.case import Case
from collbench.core.knobs import AXES, KNOB, KNOBS, UNASKED, Knob
from collbench.core.peers import is_peer
from collbench.core.record import Record
from collbench.core.table import NARROW_COLUMNS, wrapped
from collbench.core.table import table as columns_of
from collbench.core.units import format_rate, format_size, format_time_us
from collbench.machine.others import FOREIGN_NOTE

_LAUNCH_TIME = 6  # columns of a percentile
BOUNDS_COLUMNS = 120  # of a terminal, from which on times have their bounds
# those that may have a column: the algorithm always has one
_SHOWN = (*AXES, *KNOBS[1:])


def _shown_notes(notes: str) -> str:
    """The notes of a row in few columns: one that other processes disturbed is noise, too.

    >>> _shown_notes("in-cache noisy other-processes:5.0 auto")
    'in-cache busy:5.0 auto'
    """
    if FOREIGN_NOTE not in notes:
        return notes
    words = [word for word in notes.split() if word != "noisy"]
    return " ".join(words).replace(FOREIGN_NOTE, "busy:")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTable:
    """The columns of one sweep. swept: the knobs for which several values were requested.
    has_launch_times: percentiles of single launches stand in the place of what there is no room for
    beside them, the bus bandwidth or, if wide, the bounds of the time and algbw. is_together: what
    launches at once take one after the other, and how many times as long they take.
    """

    knobs: tuple[Knob, ...]
    swept: frozenset[str]
    is_wide: bool
    has_ceilings: bool = False
    has_launch_times: bool = False
    is_together: bool = False
    algo_width: int = 9
    size_width: int = 6

    def heading(self) -> str:
        """The line above the rows."""
        cells = [
            f"{'size':>{self.size_width}}",
            f"{'algo':<{self.algo_width}}",
            *[f"{knob.short:<{knob.width}}" for knob in self.knobs],
            f"{'time us':>9}",
        ]
        if self.has_launch_times:
            cells += [f"{name:>{_LAUNCH_TIME}}" for name in LAUNCH_TIME_NAMES.values()]
        elif self.is_wide:
            cells += [f"{'low us':>9}", f"{'high us':>9}", f"{'algbw GB/s':>10}"]
        if self.is_together:
            cells += [f"{'alone us':>9}", f"{'x alone':>7}"]
        if self.is_wide or not self.has_launch_times:
            cells += [f"{'busbw GB/s':>10}"]
        if self.is_wide:
            cells += [f"{'of max':>6}"] if self.has_ceilings else []
            cells += [f"{'wrong':>6}", f"{'iters':>5}"]
        return "  ".join([*cells, "notes"])

    def line(self, record: Record) -> str:
        """One row; what was not measured has its reason."""
        cells = [
            f"{format_size(record.size_bytes):>{self.size_width}}",
            f"{record.algo:<{self.algo_width}}",
            *[f"{self._knob(record, knob):<{knob.width}}" for knob in self.knobs],
        ]
        if record.time_us is None or record.algbw_gbs is None or record.busbw_gbs is None:
            return "  ".join([*cells, f"{record.status}: {record.reason}"])
        cells.append(f"{format_time_us(record.time_us):>9}")
        if self.has_launch_times:
            times_us = [getattr(record, name) for name in LAUNCH_TIME_NAMES]
            cells += [f"{launch_time_text(time):>{_LAUNCH_TIME}}" for time in times_us]
        elif self.is_wide:
            cells += [
                f"{format_time_us(time):>9}"
                for time in (record.time_low_us or 0, record.time_high_us or 0)
            ]
            cells.append(f"{format_rate(record.algbw_gbs):>10}")
        if self.is_together:
            cells += [
                f"{format_time_us(record.alone_us or 0):>9}",
                f"{record.over_alone or 0:>7.2f}",
            ]
        if self.is_wide or not self.has_launch_times:
            cells.append(f"{format_rate(record.busbw_gbs):>10}")
        if self.is_wide:
            if self.has_ceilings:
                cells.append(f"{'-' if record.percent is None else f'{record.percent:.0f}%':>6}")
            cells += [f"{'-' if record.wrong is None else record.wrong:>6}", f"{record.iters:>5}"]
        return "  ".join([*cells, _shown_notes(record.notes)]).rstrip()

    def waived(self, records: Sequence[Record]) -> list[str]:
        """A line for each reason of waived rows; `*` stands for values that differ."""
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
        span = "-".join(map(format_size, dict.fromkeys((sizes[0], sizes[-1]))))
        cells = [f"{span:>{self.size_width}}"]
        for knob in (algo, *self.knobs):
            texts = {self._knob(row, knob) for row in rows}
            cells.append(f"{texts.pop() if len(texts) == 1 else '*':<{knob.width}}")
        return "  ".join([*cells, f"waived, {len(rows)} points: {rows[0].reason}"])

    def _knob(self, record: Record, knob: Knob) -> str:
        value = getattr(record, knob.name)
        if knob.backends:  # of a library, too, what it heeds
            return knob.text(value) if record.backend in knob.backends else ""
        is_unasked = is_peer(record.backend) and value == UNASKED.get(knob.name)
        return "" if is_unasked and knob.name != "algo" else knob.text(value)


def table_of(
    requested: Sequence[Case],
    resolved: Sequence[Case],
    columns: int,
    *,
    has_ceilings: bool = False,
    has_launch_times: bool = False,
    is_together: bool = False,
) -> SweepTable:
    """The columns of a sweep: the knobs that differ between its points, waived ones included."""

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

    swept = frozenset(
        knob.name
        for knob in _SHOWN
        if len({getattr(case, knob.name) for case in requested if not is_peer(case.backend)}) > 1
    )
    knobs = [knob for knob in _SHOWN if knob.name in swept or varies(knob)]
    return SweepTable(
        knobs=tuple(replace(knob, width=_width_of(knob, requested)) for knob in knobs),
        swept=swept,
        is_wide=columns >= BOUNDS_COLUMNS,
        has_ceilings=has_ceilings,
        has_launch_times=has_launch_times,
        is_together=is_together,
        algo_width=max([9, *(len(case.algo) for case in resolved)]),
        size_width=max([6, *(len(format_size(case.size_bytes)) for case in requested)]),
    )


def _width_of(knob: Knob, cases: Sequence[Case]) -> int:
    """The width of the column of a knob, as long as its longest text."""
    values = {getattr(case, knob.name) for case in cases}
    return max([knob.width, *(len(knob.text(value)) for value in values)])


def ceiling_lines(records: Sequence[Record], columns: int = NARROW_COLUMNS) -> list[str]:
    """The highest ceiling of every collective, of what it is, the link that sets it, and the best
    row.
    """
    rows_of: dict[tuple[str, int], list[Record]] = {}
    for row in records:
        if None not in (row.ceiling_gbs, row.busbw_gbs) and not is_peer(row.backend):
            rows_of.setdefault((row.op, row.ranks), []).append(row)
    lines = []
    for (op, ranks), rows in rows_of.items():
        top = max(rows, key=lambda row: (row.ceiling_gbs or 0.0, row.busbw_gbs or 0.0))
        best = max(rows, key=lambda row: row.busbw_gbs or 0.0)
        lines += wrapped(
            f"{op} of {ranks} ranks: highest ceiling {format_rate(top.ceiling_gbs or 0.0)} GB/s by"
            f" the links, of {top.algo} {top.proto} ({top.limit}); best"
            f" {format_rate(best.busbw_gbs or 0.0)}, of {best.algo} {best.proto}",
            columns,
        )
    return lines


_LEADERS_SHOWN = 2  # tied configurations that are named with all their options
_OUTER = ("ranks", "op", "dtype", "redop", "root", "placement", "skew")


def best_lines(
    records: Sequence[Record], table: SweepTable, columns: int = NARROW_COLUMNS
) -> list[str]:
    """The best configuration of every workload and size, and its speedup over libraries."""
    summary = summarise(list(map(as_written, records)))
    shown = [
        (workload, best)
        for workload, sizes in summary.best.items()
        for size, best in sizes.items()
        if len(summary.workloads[workload][size]) > 1 and not is_peer(best.row.backend)
    ]
    doubts = doubt_lines(summary, columns)
    if not shown:
        return doubts[:-1]  # without the empty line at the end
    peers = sorted({peer for _, best in shown for peer in best.peers})
    outer = [name for name in _OUTER if len({getattr(one, name) for one, _ in shown}) > 1]
    ours = [row for row in summary.rows if row.status == "ok" and not is_peer(row.backend)]
    knobs = [
        knob
        for knob in table.knobs
        if knob.name in table.swept
        and (knob.name in UNASKED or knob.name == "backend")
        and len({getattr(row, knob.name) for row in ours}) > 1
    ]
    has_choice = any(best.choice is not None and len(best.rows) > 1 for _, best in shown)
    heads = ["  size", *outer, "best", " time us", "busbw GB/s", *["  auto"] * has_choice]
    is_wide = columns >= BOUNDS_COLUMNS or not any(has_forms(summary, peer) for peer in peers)
    for peer in peers:
        heads.append(f"{'vs ' + peer:>7}" + f" {'interval':>11}" * is_wide)
        heads += [form_heading(peer)] * has_forms(summary, peer)
    rows = []
    for workload, best in shown:
        names = [_configuration(row, knobs) for row in best.leaders]
        speedups = []
        for peer in peers:
            speedups.append(speedup_text(best, peer, max(7, 3 + len(peer)), is_wide=is_wide))
            speedups += [rival_text(best, peer)] * has_forms(summary, peer)
        rows.append(
            [
                format_size(best.row.size_bytes),
                *[str(getattr(workload, name)) for name in outer],
                best_text(names, best.certainty, _LEADERS_SHOWN),
                format_time_us(best.time_us),
                busbw_text(best),
                *[auto_text(best)] * has_choice,
                *speedups,
            ]
        )
    legend = _legend([best for _, best in shown], has_choice=has_choice)
    legend += [peer_legend(summary, peer) for peer in peers if has_forms(summary, peer)]
    numbers = {
        k for k, head in enumerate(heads) if head not in (*outer, "best", *map(form_heading, peers))
    }
    return [*doubts, *legend, *columns_of(heads, rows, right=numbers)]


def _legend(every: Sequence[Best], *, has_choice: bool) -> list[str]:
    """How the closing table differs from the rows above it."""
    lines = []
    if any(len(times_of(best.row)) > 1 for best in every):
        lines.append("Best of each size, by the median of its repeats.")
    if any(not best.is_certain for best in every):
        lines.append("?: cannot tell; the row that was fastest, by chance or not.")
    if has_choice:
        lines.append("auto: how much longer the tool's own choice takes (~: not separated).")
    return lines


def _configuration(row: Record, knobs: Sequence[Knob]) -> str:
    """The algorithm, and the options that give this row again."""
    options = [f"{knob.flag} {knob.text(getattr(row, knob.name))}" for knob in knobs]
    return " ".join([row.algo, *options])
