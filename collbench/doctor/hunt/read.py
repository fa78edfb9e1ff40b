"""Rates of pairs from files: our own CSV, a CSV of anybody's, plain lines, and outputs of
nccl-tests on pairs.

A CSV needs a column for each of the two hosts and one for the rate (see NAMES). A plain line has
just these three in that order, with blanks or commas between: `n1 n2 49.3`. A pair without a
direction was measured in both at once, as an allreduce of two ranks is.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from collbench.core.errors import UsageError
from collbench.core.pairwise import MODES, PairSample, PairWorld
from collbench.core.reading import read_content
from collbench.core.text import counted, escaped
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
}
_NEEDED = ("host_a", "host_b", "gbs")
_MOST_BYTES = 256 << 20
_MOST_RANKS = 65536
_LEAST_GBS, _MOST_GBS = 1e-9, 1e9  # a byte a second, and a million NICs in one: what is a rate
_RANK = re.compile(r"#\s+Rank\s+\d+ .*?\bon\s+(\S+) device\s+(\d+)", re.ASCII)
_WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*([0-9]{1,20}) FAILED", re.ASCII)
_BUSBW = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S{1,40})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _End:
    """A rank as a file names it: its host, and its number there."""

    host: str
    local: int


@dataclass(frozen=True, slots=True)
class _Line:
    a: _End
    b: _End
    sample: PairSample  # of ranks that have no number yet
    rank_a: int = 0  # their numbers in the file, if it has some
    rank_b: int = 0

    @property
    def ranks(self) -> tuple[tuple[_End, int], tuple[_End, int]]:
        return (self.a, self.rank_a), (self.b, self.rank_b)


def read(files: Sequence[Path]) -> tuple[PairWorld, list[PairSample]]:
    """The ranks and the samples of all files; - is stdin. Raises UsageError."""
    lines = [line for file in files for line in _lines(file)]
    rank_of = {end: rank for line in lines for end, rank in line.ranks}
    in_order = sorted(rank_of, key=lambda end: (rank_of[end], _natural(end.host), end.local))
    if len(in_order) > _MOST_RANKS:
        _refuse(str(files[0]), f"more than {_MOST_RANKS} ranks")
    number = {end: place for place, end in enumerate(in_order)}
    world = PairWorld(tuple(end.host for end in in_order), tuple(end.local for end in in_order))
    return world, [_numbered(line, number) for line in lines]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts node2 before node10.

    >>> sorted(["node10", "node2"], key=_natural)
    ['node2', 'node10']
    """
    parts = re.split(r"([0-9]{1,18})", name)
    return [(int(part) if place % 2 else 0, part) for place, part in enumerate(parts)]


def _numbered(line: _Line, number: Mapping[_End, int]) -> PairSample:
    of = line.sample
    return PairSample(
        a=number[line.a],
        b=number[line.b],
        gbs=of.gbs,
        is_both=of.is_both,
        mode=of.mode,
        sharing=of.sharing,
        size_bytes=of.size_bytes,
        reason=of.reason,
    )


def _lines(file: Path) -> list[_Line]:
    name = "stdin" if str(file) == "-" else escaped(str(file))
    data = read_content(file, _MOST_BYTES, "give a CSV, or outputs of nccl-tests")
    text = data.decode(errors="replace")
    if _RANK.search(text):
        lines = _of_nccl_tests(text, name)
    else:
        lines = _of_plain(text, name) if _is_plain(text) else _of_csv(text, name)
    if not lines:
        _refuse(name, "no rate of any pair")
    return lines


def _plain_fields(line: str) -> list[str]:
    """The fields of a plain line, without a comment and a unit.

    >>> _plain_fields("n1, n2  49.3 GB/s  # again")
    ['n1', 'n2', '49.3']
    """
    fields = line.partition("#")[0].replace(",", " ").split()
    return fields[:-1] if len(fields) == 4 and fields[-1].lower() == "gb/s" else fields


def _is_plain(text: str) -> bool:
    """Whether the first line with anything in it is two names and a number."""
    fields = next(filter(None, map(_plain_fields, text.splitlines())), [])
    return len(fields) == 3 and _as_number(fields[2]) is not None


