"""What `sweep` prints: remarks before it, rows as they finish, the points of a dry run."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import IO, Any

import click

from collbench.backends import FAMILY
from collbench.bench.points import SweepPoint
from collbench.bench.runner import Measurement
from collbench.bench.sweep import Sweep
from collbench.bench.tables.sweep import SweepTable
from collbench.core.case import Case
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.knobs import KNOB
from collbench.core.options import Settings
from collbench.core.peers import forced_by, is_peer, knobs_of, library_of
from collbench.core.record import Record
from collbench.core.screen import Remarks, is_coloured, is_terminal, remark, say, width
from collbench.core.text import counted, printable
from collbench.core.units import format_duration, format_size
from collbench.core.web.colors import TERMINAL

Style = Mapping[str, Any]  # arguments of click.style, whose types differ
_Screen = tuple[
    Callable[[str, Style], None], Callable[[float], None], Callable[[Callable[[], list[str]]], None]
]
_UPDATE_S = 0.2  # between two pictures of a table that changes
_BAD: Style = {"fg": TERMINAL["worse"], "bold": True}
_STYLES: dict[str, Style] = {"ok": {}, "waived": {"dim": True}}


def show_rows(
    measurement: Measurement,
    keep: Callable[[Record], None],
    table: SweepTable,
    out: IO[str],
    color: str,
    shown: Callable[[Record], Record | None],
    by_size: Callable[[Sequence[Record]], list[str]] | None,
    end_s: float,
) -> list[Record]:
    """Take the rows as they come: first to `keep`, then, as `shown` makes of them, to the screen.
    Waived ones, which come first or are refused later, share lines there. by_size: the lines of a
    table of all rows so far, which a terminal shows while they are measured, in the place of a line
    each. end_s: of the monotonic clock, after which nothing more is measured. Returns what was
    shown.
    """
    records: list[Record] = []
    try:
        with _screen(out, measurement, color, end_s) as screen:
            _take_rows(measurement, keep, table, screen, shown, by_size, end_s, records)
    finally:
        if by_size is not None:
            waived = table.waived([row for row in records if row.status == "waived"])
            say("\n".join([*by_size(records), *waived]), file=out)
    return records


def _take_rows(
    measurement: Measurement,
    keep: Callable[[Record], None],
    table: SweepTable,
    screen: _Screen,
    shown: Callable[[Record], Record | None],
    by_size: Callable[[Sequence[Record]], list[str]] | None,
    end_s: float,
    records: list[Record],
) -> None:
    """As show_rows(), of a screen that is open, until what stands at the end. records: where those
    go that were shown.
    """
    show, measurement.progress, update = screen
    waived: list[Record] = []
    is_begun, is_headed = False, by_size is not None

    def show_row(line: str, style: Style) -> None:
        nonlocal is_headed
        if not is_headed:
            show(table.heading(), {"bold": True})
        is_headed = True
        show(line, style)

    def show_waived() -> None:
        for line in table.waived(waived) if by_size is None else ():
            show_row(line, _STYLES["waived"])
        waived.clear()

    is_bounded = end_s < math.inf
    try:
        for row in measurement.records_within(end_s) if is_bounded else measurement.records():
            keep(row)
            record = shown(row)
            if record is None:
                continue
            records.append(record)
            if record.status == "waived":
                waived.append(record)
                continue
            if by_size is not None and record.status == "ok":
                update(partial(by_size, records))
                continue
            if not is_begun:
                show_waived()
            is_begun = True
            is_noisy = "noisy" in record.notes
            show_row(
                table.line(record),
                {"fg": TERMINAL["cannot tell"]} if is_noisy else _STYLES.get(record.status, _BAD),
            )
    finally:
        show_waived()


@contextmanager
def _screen(out: IO[str], run: Measurement, color: str, end_s: float) -> Iterator[_Screen]:
    """Functions that show a line in a style, advance the bar by estimated seconds, and on a
    terminal show above the bar what changes, until the end. end_s: as of show_rows().
    """
    has_colours, total_s = is_coloured(color, out), run.estimate_s()
    crowding = run.estimate_s(run.foreign_at_start) / total_s if total_s else 1.0

    def styled(line: str, style: Style) -> str:
        return click.style(printable(line), **style) if has_colours else printable(line)

    remarks, done_s, start = Remarks(), 0.0, time.monotonic()

    def left() -> str:
        now = time.monotonic()
        left_s = _left_s(total_s, done_s, now - start, crowding)
        return format_duration(max(0.0, min(left_s, end_s - now)))

    if not is_terminal(out):

        def count(seconds: float) -> None:
            nonlocal done_s
            done_s += seconds
            if remarks.due():
                remark(f"Measured {done_s / total_s:.0%}; about {left()} left.")

        yield (
            lambda line, style: say(styled(line, style), file=out, color=has_colours),
            count,
            lambda lines: None,
        )
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.text import Text

    columns = (
        TextColumn("measuring"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description} left"),
    )
    console = Console(file=out, highlight=False, no_color=not has_colours)
    progress = Progress(*columns, console=console, auto_refresh=False)
    with Live(progress, console=console, transient=True, auto_refresh=False) as live:
        task = progress.add_task(left(), total=max(total_s, 1e-9))
        due_s = 0.0

        def show(line: str, style: Style) -> None:
            console.print(Text.from_ansi(styled(line, style)), soft_wrap=True)
            live.refresh()

        def update(lines: Callable[[], list[str]]) -> None:
            nonlocal due_s
            if time.monotonic() > due_s:
                live.update(Group(Text("\n".join(lines())), progress), refresh=True)
                due_s = time.monotonic() + _UPDATE_S

        def advance(seconds: float) -> None:
            nonlocal done_s
            done_s += seconds
            progress.update(task, completed=done_s, description=left())
            live.refresh()

        yield show, advance, update


def _left_s(total_s: float, done_s: float, elapsed_s: float, crowding: float = 1.0) -> float:
    """Seconds left: at first by the estimate, from a third on by what was measured.

    The first rows may take long for what is not repeated, as compiling.

    >>> round(_left_s(total_s=60, done_s=1, elapsed_s=12)), _left_s(60, 30, 90), _left_s(60, 60, 90)
    (91, 90.0, 0.0)
    """
    weight = min(1.0, 3 * done_s / max(total_s, 1e-9))
    pace = elapsed_s / done_s if done_s else crowding
    return max(0.0, total_s - done_s) * (weight * pace + (1 - weight) * crowding)


def show_points(
    points: Sequence[SweepPoint], missing: Sequence[SweepPoint], table: SweepTable, estimate: float
) -> None:
    """Print the points of a dry run, those in the file marked, and an estimate of the time."""
    wanted = {(point.case, point.waived) for point in missing}
    known, waived = len(points) - len(missing), sum(bool(point.waived) for point in points)
    rows = [
        (point.case, _how(point, table) + "; in the file already" * (mark not in wanted))
        for point in points
        for mark in [(point.case, point.waived)]
    ]
    say("\n".join(table.planned(rows)))
    say(
        f"# {counted(len(points), 'point')}, {waived} waived"
        + (f", {known} in the file already" if known else "")
        + f"; about {format_duration(estimate)}"
    )


def _how(point: SweepPoint, table: SweepTable) -> str:
    """What the columns do not say of a point."""
    case = point.case
    if point.waived:
        return f"waived: {point.waived}"
    if point.plan:
        texts = {
            "proto": case.proto,
            "transport": case.transport,
            "direct": f"direct {case.direct}",
            "channels": f"{case.channels} ch",
            "slots": f"{case.slots} slots",
            "buffsize": f"{format_size(case.buffsize)} buffer" if case.buffsize else "",
            "chunk": f"chunks of {format_size(case.chunk)}",
        }
        shown = {knob.name for knob in table.knobs}
        knobs = ", ".join(text for name, text in texts.items() if text and name not in shown)
    else:
        knobs = " ".join("=".join(variable) for variable in forced_by(case)) or "its own choice"
    is_told = library_of(case.backend) == "nccl" or case.buffers != KNOB["buffers"].default
    parts = [
        case.mix,
        f"at once on {case.groups}" if case.groups else "",
        knobs,
        f"{case.buffers} buffers" if is_told else "",
    ]
    return ", ".join(filter(None, parts))


_NEW_PROCESSES_S = 3  # until new processes have their GPUs and NCCL, roughly
_LONG_S, _HOPELESS_S = 10, 3600  # a sweep that takes longer is told so first, and how to shorten it
_SHORTER = " --budget, or fewer --sizes, --algo or --repeats make it shorter; Ctrl-C ends it."


def remark_on_time(runs: Sequence[Measurement], budget_s: float | None) -> None:
    """Say how long the sweep should take, if that is long, and what would shorten it."""
    estimate_s = sum(run.estimate_s(runs[0].foreign_at_start) for run in runs)
    if estimate_s < _LONG_S or budget_s is not None:
        return
    live = [point.case for point in runs[-1].points if not point.waived]
    more = f" in {len(runs)} runs" if len(runs) > 1 else ""
    remark(
        f"{counted(len(live), 'point')} with up to {max(case.ranks for case in live)}"
        f" ranks{more}: about {format_duration(estimate_s)}."
        + (_SHORTER if estimate_s > _HOPELESS_S else "")
    )


def _wants_cores(backend: str) -> bool:
    """Whether each of its ranks wants a core."""
    return backend == "cpu" or (is_peer(backend) and not FAMILY.load(backend).is_gpu)


def remark_on_cores(cases: Sequence[Case], group: Group) -> None:
    """Say where more ranks than cores run on CPUs, and what that does to the times."""
    ranks = max((case.ranks for case in cases if _wants_cores(case.backend)), default=0)
    is_local = group.kind == "local"
    here = ranks if is_local or not ranks else group.hosts.count(group.hosts[0])
    cores = usable_cores() if is_local else os.cpu_count() or 1  # a launcher may pin each rank
    if here > cores:
        remark(
            f"{here} ranks share {counted(cores, 'CPU core')}: they wait for each other's"
            f" turn, so times are longer and vary more than with --ranks {max(2, cores)}."
        )


def remark_on_order(points: Sequence[SweepPoint], settings: Settings) -> None:
    """Say how an order of launches can deadlock, if it can."""
    whys = {
        replace(point.together, order=settings.launch_order).why_it_can_deadlock(): None
        for point in points
        if point.together is not None
    }
    for why in filter(None, whys):
        remark(
            f"{why[0].upper()}{why[1:]}. A point that does is given up after its --timeout,"
            f" {settings.timeout_s:g} s."
        )


def remark_on_peer(
    peer: str, sweep: Sweep, points: Sequence[SweepPoint], knobs_given: Sequence[str]
) -> None:
    """Print the knobs that a library is forced to, and those without effect on it."""
    knobs = knobs_of(peer)
    forced = [name for name in knobs_given if name in knobs and name in sweep.asked]
    lost = [KNOB[name].flag for name in knobs_given if name not in forced]
    for name in forced:
        missing = [
            value
            for value in sweep.values(name)
            if knobs[name] and value not in (*knobs[name], "auto")
        ]
        lost += [f"{KNOB[name].flag} {','.join(map(str, missing))}"] if missing else []
    live = [point for point in points if point.case.backend == peer and not point.waived]
    sets = len({point.session for point in live if forced_by(point.case)})
    remarks = []
    if sets:
        remarks.append(
            f"{counted(sets, 'set')} of processes, about {_NEW_PROCESSES_S} s each, forced by"
            f" {', '.join(KNOB[name].flag for name in forced)}"
        )
    if lost:
        remarks.append(f"{', '.join(lost)} {'do' if len(lost) > 1 else 'does'} not reach it")
    if remarks:
        remark(f"{peer}: the library's own choice; {'; '.join(remarks)}.")


def show_releases(records: Sequence[Record], backends: Sequence[str], out: IO[str]) -> None:
    """Print how releases of NCCL, which took turns, compare with the first of them."""
    releases = [name for name in backends if library_of(name) != name]
    if len(releases) < 2:
        return
    from collbench.compare.changes import compare
    from collbench.compare.tables.changes import lines
    from collbench.core.frame import frame_of

    first, *others = (
        frame_of([replace(row, backend="nccl") for row in records if row.backend == name])
        for name in releases
    )
    for name, other in zip(releases[1:], others, strict=True):
        changes = compare(other, first)
        if len(changes.rows):  # else all were waived, as the rows say
            for line in ["", *lines(changes, (name, releases[0]), width(out))]:
                say(line, err=out is sys.stderr)
