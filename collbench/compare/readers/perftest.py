"""The text of perftest: ib_write_bw, ib_read_bw and ib_send_bw, and ib_write_lat and its like.

A row is of messages one way between two hosts, many in flight; with -b both ways at once, of which
a row has half. Rates are 10^9 bits a second (--report_gbits) or 2^20 bytes. A latency is the
typical one (the median) of one message, half a round trip but for reads and atomics. Source:
perftest 4.5 to 24.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from collbench.compare.readers.foreign import (
    NUMBER,
    ForeignRemarks,
    ForeignTable,
    foreign,
    merged,
    ways_told,
)
from collbench.compare.readers.log_lines import log_lines
from collbench.compare.readers.proof import half_unit
from collbench.core.errors import UsageError
from collbench.core.record import Record

TOOL = "perftest"
# Post List, Infinite and so on stand between
_TITLE = re.compile(
    r"(?P<what>RDMA_\w{4,6}|Send|Atomic)(?P<how>(?: \w{2,20}){0,5}) (?:BW|Latency) Test"
)
HEADING = re.compile(rf"{_TITLE.pattern}|#bytes\s+#iterations")
is_mine = HEADING.search
_COLUMNS = re.compile(r"#bytes\s+#?iterations\s+(?:BW peak|t_\w+)\[(?P<unit>[\w/]+)\]")
_SIDED = {"Write": "rma-put", "Read": "rma-get", "Atomic": "rma-atomic"}
_TIME = re.compile(r"\bt_(\w+)\[usec\]")
_LATENCIES = re.compile(
    r"(?P<bytes>\d{1,12})\s+(?P<iters>\d{1,12})(?P<times>(?:\s+\d{1,9}\.\d\d)+)(?![\d.])"
)
_ROW = re.compile(
    r"(?P<bytes>\d{1,12})\s+(?P<iters>\d{1,12})\s+(?P<peak>\d+\.\d+)\s+(?P<mean>\d+\.\d+)"
    r"(?:\s+(?P<messages>\d+\.\d{1,9})(?!\S))?"
)
_FIELD = re.compile(
    r"(?P<name>Device|Link type|Number of qps|TX depth|Mtu|Transport type)\s*:"
    r"\s*(?P<value>[\w\[\]]+)"
)
_LEAST_BYTES = 4096  # of a message whose rate the link bounds, and not the posting of messages
# of ibstat or ibstatus beside it
_RATE = re.compile(r"^\s*[Rr]ate:\s*(?P<rate>\d{1,4}(?:\.\d)?)", re.MULTILINE)
_GPU = re.compile(r"GPU buffer|--use_(?:cuda|rocm)|initializing CUDA")
_FITTING = 1.02  # between a rate and that of its messages, whose means are taken apart
_GOOD = 0.9  # of a link's rate: what a healthy one gives large messages
_PORTS_GBITS = (10, 25, 40, 50, 56, 100, 200, 400, 800)  # rates of Ethernet and InfiniBand
_BYTES_GBS = {"Gb/sec": 0.125, "MB/sec": 2**20 / 1e9, "MiB/sec": 2**20 / 1e9, "GB/sec": 1.0}


@dataclass(slots=True)
class _PerftestRun:
    line: int
    what: str
    is_both: bool
    unit: str = ""
    times: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[int, re.Match[str]]] = field(default_factory=list)


def read(text: str, name: str) -> tuple[list[Record], tuple[str, ...]]:
    """All rows, and remarks for the reader. Raises UsageError with the place."""
    remarks = ForeignRemarks("line")
    runs = _runs(text)
    link = {float(rate["rate"]) for rate in _RATE.finditer(text)}
    rows = []
    if (slow := text.find("CPU Frequency is not max")) >= 0:
        said = "the CPU's clock was not at its highest, by which perftest counts ({at}): cpupower"
        remarks.add(f"{said} frequency-set -g performance", text.count("\n", 0, slow) + 1)
    for run in runs:
        span = ForeignTable(first=run.line, last=run.rows[-1][0], conditions=run.fields)
        if run.times:
            rows += [(span, line, row) for line, row in _latencies(run, remarks)]
            continue
        if run.unit not in _BYTES_GBS:
            remarks.add(f"rates in '{run.unit}' ({{at}}) are not known: left out", run.line)
            continue
        gbits = link.copy().pop() if len(link) == 1 else 0.0
        for said in _judged(run, gbits, of_gpu=_GPU.search(text) is not None):
            remarks.add(said, run.line)
        for line, row in run.rows:
            if _contradicts(run, row):
                remarks.add("rate and messages a second do not fit each other ({at})", line)
        rows += [(span, line, row) for line, row in _records(run)]
    if not rows:
        said = "; ".join(("no whole row follows perftest's title", *remarks.texts()))
        raise UsageError(f"{name}: {said}", "give all that ib_write_bw or ib_write_lat prints")
    return merged(rows, name), remarks.texts()


def _runs(text: str) -> list[_PerftestRun]:
    runs: list[_PerftestRun] = []
    for line in log_lines(text, HEADING):
        if title := _TITLE.search(line.text):
            runs.append(_PerftestRun(line.number, title["what"], "Bidirectional" in title["how"]))
        elif columns := _COLUMNS.search(line.text):
            if not runs or runs[-1].unit:
                runs.append(_PerftestRun(line.number, "", False))
            runs[-1].unit, runs[-1].times = columns["unit"], _TIME.findall(line.text)
        elif (
            runs
            and runs[-1].unit
            and (row := (_LATENCIES if runs[-1].times else _ROW).match(line.text.strip()))
        ):
            runs[-1].rows.append((line.number, row))
        elif runs:
            runs[-1].fields |= {one["name"]: one["value"] for one in _FIELD.finditer(line.text)}
    return [run for run in runs if run.rows]


def _gbits(run: _PerftestRun, row: re.Match[str]) -> float:
    return float(row["mean"]) * _BYTES_GBS[run.unit] * 8 / (2 if run.is_both else 1)


def _contradicts(run: _PerftestRun, row: re.Match[str]) -> bool:
    """Whether a row's rate is not that of its messages, as where a digit was changed."""
    if row["messages"] is None:
        return False
    gbits = float(row["mean"]) * _BYTES_GBS[run.unit] * 8
    messages, error = float(row["messages"]), half_unit(row["messages"])
    of_messages = [(messages + sign * error) * int(row["bytes"]) * 8e-3 for sign in (-1, 1)]
    return not of_messages[0] / _FITTING <= gbits <= of_messages[1] * _FITTING


