"""The planner: from a case with open knobs to a case with none, and its plan.

    resolve(case, limits) -> Choice

It chooses the transport, the algorithm and the protocol (selection.py), refuses what the backend
cannot do, chooses the other knobs, lays the schedule out in memory (layout.py) and fits it into the
memory that is allowed. CPU ranks, GPU kernels and copy engines each have a function below that does
this from top to bottom.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from collbench.core.case import Case
from collbench.core.errors import ScheduleError
from collbench.core.knobs import AUTO, KNOBS, LaunchMode, P2p, unheeded
from collbench.planning import selection
from collbench.planning.copies import plan_copies
from collbench.planning.gpu_knobs import LaunchKnobs, launch_knobs, shape_of
from collbench.planning.layout import lay_out, made_direct, schedule_of
from collbench.planning.limits import (
    Limits,
    gpu_domains,
    memory_bytes,
    over_budget,
    refuse_many_ends,
    refuse_too_large,
    refuse_transport,
    slot_wire_bytes,
)
from collbench.planning.plan import Domains, Kernel, Plan, domains_of, label
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import VECTOR_BYTES, Choice, choice_of, slot_bytes_of
from collbench.planning.transports import shm
from collbench.planning.tuning import Fact, Facts, Machine, Tuning, tuning_of
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import direct_count, widest_message

CPU_THREADS, CPU_PROTO = 1, "simple"
# Those that run on GPUs; those that run on CPUs and whose slots may be lines with flags.
GPU_BACKENDS, LINE_BACKENDS = ("cuda",), ("cpu",)
MAX_CPU_CHANNELS = 64
_CPU_TRANSPORTS = ("shm", "net")
MAX_PROGRAM_STEPS = 24  # of a track that is compiled in: more only make the kernel's code large
# Of one rank in a launch: an interpreter needs some kilobytes and some tens of microseconds to bind
# one, so that this many take some hundreds of megabytes and ten seconds.
MAX_ACTIONS = 200_000


def resolve(case: Case, limits: Limits | None = None, by: Tuning | None = None) -> Choice:
    """Decide what the case leaves open, by the tuning files or what else is given, and lay it out.
    Raises ScheduleError if it cannot be done.

    >>> resolve(Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20)).case.algo
    'twoshot'
    """
    has = limits or Limits()
    tuning = by or tuning_for(case, has)
    is_gpu = has.is_gpu or case.backend in GPU_BACKENDS
    facts = selection.facts_of(case, case.fitting(has.hosts), is_gpu=is_gpu)
    if not is_gpu:
        return _plan_cpu(case, facts, tuning, has)
    _refuse_unheeded(case, *GPU_BACKENDS)
    transport = case.transport
    if transport != "ce":
        refuse_transport(case, has)
        if transport == "auto":
            transport = selection.transport_of(case, has, facts, tuning)
    facts["transport"] = transport
    plan_on_gpus = plan_copies if transport == "ce" else _plan_kernels
    return plan_on_gpus(case, facts, tuning, has)


def _refuse_unheeded(case: Case, backend: str) -> None:
    """Raise ScheduleError for knobs that were set and that the backend does not heed."""
    if not (knobs := unheeded(case, backend=backend)):
        return
    flags = " and ".join(knob.flag for knob in knobs)
    heeding = " or ".join(dict.fromkeys(name for knob in knobs for name in knob.backends))
    raise ScheduleError(
        f"{flags} {'have' if knobs[1:] else 'has'} no effect with the {case.backend} backend",
        f"leave {flags} out, or use --backend {heeding}",
    )


def tuning_for(case: Case, limits: Limits) -> Tuning:
    """The tuning files that decide what a case leaves open. Raises UsageError for a wrong file."""
    return tuning_of(machine_of(case.backend, limits), case.ranks)


def machine_of(backend: str, limits: Limits) -> Machine:
    """The machine on which a backend runs, as tuning files describe one."""
    kind = "gpu" if limits.is_gpu or backend in GPU_BACKENDS else "cpu"
    return Machine(kind, limits.model, limits.joined)


def problem_of(case: Case) -> Case:
    """A case of the same problem that leaves every knob open."""
    opened: dict[str, Any] = {knob.name: knob.default for knob in KNOBS}  # of names and numbers
    return replace(case, groups="", mix="", **opened)


# ------------------------------------------------------------------------------------- CPU ranks


def _plan_cpu(case: Case, facts: dict[str, Fact], tuning: Tuning, limits: Limits) -> Choice:
    """The plan of ranks on CPU cores, or of the backends of one process."""
    domains = _refuse_cpu(case, limits)
    facts["transport"] = label(domains)
    algo, proto = selection.way_of(case, facts, tuning)
    schedule = schedule_of(case, algo, limits.orders, limits.hosts)
    if case.proto == "auto" and (domains or case.backend not in LINE_BACKENDS):
        proto = CPU_PROTO
    if proto != CPU_PROTO:
        _refuse_zero_copy(case, proto)
    if PROTOCOLS.load(proto).CLEARS:
        raise ScheduleError(f"{proto} is a protocol of GPU kernels", "use --proto simple")
    facts |= {"algo": algo, "proto": proto}
    first: ScheduleError | None = None
    for direct in _modes(case, facts, tuning):
        try:
            return _lay_out_cpu(case, schedule, facts, tuning, domains, direct=direct)
        except ScheduleError as error:
            first = first or error
            if case.direct == "on" and "deadlocks" in error.message:
                hint = _without_zero_copy(case, schedule, facts, tuning, domains)
                first = ScheduleError(f"pulled zero-copy, {error.message}", hint)
    assert first is not None
    raise first


def _refuse_cpu(case: Case, limits: Limits) -> Domains:
    """The ranks' shared-memory domains. Raises ScheduleError for what CPU ranks cannot do."""
    has_lines = case.backend in LINE_BACKENDS
    if case.proto not in ("auto", CPU_PROTO) and not has_lines:
        raise ScheduleError(
            f"the {case.backend} backend uses protocol {CPU_PROTO}, not {case.proto}",
            f"leave --proto out or use --proto {CPU_PROTO}",
        )
    if not has_lines and case.transport not in ("auto", "shm"):
        raise ScheduleError(
            f"the {case.backend} backend is one process: nothing travels by {case.transport}",
            "leave --transport out",
        )
    domains = _cpu_domains(case, case.fitting(limits.hosts)) if has_lines else ()
    if domains and case.proto not in ("auto", CPU_PROTO):
        raise ScheduleError(
            f"{case.proto} carries flags for a reader that sees memory change; a message of MPI"
            " comes whole",
            "use --proto simple",
        )
    if case.threads not in (AUTO, CPU_THREADS):
        raise ScheduleError(
            f"{case.threads} threads: a rank of the {case.backend} backend is one thread",
            "leave --threads out",
        )
    _refuse_unheeded(case, case.backend)
    if case.p2p == "push":
        raise ScheduleError(
            f"the {case.backend} backend has no GPU kernels, which --p2p push is for",
            "leave --p2p push out",
        )
    if case.channels > MAX_CPU_CHANNELS:
        raise ScheduleError(
            f"{case.channels} channels: at most {MAX_CPU_CHANNELS} on CPUs", "use fewer --channels"
        )
    return domains


