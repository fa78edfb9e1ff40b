"""`collbench compare`: what is best in a file of results, and what changed between files."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli._command import StrictCommand, explicit_options
from collbench.cli._options import (
    PAGE,
    FileName,
    ListOf,
    OutputFile,
    Profile,
    assessment_options,
    color_option,
    json_option,
)
from collbench.compare.losses import LOSS_KINDS
from collbench.core.assessment import ASSESSMENT_FILES, write_assessment
from collbench.core.catalog import results
from collbench.core.errors import NoRowError, UsageError
from collbench.core.files import result_json, write_document
from collbench.core.options import Options, refuse
from collbench.core.record import ACROSS, Record
from collbench.core.screen import is_coloured, on_screen, remark, say, talk_beside, width
from collbench.core.text import counted, wrapped

if TYPE_CHECKING:
    from collbench.compare.changes import Changes
    from collbench.compare.load import ResultFile

_NEAREST = "nearest"  # --against without a name
_WRITTEN = ("json", "tuner", "plot")  # options that ask for a file of rows
CHANGED_CODE = 1  # a regression beyond --fail-below, or nothing to compare


def _percent(text: str) -> float:
    """A share from 0 on, with or without its sign. Raises UsageError."""
    number = -1.0
    with suppress(ValueError):
        number = float(text.strip().removesuffix("%"))
    if not 0 <= number < float("inf"):
        raise UsageError(
            f"--fail-below: '{text}' is not a percentage from 0 on", "for example 5 or 5%"
        )
    return number


class _CompareCommand(StrictCommand):
    """A command whose --base takes all files up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        is_base = False
        for arg in args:
            is_file = arg == "-" or not arg.startswith("-")
            if is_base and is_file and spread[-1] != "--base":
                spread.append("--base")
            is_base = arg == "--base" or (is_base and is_file)
            spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command(name="compare", cls=_CompareCommand)
@click.argument("files", nargs=-1, required=True, type=FileName())
@click.option(
    "--base",
    "bases",
    metavar="FILE...",
    type=FileName(),
    multiple=True,
    help=(
        "Of one file: the runs that it is compared with together, for example --base mon.csv"
        " tue.csv wed.csv; how far runs differ is estimated from them."
    ),
)
@click.option(
    "--across",
    type=ListOf("column", str, ACROSS),
    default=(),
    help=(
        "Of two files, or with --against: columns that rows to compare may differ in, for example"
        f" group (ranks with and without a launcher): {', '.join(ACROSS)}. Default: none."
    ),
)
@click.option(
    "--force",
    is_flag=True,
    help=(
        "Compare unlike machines too: of two files, with other devices or numbers of ranks; with"
        " --against, with other devices. And replace files that are not what an option writes."
    ),
)
@click.option(
    "--fail-below",
    type=_percent,
    metavar="PERCENT",
    help=(
        "Exit with code 1 if something is surely slower than in the base, and by more than this"
        " percentage as measured, for example 5%, or if the base (not the reference of --against)"
        " has rows that the new file lacks (see --allow); with code 5 if something took that much"
        " longer and nobody can say whether by chance. Default: no limit."
    ),
)
@click.option(
    "--allow",
    type=ListOf("loss", str, LOSS_KINDS),
    default=(),
    help=(
        "What --fail-below lets pass: rows of the base that are missing, or waived; rows that are"
        f" unchecked, or failed; peers that are gone: {', '.join(LOSS_KINDS)}. Default: none."
    ),
)
@click.option(
    "--allow-unjudged",
    is_flag=True,
    help="Let --fail-below pass what cannot be judged, instead of exit code 5.",
)
@json_option("compare", "what is best, or of two files every verdict,")
@assessment_options("compare", has_hosts=False)
@click.option("--all", "show_all", is_flag=True, help="Show every row, not only the first ones.")
@click.option(
    "--against",
    type=Profile("reference", results),
    metavar="NAME",
    is_flag=False,
    flag_value=_NEAREST,
    default=None,
    help=(
        "Of one file: is it normal? NAME is a shipped reference, for example h200x4, or a file;"
        " without NAME, the one of the same GPUs with the most curves of the file. Shipped:"
        f" {', '.join(results())}."
    ),
)
@click.option(
    "--env",
    is_flag=True,
    help="Of one file: the NCCL_* settings that its forced rows justify, with the gain of each.",
)
@click.option(
    "--tuner",
    metavar="FILE",
    type=OutputFile("# collective_type,min_bytes"),
    help=(
        "Of one file: write the configuration of NCCL's CSV tuner plugin from NCCL's forced rows,"
        " for example to nccl_tuner.conf; - is stdout."
    ),
)
@click.option(
    "--plot",
    metavar="FILE",
    type=OutputFile("collbench"),
    help=(
        "Draw one file for a slide: one collective, or six at most; for example to"
        " results.svg (.png or .svg)."
    ),
)
@click.option(
    "--html",
    metavar="FILE",
    type=OutputFile(PAGE),
    help=(
        "Write one page about one file or two, for example to page.html: how far NCCL's best and"
        " the ceiling are, what changed, curves to filter; - is stdout."
    ),
)
@color_option("Colours by verdict")
@click.pass_context
def command(context: click.Context, /, **_: object) -> int:
    """One file: what is best at every size. Two or more: what changed, the first against each of
    the others, or against several runs together (--base).

    Reads our CSV, saved runs (@1 is the newest, see collbench runs), and the results of nccl-tests,
    rccl-tests, OSU and nvbandwidth; - is stdin. Exit code 1: nothing to compare, or --fail-below;
    5: --fail-below, and it cannot be judged.

    \b
    Examples:
      collbench compare results.csv
      collbench compare @1
      collbench compare new.csv base.csv
      collbench compare @1 @2
      collbench compare new.csv --base mon.csv tue.csv wed.csv
      collbench compare local.csv mpirun.csv --across group
      collbench compare tonight.csv reference.csv --fail-below 5%
      collbench compare results.csv --against h200x4
      collbench compare results.csv --plot results.svg
      collbench compare results.csv --tuner nccl_tuner.conf --env
      collbench compare results.csv --html page.html
    """
    from collbench.cli._compare_rules import COMPARE_RULES
    from collbench.compare.draw_results import check_plot
    from collbench.core.collector import cyclic_gc_disabled

    options = dict(context.params)
    refuse(COMPARE_RULES, explicit_options(context), options)
    if options["plot"] is not None:
        options["plot"] = Path(options["plot"])
    files = [Path(file) for file in (*options["files"], *options["bases"])]
    if options["plot"] is not None:
        check_plot(options["plot"])
    with cyclic_gc_disabled():
        return _answer(files, options)


