"""The knobs: one table of everything that can be chosen about how a collective is done.

A knob is declared here and nowhere else. Case and Record inherit its field, and the product of a
sweep, the command-line options, the columns of the CSV file, the frames of the analysis and the
columns of the tables are made from KNOBS. What a knob does is for the place that heeds it:
collbench.planning and, for what is heeded while a plan runs, a field of the plan and its backend.

AXES declares in the same way what a case computes. A new knob is added at the end of Knobs, with
`since` one above core.record.SCHEMA, so that older files are still read.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal, get_args, get_type_hints

from collbench.core.collectives import ALL_OPS, OPS, collective
from collbench.core.dtypes import ALIASES, DTYPES, REDOPS
from collbench.core.uneven import FORMULAS, skew
from collbench.core.units import exact_size

DirectMode = Literal["auto", "on", "off"]
P2p = Literal["push", "pull"]
Switch = Literal["auto", "on", "off"]
# NCCL's three ways with user buffers: of cudaMalloc; of ncclMemAlloc and registered by
# ncclCommRegister; of ncclMemAlloc and in a symmetric window
NcclBuffers = Literal["plain", "registered", "window"]
# and those of MPI beside backends of GPUs, in GPU memory: its plain ones are in host memory
UserBuffers = Literal[NcclBuffers, "gpu"]
# When a launch allows the one behind it to take its place on the GPU
LaunchMode = Literal["off", "early", "late"]
Pdl = Literal["auto", "off", "early", "late"]
Placement = Literal["out", "in"]
SWITCHES: tuple[Switch, ...] = get_args(Switch)
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
AUTO = 0  # of a whole-number knob: the default table decides
FIRST_SCHEMA = 4  # the oldest schema of the CSV file that is read
_PLACEMENTS = {"out-of-place": "out", "out_of_place": "out", "in-place": "in", "in_place": "in"}

Value = str | int
Unit = Literal["name", "count", "bytes", "rank", "ranks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob or one axis: how it is asked for, who heeds it and how it is shown.

    flags: -- and its name, where there are none. choices: the values of a name; none where a
    registry has them. In help, {choices} stands for them. all_choices: what `all` means, if not
    every one of them. spelled: the name that a text means. library: what stands in the row of a
    library that was not asked for anything, where that is not the default. label and short: its
    name in a sentence and above a column (none: its own). width: of that column. stage: 0 where the
    knob says by itself what was done; else the tool chooses it by knobs of lower stages. protocols
    and backends: those that heed it (none: all). since: the first schema that has its column.
    """

    flags: tuple[str, ...] = ()
    help: str
    unit: Unit = "name"
    choices: tuple[str, ...] = ()
    all_choices: tuple[str, ...] = ()
    spelled: Callable[[str], str] = str
    library: Value | None = None
    label: str = ""
    short: str = ""
    width: int
    stage: int = 0
    protocols: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    since: int = FIRST_SCHEMA
    name: str = ""
    default: Value = ""

    def __post_init__(self) -> None:
        for what in ("label", "short"):
            if not getattr(self, what):
                object.__setattr__(self, what, self.name)
        if self.name and not self.flags:
            object.__setattr__(self, "flags", (f"--{self.name}",))

    @property
    def flag(self) -> str:
        """The option in full."""
        return self.flags[-1]

    @property
    def unasked(self) -> Value:
        """What stands in the row of a library that was not asked for anything."""
        return self.default if self.library is None else self.library

    def text(self, value: Value) -> str:
        """A value as people read it.

        >>> KNOB["chunk"].text(131072), KNOB["slots"].text(8)
        ('128K', '8')
        """
        return exact_size(int(value)) if self.unit == "bytes" else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """The knobs of a case; in the order of the file's columns.

    What is AUTO or "auto" is decided by collbench.planning.planner.
    """

    algo: Annotated[
        str,
        Knob(
            help=(
                "Algorithms: {choices}, or a file of MSCCL (XML) or MSCCL++ (JSON); for example"
                " ring,tree or mine.xml; all: the grid of those that serve the collective. Default:"
                " auto, what the tool takes by itself."
            ),
            library="library",
            label="algorithm",
            width=9,
        ),
    ] = "auto"
    proto: Annotated[
        str,
        Knob(
            help=(
                "Protocols: {choices}; for example ll,simple. Default: auto, with the algorithm; of"
                " a grid all on GPUs, simple on CPUs."
            ),
            library="",
            label="protocol",
            width=8,
        ),
    ] = "auto"
    transport: Annotated[
        str,
        Knob(
            help=(
                "Transports: {choices} (ce: the copy engines of GPUs, net: MPI messages, p2p: the"
                " memory of peer GPUs, shm: host memory). Default: auto."
            ),
            width=9,
        ),
    ] = "auto"
    direct: Annotated[
        DirectMode,
        Knob(
            help=(
                "Access the buffers of peers in place instead of through FIFOs: {choices}."
                " Default: auto."
            ),
            choices=get_args(DirectMode),
            width=6,
            stage=4,
        ),
    ] = "auto"
    p2p: Annotated[
        str,
        Knob(
            help=(
                "Who moves data over the link: push (the sender stores), pull (the receiver"
                " loads). Default: push on GPUs, pull on CPUs."
            ),
            choices=("auto", *get_args(P2p)),
            width=4,
            stage=4,
        ),
    ] = "auto"
    channels: Annotated[
        int,
        Knob(
            help="Channels, for example 1,2,4. Default: by size and protocol; 1 on CPUs.",
            unit="count",
            short="ch",
            width=3,
        ),
    ] = AUTO
    threads: Annotated[
        int,
        Knob(
            help=(
                "Threads of a CTA, a multiple of 32. Default: by protocol. A rank on CPUs has 1."
            ),
            unit="count",
            short="thr",
            width=4,
            stage=1,
        ),
    ] = AUTO
    buffsize: Annotated[
        int,
        Knob(
            help=(
                "Bytes of the FIFO of one connection, for example 512K. Default: what the chunk"
                " needs."
            ),
            unit="bytes",
            label="buffer",
            short="buffer",
            width=7,
            stage=3,
        ),
    ] = AUTO
    slots: Annotated[
        int,
        Knob(
            help=(
                "Slots of a FIFO, for example 2,4,8. Default: 4; on GPUs 8 for ll, ll128, chains"
                " and trees."
            ),
            unit="count",
            width=5,
            stage=3,
        ),
    ] = AUTO
    chunk: Annotated[
        int,
        Knob(
            help="Bytes of a chunk, for example 128K,1M. Default: by size and protocol.",
            unit="bytes",
            width=7,
            stage=2,
        ),
    ] = AUTO
    slices: Annotated[
        int,
        Knob(
            help=(
                "Slices of a message, for example 1,2. Default: 2 for large messages of simple that"
                " GPUs pass on, else 1."
            ),
            unit="count",
            width=6,
            stage=3,
        ),
    ] = AUTO
    unroll: Annotated[
        int,
        Knob(
            help=(
                "Memory accesses that a GPU thread has in flight, for example 4,8. Default: by"
                " protocol."
            ),
            unit="count",
            width=6,
            stage=3,
            protocols=("simple", "ll", "sentinel"),
            backends=("cuda",),
        ),
    ] = AUTO
    cluster: Annotated[
        int,
        Knob(
            help=(
                "CTAs of a thread block cluster, for example 1,4. Default: by the number of CTAs"
                " for large sizes, else 1; 1 before sm_90."
            ),
            unit="count",
            width=7,
            stage=3,
            backends=("cuda",),
        ),
    ] = AUTO
    reload: Annotated[
        Switch,
        Knob(
            flags=("--ll128-reload",),
            help="Read an ll128 line again after its flag was seen: {choices}. Default: on.",
            choices=SWITCHES,
            width=6,
            stage=4,
            protocols=("ll128",),
            backends=("cuda",),
        ),
    ] = "auto"
    specialize: Annotated[
        Switch,
        Knob(
            help="Compile the schedule into kernels other than simple: {choices}. Default: auto.",
            choices=SWITCHES,
            width=10,
            stage=4,
            protocols=("ll", "ll128", "sentinel"),
            backends=("cuda",),
        ),
    ] = "auto"
    buffers: Annotated[
        UserBuffers,
        Knob(
            flags=("--nccl",),
            help=(
                "User buffers that NCCL works on: {choices} (plain: of cudaMalloc; registered: of"
                " ncclMemAlloc, with ncclCommRegister; window: of ncclMemAlloc, in a symmetric"
                " window). Default: all."
            ),
            choices=get_args(NcclBuffers),
            label="buffers",
            width=10,
            backends=("nccl", "mpi"),
            since=5,
        ),
    ] = "plain"
    pdl: Annotated[
        Pdl,
        Knob(
            help=(
                "Programmatic dependent launch: when the next launch may take its place on the GPU:"
                " {choices} (off: when this one has ended; early: when it begins; late: when its"
                " work is nearly done). Default: by size; off before sm_90."
            ),
            choices=get_args(Pdl),
            width=5,
            stage=4,
            backends=("cuda",),
            since=7,
        ),
    ] = "auto"


