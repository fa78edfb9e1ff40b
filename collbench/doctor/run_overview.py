"""Carry out `collbench` alone: what this machine is, three numbers, a verdict and what to do next.

It measures what `check` does of allreduce at the smallest and the largest size, and judges it by
the same rules.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collbench.bench.busy import BusyRemark
from collbench.bench.ranks import Asked, asked, drive_on_rank0
from collbench.core.errors import UNJUDGED_CODE
from collbench.core.files import WholeVerdict, result_json, write_document
from collbench.core.host import cpu_name
from collbench.core.options import settings_of
from collbench.core.record import Record
from collbench.core.rows import (
    is_noise,
    of_max,
    row_rate_text,
    row_time_text,
    shown_busbw,
    shown_us,
)
from collbench.core.screen import say, width
from collbench.core.text import counted, titled
from collbench.core.units import format_size
from collbench.doctor.check_verdict import CheckLine, whole
from collbench.doctor.run_check import (
    CHECK_SIZES,
    Check,
    device_of,
    judge_collectives,
    machine_kind,
    machine_line,
    node_name,
)
from collbench.doctor.saved_checks import reference_values

_TITLE = 12  # columns
_LEAST_S = 1.0  # of measuring, where a busy machine was late to begin
_NEXT: dict[WholeVerdict, str] = {
    "PASS": "collbench sweep",
    "WARN": "collbench doctor",
    "FAIL": "collbench doctor",
    "UNKNOWN": "collbench check --save, if this machine is as fast as it should be",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is said. rows: of the smallest and the largest size. busy: who disturbed them, if
    anybody did.
    """

    machine: str
    rows: Sequence[Record]
    lines: Sequence[CheckLine]
    busy: str

    @property
    def verdict(self) -> WholeVerdict:
        found = whole([one.verdict for one in self.lines])
        return "UNKNOWN" if self.busy and found not in ("PASS", "FAIL") else found

    @property
    def reason(self) -> str:
        """Why the verdict is what it is."""
        if self.verdict == "UNKNOWN" and self.busy:
            return f"busy. {self.busy}"
        if self.verdict == "PASS":
            return f"as fast as {' and '.join(dict.fromkeys(one.source for one in self.lines))}"
        if self._is_noise:
            return "repeats differ too much to judge by"
        if self.verdict == "UNKNOWN":
            return "nothing is known that these numbers could be held against"
        worst = next(one for one in self.lines if one.verdict == self.verdict)
        of = f" of what {worst.source} has" * (worst.value is not None)
        return f"{worst.name}: {worst.detail}{of}"

    @property
    def _is_noise(self) -> bool:
        """Whether there was something to judge by, and noise hid it."""
        hidden = (one.verdict == "UNKNOWN" and one.expected is not None for one in self.lines)
        return self.verdict == "UNKNOWN" and any(hidden)

    @property
    def next(self) -> str:
        """The command to type next."""
        if self.verdict == "UNKNOWN" and self.busy:
            return "collbench, when these processes have ended"
        if self._is_noise:
            return "collbench, on a quiet machine"
        return _NEXT[self.verdict]


def run_overview(file: str | None, end_s: float) -> int:
    """Measure until that time of the monotonic clock, show, and write JSON to a file if there is
    one; returns the exit code: 1 for FAIL, 5 for UNKNOWN, else 0.
    """
    settings = replace(settings_of({}), repeats=3)
    who = asked({}, "measured", settings)
    return drive_on_rank0(who.group, lambda: _drive(who, end_s, file))


def _drive(who: Asked, end_s: float, file: str | None) -> int:
    end_s = max(end_s, time.monotonic() + _LEAST_S)
    topology, busy = who.topology, BusyRemark()
    device = device_of(topology, who.backend)
    known = reference_values(node_name(who.group.hosts), machine_kind(device, who), None)
    check, sizes = Check(out=None, known=known), CHECK_SIZES[who.backend]
    rows = judge_collectives(check, who, end_s, ("allreduce",), (sizes[0], sizes[-1]))
    joined = machine_line(topology, who.backend, who.ranks, who.group.hosts)
    of_hosts = set(who.group.hosts)
    hosts = counted(len(of_hosts) or 1, "host")
    found = Overview(
        machine=f"{device if topology else cpu_name()}; {joined.detail}; {hosts}",
        rows=rows,
        lines=[*([joined] if joined.verdict == "WARN" else []), *check.findings],
        busy=busy.text_of_all(who.ranks // len(of_hosts)),
    )
    out = sys.stderr if file == "-" else sys.stdout
    columns = width(out)
    texts = [
        ("machine", found.machine),
        *numbers(rows),
        (found.verdict, found.reason),
        ("next", found.next),
    ]
    say("\n".join(titled(texts, _TITLE, columns, lead=0)), file=out)
    if file is not None:
        data = {"reason": found.reason, "next": found.next, "rows": list(map(_fields, rows))}
        text = result_json(data, machine=found.machine, verdict=found.verdict)
        write_document(text, file, "--json")
    return {"FAIL": 1, "UNKNOWN": UNJUDGED_CODE}.get(found.verdict, 0)


def _fields(row: Record) -> dict[str, object]:
    """A row as numbers, for programs: those of the screen, of noise its bounds."""
    names = ("op", "algo", "proto", "ranks", "size_bytes", "time_us", "busbw_gbs")
    known = {name: getattr(row, name) for name in names}
    if is_noise(row):
        known["time_us"], known["busbw_gbs"] = shown_us(row), shown_busbw(row)
    return {**known, "of_max": of_max(row), "is_noise": is_noise(row)}


def numbers(rows: Sequence[Record]) -> list[tuple[str, str]]:
    """The lowest latency, the bus bandwidth of a large allreduce, and how near each of them is to
    its nearer bound: the floor of its time, or the ceiling of the links.
    """
    timed = [row for row in rows if row.time_us is not None and row.busbw_gbs is not None]
    if not timed:
        why = "; ".join(row.reason for row in rows) or "no time was left"
        return [("measured", f"nothing: {why}")]
    quick = min(timed, key=lambda row: row.size_bytes)
    large = max(timed, key=lambda row: row.size_bytes)

    def of(row: Record) -> str:
        by = f"{row.algo} {row.proto}".rstrip()
        return f"allreduce of {format_size(row.size_bytes)}, {row.ranks} ranks, {by}"

    latency = ("latency", f"{row_time_text(quick)} us: {of(quick)}")
    if large is quick:
        return [latency, ("bandwidth", "no time was left to measure it")]
    return [
        latency,
        ("bandwidth", f"{row_rate_text(large)} GB/s: bus bandwidth, {of(large)}"),
        ("of max", "; ".join(map(_bound, (quick, large)))),
    ]


def _bound(row: Record) -> str:
    """How near a row is to its nearer bound."""
    share = of_max(row)
    if share is None:
        why = "noise" if is_noise(row) else "not known"
        return f"{why} at {format_size(row.size_bytes)}"
    bound = "ceiling" if share == row.percent else "floor"
    return f"{share:.0f}% of the {bound} at {format_size(row.size_bytes)}"
