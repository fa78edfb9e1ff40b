"""Carry out a sweep: options and profile to cases, group and measurement, rows to file and
screen.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from collbench.backends.model import host_of
from collbench.bench.runner import (
    Measurement,
    Point,
    estimate_s,
    forced_by,
    is_peer,
    knobs_of,
    plan_points,
)
from collbench.bench.sweep import Sweep, cases, sizes_between
from collbench.cli import sweep as options_of
from collbench.cli._declared import settings_of
from collbench.cli._links import MODEL, RankLinks, recorded
from collbench.cli._options import is_terminal, width
from collbench.cli._rank0 import group_here, lead
from collbench.device.card import device_count
from collbench.launch.group import Group
from collbench.launch.launcher import is_only_rank, launcher
from collbench.machine.formats import described
from collbench.machine.host import has_nvidia_gpus, usable_cores
from collbench.planning.cost import machine
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.report.tables.sweep import Table, best_lines, ceiling_lines, table_of
from collbench.results.record import Record, Writer, known_keys, read
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.spec.knobs import AXES, KNOB, KNOBS
from collbench.spec.options import Settings
from collbench.util import catalog, units
from collbench.util.errors import UsageError
from collbench.util.units import format_duration

_STYLES: dict[str, dict[str, Any]] = {
    "ok": {},
    "waived": {"dim": True},
    "wrong": {"fg": "red", "bold": True},
    "error": {"fg": "red", "bold": True},
}
_MODELLED_RANKS = 16  # GPUs of a described machine, unless more are asked for
_START_S = 3  # until new processes have their GPUs and NCCL, roughly
_ON_GPUS = ("cuda", "nccl")  # what a sweep compares where there are GPUs
# Options that a sweep profile may not hold: they say what to do with the rows, not what to measure.
_NOT_IN_PROFILES = ("profile", "csv", "resume", "dry_run", "color", "soak", "seed")


def run_sweep(options: dict[str, Any], csv: Path | str | None) -> int:
    """The whole command; returns the exit code."""
    options = {
        **_profile(options["profile"]),
        **{name: value for name, value in options.items() if value is not None},
    }
    found = launcher()
    if "backend" not in options and (has_nvidia_gpus() or "gpus" in options):
        options["backend"] = _ON_GPUS
    if (
        found is None
        and any(name in _ON_GPUS for name in options.get("backend", ()))
        and _gpu_count(options) == 1
    ):
        click.echo(
            "One GPU: nothing travels between ranks. Use --backend cpu to measure the processors."
        )
        return 0
    _refuse_senseless(options)
    settings, sweep = settings_of(options), _sweep(options, found.size if found else 0)
    if is_only_rank() and "ranks" not in options and sweep.backend != (MODEL,):
        click.echo(
            f"# One rank under a launcher: this process starts {sweep.ranks[0]} of its own, as it"
            " would without.",
            err=True,
        )
    if options.get("dry_run") and found is not None:
        raise UsageError("--dry-run measures nothing", "start it without a launcher, with --ranks")
    group = group_here()
    topology = recorded(group, options)

    def drive() -> int:
        wires = RankLinks(sweep.backend, options.get("machine"), group, settings.gpus, topology)
        return _drive(group, sweep, settings, options, csv, wires)

    return lead(group, drive)


def _gpu_count(options: Mapping[str, Any]) -> int:
    """GPUs that are asked for, else all of the host."""
    return len(options.get("gpus", ())) or (device_count() if has_nvidia_gpus() else 0)


def _refuse_senseless(options: Mapping[str, Any]) -> None:
    """Raise UsageError for what no backend of the sweep would heed, rather than measure something
    else than was asked for.
    """
    on_gpus = any(name in _ON_GPUS for name in options.get("backend", ()))
    given = [
        name
        for name, is_given in (
            ("--gpus", "gpus" in options),
            ("--isolate", options.get("isolate")),
            ("--launch", "launch" in options),
            ("--net-memory", "net_memory" in options),
            ("--net-threads", "net_threads" in options),
        )
        if is_given
    ]
    net = [name for name in given if name.startswith("--net-")]
    if given != net and not on_gpus:
        raise UsageError(
            f"{', '.join(given)}: no backend of this sweep runs on GPUs",
            "give --backend cuda or nccl, or leave it out",
        )
    if net and (
        "cuda" not in options.get("backend", ())
        or not {"auto", "net"} & set(options.get("transport", ("auto",)))
    ):
        raise UsageError(
            f"{', '.join(net)}: no point of this sweep has messages between GPUs",
            "give --backend cuda and --transport net, or leave it out",
        )
    if "max_memory" in options and "cuda" not in options.get("backend", ()):
        raise UsageError(
            "--max-memory: no backend of this sweep has FIFOs in GPU memory",
            "give --backend cuda, or leave it out",
        )
    if options.get("blocking") and on_gpus:
        raise UsageError(
            "-z is a barrier of processors, which GPUs have none of",
            "--isolate times each GPU launch behind a meeting of its own",
        )
    if options.get("isolate") and options.get("agg_iters", 1) > 1:
        raise UsageError(
            f"--isolate times each launch alone, -m {options['agg_iters']} several as one",
            "give one of them",
        )


def _drive(
    group: Group,
    sweep: Sweep,
    settings: Settings,
    options: Mapping[str, Any],
    csv: Path | str | None,
    wires: RankLinks,
) -> int:
    """Plan, measure, write and show; returns the exit code."""
    peers = {name: knobs_of(name) for name in sweep.backend if is_peer(name)}
    requested = cases(sweep, peers, has_hosts=wires.has_hosts)
    points = plan_points(
        requested, group, settings.max_memory, wires.orders, wires.algorithm, wires.hosts
    )
    for peer in peers:
        _say_what_reaches(
            peer,
            sweep,
            points,
            [one.name for one in KNOBS if options.get(one.name, ("auto",)) != ("auto",)],
        )
    estimate = sum(estimate_s(point, settings, machine()) for point in points)
    if options.get("dry_run"):
        return _show_points(points, estimate)
    if options.get("soak"):
        from collbench.cli._soak import run_soak

        return run_soak(points, group, settings, options["soak"], options.get("seed", 0))
    measurement = Measurement(points, group, settings)
    measurement.ceilings = wires.ceilings
    if options.get("resume") and isinstance(csv, Path) and csv.exists():
        known = known_keys(
            [
                row
                for row in read(csv)
                if row.backend != MODEL
                or row.status == "waived"
                or row.host == host_of(settings.machine)
            ]
        )
        measurement.points = [point for point in points if measurement.key_of(point) not in known]
        click.echo(
            f"# {len(points) - len(measurement.points)} of {len(points)} points are in {csv}"
            " already",
            err=True,
        )
    writer = Writer(Path(csv) if isinstance(csv, Path) else sys.stdout) if csv is not None else None
    out = sys.stderr if csv == "-" else sys.stdout
    table = table_of(
        requested,
        [point.case for point in points if not point.waived],
        width(out),
        has_ceilings=wires.are_known,
    )
    try:
        measurement.open()
        for headline in dict.fromkeys(
            getattr(session, "headline", "") for session in measurement.sessions.values()
        ):
            if headline:
                click.echo(f"# {headline}", err=True)
        records = _measure(measurement, writer, table, out, options["color"])
    finally:
        measurement.close()
        if writer is not None:
            writer.close()
    lines = best_lines(records, table)
    ceilings = ceiling_lines(records)
    lines += ["", *ceilings] if lines and ceilings else ceilings
    if lines:
        click.echo("\n" + "\n".join(lines), file=out)
    return _exit_code(records)


def _say_what_reaches(
    peer: str, sweep: Sweep, points: Sequence[Point], given: Sequence[str]
) -> None:
    """Which of our knobs a library is forced to, at what cost, and which of those given do not
    reach it.
    """
    knobs = knobs_of(peer)
    forced = [name for name in given if name in knobs and name in sweep.asked]
    lost = [KNOB[name].flag for name in given if name not in forced]
    for name in forced:
        missing = [
            value
            for value in sweep.values(name)
            if knobs[name] and value not in (*knobs[name], "auto")
        ]
        lost += [f"{KNOB[name].flag} {','.join(map(str, missing))}"] if missing else []
    sets = len(
        {
            point.session
            for point in points
            if point.case.backend == peer and forced_by(point.case) and not point.waived
        }
    )
    said = (
        [
            f"{sets} set{'s' * (sets > 1)} of processes, about {_START_S} s each, forced by"
            f" {', '.join(KNOB[name].flag for name in forced)}"
        ]
        if sets
        else []
    )
    said += [f"{', '.join(lost)} {'do' if len(lost) > 1 else 'does'} not reach it"] if lost else []
    if said:
        click.echo(f"# {peer}: the library's own choice; {'; '.join(said)}.", err=True)


def _exit_code(records: list[Record]) -> int:
    if any(record.status == "wrong" for record in records):
        return 1
    if records and all(record.status == "waived" for record in records):
        reasons = list(dict.fromkeys(record.reason for record in records))
        click.echo(
            f"Error: every point was waived: {reasons[0]}"
            + (f" (other reasons: {len(reasons) - 1})" if len(reasons) > 1 else ""),
            err=True,
        )
        return 3
    return 0


def _measure(
    measurement: Measurement, writer: Writer | None, table: Table, out: IO[str], color: str
) -> list[Record]:
    """Take the rows as they come: first to the file, then to the screen. Waived ones, which come
    first or are refused later, share lines there.
    """
    records: list[Record] = []
    waived: list[Record] = []
    is_begun = False
    total = sum(
        estimate_s(point, measurement.settings, measurement.machine) for point in measurement.points
    )
    with _screen(out, total, color) as (show, advance):
        measurement.progress = advance
        show(table.heading(), {"bold": True})

        def show_waived() -> None:
            for line in table.waived(waived):
                show(line, _STYLES["waived"])
            waived.clear()

        try:
            for record in measurement.records():
                if writer is not None:
                    writer.write([record])
                records.append(record)
                if record.status == "waived":
                    waived.append(record)
                    continue
                if not is_begun:
                    show_waived()
                is_begun = True
                show(
                    table.line(record),
                    {"fg": "yellow"} if "noisy" in record.notes else _STYLES[record.status],
                )
        finally:
            show_waived()
    return records


@contextmanager
def _screen(out: IO[str], total_s: float, color: str) -> Iterator[Any]:
    """Two functions: show a line in a style, and advance the work by so many estimated seconds. In
    a terminal a bar stays below the lines.
    """
    is_seen = is_terminal(out)
    is_coloured = color == "always" or (color == "auto" and is_seen)

    def styled(line: str, style: dict[str, Any]) -> str:
        return click.style(line, **style) if is_coloured else line

    if not is_seen:
        yield (
            lambda line, style: click.echo(styled(line, style), file=out, color=is_coloured),
            lambda seconds: None,
        )
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    columns = (
        TextColumn("measuring"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(
        *columns,
        console=Console(file=out, highlight=False, no_color=not is_coloured),
        transient=True,
        auto_refresh=False,
    ) as progress:
        task = progress.add_task("sweep", total=max(total_s, 1e-9))

        def show(line: str, style: dict[str, Any]) -> None:
            progress.console.print(Text.from_ansi(styled(line, style)), soft_wrap=True)
            progress.refresh()

        def advance(seconds: float) -> None:
            progress.advance(task, seconds)
            progress.refresh()

        yield show, advance


def _show_points(points: list[Point], estimate: float) -> int:
    """The dry run: every point, then how long they should take."""
    for point in points:
        case = point.case
        knobs = (
            f"{case.dtype} {case.redop} root {case.root} {case.placement} of place, {case.ranks}"
            " ranks"
        )
        knobs_used = (
            f"{case.proto}, {case.transport}, direct {case.direct}, {case.channels} ch,"
            f" {case.slots} slots, {units.format_size(case.buffsize)} buffer, chunks of"
            f" {units.format_size(case.chunk)}"
        )
        way = " ".join("=".join(variable) for variable in forced_by(case)) or "its own way"
        how = f"waived: {point.waived}" if point.waived else knobs_used if point.plan else way
        click.echo(
            f"{units.format_size(case.size_bytes):>6}  {case.op} {case.backend} {case.algo} "
            f" {knobs}; {how}"
        )
    click.echo(
        f"# {len(points)} points, {sum(bool(p.waived) for p in points)} waived; about"
        f" {format_duration(estimate)}"
    )
    return 0


def _sweep(options: Mapping[str, Any], launched: int) -> Sweep:
    """The knobs of the sweep: what was asked for, and the defaults."""
    if options.get("sizes"):
        ranged = [
            name
            for name in ("minbytes", "maxbytes", "stepfactor", "stepbytes")
            if name in options and name not in _profile(options.get("profile"))
        ]
        if ranged:
            raise UsageError(
                "sizes are given as a list and as a range", "use --sizes, or -b, -e and -f or -i"
            )
        sizes: tuple[int, ...] = options["sizes"]
    else:
        is_gpu = all(name in _ON_GPUS for name in options.get("backend", ("cpu",)))
        smallest, largest, factor = (
            (options_of.GPU_FIRST, options_of.GPU_LAST, options_of.GPU_FACTOR)
            if is_gpu
            else (options_of.DEFAULT_FIRST, options_of.DEFAULT_LAST, options_of.DEFAULT_FACTOR)
        )
        first = options.get("minbytes", units.parse_size(smallest))
        last = options.get("maxbytes", max(first, units.parse_size(largest)))
        sizes = sizes_between(
            first, last, factor=options.get("stepfactor", factor), step=options.get("stepbytes", 0)
        )
    if min(sizes) <= 0:
        raise UsageError("a size of 0 bytes", "give at least one byte")
    knobs = {one.name: options[one.name] for one in KNOBS if one.name in options}
    axes = {one.name: options[one.name] for one in AXES if one.name in options}
    algos = knobs.get("algo")
    if algos is not None and set(ALGORITHMS.names()) <= set(algos):
        del knobs["algo"]  # "all": those that serve the collective
    asked = frozenset(knobs)
    backends = axes.get("backend", ())
    if "proto" not in knobs and "cuda" in backends and knobs.get("algo") != ("auto",):
        knobs["proto"] = PROTOCOLS.names()
    ranks = launched
    if not ranks and "machine" in options and backends == ("model",):
        wires = described(options["machine"])
        ranks = min(_MODELLED_RANKS, len(wires.gpus)) if wires is not None else 0
    if not ranks and any(name in _ON_GPUS for name in backends):
        ranks = _gpu_count(options)
    axes.setdefault("ranks", (ranks or max(2, min(8, usable_cores())),))
    return Sweep(sizes=sizes, knobs=knobs, asked=asked, **axes)


def _profile(name: str | None) -> dict[str, Any]:
    """Options from a sweep profile: a TOML table of option names, each read as the command line
    reads it.
    """
    if name is None:
        return {}
    loaded = catalog.load("sweeps", name)
    table = loaded.get("sweep")
    if not isinstance(table, dict) or len(loaded) > 1:
        raise UsageError(
            f"sweep profile {name} holds {', '.join(sorted(loaded)) or 'nothing'}",
            "it holds one table, [sweep], and options there",
        )
    params = {param.name: param for param in options_of.command.params}
    for key in table:
        if key not in params or key in _NOT_IN_PROFILES:
            allowed = sorted(set(map(str, params)) - {*_NOT_IN_PROFILES})
            raise UsageError(
                f"sweep profile {name}: there is no option '{key}'",
                f"it may have: {', '.join(allowed)}",
            )
    read_option = {}
    for key, value in table.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            read_option[key] = params[key].type.convert(text, params[key], None)
        except click.ClickException as error:
            raise UsageError(f"sweep profile {name}: {key} = {value!r}: {error.message}") from None
    return read_option
