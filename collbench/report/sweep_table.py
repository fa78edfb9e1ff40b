"""The table of a sweep: one line a row as it finishes, and the best configuration of every size at the end.

Plain text of fixed columns, the same in a terminal and through a pipe. Only knobs that take more than one value get a column.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.case import Case
from collbench.collectives import collective
from collbench.record import Record
from collbench.stats import best
from collbench.units import format_rate, format_size, format_time_us, rate_gbs

WIDE_COLUMNS = 120
_PEER_ALGO = "library"
# knob, heading, width
_KNOBS = (
    ("ranks", "ranks", 5), ("op", "op", 13), ("backend", "backend", 9), ("dtype", "dtype", 8), ("redop", "redop", 5), ("root", "root", 4),
    ("placement", "place", 5), ("direct", "direct", 6), ("channels", "ch", 3), ("slots", "slots", 5), ("buffsize", "buffer", 7), ("chunk", "chunk", 7),
)
_SIZES = {"buffsize", "chunk"}
_NOT_TELLING = {"buffsize", "chunk"}  # follow from the algorithm where the tool decides: shown only if asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The columns of one sweep."""

    knobs: tuple[tuple[str, str, int], ...]
    is_wide: bool

    def heading(self) -> str:
        """The line above the rows."""
        cells = [f"{'size':>6}", f"{'algo':<9}", *[f"{title:<{width}}" for _, title, width in self.knobs], f"{'time us':>9}"]
        if self.is_wide:
            cells += [f"{'low':>9}", f"{'high':>9}", f"{'algbw':>7}"]
        cells += [f"{'busbw':>7}"]
        if self.is_wide:
            cells += [f"{'wrong':>6}", f"{'iters':>5}"]
        return "  ".join([*cells, "notes"])

    def line(self, record: Record) -> str:
        """One row; what was not measured says why."""
        cells = [f"{format_size(record.size_bytes):>6}", f"{record.algo:<9}", *[self._knob(record, name, width) for name, _, width in self.knobs]]
        if record.time_us is None or record.algbw_gbs is None or record.busbw_gbs is None:
            return "  ".join([*cells, f"{record.status}: {record.reason}"])
        cells.append(f"{format_time_us(record.time_us):>9}")
        if self.is_wide:
            cells += [f"{format_time_us(time):>9}" for time in (record.time_low_us or 0, record.time_high_us or 0)]
            cells.append(f"{format_rate(record.algbw_gbs):>7}")
        cells.append(f"{format_rate(record.busbw_gbs):>7}")
        if self.is_wide:
            cells += [f"{'-' if record.wrong is None else record.wrong:>6}", f"{record.iters:>5}"]
        return "  ".join([*cells, record.notes]).rstrip()

    def _knob(self, record: Record, name: str, width: int) -> str:
        value = getattr(record, name)
        text = format_size(value) if name in _SIZES else str(value)
        if record.algo == _PEER_ALGO and name in ("direct", "channels", "slots", "buffsize", "chunk"):
            text = ""
        return f"{text:<{width}}"


def table_of(requested: Sequence[Case], resolved: Sequence[Case], columns: int) -> Table:
    """The columns for a sweep: knobs that differ between its points."""
    def varies(name: str) -> bool:
        if name in _NOT_TELLING:
            return len({getattr(case, name) for case in requested if case.algo != _PEER_ALGO}) > 1
        return len({getattr(case, name) for case in resolved if name != "direct" or case.algo != _PEER_ALGO}) > 1

    return Table(knobs=tuple(knob for knob in _KNOBS if varies(knob[0])), is_wide=columns >= WIDE_COLUMNS)


def best_lines(records: Sequence[Record]) -> list[str]:
    """The fastest configuration of every problem, with its time on repeats that did not choose it, and the ratio to libraries' rows."""
    problems: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.status == "ok":
            same: tuple[object, ...] = (record.ranks, record.op, record.dtype, record.redop, record.root, record.placement, record.size_bytes)
            problems.setdefault(same, []).append(record)
    ours = {same: [r for r in rows if r.algo != _PEER_ALGO] for same, rows in problems.items()}
    choices = {same: rows for same, rows in ours.items() if rows and len(problems[same]) > 1}
    if not choices:
        return []
    peers = sorted({r.backend for same in choices for r in problems[same] if r.algo == _PEER_ALGO})
    names = [("ranks", 0), ("op", 1), ("dtype", 2), ("redop", 3), ("root", 4), ("placement", 5)]
    shown = [(title, place) for title, place in names if len({same[place] for same in choices}) > 1]
    widths = {title: max(len(title), *(len(str(same[place])) for same in choices)) for title, place in shown}
    heading = [f"{'size':>6}", *[f"{title:<{widths[title]}}" for title, _ in shown], f"{'best':<28}", f"{'time us':>9}", f"{'busbw':>7}"]
    lines = ["  ".join([*heading, *[f"{'x ' + peer:>8}" for peer in peers]])]
    for same, rows in choices.items():
        chosen = best([row.repeat_times_us for row in rows])
        row, seconds = rows[chosen.index], chosen.seconds / 1e6
        size, busbw = row.size_bytes, rate_gbs(row.size_bytes, seconds) * collective(row.op).factor(row.ranks)
        cells = [f"{format_size(size):>6}", *[f"{same[place]!s:<{widths[title]}}" for title, place in shown]]
        cells += [f"{_configuration(row):<28}", f"{format_time_us(chosen.seconds):>9}", f"{format_rate(busbw):>7}"]
        for peer in peers:
            times = [r.time_us for r in problems[same] if r.backend == peer and r.time_us]
            cells.append(f"{min(times) / chosen.seconds:>8.2f}" if times else f"{'-':>8}")
        lines.append("  ".join(cells))
    return lines


def _configuration(record: Record) -> str:
    """What to ask for to get this row again."""
    parts = [record.algo if record.backend == "cpu" else f"{record.backend} {record.algo}"]
    parts.append("direct" if record.direct == "on" else "fifo")
    if record.channels > 1:
        parts.append(f"{record.channels} ch")
    return " ".join([*parts, f"{format_size(record.chunk)} chunks"])
