"""The options of a measurement: one table, as knobs.py is of the knobs.

An option is a field of Settings and nothing else. The command line makes its options and its
Settings from OPTIONS, and backends take from Settings what they heed. What has no effect, or
contradicts something, is refused by tables of rules.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_type_hints

import click

from collbench.core.errors import UnavailableError, UsageError
from collbench.core.world import ranks_per_gpu

LaunchMode = Literal["graph", "stream"]
# Of the launches of a rank that has several: as one, one after the other, and that in the other
# direction on every second rank
LaunchOrder = Literal["grouped", "same", "crossed"]
NetMemory = Literal["auto", "host", "device"]
Priority = Literal["high", "normal"]
DEFAULT_MACHINE = "cpu-2"
# Sets of user buffers that launches on GPUs take in turn; small ones come back while they are still
# in the cache: rows say in-cache.
MAX_SETS = 32
DEFAULT_MEMORY = 256 << 20  # of FIFOs, flags and scratch memory, a GPU
MAX_S = 1_000_000  # of a timeout or a stress test, eleven days; and a factor between sizes
MAX_REPEATS = 10_000
MAX_RUNS = 100
MAX_COUNT = 1_000_000_000  # of iterations and launches; fits 32 bits
MAX_LAUNCH_TIMES = 1_000_000  # of a point; ranks keep all of a repeat's until it ends
DEFAULT_FIRST, DEFAULT_LAST, DEFAULT_FACTOR = "1K", "16M", 4.0  # sizes of a sweep: a screen's
GPU_FIRST, GPU_LAST, GPU_FACTOR = "8", "128M", 8.0
MIN_GEMM = 4096  # smaller ones end faster than one process can queue them for eight GPUs
# Any: click has read each value, which has the type of its option.
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How one field of Settings is asked for.

    type: of the field. flags: by its name, where there are none. low and high: the bounds of a
    number; a truth with bounds is given as 0 or 1. bare: the number that the option without one
    means, where it can be given so. choices: the names that can be given. unit: what a number
    counts. is_hidden: for tests only, left out of the help.
    """

    flags: tuple[str, ...] = ()
    help: str = ""
    low: float | None = None
    high: float | None = None
    bare: int | None = None
    choices: tuple[str, ...] = ()
    unit: Literal["", "bytes", "GPU", "machine"] = ""
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
            help=(
                "GPUs by their CUDA numbers, in ring order, for example 0,2,3. Ranks share a GPU"
                " that is given more than once. Default: all."
            ),
            unit="GPU",
        ),
    ] = ()
    iterations: Annotated[
        int,
        Option(
            flags=("-n", "--iters"),
            low=0,
            help=(
                "Timed iterations of a repeat, for example 20. Default: 0, as many as take 40"
                " ms (3 to 1000), on GPUs 4 ms (4 to 100)."
            ),
            high=MAX_COUNT,
        ),
    ] = 0
    warmup: Annotated[
        int,
        Option(
            flags=("-w", "--warmup"),
            low=0,
            help=("Untimed launches before the timed ones, for example 5. Default: 1."),
            high=MAX_COUNT,
        ),
    ] = 1
    is_checked: Annotated[
        bool,
        Option(
            flags=("-c", "--check"),
            low=0,
            help=(
                "Compare the results with what is expected; 0 does not, and rows say "
                "unchecked. Default: 1."
            ),
        ),
    ] = True
    aggregate: Annotated[
        int,
        Option(
            flags=("-m", "--agg-iters"),
            low=1,
            help=("Launches that count as one iteration, for example 10. Default: 1."),
            high=MAX_COUNT,
        ),
    ] = 1
    blocking: Annotated[
        bool,
        Option(
            flags=("-z", "--blocking"),
            low=0,
            high=1,
            help=("Let all ranks meet at a barrier after every iteration: 1, on CPUs. Default: 0."),
        ),
    ] = False
    repeats: Annotated[
        int,
        Option(
            low=1,
            help=("Repeats of every point, spread over the sweep, for example 5. Default: 3."),
            high=MAX_REPEATS,
        ),
    ] = 3
    runs: Annotated[
        int,
        Option(
            low=1,
            help=(
                "Runs of the whole sweep, each with new processes or buffers, for example 3: each"
                " has rows of its own, and they show how far runs differ. Default: 1."
            ),
            high=MAX_RUNS,
        ),
    ] = 1
    hot: Annotated[
        bool,
        Option(
            help=(
                "Use the same buffers in every launch, which leaves them in the cache. "
                "Default: rotate through buffers larger than the cache."
            )
        ),
    ] = False
    timeout_s: Annotated[
        float,
        Option(
            flags=("--timeout",),
            low=0.1,
            high=MAX_S,
            help=(
                "Seconds beyond its estimate after which a point is given up, for example 60."
                " Default: 10."
            ),
        ),
    ] = 10.0
    launch: Annotated[
        LaunchMode,
        Option(
            choices=get_args(LaunchMode),
            help=("How launches on GPUs are queued: graph, stream. Default: graph."),
        ),
    ] = "graph"
    launch_order: Annotated[
        LaunchOrder,
        Option(
            choices=get_args(LaunchOrder),
            help=(
                "How a rank launches what it has at once (--groups, --mix): grouped (as one), same"
                " (one after the other), crossed (odd ranks the other way round, which can"
                " deadlock). Default: grouped."
            ),
        ),
    ] = "grouped"
    isolated: Annotated[
        bool,
        Option(
            flags=("--isolate",),
            help=(
                "Time each launch on GPUs alone, after a barrier of all ranks. Default: "
                "launches back to back."
            ),
        ),
    ] = False
    distribution: Annotated[
        int | None,
        Option(
            low=0,
            high=MAX_LAUNCH_TIMES,
            bare=0,
            help=(
                "Time launches one by one too, for the percentiles p50, p99 and p99.9, the longest"
                " and a histogram: so many of each point, for example 10000; 0 or no number: 2000,"
                " fewer where they take more than 4 s. Default: none."
            ),
        ),
    ] = None
    wire: Annotated[
        bool,
        Option(
            help=(
                "Read the byte counters of NVLinks, PCIe links and network interfaces around the"
                " timed launches, and hold them against what the schedules must move. Default: no"
                " counters."
            )
        ),
    ] = False
    net_memory: Annotated[
        NetMemory,
        Option(
            choices=("host", "device"),
            help=(
                "Memory of the slots of messages between GPUs (--transport net): host, "
                "device. Default: device if MPI says that it takes GPU memory and proto is "
                "simple, else host."
            ),
        ),
    ] = "auto"
    net_threads: Annotated[
        int | None,
        Option(
            low=0,
            high=64,
            help=(
                "Threads of a rank that receive large messages between GPUs, for example 4; "
                "0: the proxy receives. Default: 4 or 2, by the number of cores."
            ),
        ),
    ] = None
    max_memory: Annotated[
        int,
        Option(
            unit="bytes",
            help=(
                "Upper limit of a GPU's FIFOs, flags and scratch memory in bytes, for example"
                " 1G. Default: 256M."
            ),
        ),
    ] = DEFAULT_MEMORY
    machine: Annotated[
        str,
        Option(
            help=(
                "Machine that the model backend models, or whose links give the ceilings of "
                "rows on GPUs: a profile, for example dgx-a100, or a file. Default: cpu-2; "
                "the GPUs found."
            ),
            unit="machine",
        ),
    ] = DEFAULT_MACHINE
    inject: Annotated[
        str, Option(help="A fault, for tests: late:RANK, die:RANK or drop.", is_hidden=True)
    ] = ""


