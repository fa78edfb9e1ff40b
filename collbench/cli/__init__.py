"""The command line: parse, call, render. Commands are loaded when they run, so that --help stays
fast.
"""

import io
import os
import sys
from importlib import import_module

import click

from collbench import __version__
from collbench.launch.launcher import launcher
from collbench.util.errors import CollbenchError, HangError, UnavailableError, UsageError

# name -> (module, what it does in a line)
_COMMANDS = {
    "sweep": ("collbench.cli.sweep", "Measure collectives over algorithms, knobs and sizes."),
    "topo": (
        "collbench.cli.topo",
        "Show what is wired to what, how fast that is, and what limits it.",
    ),
    "overlap": (
        "collbench.cli.overlap",
        "Measure what communication costs the computing beside it, on GPUs.",
    ),
    "compare": (
        "collbench.cli.compare",
        "Say what is best in a file of results, and what changed between files.",
    ),
    "algos": ("collbench.cli.algos", "Say what serves what, or draw one algorithm's schedule."),
}
# what else is asked for under a launcher, help included, its first rank alone answers
_BY_ALL_RANKS = {"sweep", "topo", "overlap"}
INTERRUPTED = 130


class _Commands(click.Group):
    """Commands by name, imported on use; the list needs no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="collbench")
def cli() -> None:
    """How fast the ranks of a machine can talk to each other, why not faster, and what to change.

    collbench runs its own collectives, every knob of which can be turned, and verifies every
    result.
    """


def main() -> None:
    """The console script: run a command, print errors in one place, pick the exit code."""
    code = run(sys.argv[1:])
    # what never came may also keep a thread, or a GPU's library, from ending in order
    if code == HangError.exit_code:
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run a command line; returns the exit code: 0 fine, 1 wrong data, 2 usage, 3 environment, 4
    timeout or lost rank, 130 Ctrl-C.
    """
    if sys.stdout is None:
        return complain(UnavailableError("stdout is closed", "send it to a file, or to /dev/null"))
    found = launcher()
    if (
        found is not None
        and found.rank > 0
        and (not _BY_ALL_RANKS & set(args[:1]) or {"-h", "--help"} & set(args))
    ):
        return 0
    try:
        result = cli.main(args, prog_name="collbench", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    # the reader has gone, which click turns into an exit: nothing more to say
    except (BrokenPipeError, SystemExit):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (
        click.ClickException,
        click.Abort,
        CollbenchError,
        KeyboardInterrupt,
        MemoryError,
        OSError,
    ) as error:
        return complain(error)


def complain(error: BaseException) -> int:
    """Print what ended a command, on one rank, and return the exit code."""
    text, code = _described(error)
    found = launcher()
    if found is None or found.rank == 0:
        click.echo(text, err=True)
    return code


def _described(error: BaseException) -> tuple[str, int]:
    if isinstance(error, CollbenchError):
        return (
            f"Error: {error.message}" + (f"\nHint: {error.hint}" if error.hint else ""),
            error.exit_code,
        )
    if isinstance(error, click.ClickException):
        message = io.StringIO()
        error.show(message)
        return message.getvalue().rstrip("\n"), UsageError.exit_code
    if isinstance(error, MemoryError):
        return (
            f"Error: {str(error) or 'out of memory'}\nHint: use smaller sizes or fewer ranks",
            UnavailableError.exit_code,
        )
    if isinstance(error, OSError):
        return (
            f"Error: {error.filename or 'output'}: {error.strerror or error}",
            UnavailableError.exit_code,
        )
    return "Interrupted. What was measured before is kept.", INTERRUPTED
