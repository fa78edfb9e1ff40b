"""`collbench sweep`: the product of the knobs, measured, verified and written as it goes."""

from pathlib import Path
from typing import Any

import click

from collbench.cli._declared import knob_option, setting_option
from collbench.cli._options import Finite, ListOf, Size
from collbench.spec.knobs import AXES, KNOBS
from collbench.spec.options import MAX_S, OPTIONS
from collbench.util.errors import UsageError
from collbench.util.units import parse_size

DEFAULT_FIRST, DEFAULT_LAST, DEFAULT_FACTOR = "1K", "16M", 2.0
GPU_FIRST, GPU_LAST, GPU_FACTOR = "8", "512M", 4.0

_SIZES = (
    click.option(
        "-b",
        "--minbytes",
        type=Size(),
        help=(
            "Smallest size in bytes, for example 8 or 64K (powers of 1024). Default:"
            f" {DEFAULT_FIRST}, on GPUs {GPU_FIRST}."
        ),
    ),
    click.option(
        "-e",
        "--maxbytes",
        type=Size(),
        help=f"Largest size in bytes, for example 1G. Default: {DEFAULT_LAST}, on GPUs {GPU_LAST}.",
    ),
    click.option(
        "-f",
        "--stepfactor",
        type=Finite(0, MAX_S),
        help=f"Factor between sizes. Default: {DEFAULT_FACTOR:g}, on GPUs {GPU_FACTOR:g}.",
    ),
    click.option(
        "-i", "--stepbytes", type=Size(), help="Bytes between sizes, instead of a factor."
    ),
    click.option(
        "--sizes",
        type=ListOf("size", parse_size),
        help="Sizes as a list, for example 1K,1M,3000000, instead of a range.",
    ),
)
_SOAK = (
    click.option(
        "--soak",
        type=Finite(1, MAX_S),
        help=(
            "Instead of timing, run the points for so many seconds on GPUs (cuda) in random sizes,"
            " with random pauses, each compared."
        ),
    ),
    click.option(
        "--seed", type=click.IntRange(0), help="Of the soak's random numbers. Default: 0."
    ),
)
_FILES = (
    click.option(
        "--csv",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="Append every row to this file as it is measured; - writes to stdout.",
    ),
    click.option("--resume", is_flag=True, help="Skip points that the CSV file has already."),
    click.option(
        "--sweep",
        "profile",
        help=(
            "Take options from a sweep profile (quick, protocols, channels, buffers, gpus) or file;"
            " options given here win."
        ),
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print the points and an estimate of the time, measure nothing.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Colours and a live line.",
    ),
)


@click.command(name="sweep")
def command(**options: Any) -> int:
    """Measure collectives: every combination of the values given, each verified, with its bus
    bandwidth.

    NCCL is measured as it chooses by itself, and as --algo, --proto, --channels and --buffsize
    force it where they are given and it has them.

    Options take comma lists and, where values are named, `all`. Sizes are bytes with binary
    suffixes; bandwidths are decimal GB/s.

    \b
    Examples:
      collbench sweep --op allreduce
      collbench sweep --op all --algo auto --backend cpu,mpi --csv out.csv
      mpirun -n 4 collbench sweep --op allreduce -b 8 -e 64M -f 4
    """
    from collbench.cli._run_sweep import run_sweep

    if options["resume"] and options["csv"] in (None, "-"):
        raise UsageError("--resume needs a CSV file to read", "give it with --csv FILE")
    csv = options.pop("csv")
    if options["soak"] is not None and csv is not None:
        raise UsageError("--soak measures no times, so it has no rows to write", "leave --csv out")
    return run_sweep(options, csv="-" if csv == "-" else Path(csv) if csv else None)


for _option in (
    *map(knob_option, AXES),
    *_SIZES,
    *map(knob_option, KNOBS),
    *map(setting_option, OPTIONS.values()),
    *_SOAK,
    *_FILES,
):
    command = _option(command)
