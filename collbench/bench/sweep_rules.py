"""Which options of `sweep` have no effect, and beside which others."""

from collbench.backends import FAMILY as BACKENDS
from collbench.bench.ranks import MODEL
from collbench.core.collectives import UNEVEN_OPS, collective
from collbench.core.peers import BESIDE_GPUS
from collbench.core.rules import Options, Rule
from collbench.core.together import parse_mix
from collbench.machine.formats import described

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


def _has_model(options: Options) -> bool:
    return MODEL in options.get("backend", ())


def _has_launch_times(options: Options) -> bool:
    return any(BACKENDS.load(name).has_launch_times for name in options.get("backend", ()))


def _has_messages(options: Options) -> bool:
    return _has_cuda(options) and bool({"auto", "net"} & set(options.get("transport", ("auto",))))


def _has_use_of_machine(options: Options) -> bool:
    """Whether the model runs on the machine, or rows of GPUs have their ceilings from its links."""
    return _has_model(options) or (on_gpus(options) and described(options["machine"]) is not None)


def _reduces(options: Options) -> bool:
    return "mix" in options or any(
        collective(op).is_reduction for op in options.get("op", ("allreduce",))
    )


def is_together(options: Options) -> bool:
    """Whether several collectives of the sweep run at once."""
    return bool({"groups", "split", "mix"} & set(options))


def _is_uneven(op: str) -> bool:
    return collective(op).uneven_of is not None


def _has_unequal_blocks(options: Options) -> bool:
    mix = parse_mix(options["mix"]) if "mix" in options else ()
    return any(map(_is_uneven, (*options.get("op", ()), *(part.op for part in mix))))


def _has_root(options: Options) -> bool:
    return "mix" in options or any(
        collective(op).is_rooted for op in options.get("op", ("allreduce",))
    )


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
            *("distribution", "trace", "wire"),
        ),
        when=lambda options: "soak" in options,
        message="--soak measures no times and writes no rows",
        hint="leave out one or the other",
    ),
    Rule(
        options=("trace",),
        when=lambda options: options.get("trace") == "-" or options["trace"] == options.get("csv"),
        message="rows go there",
        hint="give --trace another file",
    ),
    Rule(
        options=("trace",),
        when=lambda options: "dry_run" in options,
        message="a dry run launches nothing",
        hint="leave out one or the other",
    ),
    Rule(
        options=("dry_run",),
        when=lambda options: "soak" in options,
        message="it shows the points of a sweep, not those of a soak",
        hint="leave out one or the other",
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
        when=lambda options: not _reduces(options),
        message="no collective of this sweep reduces",
        hint="give --op allreduce, reduce or reducescatter, or leave it out",
    ),
    Rule(
        options=("root",),
        when=lambda options: not _has_root(options),
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
        hint="leave out one or the other",
    ),
    Rule(
        options=("counts",),
        when=lambda options: "soak" in options,
        message="a soak draws random sizes",
        hint="leave out one or the other",
    ),
    Rule(
        options=("split", "ranks"),
        when=lambda options: "groups" in options,
        message="--groups {groups} says which ranks there are and how they are split",
        hint="leave out one or the other",
    ),
    Rule(
        options=("op", "sizes", "minbytes", "maxbytes", "stepfactor", "stepbytes", "counts"),
        when=lambda options: "mix" in options,
        message="--mix {mix} gives the operations and their sizes",
        hint="leave out one or the other",
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
        when=lambda options: "nccl" not in options.get("backend", ()),
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
        when=lambda options: not _has_launch_times(options),
        message="the model and the reference have no ranks that run",
        hint="give --backend cpu, mpi, gloo, cuda, nccl or torch, or leave it out",
    ),
    Rule(
        options=("distribution",),
        when=lambda options: options.get("agg_iters", 1) > 1,
        message="it times each launch by itself, -m {agg_iters} several as one",
        hint="give one of them",
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
        hint="give one of them",
    ),
)
