"""Rates of pairs from files: our own CSV, a CSV of anybody's, plain lines, and outputs of
nccl-tests on pairs.

A CSV needs a column for each of the two hosts and one for the rate (see NAMES). A plain line has
just these three in that order, with blanks, commas, bars or arrows between, and perhaps a unit: `n1
n2 49.3`, `n1 <-> n2: 394 Gb/s`. A pair without a direction was measured in both at once, as an
allreduce of two ranks is.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from collbench.core.catalog import read_by
from collbench.core.errors import UsageError
from collbench.core.pairwise import MODES, WHERES, PairSample, PairWorld
from collbench.core.reading import read_text
from collbench.core.text import counted, escaped, natural_key
from collbench.core.units import parse_whole

# what we read -> names of its column; the first is ours
NAMES: Mapping[str, tuple[str, ...]] = {
    "host_a": ("host_a", "node_a", "src", "source", "a"),
    "host_b": ("host_b", "node_b", "dst", "destination", "b"),
    "rank_a": ("rank_a",),
    "rank_b": ("rank_b",),
    "local_a": ("local_a", "gpu_a", "rail_a"),
    "local_b": ("local_b", "gpu_b", "rail_b"),
    "gbs": ("gbs", "busbw", "busbw_gbs", "bandwidth_gbs"),
    "direction": ("direction",),
    "mode": ("mode",),
    "sharing": ("sharing",),
    "size_bytes": ("size_bytes", "size"),
    "status": ("status",),
    "reason": ("reason",),
    "where": ("where",),
    "waits": ("waits",),
}
_NEEDED = ("host_a", "host_b", "gbs")
_MOST_BYTES = 256 << 20
_MOST_RANKS = 65536
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_LEAST_GBS, _MOST_GBS = 1e-9, 1e9  # a byte a second, and a million NICs in one: what is a rate
_RANK = re.compile(r"#\s+Rank\s+\d+ .*?\bon\s+(\S+) device\s+(\d{1,9})", re.ASCII)
_WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*([0-9]{1,20}) FAILED", re.ASCII)
_BUSBW = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S{1,40})", re.ASCII)

# between the fields of plain lines, and the rules of tables
_BETWEEN = re.compile(
    r"[,;|]|\s[-*=]\s|\s?(?:<?[-=]{1,3}>|<[-=]{1,3})\s?|\s(?:to|vs\.?)\s|:(?=\s)|[-=+:]{3,}"
)
_UNITS_GBS = {
    "gb/s": 1.0, "gbs": 1.0, "gib/s": 2**30 / 1e9, "mb/s": 1e-3, "tb/s": 1e3, "gbps": 0.125,
    "gb/sec": 1.0, "gbit/s": 0.125, "gbits/s": 0.125, "gbit/sec": 0.125,
}  # fmt: skip
_UNITS_BY_CASE = {"Gb/s": 0.125, "Gb/sec": 0.125, "GBps": 1.0}  # b is bits, B is bytes
_MOST_HEADING_LINES = 20
_End = tuple[str, int]  # a rank as a file names it: its host, and its number there


@dataclass(frozen=True, slots=True)
class _Line:
    """A sample whose ranks have no numbers yet. numbers: those in the file, if it has some."""

    ends: tuple[_End, _End]
    sample: PairSample
    numbers: tuple[int, int] = (0, 0)


def read(files: Sequence[Path]) -> tuple[PairWorld, list[PairSample]]:
    """The ranks and the samples of all files; - is stdin. Raises UsageError."""
    lines = [line for file in files for line in _lines(file)]
    number_of = {
        end: number for one in lines for end, number in zip(one.ends, one.numbers, strict=True)
    }
    ends = sorted(number_of, key=lambda end: (number_of[end], natural_key(end[0]), end[1]))
    if len(ends) > _MOST_RANKS:
        _refuse(str(files[0]), f"more than {_MOST_RANKS} ranks")
    rank = {end: place for place, end in enumerate(ends)}
    world = PairWorld(tuple(host for host, _ in ends), tuple(local for _, local in ends))
    return world, [replace(one.sample, a=rank[one.ends[0]], b=rank[one.ends[1]]) for one in lines]


def _lines(file: Path) -> list[_Line]:
    name = "stdin" if str(file) == "-" else escaped(str(file))
    text = read_text(file, _MOST_BYTES, "give a CSV, or outputs of nccl-tests")
    if _RANK.search(text):
        lines = list(_of_nccl_tests(text, name))
    else:
        lines = [_line(fields, f"{name}, line {number}") for number, fields in _table(text, name)]
    if not lines:
        _refuse(name, "no rate of any pair")
    return lines


def _plain_fields(line: str) -> list[str]:
    """The fields of a plain line, without a comment, marks and a unit; the rate in GB/s.

    >>> _plain_fields("n1, n2  49.3 GB/s  # again"), _plain_fields("- n1 <-> n2: 394 Gb/s")
    (['n1', 'n2', '49.3'], ['n1', 'n2', '49.25'])
    """
    text = _BETWEEN.sub(" ", f" {line.partition('#')[0]} ")
    fields = text.split()
    last = fields[-1] if len(fields) == 4 else ""
    unit = _UNITS_BY_CASE.get(last, _UNITS_GBS.get(last.lower()))
    if unit is None:
        return fields
    is_rate = unit != 1 and _NUMBER.fullmatch(fields[2])
    return [*fields[:2], f"{float(fields[2]) * unit:.12g}" if is_rate else fields[2]]


def _table(text: str, name: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The number of each line, and its fields by their first names in NAMES."""
    lines = text.splitlines()
    rows: Iterable[list[str]] = map(_plain_fields, lines)
    heads, first_number = list(_NEEDED), 1
    try:
        skipped = _lines_before(lines)
        if skipped is not None:
            rows, first_number = _without_prose(lines[skipped:]), skipped + 1
        else:
            is_cut_by_semicolons = ";" in lines[0] and "," not in lines[0]
            rows = csv.reader(lines, delimiter=";" if is_cut_by_semicolons else ",")
            heads, first_number = [head.strip().lower() for head in next(rows, [])], 2
        places = {
            field: heads.index(known)
            for field, names in NAMES.items()
            for known in names[::-1]  # the first one counts
            if known in heads
        }
        if missing := [field for field in _NEEDED if field not in places]:
            if known := read_by(text, name, "hunt --from"):
                _refuse(name, f"this is {known[0]}, no list of rates of pairs", known[1])
            hint = f"a CSV of pairs has columns such as {', '.join(_NEEDED)}"
            _refuse(name, f"no column {', '.join(missing)}", hint)
        for number, row in enumerate(rows, start=first_number):
            if row and len(row) != len(heads):
                what = f"{counted(len(row), 'field')} for {len(heads)} columns"
                _refuse(f"{name}, line {number}", what)
            if row:
                yield number, {field: row[place].strip() for field, place in places.items()}
    except csv.Error as error:
        _refuse(name, f"not CSV: {error}")


