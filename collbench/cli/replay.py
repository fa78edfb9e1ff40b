"""`collbench replay`: what a job communicates, how long that takes here, and what to set."""

import click

from collbench.bench.sweep import backend_names
from collbench.cli._command import RanksCommand, declared, explicit_options
from collbench.cli._declared import BackendList, setting_option
from collbench.cli._options import (
    FileName,
    Finite,
    OneOf,
    OutputFile,
    Whole,
    budget_option,
    json_option,
)
from collbench.core.dtypes import DTYPES, REDOPS
from collbench.core.options import OPTIONS
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS

_MOST_TUNED = 100
_OPTIONS = (
    click.option(
        "--mix",
        metavar="NAME:PARAMETERS/RANKS",
        help=(
            "Instead of files a job made of formulas: ddp, fsdp, tp or moe, for example ddp:7B or"
            " fsdp:70B/8 (70 billion parameters on 8 ranks). Default: 8 ranks."
        ),
    ),
    click.option(
        "--backend",
        type=BackendList(),
        help=(
            f"What runs the operations: {', '.join(backend_names())}, or a file with a kernel of"
            " yours; the first one is tuned. Default: cuda and nccl where there are GPUs, model"
            " with --machine, else cpu."
        ),
    ),
    click.option(
        "-g",
        "--ranks",
        type=Whole(2, 4096),
        help=(
            "The most ranks of a communicator, for example 4: larger ones of the job are run with"
            " so many, at the same size. Default: as in the job."
        ),
    ),
    click.option(
        "--dtype",
        type=OneOf(DTYPES),
        help="Element type of all operations at the same bytes:"
        f" {', '.join(DTYPES)}. Default: as in the job.",
    ),
    click.option(
        "--redop",
        type=OneOf(REDOPS),
        help="Reduction of all operations, for example sum. Default: as in the job.",
    ),
    click.option(
        "--algo",
        type=OneOf(("auto", *ALGORITHMS.names())),
        help=(
            "Algorithm of our collectives before they are tuned, where it serves them:"
            f" {', '.join(('auto', *ALGORITHMS.names()))}. Default: auto."
        ),
    ),
    click.option(
        "--proto",
        type=OneOf(("auto", *PROTOCOLS.names())),
        help="Protocol of our collectives before they are tuned, for example simple. Default:"
        " auto.",
    ),
    budget_option("Time for all measurements, roughly", "60s"),
    click.option(
        "--tune",
        type=Whole(0, _MOST_TUNED),
        default=3,
        show_default=True,
        help="How many of the operations that take most of a step are tuned, for example 5; 0:"
        " none.",
    ),
    click.option(
        "--step-ms",
        type=Finite(min=0.001, max=1e9),
        metavar="MS",
        help=(
            "Milliseconds of a step of the job, for example 250, for the share of communication."
            " Default: by the times of the input."
        ),
    ),
    click.option(
        "--dry-run", is_flag=True, help="Show what the job communicates, and measure nothing."
    ),
    *(setting_option(OPTIONS[name]) for name in ("machine", "gpus", "timeout_s", "max_memory")),
    click.option(
        "--csv",
        type=OutputFile(),
        help="File that the row of every measurement is added to, for example job.csv.",
    ),
    click.option(
        "--tuner",
        type=OutputFile("# collective_type,min_bytes"),
        help=(
            "Write the configuration of NCCL's CSV tuner plugin for this job, for example to"
            " nccl_tuner.conf."
        ),
    ),
    json_option("replay", "all that is known"),
)


@declared("replay", click.argument("files", nargs=-1, type=FileName()), *_OPTIONS, cls=RanksCommand)
def command(context: click.Context, /, **_: object) -> int:
    """Replay what a job communicates: its operations, how long they take here, what to tune first,
    and what that saves.

    FILES are logs of NCCL with NCCL_DEBUG_SUBSYS=INIT,COLL, a dump of PyTorch's flight recorder (as
    JSON), a trace of PyTorch's profiler, or what NCCL's Inspector writes, for Prometheus too; plain
    or gzip; - is stdin. The content decides which it is.

    \b
    Examples:
      collbench replay job.log
      collbench replay trace.json --backend nccl,cuda --tuner nccl_tuner.conf
      collbench replay job.log --machine hgx-h100
      collbench replay --mix fsdp:70B/8 --machine hgx-h100 --dry-run
    """
    from collbench.jobs.run_replay import run_replay

    return run_replay(
        {"files": context.params["files"], "budget": context.params["budget"],
         "tune": context.params["tune"]}
        | {name: context.params[name] for name in explicit_options(context)}
    )  # fmt: skip
