"""Every command as its help describes it, and the man pages that a wheel is built with.

Needs nothing but click: `docs/build_hook.py` runs it where a wheel is built.
"""

import inspect
import signal
from collections.abc import Callable, Iterator
from functools import partial

import click

from collbench import __version__
from collbench.cli import cli
from collbench.core.errors import UNJUDGED_CODE, CollbenchError
from collbench.core.interrupt import exit_code_of
from collbench.core.launcher import INTERRUPTIONS


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command by its name, with a context to ask it in."""
    parent = click.Context(cli, info_name="collbench", **cli.context_settings)
    for name in cli.list_commands(parent):
        command = cli.get_command(parent, name)
        assert command is not None
        yield name, command, click.Context(command, info_name=name, parent=parent)


def options_of(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """The options of a command as they are written, each with its help."""
    options = (param for param in command.get_params(context) if isinstance(param, click.Option))
    records = (option.get_help_record(context) for option in options)
    return [record for record in records if record is not None]


def paragraphs_of(command: click.Command) -> tuple[list[str], str]:
    """The help of a command: its paragraphs, and its examples as they stand."""
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    return text.strip().split("\n\n"), examples.rstrip()


def _errors(base: type[CollbenchError] = CollbenchError) -> Iterator[type[CollbenchError]]:
    for error in base.__subclasses__():
        yield error
        yield from _errors(error)


def codes() -> list[tuple[str, str, str]]:
    """Every exit code, the error that has it, and what it means."""
    rows = [
        ("0", "", "Everything that was asked for was done."),
        (
            str(CollbenchError.exit_code),
            "",
            "Wrong data, impossible times (`sweep`); something slow (`hunt`); a regression, or "
            "nothing to compare (`compare`); a failed check (`check`, `doctor`, a first look).",
        ),
    ]
    rows += sorted(
        (str(error.exit_code), f"`{error.__name__}`", (error.__doc__ or "").split("\n\n")[0])
        for error in _errors()
        if error.__module__ == CollbenchError.__module__
    )
    rows.append(
        (
            str(UNJUDGED_CODE),
            "",
            "Could not be judged: nothing, or too little, to judge it by. The last lines say what "
            "to do.",
        )
    )
    ended = [
        *(
            (str(exit_code_of(number)), "", f"Ended by {number.name}, in order.")
            for number in sorted(INTERRUPTIONS)
        ),
        (str(exit_code_of(signal.SIGPIPE)), "", "Whoever read the output has gone."),
    ]
    return [*rows, *sorted(ended)]


def _roff(text: str) -> str:
    lines = text.replace("\\", r"\e").replace("-", r"\-").split("\n")
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in lines)


def _man_page(name: str, text: str, parts: list[str]) -> str:
    head = f'.TH "{name.upper()}" 1 "" "collbench {__version__}" "collbench"\n'
    return head + rf".SH NAME{chr(10)}{_roff(name)} \- {_roff(text)}{chr(10)}" + "".join(parts)


def _man_options(command: click.Command, context: click.Context) -> str:
    options = [
        f".TP\n.B {_roff(flags)}\n{_roff(text)}\n" for flags, text in options_of(command, context)
    ]
    return ".SH OPTIONS\n" + "".join(options)


def man_pages() -> Iterator[tuple[str, Callable[[], str]]]:
    """Man pages, by their file names."""
    yield "collbench.1", _man_of_all
    for name, command, context in commands():
        yield f"collbench-{name}.1", partial(_man_of, command, context)


def _man_of_all() -> str:
    found = list(commands())
    named = "".join(
        f".TP\n.BR {_roff(f'collbench-{name}')} (1)\n{_roff(paragraphs_of(command)[0][0])}\n"
        for name, command, _ in found
    )
    paragraphs = paragraphs_of(cli)[0]
    return _man_page(
        "collbench",
        "benchmark of collectives on GPUs and CPUs",
        [
            ".SH SYNOPSIS\n.B collbench\n.I COMMAND\n[OPTIONS]\n",
            ".SH DESCRIPTION\n" + "\n.PP\n".join(map(_roff, paragraphs)) + "\n",
            ".SH COMMANDS\n" + named,
            _man_options(cli, click.Context(cli, info_name="collbench", **cli.context_settings)),
        ],
    )


def _man_of(command: click.Command, context: click.Context) -> str:
    paragraphs, examples = paragraphs_of(command)
    name = context.command_path.replace(" ", "-")
    pieces = _roff(" ".join(command.collect_usage_pieces(context)))
    return _man_page(
        name,
        " ".join(paragraphs[0].split()).partition(". ")[0].rstrip("."),
        [
            f".SH SYNOPSIS\n.B {_roff(context.command_path)}\n{pieces}\n",
            ".SH DESCRIPTION\n" + "\n.PP\n".join(map(_roff, paragraphs)) + "\n",
            _man_options(command, context),
            f".SH EXAMPLES\n.nf\n{_roff(examples)}\n.fi\n",
            _man_codes(),
            ".SH SEE ALSO\n" + _man_names(context.command_path),
        ],
    )


def _man_codes() -> str:
    lines = [f".TP\n.B {code}\n{_roff(meaning.replace('`', ''))}\n" for code, _, meaning in codes()]
    return ".SH EXIT STATUS\n" + "".join(lines)


def _man_names(path: str) -> str:
    """The other pages."""
    names = ["collbench", *(f"collbench-{name}" for name in cli.list_commands(click.Context(cli)))]
    others = [name for name in names if name != path.replace(" ", "-")]
    return "".join(f".BR {_roff(name)} (1){',' * (name != others[-1])}\n" for name in others)
