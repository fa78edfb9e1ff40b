"""`collbench log`: what the log of a job says, and what is wrong in it."""

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._options import PAGE, FileName, OutputFile, json_option

_OPTIONS = (
    click.option(
        "--fail-on",
        type=click.Choice(("cost", "risk", "never")),
        default="cost",
        help=(
            "What makes the exit code 1: cost (the default: errors, and what is slow anywhere),"
            " risk (what may cost too), never."
        ),
    ),
    click.option(
        "--hang",
        "is_hang",
        is_flag=True,
        help=(
            "Say which rank did not come to which operation, and where ranks disagree. It takes the"
            " logs of all ranks with NCCL_DEBUG_SUBSYS=INIT,COLL."
        ),
    ),
    json_option("log", "all that the log says"),
    click.option(
        "--html",
        metavar="FILE",
        type=OutputFile(PAGE),
        help="Write the findings as a page, for example to log.html; - is stdout.",
    ),
)


@declared("log", click.argument("files", nargs=-1, required=True, type=FileName()), *_OPTIONS)
def command(context: click.Context, /, **_: object) -> int:
    """Explain the log of a job: what NCCL printed, and what is wrong.

    FILES are what NCCL or RCCL printed with NCCL_DEBUG=INFO (or WARN, or TRACE), of one rank or of
    all, in one file or in several, plain or gzip; - is stdin. Prefixes of mpirun, Slurm and
    Kubernetes do not matter, and a part of a log is enough. The more subsystems
    (NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,ENV,NET,COLL), the more is shown.

    What ncclras prints (text, JSON, monitor), PyTorch's watchdog and flight recorder (its dumps as
    they are), Xid of dmesg, errors of launchers, ibstat and nvidia-smi -q are read, too, also all
    in one file.

    \b
    Examples:
      collbench log job.log
      collbench log rank*.log.gz --json log.json
      kubectl logs my-pod | collbench log -
      collbench log --hang rank*.log
    """
    from collbench.jobs.run_log import run_log

    return run_log(
        {"files": context.params["files"]}
        | {name: context.params[name] for name in explicit_options(context)}
    )
