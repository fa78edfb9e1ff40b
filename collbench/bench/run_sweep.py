"""Carry out a sweep: options to cases, group and measurement, rows to file and screen."""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from collbench.backends import FAMILY as BACKENDS
from collbench.backends.model import host_of
from collbench.bench.busy import BusyRemark
from collbench.bench.points import SweepPoint, plan_points
from collbench.bench.ranks import (
    MODEL,
    Ranks,
    drive_on_rank0,
    group_here,
    ranks_of,
    recordings_of,
    remark_unnamed,
    topology_of_all,
)
from collbench.bench.rows import row_of_runs
from collbench.bench.runner import Measurement
from collbench.bench.show_sweep import (
    remark_on_cores,
    remark_on_order,
    remark_on_peer,
    remark_on_time,
    show_points,
    show_releases,
    show_rows,
)
from collbench.bench.sweep import Sweep, cases
from collbench.bench.sweep_rules import (
    BY_DEFAULT_ON_GPUS,
    SWEEP_RULES,
    has_one_gpu,
    is_by_size,
    is_together,
    on_cpus,
    on_gpus,
    sweep_of,
    with_files,
    with_releases,
)
from collbench.bench.tables.run import RunOf, head_lines, planned_lines, tail_lines
from collbench.bench.tables.sizes import size_lines
from collbench.bench.tables.sweep import SweepTable, ceiling_lines, table_of
from collbench.compare.doubt import doubt_of_one, lines_of
from collbench.compare.runs import Keeper, saved
from collbench.core.case import Case
from collbench.core.errors import RankLostError, UnavailableError, UsageError
from collbench.core.files import command_line, result_json, write_document
from collbench.core.group import Group
from collbench.core.host import has_nvidia_gpus
from collbench.core.knobs import KNOBS
from collbench.core.launcher import is_only_rank, launcher
from collbench.core.options import Options, Settings, refuse, settings_of
from collbench.core.peers import is_of_libraries, is_peer, knobs_of
from collbench.core.record import NOT_TRUE, Record, Writer, read
from collbench.core.rows import as_written, devices_of
from collbench.core.screen import (
    activity_shown,
    document_on_stdout,
    is_terminal,
    remark,
    say,
    width,
)
from collbench.core.text import counted
from collbench.planning.tuning import Origin

if TYPE_CHECKING:
    from collbench.machine.discovery.recording import Recording


def run_sweep(options: Options, csv: Path | str | None) -> int:
    """The whole command, of the options that are given; returns the exit code."""
    are_gpus_asked = "gpus" in options or on_gpus(options)
    under, is_default = launcher(), "backend" not in options
    if is_default:
        has_gpus = has_nvidia_gpus() or "gpus" in options
        options = {
            **options,
            "backend": BY_DEFAULT_ON_GPUS
            if has_gpus
            else ("cpu",)
            if is_together(options)
            else on_cpus(under is not None),
        }
    options = with_releases(options)
    refuse(SWEEP_RULES, options, options)
    if under is None and on_gpus(options) and has_one_gpu(options, is_asked=are_gpus_asked):
        return 0
    settings, sweep = settings_of(options), sweep_of(options, under.size if under else 0)
    if is_only_rank() and "ranks" not in options and sweep.backend != (MODEL,):
        remark(
            f"One rank under a launcher: this process starts {sweep.ranks[0]} of its own, as it"
            " would without."
        )
    if options.get("dry_run") and under is not None:
        raise UsageError("--dry-run measures nothing", "start it without a launcher, with --ranks")
    group = group_here(settings.timeout_s)
    recordings = recordings_of(group, options)

    def drive() -> int:
        known = with_files(options, is_launched=bool(group.ranks))
        asked = sweep_of(known, group.ranks)
        machine, links = options.get("machine"), topology_of_all(recordings)
        remark_unnamed(machine)
        where = ranks_of(asked.backend, machine, group, settings.gpus, links)
        return _drive(group, asked, settings, known, csv, where, recordings, is_default=is_default)

    return drive_on_rank0(group, drive)


