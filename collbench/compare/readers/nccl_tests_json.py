"""The JSON that nccl-tests writes with -J (versions 1 to 3 of the file): the same rows as its text,
with more digits.

Its booleans and roots are strings. Of several GPUs in one process only the first is listed; busbw /
algbw corrects the number of ranks where it shows another (NCCL_TESTS_SPLIT). It holds the whole
environment of the run, of which only NCCL_* is kept: the rest may be secret. Source: nccl-tests
2.19.6 (util.cu).
"""

import re
import sys
from collections.abc import Mapping

from collbench.compare.readers.foreign import MOST_REPEATS, ForeignRemarks
from collbench.compare.readers.nccl_tests import rows_of
from collbench.compare.readers.nccl_tests_table import TablePart, TableRow, TableRun, nccl_version
from collbench.compare.readers.proof import MOST_RANKS
from collbench.core.errors import UsageError
from collbench.core.reading import parse_json
from collbench.core.record import MOST_INTEGER, Record
from collbench.core.verdict import interval

TOOL = "nccl-tests"
IS_DOCUMENT = True
# times and rates have six digits after the point; each is rounded once more on its way
_ROUNDING = 5e-7
_KEY = re.compile(r'"(?:results|nccl_version)"\s*:')
_MOST_CHARS = 32 << 20
_PARTS = {"out": "out_of_place", "in": "in_place"}
_CHANGED = "the file is not as nccl-tests wrote it"


def is_mine(text: str) -> bool:
    """Whether the text is such a file.

    >>> is_mine('{"version": 2, "results": []}'), is_mine('{"nvbandwidth": {}}')
    (True, False)
    """
    return text.lstrip().startswith("{") and _KEY.search(text) is not None


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    whole = parse_json(text, name, _MOST_CHARS)
    results = whole.get("results") if isinstance(whole, dict) else None
    if not isinstance(whole, dict) or not isinstance(results, list):
        raise UsageError(
            f"{name} is JSON, but not nccl-tests': it has no list 'results'",
            "give what nccl-tests wrote with -J",
        )
    if not results:
        raise UsageError(f"{name}: 'results' is empty", "the run failed: look at its text output")
    run = _run(whole)
    run.last = len(results)
    for place, item in enumerate(map(_mapping, results), start=1):
        row = _row(item, f"{name}, result {place}")
        if any("cpu_time" in _mapping(item.get(key)) for key in _PARTS.values()):
            run.columns = ("cputime",)
        if row.size_bytes:
            run.rows.append((place, row))
        else:
            run.nothing.append(place)
    if not any(row.parts for _, row in run.rows) and "cputime" not in run.columns:
        raise UsageError(f"{name}: no result has a time", "the run failed: look at its text output")
    return rows_of([run], name, ForeignRemarks("result"))


def _run(whole: Mapping[str, object]) -> TableRun:
    """What all rows share."""
    config, bounds = _mapping(whole.get("config")), _mapping(whole.get("out_of_bounds"))
    args, env = _listed(whole.get("args")), _listed(whole.get("env"))
    program = args[0] if args and isinstance(args[0], str) else ""
    settings = sorted(item for item in env if isinstance(item, str) and item.startswith("NCCL_"))
    # a device that is listed is the first of its process
    each = _whole(config, "nthreads", 1) * _whole(config, "ngpus", 1)
    listed = list(map(_mapping, _listed(config.get("devices")))) or [{}]
    ranks = min(len(listed) * each, MOST_RANKS)
    devices = [listed[rank // each] for rank in range(ranks)]
    hosts, names = (
        {rank: str(one[key]) for rank, one in enumerate(devices) if key in one}
        for key in ("hostname", "device_info")
    )
    code = _whole(whole, "nccl_version", 0)
    return TableRun(
        program=program.replace("\\", "/").rpartition("/")[2].partition("_perf")[0],
        hosts=hosts,
        devices=names,
        nranks=ranks,
        iters=_whole(config, "iterations", 0),
        validation=_whole(config, "validation", 1),
        library=f"nccl {nccl_version(code)}" if 1000 <= code < 10**6 else "",
        settings=dict(item.split("=", 1) for item in settings if "=" in item),
        columns=("time", "algbw", "busbw", "#wrong"),
        columns_before=("redop", "root"),
        heading_line=1,
        failed=_whole(bounds, "count", 1) if bounds.get("okay") == "false" else 0,
        has_end=True,
        rounding=_ROUNDING,
        timestamp=str(whole.get("start_time", "")),
    )


def _row(item: Mapping[str, object], place: str) -> TableRow:
    size, count, kind = _number(item.get("size")), _number(item.get("count")), item.get("type")
    if (
        size is None
        or count is None
        or not isinstance(kind, str)
        or not 0 <= size <= MOST_INTEGER
        or not 0 <= count <= MOST_INTEGER
    ):
        raise UsageError(f"{place}: size, count or type is missing or no number", _CHANGED)
    parts = []
    for placement, key in _PARTS.items():
        part = _mapping(item.get(key))
        if not part:
            continue
        numbers = [_number(part.get(name)) for name in ("time", "alg_bw", "bus_bw")]
        if numbers[0] is None and part.get("time") != "nan" and "cpu_time" not in part:
            raise UsageError(f"{place}, {key}: time is missing or no number", _CHANGED)
        time, algbw, busbw = ("nan" if one is None else f"{one:.6f}" for one in numbers)
        wrong = _number(part.get("nwrong"))
        parts.append(
            TablePart(
                placement=placement,
                time=time,
                algbw=algbw,
                busbw=busbw,
                check="N/A" if wrong is None else f"{wrong:.0f}",
                bounds_us=_bounds(item.get(f"{key}_per_iter")),
            )
        )
    root = str(item.get("root", "0")).strip()
    return TableRow(
        size_bytes=int(size),
        count=int(count),
        dtype=kind,
        redop=str(item.get("redop", "")),
        root=int(root) if re.fullmatch(r"-?\d{1,18}", root) else 0,
        parts=tuple(parts),
        iters=_whole(item, "actual_iterations", 0),
    )


def _bounds(value: object) -> tuple[float, float] | None:
    """Bounds of the time by the times of the iterations; None where there are none.

    The iterations of one run are no repeats of it: they share its drift.
    """
    per_iteration = _mapping(value)
    times = list(map(_number, _listed(per_iteration.get("times_us"))))
    skipped = _whole(per_iteration, "skipped_iterations", 0)
    known = [time for time in times[skipped:] if time is not None and time > 0]
    if not known or len(known) > MOST_REPEATS:
        low, high = _number(per_iteration.get("min_us")), _number(per_iteration.get("max_us"))
        return (low, high) if low and high and 0 < low <= high else None
    bounds = interval(known)
    return bounds.low, bounds.high


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    """The value if it is a finite number; of a whole one, of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    most = MOST_INTEGER if isinstance(value, int) else sys.float_info.max
    return value if abs(value) <= most else None


def _whole(values: Mapping[str, object], name: str, default: int) -> int:
    number = _number(values.get(name))
    return int(number) if number is not None and 0 <= number <= MOST_INTEGER else default
