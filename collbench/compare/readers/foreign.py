"""Rows of other tools as ours: what they do not record stays empty. No format is read here."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from collbench.core.collectives import Collective, OpName, collective
from collbench.core.dtypes import ALIASES, DTYPES, dtype
from collbench.core.errors import UsageError
from collbench.core.knobs import UNASKED
from collbench.core.record import TRAFFIC, Record
from collbench.core.units import rate_gbs
from collbench.core.verdict import interval

MOST_PLACES_NAMED = 5
MOST_ROWS = 20_000  # of a table; a sweep of 8 to 16G by 2 has 32
MOST_REPEATS = 1000  # the exact interval of more takes seconds a row
# of two runs: rows, and how many times as long all of these took, that no chance explains
_FEWEST_SHIFTED, _SHIFTED = 5, 1.1
NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d\d)?")
# Longest first: allreduce holds reduce, allgather holds gather.
_NAMED = re.compile(
    r"(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|bcast|send_?recv|gather|scatter|reduce)(v?)(?![a-z])"
)


def refuse_too_many(rows: Sequence[tuple[int, object]], name: str) -> None:
    """Raise UsageError for a table with more rows, of (line, row), than any has."""
    if len(rows) > MOST_ROWS:
        raise UsageError(
            f"{name}, line {rows[MOST_ROWS][0]}: more than {MOST_ROWS} rows in one table",
            "give a part of the file",
        )


def op_in(text: str) -> OpName | None:
    """The collective in the name of a program or a file; None if none, or one that we do not have
    (alltoallv).

    >>> [op_in(text) for text in ("all_reduce_perf", "h100-AllGather.txt", "alltoallv_perf")]
    ['allreduce', 'allgather', None]
    """
    match = _NAMED.search(text.lower().replace("-", "_"))
    return collective(match[1]).name if match and not match[2] else None


def op_named(program: str) -> OpName | None:
    """The collective that a program measures, by the whole end of its name; None if we do not have
    it.

    >>> op_named("nccl_alltoall"), op_named("all_reduce_bias"), op_named("hypercube")
    ('alltoall', None, None)
    """
    plain = program.lower().replace("-", "_")
    match = _NAMED.search(plain)
    return collective(match[1]).name if match and match.end(1) == len(plain) else None


def dtype_of(text: str) -> str:
    """Our name of an element type; one that we do not have stays as it is.

    >>> dtype_of("float"), dtype_of("MPI_CHAR"), dtype_of("bfloat16"), dtype_of("uint32")
    ('float32', 'int8', 'bfloat16', 'uint32')
    """
    plain = text.lower().removeprefix("mpi_").removeprefix("nccl")
    return plain if plain in DTYPES else ALIASES.get(plain, plain)


def hosts_line(names: Iterable[str]) -> str:
    """The column `host`: each host once, in order of appearance."""
    return ",".join(dict.fromkeys(names))


def devices_line(names: Sequence[str]) -> str:
    """The column `device`, as our own rows have it.

    >>> devices_line(["NVIDIA H200", "NVIDIA H200"])
    '2 x NVIDIA H200'
    """
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def foreign(
    *,
    op: OpName,
    backend: str,
    dtype_name: str = "",
    redop: str = "",
    root: int = 0,
    placement: str = "out",
    ranks: int,
    hosts: int = 0,
    size_bytes: int,
    count: int = 0,
    times_us: Sequence[float],
    iters: int = 0,
    wrong: int | None = None,
    is_checked: bool = False,
    host: str = "",
    device: str,
    versions: str,
    timestamp: str = "",
    bounds_us: tuple[float, float] | None = None,
    failure: str = "",
    traffic: str = "",
) -> Record:
    """A row of another tool. Bandwidths are computed anew from S and time; a row with wrong
    elements, or without a time, has none.

    count: 0 where it follows from size and type. bounds_us: bounds of the time that the tool itself
    gives. failure: why the data is wrong, where
    elements are not counted. traffic: notes of record.TRAFFIC.
    """
    known = collective(op)
    is_checked = is_checked and (placement == "out" or known.has_in_place)
    times = [time for time in times_us if math.isfinite(time) and time > 0]
    reason = failure or (f"{wrong} wrong elements" if wrong else "" if times else "no time")
    base = Record(
        op=op,
        backend=backend,
        ctas=0,
        **UNASKED,
        dtype=dtype_name,
        redop=redop if known.is_reduction and redop else "sum",
        root=max(root, 0),
        placement=placement,
        group="",
        ranks=ranks,
        hosts=hosts,
        size_bytes=size_bytes,
        count=count or _count(known, size_bytes, item_bytes(dtype_name), ranks),
        iters=iters,
        wrong=wrong,
        status="wrong" if failure or wrong else "error" if reason else "ok",
        reason=reason,
        notes=f"{'' if is_checked else 'unchecked'} {traffic}".strip(),
        host=host,
        device=device,
        versions=versions,
        timestamp=timestamp,
    )
    return base if reason else timed(base, times, bounds_us)


def item_bytes(name: str) -> int:
    """The bytes of an element of a type; 0 of one that we do not have."""
    known = next((one for one in DTYPES if one == name), None)
    return dtype(known).item_bytes if known else 0


def _count(op: Collective, size_bytes: int, item: int, ranks: int) -> int:
    """The elements of a block; 0 where the type or the ranks that it needs are not known."""
    if not item or (op.size_in_blocks and not ranks):
        return 0
    return op.block_count(size_bytes, item, ranks or 1)


def ways_told(what: str, *, is_both: bool) -> str:
    """What a row of transfers between two ranks is, as a remark. what: they are, such as copies."""
    if is_both:
        return "the bandwidth of both directions is halved ({at}): rates are those of one direction"
    return (
        f"{what} go one way ({{at}}): not compared with sendrecv of collbench and nccl-tests, where"
        " each rank sends and receives at once"
    )


def timed(
    row: Record, times_us: Sequence[float], bounds_us: tuple[float, float] | None = None
) -> Record:
    """The row with these repeats, in place of those that it has."""
    factor, bounds = collective(row.op).factor, interval(times_us)
    low, high = bounds_us or (bounds.low, bounds.high)
    low, high = min(low, bounds.median), max(high, bounds.median)
    algbw = rate_gbs(row.size_bytes, bounds.median / 1e6)
    # The bus bandwidth of some collectives does not depend on the number of ranks.
    is_known = row.ranks or factor(2) == factor(3)
    return replace(
        row,
        time_us=bounds.median,
        time_low_us=low,
        time_high_us=high,
        repeats=len(times_us),
        repeat_times_us=tuple(times_us),
        algbw_gbs=algbw,
        busbw_gbs=algbw * factor(row.ranks or 2) if is_known else None,
    )


@dataclass(slots=True)
class ForeignRemarks:
    """What a reader must know of a file, each once, with the places that it is said of.

    word: of a place, such as line.

    >>> remarks = ForeignRemarks("line")
    >>> remarks.add("{count} cut row{s} ({at})", 3)
    >>> remarks.add("{count} cut row{s} ({at})", 5, 7)
    >>> remarks.texts()
    ('3 cut rows (line 3, 5, 7)',)
    """

    word: str
    places: dict[str, list[int]] = field(default_factory=dict)

    def add(self, text: str, *places: int) -> None:
        """Keep a remark; in its text {at} are its places, {count} their number, {s} a plural."""
        self.places.setdefault(text, []).extend(places)

    def texts(self) -> tuple[str, ...]:
        """The remarks in the order in which they were made."""
        return tuple(
            text.replace("{at}", f"{self.word} {_some(places)}")
            .replace("{count}", str(len(places)))
            .replace("{s}", "s" * (len(places) != 1))
            for text, places in self.places.items()
        )


def _some(places: Sequence[int]) -> str:
    """Numbers of lines, not all of many.

    >>> _some([3, 4]), _some(range(9))
    ('3, 4', '0, 1, 2, 3, 4 ...')
    """
    known = list(dict.fromkeys(places))
    more = " ..." if len(known) > MOST_PLACES_NAMED else ""
    return ", ".join(map(str, known[:MOST_PLACES_NAMED])) + more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignTable:
    """A table of one file. first, last: its lines. conditions: what is known of how it was
    measured, by its name; tables that differ there measured something else.
    """

    first: int
    last: int
    conditions: Mapping[str, str]


# rows of one thing, each with its table and its line
_Group: TypeAlias = list[tuple[ForeignTable, int, Record]]


class TwoRunsError(UsageError):
    """Two runs in one file measured the same. first, last: lines of the first, 0 where its table is
    not known by lines; whole: the file's text, where it is known.
    """

    def __init__(self, name: str, message: str, first: int, last: int) -> None:
        hint = "give each run a file of its own: collbench compare AFTER BEFORE"
        super().__init__(f"{name}, {message}", hint)
        self.name, self.first, self.last, self.whole = name, first, last, ""


def merged(rows: Sequence[tuple[ForeignTable, int, Record]], name: str) -> list[Record]:
    """Rows of (table, line, row): one measured several times, in one table or in several that
    differ in nothing, becomes one row with repeats.

    Raises TwoRunsError if tables that were printed at once, under other conditions, or with all
    rows faster or slower measured the same, UsageError for too many repeats.
    """
    groups: dict[tuple[object, ...], _Group] = {}
    for one in rows:
        traffic = tuple(note for note in one[2].notes.split() if note.startswith(TRAFFIC))
        groups.setdefault((*one[2].key, traffic), []).append(one)
    for group in groups.values():
        first_table, first_line, row = group[0]
        for table, line, _ in group[1:]:
            if table is not first_table and (why := _difference(first_table, table)):
                raise TwoRunsError(
                    name,
                    f"lines {first_line} and {line}: two runs in one file measured the same"
                    f" ({row.op}, {row.size_bytes} bytes, {row.placement} of place){why}",
                    *_first_run(groups.values()),
                )
        if len(group) > MOST_REPEATS:
            raise UsageError(
                f"{name}, line {group[-1][1]}: {len(group)} repeats of one size; at most"
                f" {MOST_REPEATS} are read",
                "give a part of the file",
            )
    _refuse_shifted(list(groups.values()), name)
    return [_joined([row for _, _, row in group]) for group in groups.values()]


def _first_run(groups: Iterable[_Group]) -> tuple[int, int]:
    """The first and the last line of the tables above the first one that measured again what
    another had measured; 0 if one of them has no last.
    """
    groups = list(groups)
    tables = {table for group in groups for table, _, _ in group}
    again = (table for group in groups for table, _, _ in group if table is not group[0][0])
    second = min(table.first for table in again)
    before = [table for table in tables if table.first < second]
    has_lines = all(one.first < one.last < second for one in before)
    first = min(one.first for one in before)
    return (first, max(one.last for one in before)) if has_lines else (0, 0)


def _refuse_shifted(groups: Sequence[_Group], name: str) -> None:
    """Raise UsageError if all rows of one table took longer, or shorter, than those of the first,
    as repeats do not: something was changed between.
    """
    ratios: dict[ForeignTable, list[float]] = {}
    for (first, _, row), *others in groups:
        for table, _, other in others:
            if table is not first and row.time_us and other.time_us:
                ratios.setdefault(table, []).append(other.time_us / row.time_us)
    for table, all_of in ratios.items():
        low, high = min(all_of), max(all_of)
        if len(all_of) >= _FEWEST_SHIFTED and (low > _SHIFTED or high < 1 / _SHIFTED):
            span = " to ".join(dict.fromkeys((f"{low:.2g}", f"{high:.2g}")))
            raise TwoRunsError(
                name,
                f"line {table.first}: a second run, not repeats: all its {len(all_of)} rows took"
                f" {span} times as long",
                *_first_run(groups),
            )


def _difference(a: ForeignTable, b: ForeignTable) -> str:
    """Why a second run is no repeat of the first; empty if it is."""
    if a.first <= b.last and b.first <= a.last:
        return ": they print at once, so neither ran alone"
    for title in dict.fromkeys((*a.conditions, *b.conditions)):
        one, other = a.conditions.get(title, ""), b.conditions.get(title, "")
        # words that one of two commands has above it may be of anything
        if one != other and ((one and other) or title != "the text above"):
            return f": {title} differs: {one or 'none'} | {other or 'none'}"
    return ""


def _joined(same: Sequence[Record]) -> Record:
    bad = next((row for row in same if row.status != "ok"), None)
    if bad is not None or len(same) == 1:
        return bad or same[0]
    least_checked = max(same, key=lambda row: len(row.notes))
    return timed(least_checked, [time for row in same for time in row.repeat_times_us])
