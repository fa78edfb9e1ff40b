"""`collbench runs`: the sweeps that were saved."""

import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from collbench.cli._command import StrictCommand, force_option
from collbench.cli._options import Whole, json_option
from collbench.compare.runs import SavedRun, folder_of_runs, remove, saved_runs
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import result_json, write_document
from collbench.core.options import Options
from collbench.core.screen import remark, say, width
from collbench.core.text import some_of, table
from collbench.core.units import format_duration

_MOST_SHOWN = 20


@click.command(name="runs", cls=StrictCommand)
@click.option("--all", "show_all", is_flag=True, help="Show every run, not only the newest.")
@click.option(
    "--keep",
    type=Whole(0),
    default=None,
    help="Remove all but so many of the newest runs, for example 50. Default: remove none.",
)
@json_option("runs", "the list")
@force_option
@click.option(
    "--nodes",
    metavar="FOLDER",
    is_flag=False,
    flag_value="",
    default=None,
    help=(
        "List the nodes whose checks were saved instead, the worst first: the last verdict, how"
        " much slower each has become, and since when. FOLDER is that of check --nodes, for"
        " example /shared/nodes; without, the user's state."
    ),
)
@click.pass_context
def command(context: click.Context, /, **_: object) -> None:
    """List the sweeps that were saved, the newest last. compare reads them by name, or as @1, @2:
    the newest of this directory, or of all if none was started here.

    Every sweep is saved with its rows, its command and the machine, in collbench/runs of
    $XDG_STATE_HOME or ~/.local/state.

    \b
    Examples:
      collbench runs
      collbench runs --keep 50
      collbench runs --nodes
      collbench compare @1
      collbench compare @1 @2
    """
    if (nodes := context.params["nodes"]) is not None:
        if context.params["keep"] is not None:
            raise UsageError("--nodes removes nothing", "leave out --keep")
        _list_nodes(Path(nodes) if nodes else None, context.params)
        return
    runs = saved_runs()
    keep: int | None = context.params["keep"]
    if keep is not None:
        old = runs[: max(0, len(runs) - keep)]
        try:
            remove(old)
        except OSError as error:
            raise UnavailableError(
                f"cannot remove a saved run: {error.strerror}: {error.filename}",
                "is it another user's?",
            ) from None
        remark(f"Removed {len(old)} of {len(runs)} saved runs.")
        runs = runs[len(old) :]
    if context.params["json"] is not None:
        data = [
            {"name": run.name, "number": run.number, "ending": run.ending, **asdict(run.facts)}
            for run in runs
        ]
        write_document(result_json(data), context.params["json"], "--json")
    if context.params["json"] == "-":
        return
    if not runs:
        say(f"No run is saved in {_place()}.")
        return
    shown = runs if context.params["show_all"] else runs[-_MOST_SHOWN:]
    rows = [_cells(run) for run in shown]
    heads = ["", "name", "started", "rows", "wrong", "took", "what"]
    say("\n".join(table(heads, rows, {3, 4, 5}, width(sys.stdout))))
    if len(shown) < len(runs):
        remark(f"{len(runs) - len(shown)} older runs: --all shows them.")
    remark(f"The files are in {_place()}.")


def _list_nodes(folder: Path | None, options: Options) -> None:
    from collbench.doctor.saved_checks import read_nodes, refuse_missing, without_checks
    from collbench.doctor.tables.nodes import node_lines, states_of

    refuse_missing(folder)
    nodes = read_nodes(folder)
    states = states_of(nodes)
    if broken := without_checks(folder, nodes):
        remark(f"No check can be read in {some_of(broken)}.")
    if options["json"] is not None:
        data = [one._asdict() for one in states]
        write_document(result_json(data), options["json"], "--json")
    if options["json"] == "-":
        return
    if not states:
        say("No check is saved: collbench check --save keeps them.")
        return
    shown = states if options["show_all"] else states[:_MOST_SHOWN]
    say("\n".join(node_lines(shown, width(sys.stdout))))
    if len(shown) < len(states):
        remark(f"{len(states) - len(shown)} more nodes: --all shows them.")


def _cells(run: SavedRun) -> list[str]:
    facts = run.facts
    started = facts.started
    with suppress(ValueError):
        started = f"{datetime.fromisoformat(facts.started).astimezone():%Y-%m-%d %H:%M}"
    return [
        f"@{run.number}" if run.number else "",
        f"@{run.name}",
        started,
        f"{facts.rows} of {facts.points}" if run.ending else f"{facts.rows}",
        f"{facts.wrong}" if facts.exit_code >= 0 else "?",
        format_duration(facts.seconds) if facts.seconds else "?",
        ": ".join(filter(None, (run.ending, facts.title, facts.problem))),
    ]


def _place() -> str:
    try:
        return str(folder_of_runs())
    except RuntimeError:
        return "a folder of your home, which has none"