def _without_prose(lines: Sequence[str]) -> list[list[str]]:
    """The fields of plain lines; none of words that have no number and name no host."""
    rows = [_plain_fields(line) for line in lines]
    hosts = {host for row in rows if len(row) == 3 for host in row[:2]}
    return [
        row if len(row) == 3 or hosts & {*row} or any(map(str.isdigit, "".join(row))) else []
        for row in rows
    ]


def _lines_before(lines: Sequence[str]) -> int | None:
    """How many lines stand before the first plain one, which may be a heading of anybody's; None if
    the text is a CSV.
    """
    known = {name for names in NAMES.values() for name in names}
    for number, line in enumerate(lines[:_MOST_HEADING_LINES]):
        fields = _plain_fields(line)
        if len(fields) == 3 and _as_number(fields[2]) is not None:
            return number
        if len(known & {field.strip().lower() for field in line.split(",")}) > 1:
            return None
    return None


def _line(fields: Mapping[str, str], where: str) -> _Line:
    def whole(field: str, default: int = 0) -> int:
        text = fields.get(field)
        number = parse_whole(text) if text else default
        if number is None:
            _refuse(where, f"'{escaped(fields[field])}' is no whole number")
        return number

    def chosen(field: str, choices: Sequence[str]) -> str:
        text = fields.get(field) or choices[0]
        if text not in choices:
            what = f"{field} '{escaped(text)}'"
            _refuse(where, what, f"write {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    a, b = (fields["host_a"], whole("local_a")), (fields["host_b"], whole("local_b"))
    if not a[0] or not b[0]:
        _refuse(where, "a host without a name")
    if a == b:
        _refuse(where, f"a pair of {escaped(a[0])} with itself")
    direction, mode = chosen("direction", ("both", "a->b", "b->a")), chosen("mode", MODES)
    is_ok = (status := fields.get("status") or "ok") == "ok"
    sample = PairSample(
        a=0,
        b=0,
        gbs=_rate(fields["gbs"], where) if is_ok else None,
        is_both=direction == "both",
        mode="alone" if mode == "alone" else "together",
        sharing=max(1, whole("sharing", 1)),
        size_bytes=whole("size_bytes"),
        reason=fields.get("reason", "") or ("" if is_ok else status),
        where=WHERES[WHERES.index(chosen("where", WHERES))],
        waits=fields.get("waits", ""),
    )
    step = -1 if direction == "b->a" else 1
    first, second = ((a, whole("rank_a")), (b, whole("rank_b")))[::step]
    return _Line((first[0], second[0]), sample, (first[1], second[1]))


def _as_number(text: str) -> float | None:
    """A number; NaN if Python alone reads it as one, so that its line is refused and no heading."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if _NUMBER.fullmatch(text) else math.nan


def _rate(text: str, where: str) -> float:
    rate = _as_number(text)
    if rate is None or not _LEAST_GBS <= rate <= _MOST_GBS:
        _refuse(where, f"'{escaped(text)}' is no rate in GB/s")
    return rate


def _of_nccl_tests(text: str, name: str) -> Iterator[_Line]:
    """Outputs one after the other, each of two ranks and with its average bus bandwidth; one with
    wrong data has no rate.
    """
    ends, reason, is_any = list[_End](), "", False
    for number, line in enumerate(text.splitlines(), start=1):
        if rank := _RANK.search(line):
            ends.append((rank[1], int(rank[2])))
        elif wrong := _WRONG.search(line):
            reason = f"wrong data, out of bounds values: {wrong[1]}"
        elif rate := _BUSBW.search(line):
            where = f"{name}, line {number}"
            different = list(dict.fromkeys(ends))
            if len(different) != 2:
                what = f"a run of {counted(len(different), 'rank')}"
                _refuse(where, what, "run nccl-tests on two ranks")
            gbs = None if reason else _rate(rate[1], where)
            sample = PairSample(a=0, b=0, gbs=gbs, is_both=True, reason=reason)
            yield _Line((different[0], different[1]), sample)
            ends, reason, is_any = [], "", True
    if is_any and ends:
        _refuse(name, "its last run has no average bus bandwidth", "leave that run out")


def _refuse(where: str, what: str, hint: str = "correct the file") -> NoReturn:
    raise UsageError(f"{where}: {what}", hint)
