"""The command line: parse, call, render. Commands are loaded when they run, so that --help stays fast."""

import os
import sys
from importlib import import_module

import click

from collbench import __version__
from collbench.errors import CollbenchError
from collbench.group._launch import launcher

# name -> (module, what it does in a line)
_COMMANDS = {
    "sweep": ("collbench.cli.sweep", "Measure collectives over algorithms, knobs and sizes."),
    "algos": ("collbench.cli.algos", "Say what serves what, or draw one algorithm's schedule."),
}
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

    collbench runs its own collectives, every knob of which can be turned, and verifies every result.
    """


def main() -> None:
    """The console script: run a command, print errors in one place, pick the exit code."""
    sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    """Run a command line; returns the exit code: 0 fine, 1 wrong data, 2 usage, 3 environment, 4 timeout or lost rank, 130 Ctrl-C."""
    found = launcher()
    is_talking = found is None or found.rank == 0
    try:
        result = cli.main(args, prog_name="collbench", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        if is_talking:
            error.show()
        return 2
    except CollbenchError as error:
        if is_talking:
            click.echo(f"Error: {error.message}" + (f"\nHint: {error.hint}" if error.hint else ""), err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        if is_talking:
            click.echo("Interrupted. Rows finished before are kept.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        return 0
    except OSError as error:
        if is_talking:
            click.echo(f"Error: {error.filename or 'output'}: {error.strerror or error}", err=True)
        return 3
