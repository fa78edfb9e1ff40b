"""`collbench compare`: what is best in a file of results, and what changed between files."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from collbench.errors import UnavailableError, UsageError

CHANGED_CODE = 1  # a regression beyond --fail-below, or nothing to compare


class Percent(click.ParamType):  # type: ignore[type-arg]
    """A share from 0 on, with or without its sign."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value).strip().removesuffix("%"))
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            self.fail(f"'{value}' is not a percentage from 0 on, for example 5 or 5%", param, ctx)
        return number


@click.command(name="compare")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Compare unlike machines too: other devices, other numbers of ranks.")
@click.option(
    "--fail-below", type=Percent(), metavar="PERCENT",
    help="Exit code 1 if something is surely slower than in the base, by more than so much of its time, for example 5%; or went wrong.",
)
@click.option("--all", "show_all", is_flag=True, help="Show every row.")
@click.option(
    "--against", metavar="NAME", is_flag=False, flag_value="", default=None,
    help="Of one file: is it normal? NAME: a shipped reference, for example h200x4, or a file; without: that of the nearest machine.",
)
@click.option("--bands", is_flag=True, help="Of one file: the worst ratio to NCCL's own choice in each band of sizes.")
@click.option("--env", is_flag=True, help="Of one file: the NCCL_* settings that its forced rows justify, with the gain of each.")
@click.option("--tuner", metavar="FILE", help="Write the configuration of NCCL's CSV tuner plugin, from NCCL's forced rows; - for stdout.")
@click.option("--nccl-rows", metavar="FILE", help="Write the rows in the columns that NCCL's optimizer script reads; - for stdout.")
@click.option("--plot", metavar="FILE", type=click.Path(path_type=Path), help="Draw one file or two against size, with the knobs or the ratio; .png or .svg.")
@click.option("--html", metavar="FILE", help="Write one page about one file or two: curves to filter and hover, tables, heat maps, wires; - for stdout.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True, help="Colours by verdict.")
def command(
    files: tuple[Path, ...], force: bool, fail_below: float | None, show_all: bool, against: str | None, bands: bool, env: bool, tuner: str | None,
    nccl_rows: str | None, plot: Path | None, html: str | None, color: str,
) -> int:
    """One file: what is best at every size. Two or more: what changed, the first against each of the others.

    Reads our CSV, and the results of nccl-tests and of the OSU micro-benchmarks. Exit code 1: nothing to compare, or --fail-below.

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
            raise UsageError("--plot goes with the answers, not with --against, --bands, --env, --tuner or --nccl-rows", "give it alone")
        check_plot(plot, files)
    is_colored = color == "always" or (color == "auto" and is_terminal(sys.stdout))
    if html is not None:
        if fail_below is not None or against is not None or bands or env or tuner or nccl_rows or plot:
            raise UsageError("--html stands alone", "run compare again for the other options")
        return _page(files, html, is_forced=force)
    if len(files) == 1:
        if fail_below is not None and against is None:
            raise UsageError("--fail-below needs a base to compare with", "give a second file")
        documents = {name: file for name, file in (("tuner", tuner), ("nccl_rows", nccl_rows)) if file is not None}
        if bands or env or documents:
            return _derive(files[0], has_bands=bands, has_env=env, documents=documents)
        if against is not None:
            return _judge(files[0], against, fail_below)
        return _answer(files[0], width(sys.stdout), show_all=show_all, plot=plot)
    if against is not None or bands or env or tuner or nccl_rows:
        raise UsageError("--against, --bands, --env, --tuner and --nccl-rows are of one file", "give one file")
    codes = [
        _compare(files[0], base, width(sys.stdout), is_forced=force, fail_below=fail_below, show_all=show_all, is_colored=is_colored, place=place, plot=plot)
        for place, base in enumerate(files[1:])
    ]
    return max(codes)


def _answer(file: Path, columns: int, *, show_all: bool, plot: Path | None) -> int:
    from collbench.cli._draw_results import plot as draw
    from collbench.cli._options import bars, is_terminal
    from collbench.compare.load import load
    from collbench.report.answers_table import answer_lines

    loaded = load(file)
    for said in loaded.said:
        click.echo(said, err=True)
    for line in answer_lines(loaded.frame, columns, show_all, bars(sys.stdout) if is_terminal(sys.stdout) else ""):
        click.echo(line)
    if plot is not None:
        draw(plot, [loaded])
    return 0


def _judge(file: Path, against: str, fail_below: float | None) -> int:
    """One file against a reference; with fail_below, exit code 1 if any size falls that far behind."""
    from collbench.compare.load import load
    from collbench.compare.normal import normal, reference
    from collbench.report.normal_table import normal_lines

    frame = load(file).frame
    found = reference(against, frame)
    verdicts = normal(frame, found.frame)
    click.echo("\n".join(normal_lines(verdicts, Path(found.name).stem)))
    is_late = fail_below is not None and any(span.least < 1 - fail_below / 100 for verdict in verdicts for span in verdict.spans)
    return CHANGED_CODE if is_late or not verdicts else 0


def _derive(file: Path, *, has_bands: bool, has_env: bool, documents: Mapping[str, str]) -> int:
    """What follows from one file: bands and settings to the screen, documents to files."""
    from collbench.compare import tuner
    from collbench.compare.load import load
    from collbench.report.answers_table import band_lines

    frame = load(file).frame
    lines = [*(band_lines(frame) if has_bands else ()), *(tuner.env_lines(frame) if has_env else ())]
    made = {name: getattr(tuner, f"{name}_lines")(frame) for name in documents}
    if lines:
        click.echo("\n".join(lines))
    for name, target in documents.items():
        _write("\n".join(made[name]) + "\n", target, name.replace("_", "-"))
    return 0


def _page(files: tuple[Path, ...], target: str, *, is_forced: bool) -> int:
    """The page of one file, or of two with what changed."""
    from collbench.compare.load import load_all
    from collbench.report.page import page

    if len(files) > 2:
        raise UsageError("--html shows one file, or a file and its base", "give two files at most")
    sides = load_all(files)
    for loaded in sides:
        for said in loaded.said:
            click.echo(f"{loaded.name}: {said}", err=True)
    text = page(*sides, is_forced=is_forced)
    _write(text, target, "html")
    click.echo(f"# {len(text.encode()) / 1e6:.2g} MB", err=True)
    return 0


def _write(text: str, target: str, option: str) -> None:
    """A document to a file, or to stdout."""
    if target == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnavailableError(f"cannot write {target}: {error.strerror}", f"give another file with --{option}") from None
    click.echo(f"# wrote {target}", err=True)


def _compare(
    new: Path, base: Path, columns: int, *, is_forced: bool, fail_below: float | None, show_all: bool, is_colored: bool, place: int, plot: Path | None,
) -> int:
    from collbench.cli._draw_results import plot as draw
    from collbench.compare.changes import SAME, compare
    from collbench.compare.load import load
    from collbench.report.changes_table import lines

    sides = load(new), load(base)
    for loaded in sides if not place else sides[1:]:
        for said in loaded.said:
            click.echo(f"{loaded.name}: {said}", err=True)
    found = compare(sides[0].frame, sides[1].frame, is_forced=is_forced)
    if place:
        click.echo()
    for line in lines(found, (sides[0].name, sides[1].name), columns, show_all=show_all, is_colored=is_colored):
        click.echo(line, color=is_colored)
    if not len(found.rows):
        return CHANGED_CODE
    if plot is not None:
        draw(plot, sides)
    if fail_below is None:
        return 0
    if fail_below < 100 * found.resolution and found.resolution > 1.001 * SAME:
        click.echo(f"{sides[1].name}: single rows show a slowdown of {fail_below:g}% only where their intervals are narrower: more --repeats", err=True)
    if not found.is_worse_by(fail_below):
        return 0
    click.echo(f"slower than {sides[1].name} by more than {fail_below:g}%, or wrong where it was right", err=True)
    return CHANGED_CODE
