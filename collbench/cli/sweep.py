"""`collbench sweep`: the product of the knobs, measured, verified and written as it goes."""

from pathlib import Path
from typing import Any

import click

from collbench.backends import FAMILY as BACKENDS
from collbench.cli._options import Finite, ListOf, Size, natural, positive, some_bytes
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.spec.case import DIRECT_MODES, P2P_MODES, PLACEMENTS, SWITCHES
from collbench.spec.collectives import OPS, OpName, collective
from collbench.spec.dtypes import ALIASES, DTYPES, REDOPS
from collbench.util.errors import UsageError
from collbench.util.units import parse_size

DEFAULT_FIRST, DEFAULT_LAST, DEFAULT_FACTOR = "1K", "16M", 2.0
GPU_FIRST, GPU_LAST, GPU_FACTOR = "8", "512M", 4.0
MAX_S = 1_000_000  # of a timeout or a soak, eleven days; and a factor between sizes


def _op(text: str) -> OpName:
    return collective(text).name


def _dtype(text: str) -> Any:
    return ALIASES.get(text, text)


def _placement(text: str) -> Any:
    return {"out-of-place": "out", "in-place": "in", "out_of_place": "out", "in_place": "in"}.get(
        text, text
    )


_WHAT = (
    click.option(
        "--op",
        type=ListOf("op", _op, OPS),
        help="Collectives, for example allreduce,allgather. Default: allreduce.",
    ),
    click.option(
        "--algo",
        type=ListOf("algo", str, ["auto", *ALGORITHMS.names()]),
        help=(
            f"Algorithms: auto, {', '.join(ALGORITHMS.names())}. Default: all that serve the"
            " collective."
        ),
    ),
    click.option(
        "--backend",
        type=ListOf("backend", str, BACKENDS.names()),
        help=(
            f"Who runs it: {', '.join(BACKENDS.names())}. Default: cuda,nccl where there are GPUs,"
            " else cpu."
        ),
    ),
    click.option(
        "--ranks",
        "-g",
        type=ListOf("ranks", positive),
        help=(
            "Numbers of ranks, for example 2,4. Default: the GPUs, or the usable cores (2 to 8);"
            " under a launcher, its ranks if they are several."
        ),
    ),
    click.option(
        "--gpus",
        type=ListOf("gpu", natural, is_each_once=True),
        help="GPUs by their CUDA numbers, in ring order, for example 0,2,3. Default: all.",
    ),
    click.option(
        "-d",
        "--dtype",
        type=ListOf("dtype", _dtype, DTYPES),
        help=f"Element types: {', '.join(DTYPES)}. Default: float32.",
    ),
    click.option(
        "-o",
        "--redop",
        type=ListOf("redop", str, REDOPS),
        help=f"Reductions: {', '.join(REDOPS)}. Default: sum.",
    ),
    click.option(
        "-r",
        "--root",
        type=ListOf("root", natural),
        help="Roots of rooted collectives, ranks. Default: 0.",
    ),
    click.option(
        "--placement",
        type=ListOf("placement", _placement, PLACEMENTS),
        help="out: output beside the input; in: over it. Default: out.",
    ),
)
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
_KNOBS = (
    click.option(
        "--proto",
        type=ListOf("proto", str, ["auto", *PROTOCOLS.names()]),
        help=(
            f"Protocols: auto, {', '.join(PROTOCOLS.names())}. Default: all on GPUs, simple on"
            " processors."
        ),
    ),
    click.option(
        "--transport",
        type=ListOf("transport", str, ["auto", *TRANSPORTS.names()]),
        help=(
            f"Transports: auto, {', '.join(TRANSPORTS.names())} (GPUs' copy engines, messages of"
            " MPI, GPUs' peer memory, host memory). Default: auto."
        ),
    ),
    click.option(
        "--direct",
        type=ListOf("direct", str, DIRECT_MODES),
        help=(
            "Reach peers' buffers in place instead of through FIFOs: auto, on, off. Default: auto."
        ),
    ),
    click.option(
        "--p2p",
        type=ListOf("p2p", str, P2P_MODES),
        help=(
            "Who moves data over the link: push (the sender stores), pull (the receiver loads)."
            " Default: push on GPUs, pull on processors."
        ),
    ),
    click.option(
        "--channels",
        type=ListOf("channels", positive),
        help="Channels, for example 1,2,4. Default: by size and protocol; 1 on processors.",
    ),
    click.option(
        "--threads",
        type=ListOf("threads", positive),
        help="Threads of a CTA, a multiple of 32. Default: by protocol. Processors have 1.",
    ),
    click.option(
        "--buffsize",
        type=ListOf("bytes", some_bytes),
        help="Bytes of one connection's FIFO, for example 512K. Default: what the chunk needs.",
    ),
    click.option(
        "--slots",
        type=ListOf("slots", positive),
        help=(
            "Slots of a FIFO, for example 2,4,8. Default: 4; on GPUs 8 for ll, ll128, chains and"
            " trees."
        ),
    ),
    click.option(
        "--chunk",
        type=ListOf("bytes", some_bytes),
        help="Bytes of a chunk, for example 128K,1M. Default: by size and protocol.",
    ),
    click.option(
        "--slices",
        type=ListOf("slices", positive),
        help=(
            "Slices of a message, for example 1,2. Default: 2 for simple on GPUs where ranks pass"
            " on what came, from 8M (net: 4M, ce: 256M, shm of three ranks and more: above 1M),"
            " else 1."
        ),
    ),
    click.option(
        "--unroll",
        type=ListOf("unroll", positive),
        help="Accesses that a GPU thread has on their way, for example 4,8. Default: by protocol.",
    ),
    click.option(
        "--cluster",
        type=ListOf("CTAs", positive),
        help=(
            "CTAs that a GPU places side by side, for example 1,4 (thread block clusters). Default:"
            " by CTAs from 2M on, else 1; 1 before sm_90."
        ),
    ),
    click.option(
        "--ll128-reload",
        "reload",
        type=ListOf("reload", str, SWITCHES),
        help="Read an ll128 line again once its flag was seen: on, off. Default: on.",
    ),
    click.option(
        "--specialize",
        type=ListOf("specialize", str, SWITCHES),
        help="Compile the schedule into the ll and ll128 kernels: auto, on, off. Default: auto.",
    ),
)
_HOW = (
    click.option(
        "-n",
        "--iters",
        type=click.IntRange(0),
        help=(
            "Timed iterations a repeat, for example 20. Default 0: as many as take 40 ms (3 to"
            " 1000), on GPUs 4 ms (4 to 100)."
        ),
    ),
    click.option(
        "-w", "--warmup", type=click.IntRange(0), help="Untimed launches before them. Default: 1."
    ),
    click.option(
        "-c",
        "--check",
        type=click.IntRange(0),
        help="0 compares no results (rows say unchecked). Default: 1.",
    ),
    click.option(
        "-m",
        "--agg-iters",
        type=click.IntRange(1),
        help="Launches that count as one iteration. Default: 1.",
    ),
    click.option(
        "-z",
        "--blocking",
        type=click.IntRange(0, 1),
        help="1: a barrier of all ranks after every iteration (GPUs: --isolate). Default: 0.",
    ),
    click.option(
        "--repeats",
        type=click.IntRange(1),
        help="Repeats of every point, spread over the sweep. Default: 3.",
    ),
    click.option(
        "--hot",
        is_flag=True,
        default=None,
        help="Use the same buffers in every launch instead of rotating past the cache.",
    ),
    click.option(
        "--timeout",
        type=Finite(0.1, MAX_S),
        help="Seconds past the estimate after which a point is given up. Default: 10.",
    ),
    click.option(
        "--launch",
        type=click.Choice(["graph", "stream"]),
        help="How GPU launches are queued. Default: graph.",
    ),
    click.option(
        "--isolate",
        "isolated",
        is_flag=True,
        default=None,
        help="Time each GPU launch alone, behind a meeting of all ranks, instead of back to back.",
    ),
    click.option(
        "--net-memory",
        type=click.Choice(["host", "device"]),
        help=(
            "Where GPUs have the slots of messages (--transport net). Default: device if MPI says"
            " that it takes GPU memory and proto is simple, else host."
        ),
    ),
    click.option(
        "--net-threads",
        type=click.IntRange(0, 64),
        help=(
            "Threads of a rank that receive large messages between GPUs. Default: 4 or 2, as there"
            " are cores for; 0: the proxy receives."
        ),
    ),
    click.option(
        "--max-memory",
        type=Size(),
        help="Most bytes of FIFOs, flags and scratch a GPU. Default: 256M.",
    ),
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
    click.option("--inject", hidden=True, help="For tests: late:RANK, die:RANK or drop."),
    click.option(
        "--machine",
        help=(
            "Machine of the model backend, or wires that rows of GPUs are measured by: a profile or"
            " a file. Default: cpu-2; the GPUs found."
        ),
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


for _option in (*_WHAT, *_SIZES, *_KNOBS, *_HOW, *_FILES):
    command = _option(command)
