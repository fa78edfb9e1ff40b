"""What a sweep is asked for: from options to its backends, ranks, sizes and knobs."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collbench.bench.ranks import MODEL
from collbench.bench.recordings import refuse_few_gpus
from collbench.bench.sweep import Sweep, sizes_between
from collbench.bench.sweep_rules import on_gpus, only_on_gpus
from collbench.core import options as defaults
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.knobs import AXES, KNOB, KNOBS
from collbench.core.launcher import find_mpirun
from collbench.core.rules import Options
from collbench.core.screen import say
from collbench.core.together import groups_text, mix_text, parse_groups, parse_mix
from collbench.core.uneven import CountsFile, read_counts
from collbench.core.units import parse_size
from collbench.device.card import device_count
from collbench.machine.formats import described
from collbench.machine.host import has_nvidia_gpus, usable_cores
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules import formats
from collbench.schedules.algorithms import FAMILY as ALGORITHMS

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
    return len(options.get("gpus", ())) or (device_count() if has_nvidia_gpus() else 0)


def sweep_of(options: Options, launched: int) -> Sweep:
    """The knobs of the sweep: what was asked for, and the defaults."""
    knobs = {one.name: options[one.name] for one in KNOBS if one.name in options}
    axes = {one.name: options[one.name] for one in AXES if one.name in options}
    algos = knobs.get("algo")
    if algos is not None and set(ALGORITHMS.names()) <= set(algos):
        del knobs["algo"]  # "all": those that serve the collective
    asked = frozenset(knobs)
    backends = axes.get("backend", ())
    if "nccl" in backends:
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
    if not any(map(formats.is_file, options.get("algo", ()))):
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