def _judged(run: _PerftestRun, link_gbits: float, *, of_gpu: bool) -> Iterator[str]:
    """The highest rate in words, and how much it is of the link. link_gbits: 0 if not known."""
    best = max((row for _, row in run.rows), key=lambda row: float(row["mean"]))
    rate, device = _gbits(run, best), run.fields.get("Device", "")
    via = f" by {device}" if device else ""
    ways = "each way" if run.is_both else "one way"
    said = f"{run.what or 'perftest'} reaches {rate:.4g} Gb/s ({rate / 8:.4g} GB/s){via} {ways}"
    if int(best["bytes"]) < _LEAST_BYTES:
        often = f", {best['messages']} million a second" if best["messages"] else ""
        longer = "" if "Atomic" in run.what else "; -a"  # an atomic has 8 bytes
        said += f" ({{at}}) in messages of {best['bytes']} bytes{often}"
        yield f"{said}: not what the link carries{longer}"
    elif not link_gbits:
        port = next((port for port in _PORTS_GBITS if _GOOD * port <= rate <= port), None)
        said += f" ({{at}}), what a port of {port} Gb/s carries" if port else " ({at})"
        said += ", or its way to the GPU (nvidia-smi topo -m)" if of_gpu else ""
        yield f"{said}; ibstat or ibstatus beside it tells how much that is of the link"
    elif rate < _GOOD * link_gbits:
        yield (
            f"{said} ({{at}}), {100 * rate / link_gbits:.0f}% of the link's {link_gbits:g} Gb/s: a"
            " healthy link gives 90% and more to messages of 64 KiB; look at PCIe, MTU and -q"
        )
    else:
        yield f"{said} ({{at}}), {100 * rate / link_gbits:.0f}% of the link's {link_gbits:g} Gb/s"
    yield ways_told("messages", is_both=run.is_both)


def _latencies(run: _PerftestRun, remarks: ForeignRemarks) -> Iterator[tuple[int, Record]]:
    """The typical time of each size, or the mean where that alone was taken (-D)."""
    least: tuple[float, str] = (math.inf, "")
    for line, row in run.rows:
        times = dict(zip(run.times, map(float, row["times"].split()), strict=False))
        time = times.get("typical", 0.0 if "typical" in run.times else times.get("avg", 0.0))
        if not times.get("min", 0.0) <= time <= times.get("max", math.inf) or not time:
            remarks.add("{count} row{s} left out, cut or with times that do not fit ({at})", line)
            continue
        least = min(least, (time, row["bytes"]))
        yield line, _record(run, row, time, "one-way ")
    if least[1]:
        via = f" by {run.fields['Device']}" if "Device" in run.fields else ""
        way = "half a round trip" if run.what in ("", "RDMA_Write", "Send") else "there and back"
        said = f"{run.what or TOOL} takes {least[0]:g} us for {least[1]} bytes{via}, {way} ({{at}})"
        remarks.add(said, run.line)


def _records(run: _PerftestRun) -> Iterator[tuple[int, Record]]:
    way = "" if run.is_both else "one-way "
    for line, row in run.rows:
        rate, size_bytes = _gbits(run, row) / 8, int(row["bytes"])
        if rate and size_bytes and NUMBER.fullmatch(row["mean"]):
            traffic = f"{way}window-{run.fields.get('TX depth', '128')} "
            yield line, _record(run, row, size_bytes / rate / 1e3, traffic)


def _record(run: _PerftestRun, row: re.Match[str], time_us: float, traffic: str) -> Record:
    return foreign(
        op="sendrecv",
        backend="verbs",
        ranks=2,
        size_bytes=int(row["bytes"]),
        times_us=[time_us],
        hosts=2,
        count=int(row["bytes"]),
        iters=min(int(row["iters"]), 10**9),
        device=run.fields.get("Device", ""),
        versions=f"perftest {run.what}".strip(),
        traffic=traffic + _SIDED.get(run.what.removeprefix("RDMA_"), ""),
    )
