"""`collbench check`: whether this machine is as fast as it should be."""

import time

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._declared import setting_option
from collbench.cli._options import FolderName, OneOf, Whole, assessment_options, json_option
from collbench.core.options import OPTIONS

_OPTIONS = (
    click.option(
        "-g",
        "--ranks",
        type=Whole(2, 1024),
        default=None,
        help="Number of ranks, for example 4. Default: the GPUs, or the usable cores (2 to 8).",
    ),
    click.option(
        "--backend",
        type=OneOf(("cuda", "nccl", "cpu")),
        default=None,
        help="Of cuda, nccl (the path of jobs) and cpu. Default: cuda with two GPUs, else cpu.",
    ),
    setting_option(OPTIONS["gpus"]),
    setting_option(OPTIONS["timeout_s"]),
    json_option("check", "the findings"),
    assessment_options("check", has_hosts=True),
    click.option(
        "--save",
        is_flag=True,
        help="Save this run with this node's others: as a reference, unless something failed.",
    ),
    click.option(
        "--nodes",
        type=FolderName(),
        metavar="FOLDER",
        help=(
            "Where checks of nodes are saved, and read: with those of peers in a folder that all"
            " nodes share, for example /shared/nodes. Default: the user's state."
        ),
    ),
    click.option("--forget", is_flag=True, help="Forget all checks in the user's state, and end."),
)


@declared("check", *_OPTIONS)
def command(context: click.Context, /, **_: object) -> int:
    """Check this machine in less than a minute: its links, and each collective at three sizes.

    Each line is PASS, WARN or FAIL, with the number, what was expected, and where that is from: the
    shipped results of the same GPUs, what the links allow, or what --save has kept of this node and
    of its peers; or UNKNOWN, where there is nothing to judge by, or noise. Rates are bus
    bandwidths, of a link those of one direction. The last line has the verdict of the whole. The
    exit code is 1 if anything failed, and 5 if most lines are UNKNOWN.

    \b
    Examples:
      collbench check
      collbench check --save
      collbench check --save --nodes /shared/nodes --bad bad.txt
      collbench check --backend cpu --junit check.xml
      mpirun -n 4 collbench check --json check.json
    """
    start_s, computed_s = time.monotonic(), time.process_time()
    from collbench.doctor.run_check import end_of_measuring, run_check, run_forget

    options = {name: context.params[name] for name in explicit_options(context)}
    if options.get("forget"):
        return run_forget(options)
    return run_check(options, end_of_measuring(start_s, time.process_time() - computed_s))