def _what_is_kept(csv: Path | str | None, kept: Keeper) -> str:
    """Where the rows of a sweep are that was interrupted."""
    if not kept.rows:
        return "No row was finished."
    if isinstance(csv, Path):
        return f"The rows that were measured are in {csv}: --resume goes on from there."
    if name := kept.saved_as():
        return f"The rows that were measured are saved: collbench compare {name}"
    return "The rows that were measured are not saved."


def _drive(
    group: Group,
    sweep: Sweep,
    settings: Settings,
    options: Options,
    csv: Path | str | None,
    where: Ranks,
    recordings: "Sequence[Recording]",
    *,
    is_default: bool,
) -> int:
    """Plan, measure, write and show; returns the exit code. is_default: nobody chose backends."""
    peers = {name: knobs_of(name) for name in sweep.backend if is_peer(name)}
    requested = cases(sweep, peers, has_hosts=where.has_hosts)
    for case in {(case.op, case.n, case.skew, case.mix): case for case in requested}.values():
        case.refuse_counts()
    points = _planned(requested, group, settings, where)
    knobs = [
        one.name
        for one in KNOBS
        if options.get(one.name, ("auto",)) != ("auto",) and not is_of_libraries(one)
    ]
    for peer in peers if not is_default else ():
        remark_on_peer(peer, sweep, points, knobs)
    remark_on_cores([point.case for point in points if not point.waived], group)
    remark_on_order(points, settings)
    if options.get("soak"):
        from collbench.bench.soak import run_stress

        return run_stress(points, group, settings, options["soak"], options.get("seed", 0))
    runs = [
        Measurement([point.anew() for point in points], group, settings, where.of)
        for _ in range(settings.runs)
    ]
    out = sys.stderr if "-" in (csv, options.get("json")) else sys.stdout
    table = table_of(
        requested,
        [point.case for point in points if not point.waived],
        width(out),
        has_ceilings=bool(where.links) or sweep.backend != (MODEL,),
        has_launch_times=settings.distribution is not None,
        is_together=is_together(options),
        is_screen=is_terminal(out),
    )
    if options.get("dry_run"):
        if options.get("resume") and isinstance(csv, Path) and csv.exists():
            _leave_known_out(runs, read(csv), csv)
        if csv is not None:
            remark(f"A dry run writes no rows to {'stdout' if csv == '-' else csv}.")
        runs[-1].watch()
        estimate_s = sum(run.estimate_s(runs[-1].foreign_at_start) for run in runs)
        for line in planned_lines(_run_of(runs[-1]), width(out)):
            say(line)
        show_points(points, runs[-1].points, table, estimate_s)
        return 0
    from collbench.machine.discovery import dumps, record

    count = len(points) * len(runs)
    opened = (
        Writer(csv if isinstance(csv, Path) else document_on_stdout()) if csv is not None else None
    )
    with (
        closing(opened) if opened is not None else nullcontext() as writer,
        saved(runs[0].run_id, requested, count, dumps(recordings or [record()])) as kept,
    ):
        last_rows: Mapping[tuple[object, ...], Record] = {}
        if options.get("resume") and isinstance(csv, Path) and writer is not None and writer.rows:
            last_rows = _leave_known_out(runs, writer.rows, csv)

        left = [run for run in runs if run.points] or runs[:1]

        def keep(record: Record) -> None:
            if writer is not None and not record.repeats_refusal(last_rows.get(record.point)):
                writer.write([record])
            kept.keep(record)

        try:
            records = _measure(left, keep, table, out, options, kept)
        except (KeyboardInterrupt, RankLostError):
            remark(_what_is_kept(csv, kept))
            raise
        if options.get("json") is not None:
            text = result_json([asdict(row) for row in records], machine=devices_of(records))
            write_document(text, options["json"], "--json")
        show_releases(records, sweep.backend, out)
        return _exit_code(records, is_part=len(runs[-1].points) < len(points))


