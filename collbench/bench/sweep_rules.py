"""What a sweep is asked for: which options have no effect, and from options to its cases."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collbench.backends import FAMILY as BACKENDS
from collbench.bench.ranks import MODEL, gpus_here, refuse_few_gpus
from collbench.bench.sweep import Sweep, sizes_between
from collbench.core import options as defaults
from collbench.core.collectives import UNEVEN_OPS, Collective, collective
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.host import has_nvidia_gpus, usable_cores
from collbench.core.knobs import AXES, KNOB, KNOBS
from collbench.core.launcher import find_mpirun
from collbench.core.options import Options, Rule
from collbench.core.peers import BESIDE_GPUS, library_of
from collbench.core.screen import say
from collbench.core.together import groups_text, mix_text, parse_groups, parse_mix
from collbench.core.uneven import CountsFile, read_counts
from collbench.core.units import parse_size
from collbench.machine.formats import described
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules import formats
from collbench.schedules.algorithms import FAMILY as ALGORITHMS

_TIMING = ("runs", "iters", "warmup", "check", "agg_iters", "blocking", "hot", "timeout")


def on_gpus(options: Options) -> bool:
    """Whether a backend of the sweep runs on GPUs."""
    return any(BACKENDS.load(name).is_gpu for name in options.get("backend", ()))


def only_on_gpus(options: Options) -> bool:
    """Whether all user buffers of the sweep are in GPU memory."""
    return on_gpus(options) and all(
        name in BESIDE_GPUS or BACKENDS.load(name).is_gpu for name in options["backend"]
    )


def _has_cuda(options: Options) -> bool:
    return "cuda" in options.get("backend", ())


def _has_messages(options: Options) -> bool:
    return _has_cuda(options) and bool({"auto", "net"} & set(options.get("transport", ("auto",))))


def _has_use_of_machine(options: Options) -> bool:
    """Whether the model runs on the machine, or rows of GPUs have their ceilings from its links."""
    has_model = MODEL in options.get("backend", ())
    return has_model or (on_gpus(options) and described(options["machine"]) is not None)


def _has_op(options: Options, is_meant: Callable[[Collective], bool]) -> bool:
    """Whether some collective of the sweep is meant; any that is mixed may be."""
    ops = map(collective, options.get("op", ("allreduce",)))
    return "mix" in options or any(map(is_meant, ops))


def is_together(options: Options) -> bool:
    """Whether several collectives of the sweep run at once."""
    return bool({"groups", "split", "mix"} & set(options))


def _is_uneven(op: str) -> bool:
    return collective(op).uneven_of is not None


def _has_unequal_blocks(options: Options) -> bool:
    mix = parse_mix(options["mix"]) if "mix" in options else ()
    return any(map(_is_uneven, (*options.get("op", ()), *(part.op for part in mix))))


SWEEP_RULES = (
    Rule(
        options=("resume",),
        when=lambda options: options.get("csv") in (None, "-"),
        message="there is no CSV file to read",
        hint="give it with --csv FILE",
    ),
    Rule(
        options=("seed",),
        when=lambda options: "soak" not in options,
        message="only a soak draws random numbers",
        hint="give --soak SECONDS too, or leave it out",
    ),
    Rule(
        options=(
            *("csv", "repeats", "runs", "iters", "warmup", "check", "agg_iters", "isolate"),
            *("distribution", "wire", "budget", "has_every_row", "json"),
        ),
        when=lambda options: "soak" in options,
        message="--soak measures no times and writes no rows",
    ),
    Rule(
        options=("json",),
        when=lambda options: "dry_run" in options,
        message="a dry run has no rows",
    ),
    Rule(
        options=("dry_run",),
        when=lambda options: "soak" in options,
        message="it shows the points of a sweep, not those of a soak",
    ),
    Rule(
        options=("minbytes", "maxbytes", "stepfactor", "stepbytes"),
        when=lambda options: "sizes" in options,
        message="--sizes gives the sizes as a list already",
        hint="use --sizes, or -b, -e and -f or -i",
    ),
    Rule(
        options=("stepfactor",),
        when=lambda options: "stepbytes" in options,
        message="-i gives the step between sizes in bytes already",
        hint="use -f or -i",
    ),
    Rule(
        options=("redop",),
        when=lambda options: not _has_op(options, lambda op: op.is_reduction),
        message="no collective of this sweep reduces",
        hint="give --op allreduce, reduce or reducescatter, or leave it out",
    ),
    Rule(
        options=("root",),
        when=lambda options: not _has_op(options, lambda op: op.is_rooted),
        message="no collective of this sweep has a root",
        hint="give --op broadcast, reduce, gather or scatter, or leave it out",
    ),
    Rule(
        options=("skew", "counts"),
        when=lambda options: not _has_unequal_blocks(options),
        message="no collective of this sweep has unequal blocks",
        hint=f"give --op {', '.join(UNEVEN_OPS)}, or leave it out",
    ),
    Rule(
        options=("counts",),
        when=lambda options: not all(map(_is_uneven, options.get("op", ()))),
        message="the sizes of the sweep follow from the file, which says nothing of equal blocks",
        hint=f"give only --op {', '.join(UNEVEN_OPS)}",
    ),
    Rule(
        options=("skew", "sizes", "minbytes", "maxbytes", "stepfactor", "stepbytes"),
        when=lambda options: "counts" in options,
        message="--counts {counts} gives all blocks and with them the size",
    ),
    Rule(
        options=("counts",),
        when=lambda options: "soak" in options,
        message="a soak draws random sizes",
    ),
    Rule(
        options=("split", "ranks"),
        when=lambda options: "groups" in options,
        message="--groups {groups} says which ranks there are and how they are split",
    ),
    Rule(
        options=("op", "sizes", "minbytes", "maxbytes", "stepfactor", "stepbytes", "counts"),
        when=lambda options: "mix" in options,
        message="--mix {mix} gives the operations and their sizes",
    ),
    Rule(
        options=("distribution", "soak", "wire"),
        when=is_together,
        message="launches together are not timed one by one, soaked, or held against counters",
        hint="leave it out, or --groups, --split and --mix",
    ),
    Rule(
        options=("launch_order",),
        when=lambda options: not is_together(options),
        message="no rank of this sweep has several launches at once",
        hint="give --groups, --split or --mix, or leave it out",
    ),
    Rule(
        options=("isolate",),
        when=lambda options: not on_gpus(options) and MODEL not in options.get("backend", ()),
        message="no backend of this sweep runs on GPUs",
        hint="give --backend cuda, nccl, torch or model, or leave it out",
    ),
    Rule(
        options=("gpus", "launch"),
        when=lambda options: not on_gpus(options),
        message="no backend of this sweep runs on GPUs",
        hint="give --backend cuda, nccl or torch, or leave it out",
    ),
    Rule(
        options=("buffers",),
        when=lambda options: "nccl" not in map(library_of, options.get("backend", ())),
        message="no point of this sweep is of NCCL",
        hint="give --backend nccl, or leave it out",
    ),
    Rule(
        options=("net_memory", "net_threads"),
        when=lambda options: not _has_messages(options),
        message="no point of this sweep has messages between GPUs",
        hint="give --backend cuda and --transport net, or leave it out",
    ),
    Rule(
        options=("max_memory",),
        when=lambda options: not _has_cuda(options),
        message="no backend of this sweep has FIFOs in GPU memory",
        hint="give --backend cuda, or leave it out",
    ),
    Rule(
        options=("machine",),
        when=lambda options: not _has_use_of_machine(options),
        message="no backend of this sweep models {machine} or takes ceilings from its links",
        hint="give --backend model to model it, or leave it out to measure this machine",
    ),
    Rule(
        options=_TIMING,
        when=lambda options: tuple(options.get("backend", ())) == (MODEL,),
        message="the model backend computes its times and measures nothing",
        hint="give a backend that measures, or leave it out",
    ),
    Rule(
        options=("distribution", "wire"),
        when=lambda options: (
            not any(BACKENDS.load(name).has_launch_times for name in options.get("backend", ()))
        ),
        message="the model and the reference have no ranks that run",
        hint="give --backend cpu, mpi, gloo, cuda, nccl or torch, or leave it out",
    ),
    Rule(
        options=("distribution",),
        when=lambda options: options.get("agg_iters", 1) > 1,
        message="it times each launch by itself, -m {agg_iters} several as one",
    ),
    Rule(
        options=("blocking",),
        when=lambda options: options["blocking"] and on_gpus(options),
        message="launches on GPUs wait for no barrier of CPUs",
        hint="--isolate times each GPU launch behind a barrier of its own",
    ),
    Rule(
        options=("isolate",),
        when=lambda options: options.get("agg_iters", 1) > 1,
        message="it times each launch alone, -m {agg_iters} several as one",
    ),
)


_MODELLED_RANKS = 16  # GPUs of a described machine, unless more are asked for
BY_DEFAULT_ON_GPUS = ("cuda", "nccl")  # the backends of a sweep where there are GPUs


def on_cpus(is_launched: bool) -> tuple[str, ...]:
    """What a sweep compares where there are no GPUs: MPI beside ours where it can run."""
    if find_spec("mpi4py") is None:
        return ("cpu",)
    try:
        return ("cpu", "mpi") if is_launched or find_mpirun() else ("cpu",)
    except UnavailableError:
        return ("cpu",)


def has_one_gpu(options: Options, *, is_asked: bool) -> bool:
    """Whether the sweep would run on a single GPU, where nothing travels between ranks; if so, says
    that.

    Raises UnavailableError instead if somebody asked for GPUs, also for numbered ones on a host
    that has none.
    """
    if "gpus" in options and not has_nvidia_gpus():
        raise UnavailableError(
            f"--gpus {','.join(map(str, options['gpus']))}: this host has no NVIDIA GPU",
            "leave it out, or give --backend cpu to measure the CPUs",
        )
    if _gpu_count(options) != 1:
        return False
    why, hint = "One GPU: nothing travels between ranks", "--backend cpu measures the CPUs"
    sharing = f"--gpus {','.join(map(str, options.get('gpus', (0,)) * 2))} runs two ranks on it"
    if is_asked:
        raise UnavailableError(why, f"{sharing}; {hint}")
    say(f"{why}. {hint}; {sharing}.")
    return True


def _gpu_count(options: Options) -> int:
    """GPUs that are asked for, else all of the host."""
    return len(options.get("gpus", ())) or gpus_here()


def sweep_of(options: Options, launched: int) -> Sweep:
    """The knobs of the sweep: what was asked for, and the defaults."""
    knobs = {one.name: options[one.name] for one in KNOBS if one.name in options}
    axes = {one.name: options[one.name] for one in AXES if one.name in options}
    is_grid = has_all_algorithms(options)
    if is_grid:
        knobs.pop("algo", None)  # those that serve the collective
    asked = frozenset(knobs)
    if not is_grid:
        knobs.setdefault("algo", ("auto",))
    backends = axes.get("backend", ())
    if "nccl" in map(library_of, backends):
        knobs.setdefault("buffers", KNOB["buffers"].choices)
    if "proto" not in knobs and "cuda" in backends and knobs.get("algo") != ("auto",):
        knobs["proto"] = PROTOCOLS.names()
    counts_file = read_counts(Path(options["counts"])) if "counts" in options else None
    if counts_file is not None:
        axes.setdefault("ranks", (launched or _ranks_of(counts_file),))
    axes |= _together(options)
    axes.setdefault("ranks", (launched or _default_ranks(options),))
    if MODEL in backends and "machine" in options:
        refuse_few_gpus(options["machine"], max(axes["ranks"]))
    is_sized = counts_file is not None or "mix" in options
    sizes = (1,) if is_sized else _sizes(options)
    return Sweep(sizes=sizes, knobs=knobs, asked=asked, counts_file=counts_file, **axes)


def has_all_algorithms(options: Options) -> bool:
    """Whether every algorithm that serves a collective is asked for; a soak has them anyway."""
    asked = options.get("algo", ALGORITHMS.names() if "soak" in options else ())
    return set(ALGORITHMS.names()) <= set(asked)


def is_by_size(options: Options) -> bool:
    """Whether a sweep is shown by its sizes: nobody named the configurations to be compared, or
    asked for every row.
    """
    is_named = "algo" in options and not has_all_algorithms(options)
    has_more = {"has_every_row", "distribution"} & set(options) or is_together(options)
    return not (is_named or has_more)


def _together(options: Options) -> dict[str, Any]:
    """Groups, split and mix as rows name them; groups say how many ranks there are."""
    axes: dict[str, Any] = {}
    if "groups" in options:
        groups = parse_groups(options["groups"])
        axes["ranks"] = (1 + max(rank for group in groups for rank in group),)
        axes["groups"] = groups_text(groups)
    if "split" in options:
        axes["split"] = options["split"]
    if "mix" in options:
        mix = parse_mix(options["mix"])
        axes |= {"op": (mix[0].op,), "mix": mix_text(mix)}
    return axes


def _ranks_of(counts_file: CountsFile) -> int:
    """The ranks that a file has counts of: a line each, or a number each in one line."""
    lines = counts_file.lines
    return len(lines) if len(lines) > 1 else len(lines[0])


def with_files(options: Options, *, is_launched: bool) -> Options:
    """The options with the names of the algorithms that files hold and, where nothing else is
    asked for, with the collectives and ranks of these. Raises UsageError for a file that holds
    none.
    """
    others = set(options.get("algo", ())) - {"auto", *ALGORITHMS}
    if not any(map(formats.is_file, others)):
        return options
    names: list[str] = []
    files: list[formats.AlgorithmFile] = []
    for algo in options["algo"]:
        if formats.is_file(algo):
            files.append(formats.load(algo))
        names.append(files[-1].name if formats.is_file(algo) else algo)
    own: dict[str, Any] = {"op": tuple(dict.fromkeys(file.op for file in files))}
    if not is_launched:
        own["ranks"] = tuple(dict.fromkeys(file.n for file in files))
    return {**own, **options, "algo": tuple(names)}


def with_releases(options: Options) -> Options:
    """The options with releases of NCCL in files as backends, in the place of the one that is
    found. Raises UsageError for a file that is none.
    """
    if "nccl_library" not in options:
        return options
    from collbench.backends.nccl.release import add

    others = [name for name in options["backend"] if name != "nccl"]
    releases = map(add, options["nccl_library"])
    return {**options, "backend": tuple(dict.fromkeys([*others, *releases]))}


def _sizes(options: Options) -> tuple[int, ...]:
    """The sizes of the list or of the range. Raises UsageError for a size of no bytes."""
    if "sizes" in options:
        sizes: tuple[int, ...] = options["sizes"]
    else:
        smallest, largest, factor = (
            (defaults.GPU_FIRST, defaults.GPU_LAST, defaults.GPU_FACTOR)
            if only_on_gpus(options)
            else (defaults.DEFAULT_FIRST, defaults.DEFAULT_LAST, defaults.DEFAULT_FACTOR)
        )
        first = options.get("minbytes", parse_size(smallest))
        last = options.get("maxbytes", max(first, parse_size(largest)))
        sizes = sizes_between(
            first, last, factor=options.get("stepfactor", factor), step=options.get("stepbytes", 0)
        )
    if min(sizes) <= 0:
        raise UsageError("a size of 0 bytes", "give at least one byte")
    return sizes


def _default_ranks(options: Options) -> int:
    """The GPUs of the machine, described or found; else the usable cores, from 2 to 8."""
    if "machine" in options and options.get("backend") == (MODEL,):
        links = described(options["machine"])
        if links is not None:
            return min(_MODELLED_RANKS, len(links.gpus))
    gpus = _gpu_count(options) if on_gpus(options) else 0
    return gpus or max(2, min(8, usable_cores()))