KNOBS = tuple(
    replace(hint.__metadata__[0], name=of.name, default=of.default)
    for of, hint in zip(
        fields(Knobs), get_type_hints(Knobs, include_extras=True).values(), strict=True
    )
)
AXES = (
    Knob(
        name="op",
        default="allreduce",
        help=(
            "Collectives: {choices}; for example allreduce,allgather. Those with v have unequal"
            " blocks (--skew, --counts); all: those without. Default: allreduce."
        ),
        choices=ALL_OPS,
        all_choices=OPS,
        spelled=lambda text: collective(text).name,
        width=13,
    ),
    Knob(
        name="backend",
        default="cpu",
        help=(
            "What runs the collective: {choices}, or a file with a kernel of yours; for example"
            " cpu,mine.py. Beside those of GPUs mpi works on GPU memory. Default: cuda,nccl where"
            " there are GPUs, else cpu and, where it is installed, mpi."
        ),
        width=9,
    ),
    Knob(
        name="ranks",
        default=2,
        flags=("-g", "--ranks"),
        help=(
            "Numbers of ranks, for example 2,4. Default: the GPUs, or the usable cores (2 to"
            " 8); under a launcher, its ranks if they are several."
        ),
        unit="ranks",
        width=5,
    ),
    Knob(
        name="dtype",
        default="float32",
        flags=("-d", "--dtype"),
        help="Element types: {choices}; for example half,float32. Default: float32.",
        choices=DTYPES,
        spelled=lambda text: ALIASES.get(text, text),
        width=8,
    ),
    Knob(
        name="redop",
        default="sum",
        flags=("-o", "--redop"),
        help="Reductions: {choices}; for example sum,max. Default: sum.",
        choices=REDOPS,
        width=5,
    ),
    Knob(
        name="root",
        default=0,
        flags=("-r", "--root"),
        help="Ranks that are the root of rooted collectives, for example 0,3. Default: 0.",
        unit="rank",
        width=4,
    ),
    Knob(
        name="placement",
        default="out",
        help=(
            "Where the output is: out (beside the input), in (in place, over it); for example"
            " out,in. Default: out."
        ),
        choices=PLACEMENTS,
        spelled=lambda text: _PLACEMENTS.get(text, text),
        short="place",
        width=5,
    ),
    Knob(
        name="skew",
        default="",
        help=(
            "Blocks of allgatherv, reducescatterv and alltoallv, as parts of S by rank:"
            f" {', '.join(FORMULAS)}; for example zipf:1.1,hot:1 (hot: so many ranks have all, the"
            " others nothing). Default: even."
        ),
        all_choices=("even", "lognormal:1.2", "zipf:1.1", "hot:1"),
        spelled=skew,
        width=13,
    ),
)
KNOB = {knob.name: knob for knob in (*KNOBS, *AXES)}
# Each knob after those by which the tool chooses it, as a buffer after its chunk.
BY_STAGE = tuple(sorted(KNOBS, key=lambda knob: knob.stage))
UNASKED = {knob.name: knob.unasked for knob in KNOBS}


def unheeded(case: Knobs, *, backend: str = "", proto: str = "") -> tuple[Knob, ...]:
    """The knobs that a case asks for and that the given backend or protocol does not heed.

    >>> [knob.flag for knob in unheeded(Knobs(unroll=4, slots=2), backend="cpu")]
    ['--unroll']
    """
    heeders = ((backend, "backends"), (proto, "protocols"))
    return tuple(
        knob
        for knob in KNOBS
        if getattr(case, knob.name) != knob.default
        and any(
            name and heeding and name not in heeding
            for name, heeding in ((name, getattr(knob, kind)) for name, kind in heeders)
        )
    )
