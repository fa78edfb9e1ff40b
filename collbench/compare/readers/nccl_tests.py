"""The text that nccl-tests prints, of any version, as it comes out of launchers and with NCCL's own
lines in between.

Its tables are nccl_tests_table's; the numbers themselves say how they are to be read (proof.py).
Its JSON is nccl_tests_json's.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

from collbench.compare.readers.foreign import (
    ForeignRemarks,
    ForeignTable,
    devices_line,
    dtype_of,
    foreign,
    hosts_line,
    item_bytes,
    merged,
    op_in,
    op_named,
    refuse_too_many,
)
from collbench.compare.readers.log_lines import log_lines
from collbench.compare.readers.nccl_tests_table import (
    DEVIATION,
    HEADING,
    NO_TIMES,
    OTHER_TABLE,
    TABLE_HEADING,
    RunParser,
    TablePart,
    TableRow,
    TableRun,
    as_printed,
    number,
)
from collbench.compare.readers.proof import Printed, ProofReading, half_unit, reading_of
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.errors import UsageError
from collbench.core.record import Record
from collbench.core.text import counted

TOOL = "nccl-tests"
# of a result of n ranks, over n - 1, by nccl-tests before 2.13 (common.cu); other types: 0
_ALONE = (
    "one rank: nothing travels, so that these are times of a launch and a copy",
    "start as many ranks as there are GPUs: all_reduce_perf -g 8 in one process, or mpirun -np 8 of"
    " an nccl-tests that was built with MPI=1",
)
_BESIDE = re.compile(r"\bsize +count +type\b[^\n|]{0,200}\|[^\n|]{0,20}\bsize +count +type\b")
_AVERAGE = "Avg bus bandwidth"
_LEAST_BYTES = 64 << 10  # of the largest size, below which no link's rate is seen
_APART = 10  # times: of a size out of place and in place, beyond which one is no result
_MANY_APART = 3  # sizes: so many, all of one kind, are no chance
_TOLERANCES = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-12}


def is_mine(text: str) -> bool:
    r"""Whether the text is nccl-tests'.

    >>> is_mine("# nThread 1 nGpus 8 minBytes 8\n"), is_mine("# OSU MPI Allreduce Latency Test\n")
    (True, False)
    """
    text, _ = as_printed(text)
    return HEADING.search(text) is not None and (
        OTHER_TABLE.search(text) is None or TABLE_HEADING.search(text) is not None
    )


def _refuse_without_table(text: str, name: str) -> NoReturn:
    """Raise UsageError for a text without a row, by the ends of tables that are in it."""
    ends = text.count(_AVERAGE)
    if ends > 1:
        raise UsageError(
            f"{name}: {ends} programs end in it, and no table is there: they ran side by side, each"
            " for itself",
            "build nccl-tests with MPI=1 (make clean first), and give the tables",
        )
    if ends:
        raise UsageError(
            f"{name}: no row of a table that is read is above its end",
            "give all that nccl-tests prints; forms before 2.0 are not read",
        )
    raise UsageError(
        f"{name}, line {text.count(chr(10)) + 1}: nccl-tests' output ends before its table",
        "the run failed: look at the end of the file",
    )


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    text, is_heading_added = as_printed(text)
    if beside := _BESIDE.search(text):
        raise UsageError(
            f"{name}, line {text.count(chr(10), 0, beside.start()) + 1}: two tables side by side",
            f"cut -d'|' -f1 {name} > a.txt; cut -d'|' -f2 {name} > b.txt; collbench compare them",
        )
    parser = RunParser()
    for line in log_lines(text, HEADING):
        parser.take(line)
    runs = [run for run in parser.runs if run.is_table]
    if not runs:
        _refuse_without_table(text, name)
    remarks = ForeignRemarks("line")
    if is_heading_added:
        remarks.add("the heading is missing: the rows' own form tells the columns")
    if parser.orphans:
        remarks.add("{count} line{s} like rows without heading left out ({at})", *parser.orphans)
    return rows_of(runs, name, remarks)


def rows_of(
    runs: Sequence[TableRun], name: str, remarks: ForeignRemarks
) -> tuple[list[Record], tuple[str, ...]]:
    """The rows of tables, however they are written, and remarks. Raises UsageError with the
    place.
    """
    rows: list[tuple[ForeignTable, int, Record]] = []
    for run in runs:
        _refuse_mixed(run, name)
        refuse_too_many(run.rows, name)
        for text, places in _disturbed(run):
            remarks.add(text, *places)
        op = _op_of(run, name)
        for text, places in _remarks(run, op):
            remarks.add(text, *places)
        if op is None or not run.rows:
            continue
        reading = _reading(run, op, name)
        for text, places in _ranks_remarks(run, reading.ranks):
            remarks.add(text, *places)
        if reading.misfits:
            lines = (line for line, _ in sorted(reading.misfits))
            remarks.add(
                "{count} time{s} left out whose rates are not those of size and time ({at})", *lines
            )
        table = ForeignTable(first=run.first, last=run.last, conditions=_conditions(run))
        rows += [
            (table, place, record)
            for place, row in run.rows
            for record in _records(run, place, row, op, reading)
        ]
    said = remarks.texts()
    if not rows:
        nothing = f", line {runs[-1].heading_line}: no row follows the heading"
        why = f": no row: {'; '.join(said)}" if said else nothing
        raise UsageError(name + why, "the run failed: look at the end of the file")
    return merged(rows, name), said


def _op_of(run: TableRun, name: str) -> OpName | None:
    """The collective of a table: by its program, else by the file's name if the rows may be of it,
    else by the rows; None for a program that is no collective of ours. Raises UsageError if nothing
    tells it.
    """
    if run.program:
        return op_named(run.program)
    names = [op_in(name.replace("\\", "/").rpartition("/")[2]), op_in(run.words)]
    named = next((one for one in names if one and _may_be(one, run)), names[0])
    if named is not None and _may_be(named, run):
        return named
    fitting = [op for op in OPS if run.rows and _may_be(op, run) and _is_checked_as(op, run)]
    by_rows = fitting[0] if len(fitting) == 1 else None
    run.is_op_by_rows = by_rows is not None
    if by_rows is None and named is None and _is_alone(run):
        raise UsageError(
            f"{name}, line {run.heading_line}: the file does not name the collective, and has"
            f" {_ALONE[0]}",
            _ALONE[1],
        )
    if by_rows is None and named is None:
        said = f"{name}, line {run.heading_line}: the file does not name the collective"
        if fitting:
            ranks = _reading(run, fitting[0], name).ranks
            rates = (number(part.busbw) or 0.0 for _, row in run.rows for part in row.parts)
            said += f", which is {' or '.join(fitting)} by its rows, of {counted(ranks, 'rank')}"
            said += f", up to {max(rates, default=0) * run.rate_gbs:.4g} GB/s of bus bandwidth"
        elif run.rows:
            _reading(run, "allreduce", name)  # raises what is wrong with all of its rates
        raise UsageError(said, f"name the file after it, as in {(*fitting, 'allreduce')[0]}.txt")
    return by_rows or named


def _refuse_mixed(run: TableRun, name: str) -> None:
    """Raise UsageError for a table that several programs print at once, or whose times are of
    something else.
    """
    doubled, what = run.doubled_line, run.doubled
    if not doubled and run.is_after_empty:
        keys = [(row.size_bytes, row.dtype, row.redop, row.root) for _, row in run.rows]
        same = (run.rows[at][0] for at in range(1, len(keys)) if keys[at] == keys[at - 1])
        doubled, what = next(same, 0), "a size is printed twice"
    without = [line for line, row in run.rows if row.redop in ("", "none")]
    if not doubled and 0 < len(without) < len(run.rows):
        doubled, what = without[0], "rows with a reduction stand beside rows without one"
    if doubled:
        raise UsageError(
            f"{name}, line {doubled}: {what}: several programs, that knew nothing of each other,"
            " print into one file",
            "build nccl-tests with MPI=1",
        )
    if "cputime" in run.columns:
        raise UsageError(
            f"{name}, line {run.heading_line}: these are times of the CPU (-C 1), not of the"
            " collective",
            "run nccl-tests without -C",
        )


def _is_alone(run: TableRun) -> bool:
    """Whether the run has a single rank, which has nobody to send to."""
    rates = (number(part.busbw) for _, row in run.rows for part in row.parts)
    return run.claimed_ranks == 1 and not any(rates)


def _disturbed(run: TableRun) -> Iterator[tuple[str, Sequence[int]]]:
    """Remarks on times that are no results. Those of a run without warm-up are taken out."""
    here = (run.heading_line,)
    if _is_alone(run) and run.rows:
        yield f"{_ALONE[0]} ({{at}}): {_ALONE[1]}", here
    apart = []
    for at, (line, row) in enumerate(run.rows):
        times = [number(part.time) or 0.0 for part in row.parts]
        if len(times) == 2 and min(times) > 0 and max(times) > _APART * min(times):
            apart.append((at, line, max(times) / min(times), times.index(max(times))))
    ways = {place for *_, place in apart}
    if run.warmup != 0 and len(apart) >= _MANY_APART and len(ways) == 1:
        least, most = (f"{of(ratio for _, _, ratio, _ in apart):,.0f}" for of in (min, max))
        yield (
            f"{len(apart)} sizes took {least}{f' to {most}' * (least != most)} times as long"
            f" {'in place' if ways.pop() else 'out of place'} as otherwise ({{at}}): no disturbance"
            " of one size; why the two differ the table does not tell",
            [line for _, line, *_ in apart],
        )
        apart = []
    for at, line, ratio, place in apart:
        row = run.rows[at][1]
        which = "in place" if place else "out of place"
        what = (
            f"{row.size_bytes} bytes took {ratio:,.0f} times as long {which} as otherwise ({{at}})"
        )
        if run.warmup == 0:
            kept = tuple(part for number_, part in enumerate(row.parts) if number_ != place)
            run.rows[at] = (line, replace(row, parts=kept))
            yield f"no warm-up (-w 0): {what}: no result, left out", (line,)
        else:
            yield f"{what}: one of the two was disturbed, and is no result", (line,)
    if run.warmup == 0 and run.rows:
        yield "no warm-up ({at}: -w 0): the first time of each size has the start in it", here
    if run.iters == 1 and run.rows:
        yield "one iteration ({at}: -n 1): times are of single launches", here


def _remarks(run: TableRun, op: OpName | None) -> Iterator[tuple[str, Sequence[int]]]:
    """Texts for Remarks, each with its places."""
    here = (run.heading_line,)
    if op is None:
        left = f"{counted(len(run.rows), 'line')} left out"
        yield f"{run.program}_perf ({{at}}) is no collective of ours: {left}", here
        return
    if run.is_op_by_rows:
        yield (
            "neither program nor name of the file tell the collective ({at}): columns and rates are"
            f" those of {op} alone",
            here,
        )
    if run.broken:
        yield "{count} cut line{s} left out ({at})", run.broken
    if run.halves:
        yield "no time in place of {count} row{s} ({at})", run.halves
    if run.nothing:
        yield "{count} row{s} of 0 bytes left out", run.nothing
    if "error" in run.columns and _is_any_checked(run):
        yield (
            "this version prints how far results are off, not how many are wrong ({at}): wrong is"
            " left empty",
            here,
        )
    if 0 < max((row.size_bytes for _, row in run.rows), default=0) < _LEAST_BYTES:
        yield "sizes are small ({at}): these are latencies, no bandwidth to judge; add -e 1G", here
    if run.rows and not run.devices:
        said = "whether their rate is normal cannot be told without '# Rank 0 ... device 0'"
        yield f"no line names the GPUs ({{at}}): {said}", here
    if not run.has_end:
        yield "the table of {at} has no end: the run stopped, or the file is cut", here
    if run.failed:
        yield f"{run.failed} values out of bounds: nccl-tests calls this run failed ({{at}})", here
        if run.rows and not _shows_failures(run):
            yield "no row of the table shows which failed ({at}): none counts as checked", here
    if run.rows and not _is_any_checked(run):
        is_cut = run.validation and not {"#wrong", "error"} & {*run.columns}
        why = "the columns that tell are cut off" if is_cut else "-c 0"
        yield f"no result was checked ({{at}}: {why})", here


def _ranks_remarks(run: TableRun, ranks: int) -> Iterator[tuple[str, Sequence[int]]]:
    here, known = (run.heading_line,), len(run.hosts) or run.nranks
    if run.hosts and ranks == run.claimed_ranks < known:
        yield f"{counted(known, 'rank')} named, in groups of {ranks} ({{at}})", here
    elif known and ranks != known:
        yield (
            f"{counted(known, 'rank')} named, but busbw / algbw is that of"
            f" {counted(ranks, 'rank') if ranks else 'no number of ranks'} ({{at}})",
            here,
        )
    elif ranks and not known:
        by = "the command" if ranks == run.launched else "busbw / algbw"
        yield f"how many ranks: {ranks}, by {by} ({{at}})", here
    elif not ranks:
        yield "the number of ranks is not in the file ({at}): no bus bandwidth", here


def _conditions(run: TableRun) -> dict[str, str]:
    """What two runs of one log must share to be repeats of one measurement."""
    return {
        "the stream of lines": run.stream,
        "the line above": run.command or run.words,
        "the text above": run.words if run.command else "",
        "what is set": " ".join(f"{name}={value}" for name, value in sorted(run.settings.items())),
        "how it ran": " ".join(f"{name}: {value}" for name, value in sorted(run.modes.items())),
        "the host": hosts_line(run.hosts.values()),
        "the device": devices_line(list(run.devices.values())),
        "the version": f"{run.version} {run.library}".strip(),
    }


def _reading(run: TableRun, op: OpName, name: str) -> ProofReading:
    printed = [
        Printed(
            line=line,
            placement=part.placement,
            size_bytes=row.size_bytes,
            time=float(part.time),
            time_error=half_unit(part.time) + run.rounding,
            algbw=float(part.algbw) * run.rate_gbs,
            algbw_error=half_unit(part.algbw) * run.rate_gbs + run.rounding,
            busbw=float(part.busbw) * run.rate_gbs,
            busbw_error=half_unit(part.busbw) * run.rate_gbs + run.rounding,
        )
        for line, row in run.rows
        for part in row.parts
        if not {part.time, part.algbw, part.busbw} & set(NO_TIMES)
    ]
    # by which size and count of every row differ
    ratio = _size_over_count(run) if collective(op).size_in_blocks else 0
    return reading_of(
        op,
        printed,
        claimed=run.claimed_ranks,
        counted=ratio if ratio > 1 else 0,
        name=name,
        place=run.heading_line,
    )


def _may_be(op: OpName, run: TableRun) -> bool:
    """Whether columns, counts and rates are those of a collective."""
    known = collective(op)
    has_redop = any(row.redop not in ("", "none") for _, row in run.rows)
    is_rooted = "root" in run.columns_before and all(row.root >= 0 for _, row in run.rows)
    # versions with all columns in every table print the operation of sendrecv, too
    has_any_redop = op == "sendrecv" and {"redop", "root"} <= set(run.columns_before)
    if known.is_rooted != is_rooted or (known.is_reduction != has_redop and not has_any_redop):
        return False
    # a single rank has one block
    if run.claimed_ranks != 1 and known.size_in_blocks != (_size_over_count(run) > 1):
        return False
    try:
        return not _reading(run, op, "").misfits
    except UsageError:
        return False


def _is_checked_as(op: OpName, run: TableRun) -> bool:
    """Whether results in place are checked or not as those of a collective are: since September
    2022 they are not where in place has no meaning.
    """
    if not _is_any_checked(run) or "#wrong" not in run.columns:
        return True
    in_place = {part.check for _, row in run.rows for part in row.parts if part.placement == "in"}
    return not in_place or (in_place == {"N/A"}) is not collective(op).has_in_place


def _is_any_checked(run: TableRun) -> bool:
    return any(_is_checked(run, part) for _, row in run.rows for part in row.parts)


def _size_over_count(run: TableRun) -> int:
    """Size over the bytes of `count` elements, of all rows; 0 if it is no one whole number."""
    numbers = set()
    for _, row in run.rows:
        block = row.count * item_bytes(dtype_of(row.dtype))
        numbers.add(row.size_bytes // block if block and not row.size_bytes % block else 0)
    return numbers.pop() if len(numbers) == 1 else 0


def _is_checked(run: TableRun, part: TablePart) -> bool:
    # the oldest versions print -1 where nothing is checked
    if part.check == "N/A" or part.check.startswith("-"):
        return False
    # what counts wrong elements has checked them
    return run.validation != 0 or ("#wrong" in run.columns and bool(number(part.check)))


def _failure(run: TableRun, row: TableRow, part: TablePart) -> str:
    """Why a result of a version that counts no wrong elements is wrong; empty if it is not."""
    match = DEVIATION.fullmatch(part.check)
    if not match or "#wrong" in run.columns or not _is_checked(run, part):
        return ""
    n = max(run.claimed_ranks, 2)
    is_over = float(match[1]) > _TOLERANCES.get(dtype_of(row.dtype), 0.0) * (n - 1)
    is_known_right = run.has_end and not run.failed
    return f"off by {match[1]}" if match[2] or (is_over and not is_known_right) else ""


def _shows_failures(run: TableRun) -> bool:
    """Whether a row, whole or cut, may be the one that failed."""
    return bool(run.broken) or any(
        _failure(run, row, part) or ("#wrong" in run.columns and number(part.check))
        for _, row in run.rows
        for part in row.parts
    )


def _records(
    run: TableRun, place: int, row: TableRow, op: OpName, reading: ProofReading
) -> Iterator[Record]:
    settings = "".join(f" {name}={value}" for name, value in sorted(run.settings.items()))
    versions = [run.version or "nccl-tests", run.library]
    library = "; ".join(filter(None, versions)) + (f" with{settings}" if settings else "")
    is_unclear = bool(run.failed) and not _shows_failures(run)
    for part in row.parts:
        if (place, part.placement) in reading.misfits:
            continue
        is_counted = "#wrong" in run.columns and _is_checked(run, part)
        count = number(part.check) if is_counted else None
        yield foreign(
            op=op,
            backend="nccl",
            dtype_name=dtype_of(row.dtype),
            redop=row.redop,
            root=row.root,
            placement=part.placement,
            ranks=reading.ranks,
            hosts=len(set(run.hosts.values())) or run.nodes,
            size_bytes=row.size_bytes,
            count=row.count,
            times_us=[float(part.time)],
            bounds_us=part.bounds_us,
            iters=row.iters or run.iters,
            wrong=None if count is None else int(count),
            is_checked=_is_checked(run, part) and not is_unclear,
            failure=_failure(run, row, part),
            host=hosts_line(run.hosts.values()),
            device=devices_line(list(run.devices.values())),
            versions=library,
            timestamp=run.timestamp,
        )
