"""The options of a measurement: one table, as knobs.py is of the knobs.

An option is a field of Settings and nothing else. The command line makes its options and its
Settings from OPTIONS, and backends take from Settings what they heed.
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal, get_args, get_type_hints

LaunchMode = Literal["graph", "stream"]
NetMemory = Literal["auto", "host", "device"]
DEFAULT_MACHINE = "cpu-2"
DEFAULT_MEMORY = 256 << 20  # of FIFOs, flags and scratch memory, a GPU
MAX_S = 1_000_000  # of a timeout, eleven days


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one field of Settings is asked for.

    type: of the field. low and high: the bounds of a number; a truth with bounds is given as 0 or
    1. choices: the names that can be given. unit: what a number counts. is_hidden: for tests only,
    left out of the help.
    """

    flags: tuple[str, ...]
    help: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unit: Literal["", "bytes", "GPU"] = ""
    is_hidden: bool = False
    name: str = ""
    type: object = str

    @property
    def key(self) -> str:
        """Its name among the options of a command and in a sweep profile.

        >>> OPTIONS["aggregate"].key
        'agg_iters'
        """
        return self.flags[-1].lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to measure: repeats, launches, checks, deadlines; what runs them, and where."""

    gpus: Annotated[
        tuple[int, ...],
        Option(
            flags=("--gpus",),
            help="GPUs by their CUDA numbers, in ring order, for example 0,2,3. Default: all.",
            unit="GPU",
        ),
    ] = ()
    iterations: Annotated[
        int,
        Option(
            flags=("-n", "--iters"),
            low=0,
            help=(
                "Timed iterations of a repeat, for example 20. Default 0: as many as take 40 ms (3"
                " to 1000), on GPUs 4 ms (4 to 100)."
            ),
        ),
    ] = 0
    warmup: Annotated[
        int,
        Option(flags=("-w", "--warmup"), low=0, help="Untimed launches before them. Default: 1."),
    ] = 1
    is_checked: Annotated[
        bool,
        Option(
            flags=("-c", "--check"),
            low=0,
            help="0 compares no results (rows say unchecked). Default: 1.",
        ),
    ] = True
    aggregate: Annotated[
        int,
        Option(
            flags=("-m", "--agg-iters"),
            low=1,
            help="Launches that count as one iteration. Default: 1.",
        ),
    ] = 1
    blocking: Annotated[
        bool,
        Option(
            flags=("-z", "--blocking"),
            low=0,
            high=1,
            help="1: a barrier of all ranks after every iteration (GPUs: --isolate). Default: 0.",
        ),
    ] = False
    repeats: Annotated[
        int,
        Option(
            flags=("--repeats",),
            low=1,
            help="Repeats of every point, spread over the sweep. Default: 3.",
        ),
    ] = 3
    hot: Annotated[
        bool,
        Option(
            flags=("--hot",),
            help="Use the same buffers in every launch instead of rotating past the cache.",
        ),
    ] = False
    timeout_s: Annotated[
        float,
        Option(
            flags=("--timeout",),
            low=0.1,
            high=MAX_S,
            help="Seconds past the estimate after which a point is given up. Default: 10.",
        ),
    ] = 10.0
    launch: Annotated[
        LaunchMode,
        Option(
            flags=("--launch",),
            choices=get_args(LaunchMode),
            help="How GPU launches are queued. Default: graph.",
        ),
    ] = "graph"
    isolated: Annotated[
        bool,
        Option(
            flags=("--isolate",),
            help="Time each GPU launch alone, after a barrier of all ranks, not back to back.",
        ),
    ] = False
    net_memory: Annotated[
        NetMemory,
        Option(
            flags=("--net-memory",),
            choices=("host", "device"),
            help=(
                "Where GPUs have the slots of messages (--transport net). Default: device if MPI"
                " says that it takes GPU memory and proto is simple, else host."
            ),
        ),
    ] = "auto"
    net_threads: Annotated[
        int | None,
        Option(
            flags=("--net-threads",),
            low=0,
            high=64,
            help=(
                "Threads of a rank that receive large messages between GPUs. Default: 4 or 2, by"
                " the number of cores; 0: the proxy receives."
            ),
        ),
    ] = None
    max_memory: Annotated[
        int,
        Option(
            flags=("--max-memory",),
            unit="bytes",
            help="Most bytes of FIFOs, flags and scratch memory of a GPU. Default: 256M.",
        ),
    ] = DEFAULT_MEMORY
    machine: Annotated[
        str,
        Option(
            flags=("--machine",),
            help=(
                "The machine of the model backend, or the links that rows of GPUs are compared"
                " with: a profile or a file. Default: cpu-2; the GPUs found."
            ),
        ),
    ] = DEFAULT_MACHINE
    inject: Annotated[
        str,
        Option(
            flags=("--inject",),
            help="A fault, for tests: late:RANK, die:RANK or drop.",
            is_hidden=True,
        ),
    ] = ""


OPTIONS = {
    of.name: replace(hint.__metadata__[0], name=of.name, type=hint.__origin__)
    for of, hint in zip(
        fields(Settings), get_type_hints(Settings, include_extras=True).values(), strict=True
    )
}