def _of_plain(text: str, name: str) -> list[_Line]:
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if fields := _plain_fields(line):
            where = f"{name}, line {number}"
            if len(fields) != 3:
                _refuse(where, f"{counted(len(fields), 'field')}", "write two hosts and a rate")
            lines.append(_of_fields(dict(zip(_NEEDED, fields, strict=True)), where))
    return lines


def _of_csv(text: str, name: str) -> list[_Line]:
    rows = csv.reader(text.splitlines())
    try:
        heads = [head.strip().lower() for head in next(rows, [])]
        places = {
            field: place
            for field, names in NAMES.items()
            for place in [next((heads.index(one) for one in names if one in heads), None)]
            if place is not None
        }
        missing = [field for field in _NEEDED if field not in places]
        if missing:
            _refuse(
                name,
                f"no column {', '.join(missing)}",
                f"a CSV of pairs has columns such as {', '.join(_NEEDED)}",
            )
        lines = []
        for number, row in enumerate(rows, start=2):
            if row:
                where = f"{name}, line {number}"
                if len(row) != len(heads):
                    _refuse(where, f"{len(row)} fields for {len(heads)} columns")
                lines.append(
                    _of_fields(
                        {field: row[place].strip() for field, place in places.items()}, where
                    )
                )
    except csv.Error as error:
        _refuse(name, f"not CSV: {error}")
    return lines


def _of_fields(fields: Mapping[str, str], where: str) -> _Line:
    a, b = (
        _End(fields[f"host_{end}"], _whole(fields.get(f"local_{end}", ""), where, 0))
        for end in "ab"
    )
    if not a.host or not b.host:
        _refuse(where, "a host without a name")
    if a == b:
        _refuse(where, f"a pair of {escaped(a.host)} with itself")
    direction = fields.get("direction") or "both"
    if direction not in ("both", "a->b", "b->a"):
        _refuse(where, f"direction '{escaped(direction)}'", "write both, a->b or b->a")
    mode = next((mode for mode in MODES if mode == (fields.get("mode") or "alone")), None)
    if mode is None:
        _refuse(where, f"mode '{escaped(fields['mode'])}'", "write alone or together")
    status = fields.get("status") or "ok"
    sample = PairSample(
        a=0,
        b=0,
        gbs=_rate(fields["gbs"], where) if status == "ok" else None,
        is_both=direction == "both",
        mode=mode,
        sharing=max(1, _whole(fields.get("sharing", ""), where, 1)),
        size_bytes=_whole(fields.get("size_bytes", ""), where, 0),
        reason=fields.get("reason", "") if status == "ok" else fields.get("reason") or status,
    )
    ranks = [_whole(fields.get(f"rank_{end}", ""), where, 0) for end in "ab"]
    if direction == "b->a":
        return _Line(b, a, sample, *reversed(ranks))
    return _Line(a, b, sample, *ranks)


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _rate(text: str, where: str) -> float:
    rate = _as_number(text)
    if rate is None or not _LEAST_GBS <= rate <= _MOST_GBS:
        _refuse(where, f"'{escaped(text)}' is no rate in GB/s")
    return rate


def _whole(text: str, where: str, default: int) -> int:
    number = parse_whole(text) if text else default
    if number is None:
        _refuse(where, f"'{escaped(text)}' is no whole number")
    return number


def _of_nccl_tests(text: str, name: str) -> list[_Line]:
    """Outputs one after the other, each of two ranks and with its average bus bandwidth; one with
    wrong data has no rate.
    """
    lines, ends, reason = list[_Line](), list[_End](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        if rank := _RANK.search(line):
            ends.append(_End(rank[1], int(rank[2])))
        elif wrong := _WRONG.search(line):
            reason = f"wrong data, out of bounds values: {wrong[1]}"
        elif rate := _BUSBW.search(line):
            where = f"{name}, line {number}"
            different = dict.fromkeys(ends)
            if len(different) != 2:
                what = f"a run of {counted(len(different), 'rank')}"
                _refuse(where, what, "run nccl-tests on two ranks")
            a, b = different
            gbs = None if reason else _rate(rate[1], where)
            lines.append(_Line(a, b, PairSample(a=0, b=0, gbs=gbs, is_both=True, reason=reason)))
            ends, reason = [], ""
    if lines and ends:
        _refuse(name, "its last run has no average bus bandwidth", "leave that run out")
    return lines


def _refuse(where: str, what: str, hint: str = "correct the file") -> NoReturn:
    raise UsageError(f"{where}: {what}", hint)