OVERLAP_OF_GPUS, OVERLAP_OF_CPUS = ("cuda", "nccl", "copies"), ("cpu", "mpi")  # backends


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapSettings:
    """How to measure launches concurrent with matrix multiplications."""

    gemm: Annotated[
        int,
        Option(
            low=MIN_GEMM,
            high=65536,
            help="Rows and columns of the bfloat16 matrices, for example 16384. Default: 8192.",
        ),
    ] = 8192
    priority: Annotated[
        Priority,
        Option(
            choices=get_args(Priority),
            help=(
                "Priority of the stream that communicates: high (before the matrix"
                " multiplications), normal (the same as theirs). Default: high."
            ),
        ),
    ] = "high"
    gpus: Annotated[
        tuple[int, ...],
        Option(help="GPUs by their CUDA numbers, for example 0,2. Default: all.", unit="GPU"),
    ] = ()
    repeats: Annotated[
        int,
        Option(
            low=2,
            help=("Repeats of every row, which also show the noise, for example 9. Default: 5."),
            high=MAX_REPEATS,
        ),
    ] = 5
    timeout_s: Annotated[
        float,
        Option(
            flags=("--timeout",),
            low=0.1,
            high=MAX_S,
            help="Seconds after which a wait for a GPU is given up, for example 60. Default: 10.",
        ),
    ] = 10.0


def _options_of(settings: type[Settings] | type[OverlapSettings]) -> dict[str, Option]:
    """The options of the fields, by name."""
    hints = get_type_hints(settings, include_extras=True)
    return {
        name: replace(one, name=name, type=hint.__origin__, flags=one.flags or (_flag_of(name),))
        for name, hint in hints.items()
        for one in hint.__metadata__
    }


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


OPTIONS = _options_of(Settings)
OVERLAP_OPTIONS = _options_of(OverlapSettings)


def settings_of(options: Options) -> Settings:
    """The settings that were given, and the defaults of the others."""
    values = {
        name: bool(options[option.key]) if option.type is bool else options[option.key]
        for name, option in OPTIONS.items()
        if option.key in options
    }
    return Settings(**values)  # type: ignore[arg-type]  # each was read by its option's type


def refuse_sharing(options: Options) -> None:
    """Raise UsageError if ranks would share a GPU: what is learnt there holds for no machine."""
    if ranks_per_gpu(options.get("gpus") or ()) > 1:
        raise UsageError("--gpus: a GPU is given more than once", "give each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Options (parameter names) that are refused where `when` holds. The message may name values of
    other options in braces.
    """

    options: tuple[str, ...]
    when: Callable[[Options], object] = lambda options: True
    message: str
    hint: str = "leave out one or the other"


def refuse(rules: Iterable[Rule], explicit: Collection[str], options: Options) -> None:
    """Raise UsageError for the first rule that holds for one of the given options."""
    flags = {param.name: flag(param) for param in click.get_current_context().command.params}
    for rule in rules:
        named = [flags[name] for name in rule.options if name in explicit]
        if named and rule.when(options):
            raise UsageError(f"{', '.join(named)}: {rule.message.format_map(options)}", rule.hint)


def flag(param: click.Parameter) -> str:
    """The option as a user writes it, by its long name."""
    return max(param.opts, key=len)


def refusal(reason: str, hint: str) -> UnavailableError:
    """Why a point cannot run, from its reason: what that advises is the hint, in the place of the
    other one, unless it names an option that the command lacks.
    """
    context = click.get_current_context(silent=True)
    known = {name for one in context.command.params for name in one.opts} if context else set()
    why, _, advice = reason.rpartition("; ")
    named = re.findall(r"--[a-z][a-z0-9-]*", advice)
    if not why or not named:
        return UnavailableError(reason, hint)
    return UnavailableError(why, advice if known.issuperset(named) else hint)
