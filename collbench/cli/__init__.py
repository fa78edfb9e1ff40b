"""The command line: parse, call, render. Commands are loaded when they run, so that --help stays
fast.
"""

import ctypes
import errno
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from collbench import __version__
from collbench.core.complaint import complain
from collbench.core.errors import HangError, UnavailableError, UsageError, unknown
from collbench.core.files import check_writable, is_foreign
from collbench.core.interrupt import exit_code_of, handle_signals, stop_handling_signals
from collbench.core.launcher import launcher

# what a command does, in a line; by what it is for
_GROUPS = {
    "Measure": {
        "sweep": "Measure collectives over algorithms, knobs and sizes.",
        "topo": "Show how the devices of a machine are linked, how fast, and what limits them.",
        "overlap": "Measure how much communication slows concurrent computation down.",
        "replay": "Replay what a job communicates: how long it takes here, and what to set.",
    },
    "Diagnose": {
        "check": "Say in less than a minute whether this machine is as fast as it should be.",
        "doctor": "Find what slows communication down here, prove it, and say what to change.",
        "hunt": "Find which rank, host, rail or path is slow, from the rates of pairs.",
        "log": "Explain the log of a job: what NCCL printed, and what is wrong.",
        "trace": "Show where the time of a collective goes, and the longest chain of its events.",
    },
    "Results": {
        "compare": "Show what is best in a file of results, and what changed between files.",
        "runs": "List the sweeps that were saved.",
    },
    "Plan": {
        "tune": "Find the best configuration of this machine by measuring, and use it from then"
        " on.",
        "predict": "Predict collectives on more hosts than there are, or on another machine.",
        "algos": "List which algorithm serves which collective, or draw one algorithm's schedule.",
    },
}
_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}
# commands of earlier versions -> what replaced them
_GONE = {
    "explain": "`trace` shows the choice, its least time and where the time goes, `sweep` the rest",
    "litmus": "`auto` takes LL128 by a rule; docs/explanation/litmus.md has what the tests found",
}
# Under a launcher every rank runs these; of all else, help included, only rank 0 does.
_RUN_BY_ALL_RANKS = {
    *("sweep", "tune", "topo", "overlap", "check", "doctor", "hunt"),
    *("trace", "replay"),
}
_LEAST_MEMORY_BYTES = 256 << 20
_HANGUP_S = 0.3
_OVERVIEW_S = 8.5  # of `collbench` alone, until it stops measuring


class _Commands(click.Group):
    """Commands by name, imported on use; the list needs no import."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _GONE:
            raise UsageError(f"{args[0]} is no command any more", _GONE[args[0]])
        if args[0] not in _COMMANDS:
            raise unknown("command", args[0], _COMMANDS)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        _check_memory_limit()
        command: click.Command = import_module(f"collbench.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in commands.items()])


@click.command(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="collbench")
@click.option(
    "--json",
    "file",
    metavar="FILE",
    is_flag=False,
    flag_value="-",
    help="Without a command: write what is said as JSON, for example to here.json; - is stdout.",
)
@click.pass_context
def cli(context: click.Context, file: str | None) -> int:
    """How fast the ranks of a machine can communicate, what limits them, and what to change.

    collbench runs its own collectives, whose knobs are all options, and verifies every result.
    Without a command it says in ten seconds what this machine is and how fast.
    """
    if context.invoked_subcommand is not None:
        return 0
    if file not in (None, "-"):
        _refuse_file(str(file))
    end_s = time.monotonic() + _OVERVIEW_S
    _check_memory_limit()
    from collbench.doctor.run_overview import run_overview

    return run_overview(file, end_s)


def _refuse_file(file: str) -> None:
    """Raise an error for a file that is not to be written, before anything is measured."""
    if file in _COMMANDS:
        raise UsageError(
            f"--json takes a file, and {file} is a command", f"write: collbench {file} --json"
        )
    if is_foreign(Path(file), ('"tool": "collbench"', '"bandwidth": ')):
        raise UsageError(
            f"{file} exists, and --json of this command did not write it", "give another file"
        )
    check_writable(file, "--json")


def main() -> None:
    """The console script: run a command, print errors in one place, pick the exit code."""
    handle_signals()
    try:
        _open_standard_streams()
        # nothing here multiplies on CPUs: threads of NumPy's BLAS would only take memory
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        under = launcher()
        if under is not None and _is_run_by_all_ranks(sys.argv[1:]):
            from collbench.bench.watch import watch_over

            watch_over(under)
        code = run(sys.argv[1:])  # a signal may come before it looks after them, or behind
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(complain(error))
    stop_handling_signals(code)
    # what never came may also keep a thread, or a GPU's library, from ending in order
    if code == HangError.exit_code:
        sys.stderr.flush()
        os._exit(code)
    kernels = sys.modules.get("collbench.backends.kernel.backend")
    if kernels and kernels.KERNELS:  # Python would wait for their threads; MPI tells its launcher
        sys.stderr.flush()
        ctypes.PyDLL(None).exit(code)
    sys.exit(code)


def _check_memory_limit() -> None:
    """Raise UnavailableError where NumPy's BLAS would end the process while it is loaded."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY_BYTES:
        raise UnavailableError(
            f"this process may have {limit >> 10} KiB of memory (ulimit -v), it needs"
            f" {_LEAST_MEMORY_BYTES >> 10}",
            "raise the limit",
        )


def _open_standard_streams() -> None:
    """Open /dev/null for the standard streams that are closed: a file of results would get their
    numbers, and with these what libraries print. stdout stays None, which run() reports.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def run(args: list[str]) -> int:
    """Run a command line; returns the exit code: 0 fine, 1 wrong data, 2 usage, 3 environment, 4
    timeout or lost rank, 128 and the number of a signal that ended it (Ctrl-C: 130).
    """
    if sys.stdout is None:
        return complain(UnavailableError("stdout is closed", "send it to a file, or to /dev/null"))
    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr shows what it cannot encode
        sys.stdout.reconfigure(errors="backslashreplace")
    under = launcher()
    if under is not None and under.rank > 0 and not _is_run_by_all_ranks(args):
        return 0
    try:
        result = cli.main(args, prog_name="collbench", standalone_mode=False, obj=tuple(args))
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    # the reader has gone, which click turns into an exit: nothing more to say
    except (BrokenPipeError, SystemExit):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_code_of(signal.SIGPIPE)
    except (Exception, KeyboardInterrupt) as error:
        return complain(_hangup_behind(error))


def _is_run_by_all_ranks(args: Sequence[str]) -> bool:
    """Whether every rank of a launcher has a part in a command line; in others the first alone."""
    if {"-h", "--help"} & set(args):
        return False
    return not args or args[0] in _RUN_BY_ALL_RANKS or args[0].startswith("--json")


def _hangup_behind(error: BaseException) -> BaseException:
    """The signal of a terminal that has closed, which may come after the error of writing to it."""
    if isinstance(error, OSError) and error.errno == errno.EIO:
        try:
            time.sleep(_HANGUP_S)
        except KeyboardInterrupt as interruption:
            return interruption
    return error
