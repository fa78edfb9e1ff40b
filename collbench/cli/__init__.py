"""The command line: parse, call, render. Commands are loaded when they run, so that --help stays
fast.
"""

import os
import sys
from importlib import import_module

import click

from collbench import __version__
from collbench.launch.launcher import launcher
from collbench.util.errors import CollbenchError, HangError, UnavailableError, unknown

# name -> (module, what it does in a line)
_COMMANDS = {
    "sweep": ("collbench.cli.sweep", "Measure collectives over algorithms, knobs and sizes."),
    "topo": (
        "collbench.cli.topo",
        "Show how the devices of a machine are linked, how fast, and what limits them.",
    ),
    "overlap": (
        "collbench.cli.overlap",
        "Measure how much communication slows concurrent computation down, on GPUs.",
    ),
    "compare": (
        "collbench.cli.compare",
        "Show what is best in a file of results, and what changed between files.",
    ),
    "algos": (
        "collbench.cli.algos",
        "List which algorithm serves which collective, or draw one algorithm's schedule.",
    ),
}
# Under a launcher every rank runs these; of all else, help included, only rank 0 does.
_RUN_BY_ALL_RANKS = {"sweep", "topo", "overlap"}
INTERRUPTED = 130


class _Commands(click.Group):
    """Commands by name, imported on use; the list needs no import."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS:
            raise unknown("command", args[0], _COMMANDS)
        return super().resolve_command(ctx, args)

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


@click.command(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="collbench")
@click.pass_context
def cli(context: click.Context) -> None:
    """How fast the ranks of a machine can communicate, what limits them, and what to change.

    collbench runs its own collectives, whose knobs are all options, and verifies every result.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


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
    under = launcher()
    if (
        under is not None
        and under.rank > 0
        and (not _RUN_BY_ALL_RANKS & set(args[:1]) or {"-h", "--help"} & set(args))
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
    """Print what ended a command, in two lines and on one rank; return the exit code."""
    under = launcher()
    if isinstance(error, click.Abort | KeyboardInterrupt):
        text, code = "Interrupted.", INTERRUPTED
    else:
        ours = _as_ours(error)
        message, hint = (" ".join(text.splitlines()) for text in (ours.message, ours.hint))
        text = f"Error: {message}\nHint: {hint or ours.general_hint}"
        code = ours.exit_code
    if under is None or under.rank == 0:
        click.echo(text, err=True)
    return code


def _as_ours(error: BaseException) -> CollbenchError:
    """What ended a command as an error of ours."""
    if isinstance(error, CollbenchError):
        return error
    if isinstance(error, click.ClickException):
        from collbench.cli._command import of_click

        return of_click(error)
    if isinstance(error, OSError):
        return UnavailableError(
            f"{error.filename or 'output'}: {error.strerror or error}", "give another file"
        )
    return UnavailableError(str(error) or "out of memory", "use smaller sizes or fewer ranks")