def _planned(
    requested: Sequence[Case], group: Group, settings: Settings, where: Ranks
) -> list[SweepPoint]:
    """Plan the cases, and show how far that is where it takes long."""
    planned = 0

    def progress(number: int) -> None:
        nonlocal planned
        planned = number

    def what() -> str:
        case = requested[planned]
        return (
            f"Planned {planned} of {len(requested)} points; proving the schedule of {case.op}"
            f" {case.algo} over {case.ranks} ranks."
        )

    with activity_shown(what):
        return plan_points(requested, group, settings.max_memory, where, progress)


def _leave_known_out(
    runs: Sequence[Measurement], rows: Sequence[Record], csv: Path
) -> Mapping[tuple[object, ...], Record]:
    """Drop the points whose last rows in the file have what is asked for from as many runs as the
    file has of them; says how many it has. What was waived is asked again, which takes no time.
    Returns the last row of every point.
    """
    first = runs[0]
    host = host_of(first.settings.machine)
    known: dict[tuple[object, ...], list[Record]] = {}
    for row in rows:
        if row.backend != MODEL or row.status == "waived" or row.host == host:
            known.setdefault(row.point, []).append(row)
    counts = [_runs_of(first, point, known.get(first.key_of(point), ())) for point in first.points]
    for number, run in enumerate(runs):
        run.points = [
            point for point, count in zip(run.points, counts, strict=True) if count <= number
        ]
    done = sum(min(count, len(runs)) for count in counts)
    what = "points" if len(runs) == 1 else f"points of {len(runs)} runs"
    remark(f"{done} of {len(runs) * len(counts)} {what} are in {csv} already")
    return {point: mine[-1] for point, mine in known.items()}


def _runs_of(measurement: Measurement, point: SweepPoint, rows: Sequence[Record]) -> int:
    """In how many runs the rows of a point have what is asked for, if the last one has it."""
    if not rows or not measurement.is_measured_by(point, rows[-1]):
        return 0
    return len({row.run for row in rows if measurement.is_measured_by(point, row)})


def _measure(
    runs: Sequence[Measurement],
    keep: Callable[[Record], None],
    table: SweepTable,
    out: IO[str],
    options: Options,
    kept: Keeper,
) -> list[Record]:
    """Measure the points in every run, keep all rows, and show those of all runs together."""
    start_s, busy = time.monotonic(), BusyRemark()
    end_s = start_s + options.get("budget", math.inf)
    by_size = partial(size_lines, columns=width(out)) if is_by_size(options) else None
    rows: dict[tuple[object, ...], list[Record]] = {}
    records: list[Record] = []
    for number, run in enumerate(runs):
        is_last = number == len(runs) - 1

        def shown(record: Record, is_last: bool = is_last) -> Record | None:
            rows.setdefault(record.point, []).append(record)
            return row_of_runs(rows[record.point]) if is_last else None

        try:
            run.open()
            busy.at_start(run)
            if not number:
                remark_on_time(runs, options.get("budget"))
                for line in head_lines(_run_of(run), width(out)):
                    say(line, file=out)
                names = dict.fromkeys(session.headline for session in run.sessions.values())
                for headline in filter(None, names):
                    remark(headline)
                start_s = time.monotonic()
            if len(runs) > 1:
                remark(f"Run {number + 1} of {len(runs)}.")
            now_s = time.monotonic()
            share_s = (end_s - now_s) / (len(runs) - number)
            records = show_rows(
                run, keep, table, out, options["color"], shown, by_size, now_s + share_s
            )
            busy.of_rows(records, run.own)
        finally:
            run.close()
    if more := sum(record.repeats > runs[-1].settings.repeats * len(runs) for record in records):
        remark(f"{counted(more, 'row')} measured again: one repeat would have moved the time.")
    if (left := len(runs[-1].points) - len(records)) > 0:
        remark(f"{counted(left, 'point')} of {len(runs[-1].points)} not reached in --budget.")
    if kept.problem:
        remark(f"The run is not saved: {kept.problem}.")
    seconds, columns = time.monotonic() - start_s, width(out)
    tail = tail_lines(records, len(runs), seconds, kept.saved_as(), columns)
    ledger: list[str] = []
    if ledgers := [one for run in runs for one in run.ledgers]:
        from collbench.bench.tables.wire import ledger_lines

        ledger = ledger_lines(ledgers, columns)
    tables = [] if by_size else [_compared(records, columns), ceiling_lines(records, columns)]
    for lines in (*tables, ledger, tail):
        if lines:
            say("\n" + "\n".join(lines), file=out)
    return records


