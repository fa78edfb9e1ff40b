"""`collbench sweep`: the product of the knobs, measured, verified and written as it goes."""

from pathlib import Path

import click

from collbench.cli._command import StrictCommand, declared, explicit_options
from collbench.cli._declared import knob_option, setting_option, with_preset
from collbench.cli._options import (
    SIZES_HELP,
    FileName,
    Finite,
    Profile,
    Size,
    Sizes,
    Whole,
    budget_option,
    color_option,
    csv_option,
    json_option,
)
from collbench.core.catalog import names
from collbench.core.knobs import AXES, KNOBS
from collbench.core.options import (
    DEFAULT_FACTOR,
    DEFAULT_FIRST,
    DEFAULT_LAST,
    GPU_FACTOR,
    GPU_FIRST,
    GPU_LAST,
    MAX_S,
    OPTIONS,
)

_SIZE_OPTIONS = (
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
        help=(
            "Factor between a size and the next, for example 4. Default:"
            f" {DEFAULT_FACTOR:g}, on GPUs {GPU_FACTOR:g}."
        ),
    ),
    click.option(
        "-i",
        "--stepbytes",
        type=Size(),
        help="Bytes between a size and the next, for example 1M. Default: by a factor.",
    ),
    click.option(
        "--sizes",
        type=Sizes(),
        help=f"{SIZES_HELP}, for example 1K,1M,3000000 or 8:1M. Default: -b to -e.",
    ),
)
_COUNTS_OPTION = click.option(
    "--counts",
    type=FileName(),
    help=(
        "File of the elements of unequal blocks: of alltoallv a line a rank of what it sends to"
        " each, else one number a rank; for example counts.txt. Sizes and ranks follow from it."
        " Default: by --skew."
    ),
)
_LIBRARY_OPTION = click.option(
    "--nccl-library",
    multiple=True,
    type=FileName(),
    help=(
        "A release of NCCL, for example ./libnccl.so.2, in the place of the one that is found."
        " Several take turns, and the others are held against the first. Default: the one found."
    ),
)
_TOGETHER_OPTIONS = (
    click.option(
        "--groups",
        help=(
            "Groups of ranks, each with a collective of its own at the same time, for example"
            " 0,1/2,3; a rank may be in several (cpu, cuda, nccl). Default: one group of all."
        ),
    ),
    click.option(
        "--split",
        help=(
            "Groups of so many neighbours (2: 0,1/2,3), or of ranks that far apart (%2: 0,2/1,3)."
            " Default: none."
        ),
    ),
    click.option(
        "--mix",
        help=(
            "Operations of one grouped launch, with their sizes, in the place of --op and --sizes,"
            " for example allreduce:1M+allgather:4M (cpu, cuda, nccl). Default: none."
        ),
    ),
)
_SOAK_OPTIONS = (
    click.option(
        "--soak",
        type=Finite(1, MAX_S),
        help=(
            "Seconds of a soak, for example 600: instead of timing, run the points (cuda, cpu)"
            " in random sizes with random pauses, and compare every result. Default: no soak."
        ),
    ),
    click.option(
        "--seed",
        type=Whole(0),
        help="Seed of the soak's random numbers, for example 7. Default: 0.",
    ),
)
_FILE_OPTIONS = (
    click.option(
        "--all",
        "has_every_row",
        is_flag=True,
        help="Show every row of a grid, not only the best and the runner-up of each size.",
    ),
    budget_option("Time for all measurements: points that it does not reach have no row"),
    csv_option(),
    json_option("sweep", "the rows, when all are measured,"),
    click.option(
        "--resume",
        is_flag=True,
        help=(
            "Skip the points whose last rows in the CSV file are right; measure what is missing,"
            " wrong, failed or waived."
        ),
    ),
    click.option(
        "--preset",
        type=Profile("preset", lambda: names("sweeps")),
        help=(
            f"Take options from a preset ({', '.join(names('sweeps'))}) or a TOML file; options on"
            " the command line win. Default: none."
        ),
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print the points and an estimate of the time, and measure nothing.",
    ),
    color_option("Colours and a progress bar"),
)


class SweepCommand(StrictCommand):
    """The command with the name that one option had before."""

    former_names = {"--sweep": "--preset"}  # noqa: RUF012


@declared(
    "sweep",
    *map(knob_option, AXES),
    _LIBRARY_OPTION,
    _COUNTS_OPTION,
    *_TOGETHER_OPTIONS,
    *_SIZE_OPTIONS,
    *map(knob_option, KNOBS),
    *map(setting_option, OPTIONS.values()),
    *_SOAK_OPTIONS,
    *_FILE_OPTIONS,
    cls=SweepCommand,
)
def command(context: click.Context, /, **_: object) -> int:
    """Measure collectives: every combination of the values given, each verified, with its bus
    bandwidth.

    NCCL is measured with its own choice and, where --algo, --proto, --channels or --buffsize are
    given and NCCL has the value, forced to it.

    Options take comma lists and, where values are named, `all`. Sizes are bytes with binary
    suffixes; bandwidths are decimal GB/s.

    \b
    Examples:
      collbench sweep --op allreduce
      collbench sweep --op all --algo auto --backend cpu,mpi --csv out.csv
      mpirun -n 4 collbench sweep --op allreduce -b 8 -e 64M -f 4
    """
    from collbench.bench.run_sweep import run_sweep

    given = {name: context.params[name] for name in explicit_options(context)}
    options = with_preset(given, context.command.params) if "preset" in given else given
    options = {"color": context.params["color"], **options}
    csv = context.params["csv"]
    return run_sweep(options, csv=Path(csv) if csv not in (None, "-") else csv)
