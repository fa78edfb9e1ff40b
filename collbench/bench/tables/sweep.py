"""The table of a sweep: one line a row as it finishes, and the best configuration of every size at
the end.

Plain text of fixed columns, the same in a terminal and through a pipe. Only knobs that take more
than one value get a column. A library that is forced to something has rows of its own, which are
neither its own choice, that ours are compared with, nor among the best.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from collbench.compare.tables.distribution import LAUNCH_TIME_NAMES, launch_time_text
from collbench.compare.tables.summary import percent_text
from collbench.core.case import Case
from collbench.core.knobs import AXES, KNOB, KNOBS, UNASKED, Knob
from collbench.core.peers import is_peer, library_of
from collbench.core.record import Record
from collbench.core.rows import of_max
from collbench.core.text import NARROW_COLUMNS, UNBOUNDED, table, wrapped
from collbench.core.units import format_rate, format_size, format_time_us
from collbench.machine.others import FOREIGN_NOTE

BOUNDS_COLUMNS = 120  # of a terminal, from which on times have their bounds
# those that may have a column: the algorithm always has one
_SHOWN = (*AXES, *KNOBS[1:])


def notes_text(notes: str) -> str:
    """The notes of a row in few columns: one that other processes disturbed is noise, too.

    >>> notes_text("in-cache noisy other-processes:5.0 auto")
    'in-cache busy:5.0 auto'
    """
    if FOREIGN_NOTE not in notes:
        return notes
    words = [word for word in notes.split() if word != "noisy"]
    return " ".join(words).replace(FOREIGN_NOTE, "busy:")


# A head, how its cells are set and what they say: rows are shown before the next one is known.
Column = tuple[str, str, Callable[[Record], str]]
_Name = tuple[str, str, Callable[[Record | Case], str]]
_BOUNDS: list[Column] = [
    ("low us", ">9", lambda row: format_time_us(row.time_low_us or 0)),
    ("high us", ">9", lambda row: format_time_us(row.time_high_us or 0)),
    ("algbw GB/s", ">10", lambda row: format_rate(row.algbw_gbs or 0)),
]
_ALONE: list[Column] = [
    ("alone us", ">9", lambda row: format_time_us(row.alone_us or 0)),
    ("x alone", ">7", lambda row: f"{row.over_alone or 0:.2f}"),
]
_CEILING: Column = ("of max", ">6", lambda row: percent_text(of_max(row)))
_COUNTS: list[Column] = [
    ("wrong", ">6", lambda row: "-" if row.wrong is None else str(row.wrong)),
    ("iters", ">5", lambda row: str(row.iters)),
]


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
    columns: int = UNBOUNDED

    def _named(self) -> list[_Name]:
        """What a row is of."""
        knobs = (replace(KNOB["algo"], width=self.algo_width, short="algo"), *self.knobs)
        return [
            ("size", f">{self.size_width}", lambda row: format_size(row.size_bytes)),
            *[(knob.short, f"<{knob.width}", partial(_knob_text, knob=knob)) for knob in knobs],
        ]

    def _measured(self) -> list[Column]:
        columns: list[Column] = [("time us", ">9", lambda row: format_time_us(row.time_us or 0))]
        if self.has_launch_times:
            columns += [
                (head, ">6", partial(_launch_time_of, name=name))
                for name, head in LAUNCH_TIME_NAMES.items()
            ]
        elif self.is_wide:
            columns += _BOUNDS
        columns += _ALONE * self.is_together
        if self.is_wide or not self.has_launch_times:
            columns.append(("busbw GB/s", ">10", lambda row: format_rate(row.busbw_gbs or 0)))
        return columns + ([_CEILING] * self.has_ceilings + _COUNTS) * self.is_wide

    def planned(self, points: Sequence[tuple[Case, str]]) -> list[str]:
        """The table of points that are not measured, each with what else is said of it."""
        columns = self._named()
        heads, least = [head for head, *_ in columns], [int(wide[1:]) for _, wide, _ in columns]
        rows = [[*(text(case) for *_, text in columns), how] for case, how in points]
        right = [place for place, (_, aligned, _) in enumerate(columns) if aligned[0] == ">"]
        return table([*heads, "how"], rows, right, self.columns, least)

    def heading(self) -> str:
        """The line above the rows."""
        columns = self._named() + self._measured()
        return self._row([*(head for head, *_ in columns), "notes"], columns)

    def _row(self, cells: Sequence[str], columns: Sequence[Column]) -> str:
        """A row whose columns are as wide as those of all others."""
        right = [place for place, (_, aligned, _) in enumerate(columns) if aligned[0] == ">"]
        least = [int(aligned[1:]) for _, aligned, _ in columns]
        heads = ("",) * len(cells)
        return "\n".join(table(heads, [cells], right, self.columns, least))

    def line(self, record: Record) -> str:
        """One row; what was not measured has its reason."""
        is_measured = None not in (record.time_us, record.algbw_gbs, record.busbw_gbs)
        columns = self._named() + self._measured() * is_measured
        cells = [text(record) for *_, text in columns]
        last = notes_text(record.notes) if is_measured else f"{record.status}: {record.reason}"
        return self._row([*cells, last], columns)

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
        cells = []
        for head, _, text in self._named():
            texts = list(dict.fromkeys(map(text, sorted(rows, key=lambda row: row.size_bytes))))
            span = "-".join(dict.fromkeys((texts[0], texts[-1]))) if head == "size" else "*"
            cells.append(texts[0] if len(texts) == 1 else span)
        why = f"waived, {len(rows)} points: {rows[0].reason}"
        return self._row([*cells, why], self._named())


def _launch_time_of(record: Record, name: str) -> str:
    return launch_time_text(getattr(record, name))


def _knob_text(record: Record | Case, knob: Knob) -> str:
    value = getattr(record, knob.name)
    if knob.backends:  # of a library, too, what it heeds
        return knob.text(value) if library_of(record.backend) in knob.backends else ""
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
    is_screen: bool = False,
) -> SweepTable:
    """The columns of a sweep: the knobs that differ between its points, waived ones included. Rows
    fold on a screen alone.
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
        columns=columns if is_screen else UNBOUNDED,
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