def _compared(records: Sequence[Record], columns: int) -> list[str]:
    """What is best at each size of those that have several rows, and whether that is certain."""
    if len(records) == 1:
        return lines_of(doubt_of_one(as_written(records[0])), columns)[:-1]
    return size_lines(records, columns, least_rows=2)


def _run_of(measurement: Measurement) -> RunOf:
    """What a measurement whose sessions are open runs."""
    sessions = {str(key[0]): session for key, session in measurement.sessions.items()}
    cases = [point.case for point in measurement.points if not point.waived]
    described_hosts = [
        ceilings.hosts(case.ranks)
        for case in cases
        if case.backend == MODEL and (ceilings := measurement.ceilings(case)) is not None
    ]
    return RunOf(
        command=command_line(),
        cases=cases,
        settings=measurement.settings,
        hosts=max(described_hosts, key=len, default=()) or measurement.group.hosts,
        devices={name: session.device for name, session in sessions.items()},
        versions={name: session.version for name, session in sessions.items()},
        links=_links(measurement),
        origins=_origins(measurement),
        is_timed=any(case.backend != MODEL for case in cases),
    )


def _origins(measurement: Measurement) -> dict[Origin, tuple[int, ...]]:
    """The numbers of ranks whose choices come from each origin. On the links of a described machine
    prices decide.
    """
    ranks: dict[Origin, set[int]] = {}
    for point in measurement.points:
        if point.origin is not None and not point.waived and point.case.backend != MODEL:
            ranks.setdefault(point.origin, set()).add(point.case.ranks)
    return {origin: tuple(sorted(numbers)) for origin, numbers in ranks.items()}


def _links(measurement: Measurement) -> list[str]:
    """The link that limits each collective at its largest size, of what is not a library's."""
    largest: dict[tuple[object, ...], SweepPoint] = {}
    for point in measurement.points:
        if not point.waived and point.plan is not None:
            key = point.case.backend, point.case.op, point.case.ranks
            if key not in largest or largest[key].case.size_bytes < point.case.size_bytes:
                largest[key] = point
    found = []
    for point in largest.values():
        ceilings = measurement.ceilings(point.case)
        ceiling = ceilings.ceiling(point.case, point.plan) if ceilings is not None else None
        if ceiling is not None:
            found.append(ceiling.limit)
    return found


def _exit_code(records: Sequence[Record], *, is_part: bool) -> int:
    """1 for wrong data and impossible times, else 0. Raises UnavailableError if every point was
    waived. is_part: other rows of the sweep are in the file already.
    """
    if any(record.status in NOT_TRUE for record in records):
        return 1
    if records and not is_part and all(record.status == "waived" for record in records):
        first, *others = dict.fromkeys(record.reason for record in records)
        why, _, hint = first.partition("; ")
        more = f" (other reasons: {len(others)})" if others else ""
        general = "change what the reasons name" if others else _what_to_change(records)
        raise UnavailableError(f"every point was waived: {why}{more}", hint or general)
    return 0


def _what_to_change(waived: Sequence[Record]) -> str:
    """What makes rows possible that are all waived for one reason, which advises nothing."""
    if all(row.ranks == 1 for row in waived):
        return "use --ranks 2 or more"
    if not has_nvidia_gpus() and all(BACKENDS.load(row.backend).is_gpu for row in waived):
        return "give --backend cpu to measure the CPUs"
    if not any(row.count or row.mix for row in waived):
        return "give larger --sizes"
    return "change what the reason names"