def _answer(files: Sequence[Path], options: Options) -> int:
    """What the options ask of the files; returns the exit code."""
    if options["html"] is not None:
        return _write_page(files, options["html"], is_forced=options["force"])
    if len(files) == 1:
        return _answer_one(files, options)
    new, *bases = _loaded(files)
    if options["bases"]:
        return _compare(new, bases, options)
    codes = []
    for place, base in enumerate(bases):
        if place:
            say()
        codes.append(_compare(new, [base], options))
    return CHANGED_CODE if CHANGED_CODE in codes else max(codes)


def _answer_one(files: Sequence[Path], options: Options) -> int:
    """What is asked of one file, which may hold two runs, or a rate that nothing compares with."""
    from collbench.compare.readers.foreign import TwoRunsError

    try:
        loaded = _loaded(files)[0]
    except NoRowError as error:
        if any(options[name] for name in _WRITTEN):
            raise
        say("\n".join(wrapped(f"{error.message}. Next: {error.hint}", width(sys.stdout))))
        return CHANGED_CODE
    except TwoRunsError as error:
        if any(options[name] for name in (*_WRITTEN, "env", "against")):
            raise
        from collbench.compare.load import load_runs

        runs = load_runs(error)
        _say_remarks(runs)
        said = f"{error.message}. The second against the first:"
        say("\n".join((*wrapped(said, width(sys.stdout)), "")))
        return _compare(runs[1], runs[:1], {**options, "force": True})
    return _show_one(loaded, options)


def _show_one(loaded: "ResultFile", options: Options) -> int:
    """One file: what the options ask of it, else its summary; returns the exit code."""
    names = ("env", "tuner")
    has_derived = any(options[name] not in (None, False) for name in names)
    if has_derived:
        _derive(loaded.records, options)
    if options["against"] is not None:
        return _hold(loaded, options)
    return 0 if has_derived else _summarise(loaded, options)


def _loaded(files: Sequence[Path]) -> Sequence["ResultFile"]:
    """The files, with remarks on stderr; repeated rows of a single file are merged."""
    from collbench.compare.load import load_all

    try:
        loaded = load_all(files)
    except UsageError as error:
        from collbench.jobs.causes_in import with_cause

        raise with_cause(error, files) from None
    _say_remarks(loaded)
    if len(loaded) > 1:
        return loaded
    from collbench.compare.merge import together

    (one,) = loaded
    records, again = together(one.records)
    if again:
        say(
            f"{one.name}: {counted(again, 'row')} of what a row before measures: repeats are taken"
            " together",
            err=True,
        )
    return [replace(one, records=records)]


def _say_remarks(loaded: Sequence["ResultFile"]) -> None:
    for one in loaded:
        for text in one.remarks:
            say(f"{one.name}: {text}", err=True)


