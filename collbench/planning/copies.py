"""The plan of copy engines: few large pieces, as each is a wait, copies and a signal."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.planning import selection
from collbench.planning.gpu_knobs import (
    CHUNK_GRAIN_BYTES,
    MAX_GPU_CHANNELS,
    MAX_THREADS,
    MAX_UNROLL,
    MIN_THREADS,
    WARP,
    LaunchKnobs,
    shape_of,
)
from collbench.planning.layout import MAX_SLICES, lay_out, made_direct, proved, schedule_of
from collbench.planning.limits import (
    MAX_CHUNK_BYTES,
    Limits,
    memory_bytes,
    over_budget,
    slot_wire_bytes,
)
from collbench.planning.plan import Kernel
from collbench.planning.selection import VECTOR_BYTES, Choice, choice_of, slot_bytes_of
from collbench.planning.transports import ce
from collbench.planning.tuning import Fact, Facts, Tuning, number
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import cell, rounds_of, widest_message

MAX_COPY_ACTIONS = 400  # of a rank in a launch of copy engines: each is up to seven graph nodes
LAST_WINDOWS = 8  # slots of a slice, where fewer do not suffice: the proof then says why


def plan_copies(case: Case, facts: dict[str, Fact], tuning: Tuning, limits: Limits) -> Choice:
    """The plan of copy engines: few large pieces, because each is a wait, some copies and a signal
    in a CUDA graph.
    """
    algo = selection.way_of(case, facts, tuning)[0]
    schedule = schedule_of(case, algo, limits.orders, limits.hosts)
    direct = case.direct != "off" and not (case.direct == "auto" and case.buffsize)
    facts |= {"algo": algo, "proto": "simple", "direct": "on" if direct else "off"}
    _refuse_copies(case, limits, facts, tuning)

    ready = made_direct(schedule, "push", case.in_place) if direct else schedule
    knobs, slot_bytes = _copy_knobs(case, schedule, ready, facts, tuning)
    ctas = min(_copy_ctas(ready, facts, tuning, in_place=case.in_place), limits.ctas)
    kernel = Kernel(proto="simple", threads=knobs.threads, unroll=knobs.unroll, ctas=ctas)

    for loops, chunk in _copy_chunks(case, schedule, knobs):
        plan = lay_out(
            case.problem(),
            schedule,
            direct=direct,
            p2p="push",
            channels=knobs.channels,
            slots=knobs.slots,
            chunk_bytes=chunk,
            slot_bytes=slot_bytes,
            slices=knobs.slices,
            kernel=kernel,
            transport="ce",
        )
        needed = memory_bytes(plan)
        if needed <= limits.memory_bytes:
            break
        if case.chunk or slot_bytes or loops >= MAX_COPY_ACTIONS:
            raise over_budget(needed, limits.memory_bytes)
    if plan.action_count() > MAX_COPY_ACTIONS:
        raise ScheduleError(
            f"{plan.action_count()} steps of a rank in one launch: queues of copies take"
            f" {MAX_COPY_ACTIONS}",
            "use a larger --chunk, or more --max-memory",
        )
    done = replace(
        case,
        direct="on" if plan.schedule.pushed else "off",
        p2p="push",
        threads=knobs.threads if ctas else 0,
        unroll=knobs.unroll if ctas else 0,
        cluster=1,
        buffsize=plan.slots * slot_wire_bytes(plan),
        reload="auto",
        specialize="off",
        pdl="off",
    )
    return choice_of(done, schedule, plan)


def _refuse_copies(case: Case, limits: Limits, facts: Facts, tuning: Tuning) -> None:
    """Raise ScheduleError for what copy engines cannot do."""
    if case.proto not in ("auto", "simple"):
        raise ScheduleError(
            f"{case.proto} puts flags between the data, and a copy engine copies what is there",
            "use --proto simple",
        )
    if case.p2p == "pull":
        raise ScheduleError(
            "the sender's copy engine writes to the receiver: nothing is pulled", "use --p2p push"
        )
    if case.cluster > 1 or case.reload != "auto" or case.pdl not in ("auto", "off"):
        raise ScheduleError(
            "--cluster, --ll128-reload and --pdl are knobs of kernels that store over the link",
            "leave those out, or use --transport p2p",
        )
    if why := ce.why_not(limits.hosts):
        raise ScheduleError(why, "use --transport net, or auto")
    if not limits.has_peers:
        raise ScheduleError(
            "not every GPU can reach the memory of every other",
            "use --transport shm, or see `collbench topo --p2p`",
        )
    threads = case.threads or tuning.number("threads", facts)
    unroll = case.unroll or tuning.number("unroll", facts)
    if threads % WARP or not MIN_THREADS <= threads <= MAX_THREADS or unroll > MAX_UNROLL:
        raise ScheduleError(
            f"threads of a CTA: {threads}, accesses in flight: {unroll}",
            "use a multiple of 32 from 64 to 1024, and at most 16",
        )


def _copy_knobs(
    case: Case, schedule: Schedule, ready: Schedule, facts: Facts, tuning: Tuning
) -> tuple[LaunchKnobs, int]:
    """The knobs, of which chunk is the longest one, and the bytes of a slot if the case gives a
    buffer.
    """
    widest = widest_message(ready)
    shape = shape_of(schedule, case.in_place).facts()
    facts = {**facts, **shape, "buffered": widest > 0}
    slices = case.slices or tuning.number("slices", facts)
    if slices > MAX_SLICES:
        raise ScheduleError(f"{slices} slices of a message", f"use at most {MAX_SLICES} --slices")
    fewest = _fewest_slots(ready, slices, case.in_place) if not case.slots else 0
    slots = case.slots or max(tuning.number("slots", facts), fewest)
    slot_bytes = slot_bytes_of(
        case, slots, widest, "simple", VECTOR_BYTES, "use a larger --buffsize, or --direct off"
    )
    channels = case.channels or min(MAX_GPU_CHANNELS, tuning.number("channels", facts))
    longest = slot_bytes // widest * slices if slot_bytes else MAX_CHUNK_BYTES
    if loops := number(row := tuning.row("loops", facts), "loops", 0):
        own = _copy_share(case, schedule, channels)
        longest = min(longest, max(number(row, "chunk"), -(-own // loops)))
    knobs = LaunchKnobs(
        channels=channels,
        threads=case.threads or tuning.number("threads", facts),
        slots=slots,
        chunk=longest,
        slices=slices,
        unroll=case.unroll or tuning.number("unroll", facts),
        cluster=1,
    )
    return knobs, slot_bytes


def _copy_share(case: Case, schedule: Schedule, channels: int) -> int:
    """Bytes of a chunk on one channel, if one loop does it all."""
    parts = schedule.chunks["in"] if collective(case.op).is_interleaved else 1
    return -(-case.problem().block_bytes // (parts * channels))


def _copy_chunks(case: Case, schedule: Schedule, knobs: LaunchKnobs) -> Iterator[tuple[int, int]]:
    """Numbers of loops, from the fewest on, each with its bytes of a chunk."""
    own = _copy_share(case, schedule, knobs.channels)
    for loops in count(max(1, -(-own // knobs.chunk))):
        even = -(-own // (loops * CHUNK_GRAIN_BYTES)) * CHUNK_GRAIN_BYTES
        yield loops, case.chunk or max(VECTOR_BYTES, even)


def _fewest_slots(schedule: Schedule, slices: int, in_place: bool) -> int:
    """Slots without which ranks would wait for each other; some more where even four windows do not
    suffice, for the proof to say why.
    """
    for slots in (slices, slices + 1, 2 * slices, 4 * slices):
        try:
            proved(schedule, slots, slices, in_place)
        except ScheduleError:
            continue
        return slots
    return LAST_WINDOWS * slices


def _copy_ctas(schedule: Schedule, facts: Facts, tuning: Tuning, *, in_place: bool) -> int:
    """CTAs of the kernel beside the copy engine: most where some step reduces or empties a slot,
    few where one only copies what its GPU has from the start, otherwise none.
    """
    most = 0
    for at, steps in rounds_of(schedule):
        for step in steps:
            has_slots = any(edge not in schedule.pushed.get(at, ()) for edge in step.recv)
            if len(step.src) + len(step.recv) > 1 or (step.dst is not None and has_slots):
                return tuning.number("kernel_ctas", {**facts, "work": "reduce"})
            if step.dst is None or step.recv:
                continue
            if cell(schedule, at.program, step.src[0], in_place=in_place) != cell(
                schedule, at.program, step.dst, in_place=in_place
            ):
                most = tuning.number("kernel_ctas", {**facts, "work": "copy"})
    return most