def _cpu_domains(case: Case, hosts: tuple[int, ...]) -> Domains:
    """The shared-memory domain of every rank on CPU cores, () for one. Raises ScheduleError for a
    transport that the ranks do not have.
    """
    if case.transport not in ("auto", *_CPU_TRANSPORTS):
        raise ScheduleError(
            f"ranks on CPUs pass data by {' or '.join(_CPU_TRANSPORTS)}, not by {case.transport}",
            "leave --transport out",
        )
    host_of = hosts or (0,) * case.ranks
    if case.transport == "shm" and (why := shm.why_not(host_of)):
        raise ScheduleError(why, "use --transport net, or auto for both")
    return domains_of(case.transport, host_of)


def _modes(case: Case, facts: Facts, tuning: Tuning) -> tuple[bool, ...]:
    """Whether to pull zero-copy, in the order to try."""
    if facts["proto"] != CPU_PROTO:
        return (False,)
    # a case that gives the size of a buffer wants a buffer
    is_wanted = not case.buffsize and tuning.text("direct", facts) == "on"
    open_modes = (True, False) if is_wanted else (False,)
    return {"on": (True,), "off": (False,), "auto": open_modes}[case.direct]


def _lay_out_cpu(
    case: Case, schedule: Schedule, facts: Facts, tuning: Tuning, domains: Domains, *, direct: bool
) -> Choice:
    """The plan, zero-copy or through FIFOs."""
    proto, facts = str(facts["proto"]), {**facts, "direct": "on" if direct else "off"}
    has_lines, slots = proto != CPU_PROTO, case.slots or tuning.number("slots", facts)
    widest = widest_message(schedule)
    parts, grain = (widest, VECTOR_BYTES) if has_lines else (1, 1)
    slot_bytes = slot_bytes_of(case, slots, parts, proto, grain)
    chunk = case.chunk
    if not chunk and slot_bytes and not direct:
        chunk = max(VECTOR_BYTES, slot_bytes // widest)  # what a slot carries whole
    plan = lay_out(
        case.problem(),
        schedule,
        direct=direct,
        channels=case.channels or min(MAX_CPU_CHANNELS, tuning.number("channels", facts)),
        slots=slots,
        slot_bytes=slot_bytes,
        slices=case.slices or tuning.number("slices", facts),
        chunk_bytes=chunk or tuning.number("chunk", facts),
        proto=proto,
        domains=domains,
    )
    refuse_too_many(plan)
    if case.buffsize and not plan.slot_bytes:
        raise ScheduleError(
            "every message is pulled zero-copy: there is no buffer to size", "use --direct off"
        )
    done = replace(
        case,
        direct="on" if direct else "off",
        threads=CPU_THREADS,
        buffsize=plan.slots * (slot_wire_bytes(plan) if has_lines else plan.slot_bytes),
        p2p="pull" if direct else "push",
    )
    return choice_of(done, schedule, plan)


def _without_zero_copy(
    case: Case, schedule: Schedule, facts: Facts, tuning: Tuning, domains: Domains
) -> str:
    """What to do where messages that are pulled zero-copy deadlock."""
    try:
        fifo = replace(case, direct="off")
        _lay_out_cpu(fifo, schedule, facts, tuning, domains, direct=False)
    except ScheduleError as error:
        return error.hint
    return "use --direct off"


# ----------------------------------------------------------------------------------- GPU kernels


def _plan_kernels(case: Case, facts: dict[str, Fact], tuning: Tuning, limits: Limits) -> Choice:
    """The plan of kernels that store over the link, into host memory or for proxies to send. Where
    a protocol does not fit that clears slots, which nobody asked for, one that does not.
    """
    way = selection.way_of(case, facts, tuning, limits)
    if case.proto == "auto" and PROTOCOLS.load(way[1]).CLEARS:
        with suppress(ScheduleError):
            return _plan_way(case, dict(facts), tuning, limits, way)
        facts["has_marker"] = False
        way = selection.way_of(case, facts, tuning, limits)
    return _plan_way(case, facts, tuning, limits, way)


def _plan_way(
    case: Case, facts: dict[str, Fact], tuning: Tuning, limits: Limits, way: tuple[str, str]
) -> Choice:
    """The plan of kernels by an algorithm and a protocol."""
    transport, (algo, proto) = str(facts["transport"]), way
    schedule = schedule_of(case, algo, limits.orders, limits.hosts)
    domains = gpu_domains(case, limits)
    _refuse_kernels(case, proto, transport, domains)
    refuse_many_ends(schedule)
    facts |= {"algo": algo, "proto": proto}

    facts |= shape_of(schedule, case.in_place).facts()
    direct = _is_zero_copy(case, facts, tuning)
    wanted = tuning.text("p2p", facts) if case.p2p == "auto" and direct else case.p2p
    p2p: P2p = "pull" if wanted == "pull" else "push"
    facts["direct"] = "on" if direct else "off"
    ready = made_direct(schedule, p2p, case.in_place) if direct else schedule
    knobs = launch_knobs(case, ready, facts, tuning, limits)
    knobs, slot_bytes = _fit_buffer(case, ready, proto, knobs)
    _refuse_many_ctas(schedule, knobs, limits)
    kernel = Kernel(
        proto=proto,
        threads=knobs.threads,
        unroll=knobs.unroll,
        cluster=knobs.cluster,
        reload=(tuning.text("reload", facts) if case.reload == "auto" else case.reload) != "off",
        specialized=_is_specialized(case, schedule, facts, tuning),
        pdl=_launch_mode(case, facts, tuning, limits),
    )

    plan = lay_out(
        case.problem(),
        schedule,
        direct=direct,
        p2p=p2p,
        channels=knobs.channels,
        slots=knobs.slots,
        chunk_bytes=knobs.chunk,
        slot_bytes=slot_bytes,
        slices=knobs.slices,
        kernel=kernel,
        transport=transport,
        domains=domains,
    )

    needed = memory_bytes(plan)
    if needed > limits.memory_bytes:
        raise over_budget(needed, limits.memory_bytes)
    refuse_too_large(plan, schedule)
    done = replace(
        case,
        direct="on" if direct and direct_count(plan.schedule) else "off",
        p2p=p2p,
        threads=knobs.threads,
        unroll=knobs.unroll,
        cluster=knobs.cluster,
        buffsize=plan.slots * slot_wire_bytes(plan),
        reload="auto" if proto != "ll128" else "on" if kernel.reload else "off",
        specialize="on" if kernel.specialized else "off",
        pdl=kernel.pdl,
    )
    return choice_of(done, schedule, plan)


def _refuse_kernels(case: Case, proto: str, transport: str, domains: Domains) -> None:
    """Raise ScheduleError for what kernels cannot do."""
    if proto != "simple":
        _refuse_zero_copy(case, proto)
    if transport != "p2p" and PROTOCOLS.load(proto).NEEDS_NVLINK:
        raise ScheduleError(
            f"{proto} needs lines of 128 bytes that arrive whole, which PCIe does not promise",
            "use --proto simple or ll" if domains else "use --transport p2p",
        )
    if transport != "p2p" and PROTOCOLS.load(proto).CLEARS:
        raise ScheduleError(
            f"{proto} has its slots in the memory of the GPU that clears them",
            "use --transport p2p, or --proto simple or ll",
        )
    if transport != "p2p" and case.direct == "on":
        raise ScheduleError(
            f"{'by messages' if domains else 'through host memory'} nothing reaches a peer's"
            " buffers in place",
            "leave --direct out" if domains else "use --transport p2p",
        )
    if domains and case.p2p == "pull":
        raise ScheduleError(
            "a message of MPI is pushed by its sender: nothing is pulled", "use --p2p push"
        )
    for knob in unheeded(case, proto=proto):
        raise ScheduleError(
            f"{knob.flag} has no effect with {proto}",
            f"use --proto {' or '.join(knob.protocols)}, or leave {knob.flag} out",
        )


def _refuse_zero_copy(case: Case, proto: str) -> None:
    """Raise ScheduleError if a case wants messages of a protocol with flags to skip the FIFO."""
    if case.p2p == "pull" or case.direct == "on":
        raise ScheduleError(
            f"{proto} carries flags in its FIFO, in the receiver's memory: it is neither direct nor"
            " pulled",
            "use --proto simple",
        )


def _refuse_many_ctas(schedule: Schedule, knobs: LaunchKnobs, limits: Limits) -> None:
    """Raise ScheduleError for more CTAs than can be resident."""
    tracks = max(len(program) for program in schedule.programs)
    if knobs.channels * tracks > limits.ctas:
        raise ScheduleError(
            f"{knobs.channels} channels of {tracks} tracks are {knobs.channels * tracks} CTAs;"
            f" {limits.ctas} can be resident",
            f"use at most {limits.ctas // tracks} channels",
        )


def _is_zero_copy(case: Case, facts: Facts, tuning: Tuning) -> bool:
    """Whether messages skip the FIFO where they can. A case that gives the size of a buffer wants
    one.
    """
    if facts["proto"] != "simple" or facts["transport"] != "p2p" or case.direct == "off":
        return False
    return case.direct == "on" or (not case.buffsize and tuning.text("direct", facts) == "on")


def _is_specialized(case: Case, schedule: Schedule, facts: Facts, tuning: Tuning) -> bool:
    """Whether the program is compiled into the kernel."""
    if facts["proto"] == "simple" or case.specialize == "off":
        return False
    longest = max(
        sum(len(steps) for steps in track.rounds)
        for program in schedule.programs
        for track in program
    )
    is_wanted = longest <= MAX_PROGRAM_STEPS and tuning.text("specialize", facts) == "on"
    return case.specialize == "on" or is_wanted


def _launch_mode(case: Case, facts: Facts, tuning: Tuning, limits: Limits) -> LaunchMode:
    """When a launch allows the one behind it to take its place. Raises ScheduleError."""
    if case.pdl == "auto":
        wanted = tuning.text("pdl", {**facts, "has_clusters": limits.has_clusters}, "off")
        return wanted if limits.has_clusters else "off"  # type: ignore[return-value]
    if case.pdl != "off" and not limits.has_clusters:
        raise ScheduleError("GPUs before sm_90 have no dependent launches", "use --pdl off")
    return case.pdl


def _fit_buffer(
    case: Case, schedule: Schedule, proto: str, knobs: LaunchKnobs
) -> tuple[LaunchKnobs, int]:
    """The knobs with a chunk that fits the buffer that the case asks for, and the bytes of a slot;
    0 where it asks for none. Raises ScheduleError.
    """
    if not case.buffsize:
        return knobs, 0
    widest = widest_message(schedule)
    if not widest:
        raise ScheduleError(
            "every message is pushed zero-copy: there is no buffer to size", "use --direct off"
        )
    slot_bytes = slot_bytes_of(case, knobs.slots, widest, proto, VECTOR_BYTES)
    chunk = case.chunk or slot_bytes // widest * knobs.slices
    if proto != "simple":
        chunk = min(chunk, slot_bytes // widest)
    return replace(knobs, chunk=chunk), slot_bytes


# ---------------------------------------------------------------------------------- copy engines


def refuse_too_many(plan: Plan) -> None:
    """Raise ScheduleError if a launch has more actions than an interpreter can bind."""
    if plan.action_count() > MAX_ACTIONS:
        raise ScheduleError(
            f"{plan.action_count()} actions of a rank in one launch, at most {MAX_ACTIONS}",
            "use a larger --chunk",
        )