def _summarise(loaded: "ResultFile", options: Options) -> int:
    from collbench.compare.draw_results import plot
    from collbench.compare.tables.summary import summary_lines

    out, target = sys.stdout, options["plot"]
    code = 0 if any(one.status == "ok" for one in loaded.records) else CHANGED_CODE
    if options["json"] is not None:
        from collbench.compare.tables.summary import best_data
        from collbench.core.rows import devices_of

        document = result_json(best_data(loaded.records), machine=devices_of(loaded.records))
        write_document(document, options["json"], "--json")
    if options["json"] != "-":
        say("\n".join(summary_lines(loaded.records, width(out), options["show_all"])))
    if loaded.kind != "collbench" and options["json"] != "-":
        from collbench.planning.expected import expected_lines

        for line in expected_lines(loaded.records, loaded.network_gbits):
            say("\n" + "\n".join(wrapped(line, width(out))))
    if target is not None:
        plot(target, loaded)
    return code


def _hold(loaded: "ResultFile", options: Options) -> int:
    """Compare one file with a reference; returns the exit code."""
    from collbench.compare.baselines import beside, reference
    from collbench.compare.changes import compare_beside
    from collbench.core.limits import BEHIND_SHARE

    across, is_forced, limit = options["across"], options["force"], options["fail_below"]
    name = "" if options["against"] == _NEAREST else options["against"]
    base = reference(name, loaded.records, across=across, is_forced=is_forced)
    held = beside(loaded, base, across=across, is_forced=is_forced)
    same = limit / 100 if limit else 1 / BEHIND_SHARE - 1
    changes = compare_beside(held.new.frame, held.base.frame, same, across)
    changes = replace(changes, remarks=(*changes.remarks, *held.remarks))
    return _report(changes, held.new, [held.base], options)


def _derive(rows: Sequence["Record"], options: Options) -> None:
    """What follows from one file: settings to the screen, a tuner file."""
    from collbench.tune import nccl_file as nccl_tuner

    # both are made before anything is shown, as either may be refused
    lines = nccl_tuner.env_lines(rows) if options["env"] else ()
    target = options["tuner"]
    document = nccl_tuner.tuner_lines(rows) if target is not None else ()
    if lines:
        say("\n".join(lines))
    if target is not None:
        write_document("\n".join(document) + "\n", target, "--tuner")


def _write_page(files: Sequence[Path], target: str, *, is_forced: bool) -> int:
    """The page of one file, or of two with what changed."""
    from collbench.compare.page import page

    if len(files) > 2:
        raise UsageError("--html shows one file, or a file and its base", "give two files at most")
    loaded = _loaded(files)
    text = page(*loaded, is_forced=is_forced)
    write_document(text, target, "--html")
    remark(f"{len(text.encode()) / 1e6:.2g} MB")
    return 0


def _compare(new: "ResultFile", bases: Sequence["ResultFile"], options: Options) -> int:
    """The new file against the runs of its base; returns the exit code."""
    from collbench.compare.changes import compare
    from collbench.core.limits import SAME

    limit = options["fail_below"]
    changes = compare(
        new.frame,
        *[base.frame for base in bases],
        is_forced=options["force"],
        across=options["across"],
        same=limit / 100 if limit else SAME,
    )
    return _report(changes, new, bases, options)


def _report(
    changes: "Changes", new: "ResultFile", bases: Sequence["ResultFile"], options: Options
) -> int:
    """Show and write what changed, and what the gate says of it; returns the exit code."""
    from collbench.compare.comparison import assessment_of, json_of
    from collbench.compare.doubt import doubt_of_changes, lines_of
    from collbench.compare.gate import gate_of
    from collbench.compare.tables.changes import lines

    limit = options["fail_below"]
    out = talk_beside(options, "json", *ASSESSMENT_FILES)
    has_colours = is_coloured(options["color"], out)
    doubts = {  # that most rows of a file are noise, why, and what to do
        one.name: lines_of(doubt_of_changes(one.records, one.name), width(out))
        for one in (new, *bases)
    }
    for line in chain.from_iterable(doubts.values()):
        say(line, err=out is sys.stderr)
    noisy = [name for name, doubt in doubts.items() if doubt]
    names = ", ".join(base.name for base in bases)
    for line in lines(
        changes, (new.name, names), width(out), show_all=options["show_all"], is_colored=has_colours
    ):
        say(line, color=has_colours, err=out is sys.stderr)
    gate = (
        gate_of(
            changes,
            limit,
            allowed=options["allow"],
            noisy=noisy,
            is_unjudged_allowed=options["allow_unjudged"],
        )
        if limit is not None
        else None
    )
    if options["json"] is not None:
        write_document(json_of(changes, gate, (new.name, names)), options["json"], "--json")
    write_assessment(assessment_of(changes, gate, (new.name, names)), options, out)
    for reason in () if gate is None else (*gate.reasons, *filter(None, [gate.remedy])):
        say(on_screen(reason, sys.stderr), err=True)
    if not len(changes.rows):
        return CHANGED_CODE
    return 0 if gate is None else gate.exit_code
