"""Carry out `collbench topo`: get the topology, then write documents, or show views of it."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import check_files, result_json, write_document
from collbench.core.launcher import Launcher, launcher
from collbench.core.options import Options
from collbench.core.screen import is_coloured, remark, say, width
from collbench.machine.topology.model import Topology
from collbench.machine.views import rdma, tables
from collbench.machine.views.labels import COLOURS, Paint, alike, heading, plain
from collbench.machine.views.matrix import matrix
from collbench.machine.views.tree import tree

if TYPE_CHECKING:
    from collbench.core.group import Group
    from collbench.machine.discovery import Recording

_VIEWS = ("tree", "rates", "p2p", "links", "rings", "gdr", "rails")
_ASCII = str.maketrans({"├": "|", "└": "`", "─": "-", "│": "|", "…": "."})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTopology:
    """A topology, and the recordings that it was made from, if it was."""

    topology: Topology
    recordings: "Sequence[Recording]" = ()


def show(options: Options) -> int:
    """The whole command; returns the exit code."""
    views = [name for name in _VIEWS if options[name]]
    documents = _on_stdout(options)
    if len(documents) > 1:
        raise UsageError(
            f"{' and '.join(documents)} would mix on stdout",
            "stdout takes one document; --svg, --record and --save take a file",
        )
    if Path(options["svg"] or "").suffix.lower() not in ("", ".svg"):
        raise UsageError(
            f"--svg {options['svg']}: a drawing is SVG only", "give a name that ends in .svg"
        )
    under = launcher()
    if options["is_measured"] and under is not None:
        return _show_measured(options, views, documents)
    shown = _find(options["file"], options["machine"], is_full=options["record"] is not None)
    if shown is None:  # a rank other than 0, which has sent its recording
        return 0
    return _show(options, shown, views, documents, None)


def _show_measured(options: Options, views: Sequence[str], documents: Sequence[str]) -> int:
    """As show(), under a launcher whose ranks then measure their pairs."""
    from collbench.bench.ranks import drive_on_rank0, group_here
    from collbench.launch.processes import LOST_S
    from collbench.machine import discovery

    if options["save"] is not None:
        raise UsageError(
            "--save keeps rates of stores, which are measured without a launcher",
            "leave it out, or start the command without a launcher",
        )
    group = group_here(LOST_S)
    recordings = discovery.gather(group.comm, is_full=options["record"] is not None) or []  # type: ignore[attr-defined]

    def drive() -> int:
        topology = discovery.topology_of(recordings)
        shown = ShownTopology(topology=topology, recordings=recordings)
        return _show(options, shown, views, documents, group)

    return drive_on_rank0(group, drive)


def _show(
    options: Options,
    shown: ShownTopology,
    views: Sequence[str],
    documents: Sequence[str],
    group: "Group | None",
) -> int:
    """Everything that was asked for; returns the exit code. group: the ranks of a launcher, if they
    measure.
    """
    topology, save = shown.topology, options["save"]
    is_measured, out = options["is_measured"], sys.stderr if documents else sys.stdout
    if save is not None and not topology.gpus:
        raise UnavailableError(
            "--save keeps rates between GPUs, and this machine has none",
            "leave --save out to measure two ranks on CPUs",
        )
    check_files(options, "save", "json")
    if options["record"] is not None:
        from collbench.machine import discovery

        write_document(discovery.dumps(shown.recordings), options["record"], "--record")
    if options["svg"] is not None:
        from collbench.machine.views.drawing import svg

        write_document(svg(topology), options["svg"], "--svg")
    if options["is_xml"]:
        from collbench.machine.formats import nccl_xml

        write_document(nccl_xml.write(topology), "-", "")
    is_shown = bool(views) or not (
        documents or options["json"] or options["svg"] or options["record"]
    )
    _remark_on(topology, has_headline=is_shown)
    if views or (is_shown and not is_measured):
        _show_views(shown, views, options["color"], out)
    if views and is_measured:
        say(file=out)
    measured: dict[str, object] = {}
    if is_measured:
        from collbench.bench.measure_pairs import measure_pairs, measure_pairs_of

        topology, measured["pairs"] = (
            measure_pairs_of(topology, group, out) if group else measure_pairs(topology, out)
        )
    if options["json"] is not None or save is not None:
        from collbench.machine.formats import topology_json

        if options["json"] is not None:
            data = topology_json.encoded(topology) | measured
            write_document(result_json(data, machine=topology.name), options["json"], "--json")
        if save is not None:
            write_document(topology_json.write(topology), save, "--save")
    return 0


def _on_stdout(options: Options) -> list[str]:
    """The documents that go to stdout, as they were asked for."""
    documents = {
        "--json": options["json"] == "-",
        "--xml": options["is_xml"],
        **{f"--{name} -": options[name] == "-" for name in ("svg", "record", "save")},
    }
    return [name for name, is_on_stdout in documents.items() if is_on_stdout]


def _find(file: str | None, machine: str | None, *, is_full: bool) -> ShownTopology | None:
    """The topology that is asked for; None on ranks other than 0. is_full: of recordings."""
    under = launcher()
    if file is not None or machine is not None:
        if under is not None and under.rank != 0:
            return None
        return _of_file(Path(file)) if file is not None else _of_machine(str(machine))
    from collbench.machine import discovery

    recordings = (
        [discovery.record(is_full=is_full)] if under is None else _gathered(under, is_full=is_full)
    )
    if recordings is None:
        return None
    return ShownTopology(topology=discovery.topology_of(recordings), recordings=recordings)


def _of_machine(name: str) -> ShownTopology:
    from collbench.machine.formats import described
    from collbench.machine.topology.machines import machine_topology

    return ShownTopology(topology=described(name) or machine_topology(name))


def _of_file(file: Path) -> ShownTopology:
    from collbench.machine import discovery, formats

    try:
        return ShownTopology(topology=formats.read(file))
    except formats.IsRecording as recording:
        recordings = discovery.loads(recording.text, str(file))
    return ShownTopology(topology=discovery.topology_of(recordings), recordings=recordings)


def _gathered(started: Launcher, *, is_full: bool) -> "list[Recording] | None":
    """Recordings of all hosts of the launcher on rank 0; None on the other ranks."""
    from collbench.core.launcher import load_mpi
    from collbench.launch.watchdog import watchdog_of
    from collbench.machine import discovery

    watchdog = watchdog_of(started)
    mpi = load_mpi(started)
    watchdog.join(mpi.COMM_WORLD)
    with watchdog.guarded():
        with watchdog.together("the recordings of all hosts"):
            recordings = discovery.gather(mpi.COMM_WORLD, is_full=is_full)
        watchdog.leave_mpi(mpi)
    return recordings


def _remark_on(topology: Topology, *, has_headline: bool) -> None:
    """Print the name of the machine, unless the views have it, and the notes."""
    if has_headline and len(topology.hosts) == 1:
        remark(heading(alike(topology)[0]))
    for note in topology.notes:
        remark(note)


def _show_views(shown: ShownTopology, views: Sequence[str], color: str, out: TextIO) -> None:
    """The views asked for, one below the other; else the headline and the matrix."""
    has_colours = is_coloured(color, out)
    paint = _painted if has_colours else plain
    topology = shown.topology
    views = views or (["p2p"] if topology.p2p and not topology.links else [])
    if not views:
        echo(matrix(topology, width(out), paint), out, has_colours)
        return
    kinds: dict[str, tuple[str, Callable[[], list[str]]]] = {
        "tree": ("Tree", lambda: tree(topology, paint, width(out))),
        "rates": (
            "GB/s that can be used, in one direction",
            lambda: tables.rates(topology, paint, width(out)),
        ),
        "p2p": ("What GPUs may do with each other's memory", lambda: tables.p2p(topology, paint)),
        "links": ("Links", lambda: _links(shown, width(out), paint)),
        "rings": ("Rings", lambda: _rings(topology, width(out))),
        "gdr": ("GPUDirect RDMA", lambda: _gdr(topology, paint, width(out))),
        "rails": ("NICs of GPUs", lambda: rdma.rail_lines(topology, width(out))),
    }
    for place, view in enumerate(views):
        title, lines = kinds[view]
        above = (
            [*([""] if place else []), click.style(title, bold=True) if has_colours else title]
            if len(views) > 1
            else []
        )
        echo([*above, *lines()], out, has_colours)


def _links(shown: ShownTopology, columns: int, paint: Paint) -> list[str]:
    """NVLinks one by one where a recording has them, then the other links."""
    if not any(recording.gpus for recording in shown.recordings):
        return tables.links(shown.topology, columns=columns)
    from collbench.machine import discovery

    lines: list[str] = []
    for recording in shown.recordings:
        lines += [f"{recording.hostname or 'host'}:"] if len(shown.recordings) > 1 else []
        lines += [*tables.nvlinks(discovery.links_table(recording), paint, columns), ""]
    return [*lines, *tables.links(shown.topology, without=("nvlink",), columns=columns)]


def _rings(topology: Topology, columns: int) -> list[str]:
    if len(topology.gpus) < 2:
        return tables.rings((), (), None)
    from collbench.machine.topology.rings import ring_rate_gbs, rings, trees

    orders = rings(topology)
    return tables.rings(orders, trees(topology), ring_rate_gbs(topology, orders), columns)


def _gdr(topology: Topology, paint: Paint, columns: int) -> list[str]:
    from collbench.machine.topology.rdma import level_of

    level = level_of(os.environ.get("NCCL_NET_GDR_LEVEL", ""))
    return rdma.gdr(topology, level, paint, columns)


def _painted(text: str, kind: str) -> str:
    """A cell in the colour of its class; what has none stays as it is."""
    return click.style(text, fg=COLOURS[kind]) if kind in COLOURS else text


def echo(lines: Sequence[str], out: TextIO, has_colours: bool) -> None:
    """Print lines; characters that the screen cannot show are replaced."""
    text = "\n".join(lines)
    encoding = out.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "replace").decode(encoding)
    say(text, file=out, color=has_colours)
