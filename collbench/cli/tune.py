"""`collbench tune`: the best configuration of this machine, found by measuring."""

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._declared import setting_option
from collbench.cli._options import (
    SIZES_HELP,
    ListOf,
    OneOf,
    OutputFile,
    Sizes,
    Whole,
    budget_option,
    json_option,
)
from collbench.core.collectives import OPS, collective
from collbench.core.options import OPTIONS, Rule, refuse
from collbench.planning.transports import FAMILY as TRANSPORTS

_OPTIONS = (
    click.option(
        "--op",
        type=ListOf("op", lambda text: collective(text, OPS).name, OPS),
        help=f"Collectives: {', '.join(OPS)}; for example allreduce,allgather. Default: allreduce.",
    ),
    click.option(
        "--sizes",
        type=Sizes(),
        help=f"{SIZES_HELP}, for example 1K:16M, 8,1K:1M:x2. Default: 1K:16M, on GPUs 1K:256M.",
    ),
    budget_option("How long it may take", "2m"),
    click.option(
        "--backend",
        type=OneOf(("cuda", "cpu")),
        help="What to tune: cuda or cpu. Default: cuda where there are two GPUs, else cpu.",
    ),
    click.option(
        "-g",
        "--ranks",
        type=Whole(2, 1024),
        help="Number of ranks, for example 4. Default: the GPUs, or the usable cores (2 to 8).",
    ),
    click.option(
        "--transport",
        type=OneOf(("auto", *TRANSPORTS.names())),
        help=(
            f"The transport to tune for: auto, {', '.join(TRANSPORTS.names())}; auto finds it, too."
            " Default: auto."
        ),
    ),
    setting_option(OPTIONS["gpus"]),
    setting_option(OPTIONS["timeout_s"]),
    click.option(
        "--peer",
        type=OneOf(("nccl",)),
        help=(
            "Search the settings of this library instead: nccl, whose tuner file and variables are"
            " written with their gains. Default: none."
        ),
    ),
    click.option(
        "--model",
        is_flag=True,
        help="Find the constants by which the model prices this machine, in half a minute.",
    ),
    click.option("--again", is_flag=True, help="Measure also what is known already."),
    click.option(
        "--out",
        metavar="FILE",
        type=OutputFile("collbench tune"),
        help=(
            "Write the tuning file there, for example to mine.toml; with --peer the tuner file, and"
            " the variables beside it. Default: your configuration folder, where sweeps find it."
        ),
    ),
    json_option("tune", "what was found"),
    click.option("--show", is_flag=True, help="Show what was found on this machine, and end."),
    click.option("--forget", is_flag=True, help="Remove what was found, say what, and end."),
)
_OF_SEARCHES = (
    *("op", "sizes", "budget", "backend", "ranks", "transport"),
    *("gpus", "timeout", "peer"),
)
_TUNE_RULES = (
    Rule(
        options=("op", "sizes", "budget", "transport", "peer", "again", "show", "forget", "json"),
        when=lambda options: options["model"],
        message="--model draws what it measures by itself",
    ),
    Rule(
        options=(*_OF_SEARCHES, "again", "out", "forget"),
        when=lambda options: options["show"],
        message="--show only shows what is known",
    ),
    Rule(
        options=(*_OF_SEARCHES, "again", "out", "json"),
        when=lambda options: options["forget"],
        message="--forget only removes what is known",
    ),
    Rule(
        options=("backend", "transport", "gpus", "timeout", "again", "json"),
        when=lambda options: options["peer"],
        message="--peer {peer} measures that library in processes of its own, each time anew",
        hint="leave one of them out; CUDA_VISIBLE_DEVICES chooses GPUs",
    ),
)


@declared("tune", *_OPTIONS)
def command(context: click.Context, /, **_: object) -> int:
    """Find the best configuration of this machine by measuring, and use it from then on.

    Candidates are all algorithms, protocols and transports that can run, then other values of every
    knob but --ll128-reload. They are measured in turns, and after each round the slower half
    leaves. What is left is held against the choice before on fresh repeats, and replaces it only if
    the interval of the gain says so. Every result is verified. What is known is kept when you end
    it; the same command goes on from there.

    \b
    Examples:
      collbench tune --op allreduce
      collbench tune --op all --sizes 1K:256M --budget 10m
      mpirun -n 4 collbench tune --op allreduce,alltoall
      collbench tune --show
      collbench tune --peer nccl --op allreduce --budget 10m
      collbench tune --model
    """
    from collbench.tune.run import forget_all, run_tune, show_all

    explicit = explicit_options(context)
    refuse(_TUNE_RULES, explicit, context.params)
    options = {name: context.params[name] for name in explicit}
    if options.get("show"):
        return show_all(options.get("json"))
    if options.get("peer"):
        from collbench.tune.run_nccl import run_tune_nccl

        return run_tune_nccl(options)
    if options.get("model"):
        from collbench.tune.run_model import run_tune_model

        return run_tune_model(options)
    return forget_all() if options.get("forget") else run_tune(options)
