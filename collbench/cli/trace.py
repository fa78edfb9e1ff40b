"""`collbench trace`: a timeline of launches, and what made one as long as it was."""

import click

from collbench.cli._command import RanksCommand, declared, explicit_options
from collbench.cli._declared import op_option, setting_option
from collbench.cli._options import VERSION, OneOf, OutputFile, Size, Whole, json_option
from collbench.core.options import OPTIONS, Rule, refuse
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS

MAX_LAUNCHES = 1000
_OPTIONS = (
    click.option(
        "--backend",
        type=OneOf(("cpu", "cuda")),
        default="cpu",
        show_default=True,
        help="Where the ranks are: cpu or cuda.",
    ),
    op_option(),
    click.option(
        "--size",
        type=Size(),
        default="1M",
        show_default=True,
        metavar="SIZE",
        help="Size in bytes, for example 64K.",
    ),
    click.option(
        "--algo",
        type=OneOf(("auto", *ALGORITHMS.names())),
        default="auto",
        show_default=True,
        help=f"The algorithm: auto, {', '.join(ALGORITHMS.names())}.",
    ),
    click.option(
        "--proto",
        type=OneOf(("auto", *PROTOCOLS.names())),
        default="auto",
        show_default=True,
        help=f"The protocol: auto, {', '.join(PROTOCOLS.names())}.",
    ),
    click.option(
        "--transport",
        type=OneOf(("auto", "p2p", "shm", "net")),
        default="auto",
        show_default=True,
        help=(
            "What carries slots: auto, p2p (memory of GPUs), shm (shared memory), net (messages of"
            " MPI)."
        ),
    ),
    click.option(
        "--channels",
        type=Whole(1, 64),
        default=None,
        help="Channels, for example 2. Default: by size.",
    ),
    click.option(
        "-g",
        "--ranks",
        type=Whole(2, 256),
        default=None,
        help="Ranks without a launcher, for example 4. Default: the GPUs, or the cores (2 to 8).",
    ),
    click.option(
        "--launches",
        type=Whole(1, MAX_LAUNCHES),
        default=3,
        show_default=True,
        help="Launches in the trace, for example 10.",
    ),
    click.option(
        "--out",
        type=OutputFile('{"traceEvents":[', VERSION),
        help=(
            "Write the timeline as Chrome's trace events, which ui.perfetto.dev opens, for example"
            " to trace.json; - is stdout."
        ),
    ),
    json_option("trace", "the chain and its causes"),
    setting_option(OPTIONS["timeout_s"]),
)


_TRACE_RULES = (
    Rule(
        options=("size",),
        when=lambda options: options["size"] == 0,
        message="a size of 0 bytes",
        hint="give at least one byte",
    ),
)


@declared("trace", *_OPTIONS, cls=RanksCommand)
def command(context: click.Context, /, **_: object) -> int:
    """Show where the time of a collective goes: every rank, channel, track and round of a launch.

    It begins with what was chosen, by which tuning file, and the least time by the model.
    Ranks note when each of their actions could begin, had moved or reduced its bytes and
    had set its flags, and for which rank it waited. From that comes the chain of events that made
    the launch as long as it was, its time by cause, and what the model says of each. The result
    is verified, and launches that are not traced take turns with the others, so that the cost of
    tracing is shown. Under mpirun or srun every rank is one of the launcher's.

    \b
    Examples:
      collbench trace --op allreduce --size 64K -g 2
      collbench trace --op allreduce --size 1M --algo ring --out trace.json
      mpirun -n 4 collbench trace --op broadcast --size 8M --transport net
    """
    from collbench.bench.trace.run import run_trace

    refuse(_TRACE_RULES, explicit_options(context), context.params)
    return run_trace(context.params)
