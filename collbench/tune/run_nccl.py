"""Carry out `tune --peer nccl`: a search for each collective, a tuner file and variables."""

import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from collbench import __version__
from collbench.backends import FAMILY
from collbench.bench.lab import measure
from collbench.bench.ranks import gpus_here, local_group
from collbench.bench.sweep import sizes_between
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import check_writable, command_line, is_foreign, user_folder, write_whole
from collbench.core.launcher import launcher
from collbench.core.options import Options
from collbench.core.screen import remark, say
from collbench.core.units import format_duration, format_size
from collbench.tune.nccl_file import env_lines_of, tuner_lines_of
from collbench.tune.nccl_gains import Gain, Gains, TunerMatch
from collbench.tune.nccl_search import LEAST_S, search
from collbench.tune.show import tune_screen

_BUDGET_S = 300.0
_FIRST, _LAST, _FACTOR = 1 << 10, 256 << 20, 16.0


def run_tune_nccl(options: Options) -> int:
    """Search, write and show; returns the exit code."""
    if launcher() is not None:
        raise UsageError(
            "--peer nccl: it starts processes with other variables than those of this launcher",
            "start it without a launcher",
        )
    if why := FAMILY.load("nccl").why_not(local_group()):
        raise UnavailableError(f"--peer nccl: {why}", "leave it out to tune this tool's choice")
    tuner_file, env_file = _files(options)
    ops, ranks = options.get("op", ("allreduce",)), options.get("ranks") or gpus_here()
    sizes = options.get("sizes") or sizes_between(_FIRST, _LAST, factor=_FACTOR)
    budget_s = options.get("budget", _BUDGET_S)
    if budget_s / len(ops) < 2 * LEAST_S:
        raise UsageError(
            f"--budget {format_duration(budget_s)}: a setting of NCCL takes two starts of it, about"
            f" {LEAST_S:.0f} s, and once more to prove it",
            f"give at least {format_duration(2 * LEAST_S * len(ops))}",
        )
    say(f"# {command_line()}")
    say(
        f"# {', '.join(ops)}: {', '.join(map(format_size, sizes))}; {ranks} ranks; at most about"
        f" {format_duration(budget_s)}"
    )
    gains: dict[TunerMatch, Mapping[int, Sequence[Gain]]] = {}
    with tune_screen() as (_, tell):
        for op in ops:
            match = TunerMatch(op, 1, ranks)
            gains[match] = search(match, sizes, budget_s / len(ops), measure, tell)
            _write(gains, tuner_file, env_file)
    say("\n".join(env_lines_of(gains, [])))
    say(f"\nWritten to {env_file}.")
    if tuner_file.exists():
        say(f"Written to {tuner_file}, for NCCL's tuner plugin; measure again with it loaded.")
    return 0


def _files(options: Options) -> tuple[Path, Path]:
    """The tuner file and that of the variables, which can be written."""
    if "out" in options:
        if options["out"] == "-":
            raise UsageError("--out: stdout is no file", "give the name of a file")
        tuner_file = Path(options["out"])
    else:
        try:
            folder = user_folder("nccl")
        except RuntimeError:
            raise UnavailableError("there is no home folder to write to", "give --out") from None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tuner_file = folder / "tuner.conf"
    env_file = tuner_file.with_name(f"{tuner_file.name}.env")
    for file in (tuner_file, env_file):
        check_writable(file, "--out")
    if is_foreign(env_file, ("collbench tune",)):
        raise UsageError(
            f"{env_file} exists, and tune did not write it: the variables go there",
            "give another file with --out",
        )
    return tuner_file, env_file


def _write(gains: Gains, tuner_file: Path, env_file: Path) -> None:
    """Write both files. Raises OSError."""
    remarks = [
        f"measured by `{command_line()}`, {socket.gethostname()}, collbench {__version__},"
        f" {datetime.now(UTC):%Y-%m-%d}: gains are of fresh repeats in turns with NCCL's own choice"
    ]
    write_whole(env_file, ("\n".join(env_lines_of(gains, remarks)) + "\n").encode())
    try:
        lines = tuner_lines_of(gains, remarks)
    except UsageError as error:  # no algorithm, protocol and channels together were measured
        remark(f"No tuner file: {error.message}.")
        return
    write_whole(tuner_file, ("\n".join(lines) + "\n").encode())
