"""`collbench overlap`: what communication costs the computing beside it, so that one can choose how
many channels to give away.
"""

from typing import Any

import click

from collbench.cli._options import Finite, ListOf, natural, positive
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.spec.collectives import OPS, collective
from collbench.util.units import parse_size

BACKENDS = ("cuda", "nccl", "copies")
LEAST_GEMM = 4096  # smaller products end faster than one process can queue them for eight GPUs
# the host that queues products cannot move messages meanwhile
ROADS = ("auto", *(name for name in TRANSPORTS.names() if name != "net"))
_MAX_S = 1_000_000


def _op(context: click.Context, param: click.Parameter, value: str) -> str:
    return collective(value).name


_OPTIONS = (
    click.option(
        "--op",
        default="allreduce",
        show_default=True,
        callback=_op,
        metavar="OP",
        help=f"The collective: {', '.join(OPS)}.",
    ),
    click.option(
        "--sizes",
        type=ListOf("size", parse_size),
        default="64M",
        show_default=True,
        help="Sizes in bytes, for example 16M,256M.",
    ),
    click.option(
        "--channels",
        type=ListOf("channels", positive),
        default="4,8,16,32,64",
        show_default=True,
        help="Channels of our kernels, and CTAs of the copying one.",
    ),
    click.option(
        "--backend",
        type=ListOf("backend", str, BACKENDS),
        default="all",
        show_default=True,
        help=(
            "Who communicates: cuda, nccl (its own choice), copies (by a kernel, by the copy"
            " engine, to host memory)."
        ),
    ),
    click.option(
        "--gemm",
        type=click.IntRange(LEAST_GEMM, 65536),
        default=8192,
        show_default=True,
        help="Rows and columns of the bfloat16 matrices.",
    ),
    click.option(
        "--priority",
        type=click.Choice(["high", "normal"]),
        default="high",
        show_default=True,
        help="Of the stream that communicates: before the products, or like them.",
    ),
    click.option(
        "--transport",
        type=ListOf("transport", str, ROADS),
        default="auto,ce",
        show_default=True,
        help=(
            f"Of our collectives, as in sweep: {', '.join(ROADS)}; ce moves data by copy engines."
            " Messages (net) need the host, which queues products."
        ),
    ),
    click.option(
        "--cluster",
        type=click.IntRange(0, 16),
        default=0,
        show_default=True,
        help="CTAs placed side by side, as in sweep; 0: our choice.",
    ),
    click.option(
        "--gpus",
        type=ListOf("gpu", natural, is_each_once=True),
        default=(),
        help="GPUs by their CUDA numbers, for example 0,2. Default: all.",
    ),
    click.option(
        "--repeats",
        type=click.IntRange(2),
        default=5,
        show_default=True,
        help="Repeats of every row; they also tell the noise.",
    ),
    click.option(
        "--timeout",
        type=Finite(0.1, _MAX_S),
        default=10.0,
        show_default=True,
        help="Seconds after which a wait on a GPU is given up.",
    ),
    click.option(
        "--csv",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="Append every row to this file as it is measured; - writes to stdout.",
    ),
)


@click.command(name="overlap")
def command(**options: Any) -> int:
    """Measure what communication costs computation: matrix products and a collective, each alone
    and both at once.

    Needs GPUs, and cuBLAS for the products. On one GPU, where nothing travels, plain copies are
    measured: by a kernel, by the copy engine, to host memory. Under mpirun or srun every rank has a
    GPU of its own.

    \b
    Examples:
      collbench overlap
      collbench overlap --op allgather --sizes 16M --channels 8,32 --csv out.csv
      mpirun -n 4 collbench overlap --backend cuda,nccl --priority normal
    """
    from collbench.cli._run_overlap import run_overlap

    return run_overlap(**options)


for _option in _OPTIONS:
    command = _option(command)
