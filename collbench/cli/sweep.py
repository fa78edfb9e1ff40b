"""`collbench sweep`: the product of the knobs, measured, verified and written as it goes."""

from pathlib import Path
from typing import Any

import click

from collbench.backends import FAMILY as BACKENDS
from collbench.cli._command import Command, given
from collbench.cli._options import (
    DEFAULT_FACTOR,
    DEFAULT_FIRST,
    DEFAULT_LAST,
    GPU_FACTOR,
    GPU_FIRST,
    GPU_LAST,
    MAX_LAUNCHES,
    MAX_REPEATS,
    MAX_S,
    Finite,
    ListOf,
    OneOf,
    Profile,
    Size,
    Whole,
    natural,
    positive,
    rank_count,
    some_bytes,
)
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.spec.case import DIRECT_MODES, P2P_MODES, PLACEMENTS, SWITCHES
from collbench.spec.collectives import OPS, OpName, collective
from collbench.spec.dtypes import ALIASES, DTYPES, REDOPS
from collbench.util.catalog import names
from collbench.util.units import parse_size


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
        help=f"Collectives: {', '.join(OPS)}; for example allreduce,allgather. Default: allreduce.",
    ),
    click.option(
        "--algo",
        type=ListOf("algo", str, ["auto", *ALGORITHMS.names()]),
        help=(
            f"Algorithms: auto, {', '.join(ALGORITHMS.names())}; for example ring,tree. Default:"
            " all that serve the collective."
        ),
    ),
    click.option(
        "--backend",
        type=ListOf("backend", str, BACKENDS.names()),
        help=(
            f"What runs the collective: {', '.join(BACKENDS.names())}; for example cpu,mpi."
            " Default: cuda,nccl where there are GPUs, else cpu."
        ),
    ),
    click.option(
        "--ranks",
        "-g",
        type=ListOf("ranks", rank_count),
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
        help=f"Element types: {', '.join(DTYPES)}; for example half,float32. Default: float32.",
    ),
    click.option(
        "-o",
        "--redop",
        type=ListOf("redop", str, REDOPS),
        help=f"Reductions: {', '.join(REDOPS)}; for example sum,max. Default: sum.",
    ),
    click.option(
        "-r",
        "--root",
        type=ListOf("root", natural),
        help="Ranks that are the root of rooted collectives, for example 0,3. Default: 0.",
    ),
    click.option(
        "--placement",
        type=ListOf("placement", _placement, PLACEMENTS),
        help=(
            "Where the output is: out (beside the input), in (in place, over it); for example"
            " out,in. Default: out."
        ),
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
        type=ListOf("size", parse_size),
        help=(
            "Sizes in bytes as a list, for example 1K,1M,3000000, instead of a range. Default: the"
            " range."
        ),
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
        type=Whole(0, MAX_LAUNCHES),
        help=(
            "Timed iterations of a repeat, for example 20. Default: 0, as many as take 40 ms (3 to"
            " 1000), on GPUs 4 ms (4 to 100)."
        ),
    ),
    click.option(
        "-w",
        "--warmup",
        type=Whole(0, MAX_LAUNCHES),
        help="Untimed launches before the timed ones, for example 5. Default: 1.",
    ),
    click.option(
        "-c",
        "--check",
        type=Whole(0),
        help="Compare the results with what is expected; 0 does not, and rows say unchecked."
        " Default: 1.",
    ),
    click.option(
        "-m",
        "--agg-iters",
        type=Whole(1, MAX_LAUNCHES),
        help="Launches that count as one iteration, for example 10. Default: 1.",
    ),
    click.option(
        "-z",
        "--blocking",
        type=Whole(0, 1),
        help="Let all ranks meet at a barrier after every iteration: 1, on CPUs. Default: 0.",
    ),
    click.option(
        "--repeats",
        type=Whole(1, MAX_REPEATS),
        help="Repeats of every point, spread over the sweep, for example 5. Default: 3.",
    ),
    click.option(
        "--hot",
        is_flag=True,
        default=None,
        help="Use the same buffers in every launch, which leaves them in the cache. Default: rotate"
        " through buffers larger than the cache.",
    ),
    click.option(
        "--timeout",
        type=Finite(0.1, MAX_S),
        help="Seconds beyond its estimate after which a point is given up, for example 60."
        " Default: 10.",
    ),
    click.option(
        "--launch",
        type=OneOf(["graph", "stream"]),
        help="How launches on GPUs are queued: graph, stream. Default: graph.",
    ),
    click.option(
        "--isolate",
        "isolated",
        is_flag=True,
        default=None,
        help="Time each launch on GPUs alone, after a barrier of all ranks. Default: launches back"
        " to back.",
    ),
    click.option(
        "--net-memory",
        type=OneOf(["host", "device"]),
        help=(
            "Memory of the slots of messages between GPUs (--transport net): host, device. Default:"
            " device if MPI says that it takes GPU memory and proto is simple, else host."
        ),
    ),
    click.option(
        "--net-threads",
        type=Whole(0, 64),
        help=(
            "Threads of a rank that receive large messages between GPUs, for example 4; 0: the"
            " proxy receives. Default: 4 or 2, by the number of cores."
        ),
    ),
    click.option(
        "--max-memory",
        type=Size(),
        help=(
            "Upper limit of a GPU's FIFOs, flags and scratch memory in bytes, for example 1G."
            " Default: 256M."
        ),
    ),
    click.option(
        "--soak",
        type=Finite(1, MAX_S),
        help=(
            "Seconds of a soak, for example 600: instead of timing, run the points on GPUs (cuda)"
            " in random sizes with random pauses, and compare every result. Default: no soak."
        ),
    ),
    click.option(
        "--seed",
        type=Whole(0),
        help="Seed of the soak's random numbers, for example 7. Default: 0.",
    ),
    click.option("--inject", hidden=True, help="For tests: late:RANK, die:RANK or drop."),
    click.option(
        "--machine",
        type=Profile("machine", lambda: names("machines")),
        help=(
            "Machine that the model backend models, or whose links give the ceilings of rows on"
            " GPUs: a profile, for example dgx-a100, or a file. Default: cpu-2; the GPUs found."
        ),
    ),
)
_FILES = (
    click.option(
        "--csv",
        type=click.Path(dir_okay=False, allow_dash=True),
        help=(
            "File that every row is appended to as it is measured, for example out.csv; - is"
            " stdout. Default: none."
        ),
    ),
    click.option(
        "--resume", is_flag=True, help="Skip the points whose rows are in the CSV file already."
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
    click.option(
        "--color",
        type=OneOf(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Colours and a progress bar; auto: in a terminal.",
    ),
)


@click.command(name="sweep", cls=Command, former_names={"--sweep": "--preset"})
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int:
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
    from collbench.cli._presets import with_preset
    from collbench.cli._run_sweep import run_sweep

    known = {name: options[name] for name in options if name in given(context)}
    known = {"color": options["color"], **with_preset(known, context.command.params)}
    csv = options["csv"]
    return run_sweep(known, csv=Path(csv) if csv not in (None, "-") else csv)


for _option in (*_WHAT, *_SIZES, *_KNOBS, *_HOW, *_FILES):
    command = _option(command)
