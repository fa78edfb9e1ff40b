"""`collbench overlap`: how much communication slows concurrent computation down."""

import click

from collbench.cli._command import declared, explicit_options
from collbench.cli._declared import op_option, setting_option
from collbench.cli._options import (
    SIZES_HELP,
    ListOf,
    Sizes,
    Whole,
    csv_option,
    json_option,
    positive,
)
from collbench.core.options import OVERLAP_OF_CPUS, OVERLAP_OF_GPUS, OVERLAP_OPTIONS, Rule, refuse
from collbench.planning.transports import FAMILY as TRANSPORTS

_OF_GPUS = ("channels", "gemm", "priority", "transport", "cluster", "gpus")
# the host that queues matrix multiplications cannot move messages meanwhile
TRANSPORT_NAMES = ("auto", *(name for name in TRANSPORTS.names() if name != "net"))


_OPTIONS = (
    op_option(),
    click.option(
        "--sizes",
        type=Sizes(),
        default="64M",
        show_default=True,
        help=f"{SIZES_HELP}, for example 16M,256M.",
    ),
    click.option(
        "--channels",
        type=ListOf("channels", positive),
        default="4,8,16,32,64",
        show_default=True,
        help="Channels of our kernels, and CTAs of the copying kernel, for example 8,32.",
    ),
    click.option(
        "--backend",
        type=ListOf("backend", str, (*OVERLAP_OF_GPUS, *OVERLAP_OF_CPUS)),
        help=(
            "What communicates: cuda, nccl (its own choice), copies (by a kernel, by the copy"
            " engine, to host memory), or on CPUs cpu, mpi; for example cuda,nccl. Default: those"
            " of GPUs where there are any, else of CPUs."
        ),
    ),
    setting_option(OVERLAP_OPTIONS["gemm"]),
    setting_option(OVERLAP_OPTIONS["priority"]),
    click.option(
        "--transport",
        type=ListOf("transport", str, TRANSPORT_NAMES),
        default="auto,ce",
        show_default=True,
        help=(
            f"Transports of our collectives, as in sweep: {', '.join(TRANSPORT_NAMES)}; for example"
            " p2p. ce moves data by copy engines; net is missing because the host is busy."
        ),
    ),
    click.option(
        "--cluster",
        type=Whole(0, 16),
        default=0,
        show_default=True,
        help="CTAs of a thread block cluster, as in sweep, for example 4; 0: our choice.",
    ),
    *(setting_option(OVERLAP_OPTIONS[name]) for name in ("gpus", "repeats", "timeout_s")),
    csv_option(),
    json_option("overlap", "the rows"),
)
_OVERLAP_RULES = (
    Rule(
        options=_OF_GPUS,
        when=lambda options: set(options["backend"] or ()) & set(OVERLAP_OF_CPUS),
        message="GPUs have this, CPUs have not",
        hint="leave it out",
    ),
    Rule(
        options=("op",),
        when=lambda options: options["backend"] == ("copies",),
        message="plain copies are no collective",
        hint="give --backend cuda or nccl, or leave it out",
    ),
    Rule(
        options=("transport", "cluster"),
        when=lambda options: "cuda" not in (options["backend"] or OVERLAP_OF_GPUS),
        message="only our own collectives have this knob",
        hint="give --backend cuda, or leave it out",
    ),
    Rule(
        options=("channels",),
        when=lambda options: options["backend"] == ("nccl",),
        message="NCCL chooses its channels itself here",
        hint="give --backend cuda or copies, or leave it out",
    ),
)


@declared("overlap", *_OPTIONS)
def command(context: click.Context, /, **_: object) -> int:
    """Measure how much a collective slows computation down: matrix multiplications, which lose
    multiprocessors, and copies in memory, which lose its bandwidth, too.

    On GPUs it needs cuBLAS. On one GPU, where nothing travels between ranks, plain copies are
    measured: by a kernel, by the copy engine, to host memory. Under mpirun or srun every rank has a
    GPU of its own. On CPUs a process a rank computes in its cache, or copies.

    \b
    Examples:
      collbench overlap
      collbench overlap --op allgather --sizes 16M --channels 8,32 --csv out.csv
      mpirun -n 4 collbench overlap --backend cuda,nccl --priority normal
    """
    from collbench.bench.run_overlap import run_overlap

    options, explicit = dict(context.params), explicit_options(context)
    refuse(_OVERLAP_RULES, explicit, options)
    if explicit & set(_OF_GPUS):  # is asked of GPUs, and nothing else is measured where none are
        options["backend"] = options["backend"] or OVERLAP_OF_GPUS
    return run_overlap(options)
