"""Rows of other tools as ours: what they do not record stays empty. No format is read here."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from collbench.results.record import Record
from collbench.results.statistics import interval
from collbench.spec.collectives import OpName, collective
from collbench.spec.dtypes import ALIASES, DTYPES
from collbench.spec.knobs import UNASKED
from collbench.util.errors import UsageError
from collbench.util.units import rate_gbs

# characters; the longest of nccl-tests has less than 300, NCCL's own are longer and of no use here
LONGEST_LINE = 4000
MOST_ROWS = 20_000  # of a table; a sweep of 8 to 16G by 2 has 32
MOST_RANKS = 1 << 20
MOST_REPEATS = 1000  # the exact interval of more takes seconds a row
# What launchers put before a line: mpirun --tag-output (Open MPI 4 and 5), mpirun -l (Intel,
# MPICH), srun -l, pdsh, container logs.
LAUNCH_PREFIX = re.compile(
    r"\s{0,9}(?:\d{4}-\d\d-\d\d[T ]\S{8,30}\s{1,2})?"
    r"(\[[^\]\s]{1,99},\d{1,9}\]<std\w{1,5}>:|\[\d{1,6}\]\s|\d{1,6}:\s|(?!#)[\w.-]{1,64}:\s)?\s*"
)
NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?(?:e[+-]?\d\d)?")
# Longest first: allreduce holds reduce, allgather holds gather.
_NAMED = re.compile(
    r"(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|bcast|send_?recv|gather|scatter|reduce)(v?)(?![a-z])"
)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1 on; neither empty nor so long that they can be no row."""
    return (
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line and len(line) <= LONGEST_LINE
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


def ranks_of(op: OpName, rates: Iterable[tuple[float, float, float]], claimed: int) -> int:
    """How many ranks make busbw of algbw in every one of (algbw, busbw, half a unit of their last
    digit): `claimed` if it may be; 0 if unknown.

    busbw / algbw is k (n-1)/n; where the factor is 1 for every n the rates show nothing, and
    `claimed` stands.

    >>> (
    ...     ranks_of("allreduce", [(237.31, 355.96, 0.005)], 0),
    ...     ranks_of("allreduce", [(237.31, 355.96, 0.005)], 8),
    ...     ranks_of("broadcast", [], 8),
    ... )
    (4, 4, 8)
    """
    factor = collective(op).factor
    if factor(2) == factor(3):
        return claimed
    whole, low, high = 2 * factor(2), 0.0, math.inf
    for algbw, busbw, error in rates:
        if algbw > error:
            low = max(low, (busbw - error) / (algbw + error))
            high = min(high, (busbw + error) / (algbw - error))
    if claimed and low <= factor(claimed) <= high:
        return claimed
    if not 0 < low <= high < whole:
        return claimed if high == math.inf else 0
    fewest = math.ceil(whole / (whole - low) - 1e-9)
    most = math.floor(whole / (whole - high) + 1e-9)
    return fewest if fewest == most and 2 <= fewest <= MOST_RANKS else 0


def foreign(
    *,
    op: OpName,
    backend: str,
    dtype: str,
    redop: str = "",
    root: int = 0,
    placement: str,
    ranks: int,
    hosts: int = 0,
    size_bytes: int,
    count: int,
    times_us: Sequence[float],
    iters: int,
    wrong: int | None,
    is_checked: bool,
    run: str = "",
    host: str = "",
    device: str,
    versions: str,
    timestamp: str = "",
    bounds_us: tuple[float, float] | None = None,
    failure: str = "",
) -> Record:
    """A row of another tool. Bandwidths are computed anew from S and time; a row with wrong
    elements, or without a time, has none.

    bounds_us: bounds of the time that the tool itself gives. failure: why the data is wrong, where
    elements are not counted.
    """
    known = collective(op)
    times = [time for time in times_us if math.isfinite(time) and time > 0]
    reason = failure or (f"{wrong} wrong elements" if wrong else "" if times else "no time")
    base = Record(
        op=op,
        backend=backend,
        ctas=0,
        **UNASKED,
        dtype=dtype,
        redop=redop if known.is_reduction and redop else "sum",
        root=max(root, 0),
        placement=placement,
        group="",
        ranks=ranks,
        hosts=hosts,
        size_bytes=size_bytes,
        count=count,
        iters=iters,
        wrong=wrong,
        status="wrong" if failure or wrong else "error" if reason else "ok",
        reason=reason,
        notes="" if is_checked else "unchecked",
        run=run,
        host=host,
        device=device,
        versions=versions,
        timestamp=timestamp,
    )
    return base if reason else timed(base, times, bounds_us)


def timed(
    row: Record, times_us: Sequence[float], bounds_us: tuple[float, float] | None = None
) -> Record:
    """The row with these repeats, in place of those that it has."""
    factor, bounds = collective(row.op).factor, interval(times_us)
    low, high = bounds_us or (bounds.low, bounds.high)
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


def merged(rows: Sequence[tuple[int, int, Record]], name: str) -> list[Record]:
    """Rows of (table, line, row): one measured several times in one table becomes one row with
    repeats.

    Raises UsageError if two tables measured the same (nothing in the file shows which is meant, or
    what differs), or for too many repeats.
    """
    groups: dict[tuple[object, ...], tuple[int, int, list[Record]]] = {}
    for table, line, row in rows:
        first = groups.setdefault(row.key, (table, line, []))
        if first[0] != table:
            raise UsageError(
                f"{name}, lines {first[1]} and {line}: two runs in one file measured the same"
                f" ({row.op}, {row.size_bytes} bytes, {row.placement} of place)",
                "give each run a file of its own: what differs between them is not in the file",
            )
        first[2].append(row)
    for _, line, same in groups.values():
        if len(same) > MOST_REPEATS:
            raise UsageError(
                f"{name}, line {line}: {len(same)} repeats of one size; at most {MOST_REPEATS} are"
                " read",
                "give a part of the file",
            )
    return [_joined(same) for _, _, same in groups.values()]


def _joined(same: Sequence[Record]) -> Record:
    bad = next((row for row in same if row.status != "ok"), None)
    if bad is not None or len(same) == 1:
        return bad or same[0]
    return timed(same[0], [time for row in same for time in row.repeat_times_us])
