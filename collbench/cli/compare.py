"""`collbench compare`: what is best in a file of results, and what changed between files."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collbench.util.catalog import results
from collbench.util.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from collbench.analysis.load import Loaded

CHANGED_CODE = 1  # a regression beyond --fail-below, or nothing to compare


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A share from 0 on, with or without its sign."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            number = float(str(value).strip().removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            self.fail(f"'{value}' is not a percentage from 0 on, for example 5 or 5%", param, ctx)
        return number


@click.command(name="compare")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
)
@click.option(
    "--force",
    is_flag=True,
    help="Compare unlike machines too: other devices, other numbers of ranks.",
)
@click.option(
    "--fail-below",
    type=Percent(),
    metavar="PERCENT",
    help=(
        "Exit code 1 if something is surely slower than in the base, by more than so much of its"
        " time, for example 5%; or went wrong."
    ),
)
@click.option("--all", "show_all", is_flag=True, help="Show every row.")
@click.option(
    "--against",
    metavar="NAME",
    is_flag=False,
    flag_value="",
    default=None,
    help=(
        f"Of one file: is it normal? NAME: a shipped reference ({', '.join(results())}) or a file;"
        " without: that of the nearest machine."
    ),
)
@click.option(
    "--bands",
    is_flag=True,
    help="Of one file: the worst ratio to NCCL's own choice in each band of sizes.",
)
@click.option(
    "--env",
    is_flag=True,
    help="Of one file: the NCCL_* settings that its forced rows justify, with the gain of each.",
)
@click.option(
    "--tuner",
    metavar="FILE",
    help=(
        "Write the configuration of NCCL's CSV tuner plugin, from NCCL's forced rows; - for stdout."
    ),
)
@click.option(
    "--nccl-rows",
    metavar="FILE",
    help="Write the rows in the columns that NCCL's optimizer script reads; - for stdout.",
)
@click.option(
    "--plot",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Draw one file or two against size, with the knobs or the ratio; .png or .svg.",
)
@click.option(
    "--html",
    metavar="FILE",
    help=(
        "Write one page about one file or two: curves to filter and hover, tables, heat maps,"
        " wires; - for stdout."
    ),
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours by verdict.",
)
def command(
    files: tuple[Path, ...],
    force: bool,
    fail_below: float | None,
    show_all: bool,
    against: str | None,
    bands: bool,
    env: bool,
    tuner: str | None,
    nccl_rows: str | None,
    plot: Path | None,
    html: str | None,
    color: str,
) -> int:
    """One file: what is best at every size. Two or more: what changed, the first against each of
    the others.

    Reads our CSV, and the results of nccl-tests and of the OSU micro-benchmarks; - is stdin. Exit
    code 1: nothing to compare, or --fail-below.

    \b
    Examples:
      collbench compare results.csv
      collbench compare new.csv base.csv
      collbench compare tonight.csv reference.csv --fail-below 5%
      collbench compare results.csv --against h200x4
      collbench compare results.csv --plot results.svg
      collbench compare results.csv --tuner nccl_tuner.conf --env
      collbench compare results.csv --html page.html
    """
    from collbench.cli._draw_results import check_plot
    from collbench.cli._options import is_terminal, width

    if plot is not None:
        if against is not None or bands or env or tuner or nccl_rows:
            raise UsageError(
                "--plot goes with the answers, not with --against, --bands, --env, --tuner or"
                " --nccl-rows",
                "give it alone",
            )
        check_plot(plot, files)
    is_colored = color == "always" or (color == "auto" and is_terminal(sys.stdout))
    if html is not None:
        if (
            fail_below is not None
            or against is not None
            or bands
            or env
            or tuner
            or nccl_rows
            or plot
        ):
            raise UsageError("--html stands alone", "run compare again for the other options")
        return _page(files, html, is_forced=force)
    if len(files) == 1:
        if fail_below is not None and against is None:
            raise UsageError(
                "--fail-below needs a base to compare with", "give a second file, or --against"
            )
        documents = {
            name: file
            for name, file in (("tuner", tuner), ("nccl_rows", nccl_rows))
            if file is not None
        }
        if "-" in documents.values() and len(documents) + bands + env + (against is not None) > 1:
            raise UsageError(
                "a document on stdout stands alone",
                "give files with --tuner and --nccl-rows, or one of the options",
            )
        loaded = _loaded(files)[0]
        codes = (
            [_derive(loaded.frame, has_bands=bands, has_env=env, documents=documents)]
            if bands or env or documents
            else []
        )
        if against is not None:
            codes.append(_judge(loaded.frame, against, fail_below))
        return (
            max(codes)
            if codes
            else _answer(loaded, width(sys.stdout), show_all=show_all, plot=plot)
        )
    if against is not None or bands or env or tuner or nccl_rows:
        raise UsageError(
            "--against, --bands, --env, --tuner and --nccl-rows are of one file", "give one file"
        )
    new, *bases = _loaded(files)
    codes = [
        _compare(
            new,
            base,
            width(sys.stdout),
            is_forced=force,
            fail_below=fail_below,
            show_all=show_all,
            is_colored=is_colored,
            place=place,
            plot=plot,
        )
        for place, base in enumerate(bases)
    ]
    return max(codes)


def _loaded(files: Sequence[Path]) -> Sequence["Loaded"]:
    """The files, with what a reader must know of them on stderr; what one file alone repeats is
    taken together.
    """
    from collbench.analysis.load import load_all

    found = load_all(files)
    for loaded in found:
        for remark in loaded.remarks:
            click.echo(f"{loaded.name}: {remark}", err=True)
    if len(found) > 1:
        return found
    from collbench.analysis.join import together

    frame, again = together(found[0].frame)
    if again:
        click.echo(
            f"{found[0].name}: {again} rows measure what a row before them does: their repeats are"
            " taken together",
            err=True,
        )
    return [replace(found[0], frame=frame)]


def _answer(loaded: "Loaded", columns: int, *, show_all: bool, plot: Path | None) -> int:
    from collbench.cli._draw_results import plot as draw
    from collbench.cli._options import bars, is_terminal
    from collbench.report.tables.best import answer_lines

    for line in answer_lines(
        loaded.frame, columns, show_all, bars(sys.stdout) if is_terminal(sys.stdout) else ""
    ):
        click.echo(line)
    if plot is not None:
        draw(plot, [loaded])
    return 0 if (loaded.frame["status"] == "ok").any() else CHANGED_CODE


def _judge(frame: "pd.DataFrame", against: str, fail_below: float | None) -> int:
    """One file against a reference; with fail_below, exit code 1 if any size falls that far behind,
    or any row is wrong or failed.
    """
    from collbench.analysis.baselines import BEHIND, normal, reference
    from collbench.report.tables.baselines import normal_lines

    found = reference(against, frame)
    behind = BEHIND if fail_below is None else 1 / (1 + fail_below / 100)
    verdicts = normal(frame, found.frame, behind)
    click.echo("\n".join(normal_lines(verdicts, frame, found, behind)))
    if fail_below is None or not verdicts:
        return 0 if verdicts else CHANGED_CODE
    failed = int(frame["status"].isin(["wrong", "error"]).sum())
    if failed:
        click.echo(f"{failed} rows are wrong or failed", err=True)
    if is_late := any(verdict.is_behind for verdict in verdicts):
        click.echo(f"slower than {found.name} by more than {fail_below:g}%", err=True)
    return CHANGED_CODE if is_late or failed else 0


def _derive(
    frame: "pd.DataFrame", *, has_bands: bool, has_env: bool, documents: Mapping[str, str]
) -> int:
    """What follows from one file: bands and settings to the screen, documents to files."""
    from collbench.analysis import nccl_tuner
    from collbench.report.tables.bands import band_lines

    lines = [
        *(band_lines(frame) if has_bands else ()),
        *(nccl_tuner.env_lines(frame) if has_env else ()),
    ]
    made = {name: getattr(nccl_tuner, f"{name}_lines")(frame) for name in documents}
    if lines:
        click.echo("\n".join(lines))
    for name, target in documents.items():
        _write("\n".join(made[name]) + "\n", target, name.replace("_", "-"))
    return 0


def _page(files: tuple[Path, ...], target: str, *, is_forced: bool) -> int:
    """The page of one file, or of two with what changed."""
    from collbench.report.page import page

    if len(files) > 2:
        raise UsageError("--html shows one file, or a file and its base", "give two files at most")
    sides = _loaded(files)
    text = page(*sides, is_forced=is_forced)
    _write(text, target, "html")
    click.echo(f"# {len(text.encode()) / 1e6:.2g} MB", err=True)
    return 0


def _write(text: str, target: str, option: str) -> None:
    """A document to a file, or to stdout. Raises UsageError rather than overwrite results,
    UnavailableError if it cannot be written.
    """
    from collbench.analysis.load import holds_results

    if target == "-":
        click.echo(text, nl=False)
        return
    try:
        if holds_results(Path(target)):  # most likely the option's value was forgotten
            raise UsageError(
                f"{target} holds results, which would be lost",
                f"--{option} takes the name of the file to write: give another",
            )
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"cannot write {target}: {error.strerror}", f"give another file with --{option}"
        ) from None
    click.echo(f"# wrote {target}", err=True)


def _compare(
    new: "Loaded",
    base: "Loaded",
    columns: int,
    *,
    is_forced: bool,
    fail_below: float | None,
    show_all: bool,
    is_colored: bool,
    place: int,
    plot: Path | None,
) -> int:
    from collbench.analysis.changes import SAME, compare
    from collbench.cli._draw_results import plot as draw
    from collbench.report.tables.changes import lines

    found = compare(new.frame, base.frame, is_forced=is_forced)
    if place:
        click.echo()
    for line in lines(
        found, (new.name, base.name), columns, show_all=show_all, is_colored=is_colored
    ):
        click.echo(line, color=is_colored)
    if not len(found.rows):
        return CHANGED_CODE
    if plot is not None:
        draw(plot, [new, base])
    if fail_below is None:
        return 0
    if fail_below < 100 * found.resolution and found.resolution > 1.001 * SAME:
        click.echo(
            f"{base.name}: single rows show a slowdown of {fail_below:g}% only where their"
            " intervals are narrower: more --repeats",
            err=True,
        )
    if missing := found.not_compared.get("only in base", 0):
        click.echo(f"{new.name} lacks {missing} rows of {base.name}: they are not judged", err=True)
    if not found.is_worse_by(fail_below):
        return 0
    click.echo(
        f"slower than {base.name} by more than {fail_below:g}%, or wrong where it was right",
        err=True,
    )
    return CHANGED_CODE
