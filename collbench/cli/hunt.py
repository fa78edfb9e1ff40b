"""`collbench hunt`: which rank, host, rail or path is slow."""

import click

from collbench.cli._command import RanksCommand, declared, explicit_options
from collbench.cli._declared import setting_option
from collbench.cli._options import (
    FileName,
    Finite,
    OneOf,
    OutputFile,
    Size,
    Whole,
    assessment_options,
    budget_option,
    color_option,
    json_option,
)
from collbench.core.options import OPTIONS, Rule, refuse
from collbench.core.pairwise import WHERES

_OPTIONS = (
    click.option(
        "--pairs",
        type=OneOf(("quick", "square", "all")),
        default=None,
        help=(
            "Pairs to measure: quick (two rounds, which give every rank two partners), square"
            " (quick, and a square around each pair that looks slow), all. Default: all up to 16"
            " ranks (of each rail or host, where only they pair) on 8 hosts, else square."
        ),
    ),
    click.option(
        "--rails",
        is_flag=True,
        help="Pair only ranks of the same number on different hosts, which share a rail.",
    ),
    click.option(
        "--where",
        type=OneOf(WHERES),
        default="both",
        help="Pairs between hosts (network, one rank a host without --rails), inside, or both.",
    ),
    click.option(
        "--alone/--together",
        "is_alone",
        default=None,
        help=(
            "Measure each pair alone, or all pairs of a round at once. Default: both up to 16"
            " ranks on 8 hosts, else together."
        ),
    ),
    click.option(
        "--size",
        type=Size(),
        default=None,
        metavar="SIZE",
        help="Size of a message in bytes, for example 4M. Default: 1M on CPUs, 64M on GPUs.",
    ),
    budget_option("Time after which no further pair is measured", "60s"),
    click.option(
        "--backend",
        type=OneOf(("cuda", "nccl", "cpu")),
        default=None,
        help=(
            "What moves the messages: cuda (copies, and MPI between hosts), nccl (on the path of"
            " jobs; under a launcher) or cpu. Default: cuda where there are two GPUs."
        ),
    ),
    click.option(
        "-g",
        "--ranks",
        type=Whole(2, 4096),
        default=None,
        help=(
            "Number of ranks without a launcher, for example 4. Default: the GPUs, or the usable"
            " cores (3 to 8)."
        ),
    ),
    setting_option(OPTIONS["timeout_s"]),
    click.option(
        "--from",
        "files",
        type=FileName(),
        multiple=True,
        metavar="FILE",
        help=(
            "Measure nothing and read rates of pairs, for example pairs.csv: what --csv wrote, any"
            " CSV with host_a, host_b and busbw, lines such as n1 n2 49.3, or outputs of nccl-tests"
            " on two ranks; - is stdin. May be given several times."
        ),
    ),
    click.option(
        "--rate",
        type=Finite(min=1e-3, max=1e6),
        default=None,
        metavar="GBS",
        help=(
            "What a good pair reaches alone, in GB/s, for example 48. Default: what the pairs reach"
            " that nothing slows."
        ),
    ),
    click.option(
        "--csv",
        type=OutputFile("host_a,rank_a,local_a,"),
        help=(
            "File that every measurement is written to as it is made, for example pairs.csv; - is"
            " stdout."
        ),
    ),
    json_option("hunt", "verdicts and samples"),
    assessment_options("hunt", has_hosts=True),
    color_option("Colours of what is slow"),
)


_HUNT_RULES = (
    Rule(
        options=("pairs", "rails", "where", "is_alone", "size", "budget", "backend", "ranks",
                 "timeout"),
        when=lambda options: options["files"],
        message="nothing is measured with --from",
    ),
    Rule(
        options=("csv",),
        when=lambda options: options["files"],
        message="--from measures nothing",
        hint="give --json",
    ),
    Rule(
        options=("size",),
        when=lambda options: options["size"] == 0,
        message="a message of 0 bytes",
        hint="give at least one byte",
    ),
)  # fmt: skip


@declared("hunt", *_OPTIONS, cls=RanksCommand)
def command(context: click.Context, /, **_: object) -> int:
    """Find which rank, host, rail or path is slow, from the rates of pairs of ranks.

    Rounds of disjoint pairs are measured, each pair alone and all pairs of a round at once, in each
    direction, and every result is verified. A robust fit names what explains the slow pairs, with a
    factor, an interval and the evidence, and says which pairs are missing where that cannot be
    told. Start it under mpirun or srun with a rank on every host, or one for every GPU. The exit
    code is 1 if something is slow, and 5 if that cannot be told.

    \b
    Examples:
      mpirun -n 8 collbench hunt
      srun -n 16 collbench hunt --backend nccl
      mpirun -n 64 collbench hunt --rails --budget 120 --csv pairs.csv
      collbench hunt -g 4 --backend cpu
      collbench hunt --from pairs.csv --json -
    """
    refuse(_HUNT_RULES, explicit_options(context), context.params)
    from collbench.doctor.hunt.run import run_hunt

    return run_hunt(context.params)
