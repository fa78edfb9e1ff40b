"""What "auto" means where copy engines move the data: few large pieces, because each is a wait,
some copies and a signal in a CUDA graph.

The tool's own choice for large allgather and alltoall (are_copies_best); otherwise who wants it
asks for transport ce. Figures of algorithms and CTAs that reduce: a prototype on 4 x H200
(NVSwitch), one process a GPU, float32 sum.
"""

from dataclasses import replace
from itertools import count

from collbench.planning.choice_gpu import MAX_CHUNK_BYTES, Limits, memory_bytes, slot_wire_bytes
from collbench.planning.choice_knobs import is_pipelined
from collbench.planning.plan import Kernel, Plan, lay_out, made_direct, proved
from collbench.planning.transports import ce
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import cell, rounds_of, widest_message
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError
from collbench.util.units import format_size

_M = 1 << 20
# What needs fewest hops: every hop is a signal of some microseconds. Chain broadcast of 1 GiB 311
# GB/s, stores of kernels 362.
_BEST = {"allreduce": "twoshot", "broadcast": "twoshot", "reduce": "twoshot"}
# Measured with these kernels, one process for four GPUs: allreduce of 1 GiB in 1 slice 355.7 GB/s,
# 2 382.3, 4 361.4; 256 MiB 339.9, 354.2, 300.3.
_SLICED_FROM, _SLICES = 256 * _M, 2
# where loops follow each other through the ranks: at most so many, at least so large
_PIPELINED_LOOPS, _PIPELINED_CHUNK_BYTES = 16, 4 * _M
# CTAs of the kernel that reduces, 32 of which cost allreduce up to 3 %; and where it only copies
# input to output: two H200s, allgather of 256 MiB with 8 / 16 / 32 / 64 CTAs 374, 372, 373, 376 us
# (in place, which copies nothing, 372), of 1 GiB 1412, 1399, 1400, 1405 (1398), alltoall 1403,
# 1400, 1401, 1407.
_CTAS, _COPYING_CTAS, _THREADS, _UNROLL = 64, 16, 512, 8
# From where on copies are faster than stores of kernels, one process a GPU, us. Two H200s:
# allgather and alltoall of 256 MiB 376 and 378, by stores 373 and 378; of 1 GiB 1405 and 1407, by
# stores 1474 both. Four: alltoall of 1 GiB 2099, by stores 2348 (profiles/results/h200x4.csv).
# Between 256 MiB and 1 GiB stores were not measured. Allreduce of 1 GiB gains 1.5 % with the
# default memory, reducescatter loses 6 %.
_CHOSEN_FOR, _CHOSEN_FROM = ("allgather", "alltoall"), 512 * _M
MAX_ACTIONS = 400  # of a rank in a launch: each is up to seven nodes of a graph


def best_by_copies(case: Case) -> str:
    """The algorithm of a case that leaves it open.

    >>> best_by_copies(Case(op="alltoall", backend="cuda", ranks=4, size_bytes=1 << 30))
    'direct'
    """
    return _BEST.get(case.op, "direct") if case.algo == "auto" else case.algo


def are_copies_best(case: Case, limits: Limits) -> bool:
    """Whether copy engines are the road for a case that leaves it and all knobs open.

    >>> case = Case(op="alltoall", backend="cuda", ranks=4, size_bytes=1 << 30)
    >>> (
    ...     are_copies_best(case, Limits()),
    ...     are_copies_best(replace(case, channels=8), Limits()),
    ...     are_copies_best(case, Limits(has_peers=False)),
    ... )
    (True, False, False)
    """
    if (
        case.op not in _CHOSEN_FOR
        or case.size_bytes < _CHOSEN_FROM
        or not limits.has_peers
        or ce.why_not(limits.hosts)
    ):
        return False
    problem = {
        name: getattr(case, name)
        for name in ("op", "backend", "dtype", "redop", "root", "placement", "ranks", "size_bytes")
    }
    is_open = replace(case, algo="auto", proto="auto") == Case(**problem)
    return (
        is_open
        and case.algo in ("auto", best_by_copies(Case(**problem)))
        and case.proto in ("auto", "simple")
    )


def lay_out_copies(case: Case, schedule: Schedule, limits: Limits) -> tuple[Case, Plan]:
    """The case with nothing left to decide, and its plan. Raises ScheduleError if it cannot be
    done.
    """
    _refuse(case, limits)
    direct = case.direct != "off" and not (case.direct == "auto" and case.buffsize)
    ready = made_direct(schedule, "push", case.in_place) if direct else schedule
    widest = widest_message(ready)
    pipelined = is_pipelined(schedule, case.in_place)
    channels = case.channels or 1
    # otherwise no slice is waited for while another travels
    has_hops = widest or proved(schedule, 8, 1, 1, case.in_place).hops > 1
    slices = case.slices or (
        _SLICES if case.size_bytes >= _SLICED_FROM and has_hops and not pipelined else 1
    )
    slots = case.slots or max(2 if pipelined else 1, _fewest_slots(ready, slices, case.in_place))
    parts = schedule.chunks["in"] if collective(case.op).is_interleaved else 1
    own = -(-case.problem().block_bytes // (parts * channels))
    slot_bytes = 0
    if case.buffsize:
        slot_bytes = widest * (case.buffsize // slots // max(1, widest) // 16 * 16)
        if not slot_bytes:
            raise ScheduleError(
                f"a buffer of {format_size(case.buffsize)} has no room for {slots} slots",
                "use a larger --buffsize, or --direct off",
            )
    longest = slot_bytes // widest * slices if slot_bytes else MAX_CHUNK_BYTES
    if pipelined:
        longest = min(longest, max(_PIPELINED_CHUNK_BYTES, -(-own // _PIPELINED_LOOPS)))
    ctas = min(_ctas(ready, in_place=case.in_place), limits.ctas)
    threads = case.threads or _THREADS
    kernel = Kernel(proto="simple", threads=threads, unroll=case.unroll or _UNROLL, ctas=ctas)
    for loops in count(max(1, -(-own // longest))):
        chunk = case.chunk or max(16, -(-own // (loops * 64)) * 64)
        plan = lay_out(
            case.problem(),
            schedule,
            direct=direct,
            p2p="push",
            channels=channels,
            slots=slots,
            chunk_bytes=chunk,
            slot_bytes=slot_bytes,
            slices=slices,
            kernel=kernel,
            transport="ce",
        )
        needed = memory_bytes(plan)
        if needed <= limits.memory_bytes:
            break
        if case.chunk or slot_bytes or loops >= MAX_ACTIONS:
            raise ScheduleError(
                f"FIFOs, flags and scratch of {-(-needed >> 20)}M a GPU,"
                f" {limits.memory_bytes >> 20}M are allowed",
                "use fewer --channels, a smaller --chunk or --buffsize, or more --max-memory",
            )
    if plan.action_count() > MAX_ACTIONS:
        raise ScheduleError(
            f"{plan.action_count()} steps of a rank in one launch: queues of copies take"
            f" {MAX_ACTIONS}",
            "use a larger --chunk, or more --max-memory",
        )
    done = replace(
        case,
        proto="simple",
        algo=schedule.name,
        transport="ce",
        direct="on" if plan.schedule.placed else "off",
        p2p="push",
        channels=channels,
        threads=threads if ctas else 0,
        slots=slots,
        chunk=plan.chunk_bytes,
        slices=plan.slices,
        unroll=kernel.unroll if ctas else 0,
        cluster=1,
        buffsize=slots * slot_wire_bytes(plan),
        reload="auto",
        specialize="off",
    )
    return done, plan


def _refuse(case: Case, limits: Limits) -> None:
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
    if case.cluster > 1 or case.reload != "auto":
        raise ScheduleError(
            "--cluster and --ll128-reload are knobs of kernels that store over the link",
            "leave those out, or use --transport p2p",
        )
    if why := ce.why_not(limits.hosts):
        raise ScheduleError(why, "use --transport net, or auto")
    if not limits.has_peers:
        raise ScheduleError(
            "not every GPU can reach the memory of every other",
            "use --transport shm, or see `collbench topo --p2p`",
        )
    threads, unroll = case.threads or _THREADS, case.unroll or _UNROLL
    if threads % 32 or not 64 <= threads <= 1024 or unroll > 16:
        raise ScheduleError(
            f"{threads} threads of a CTA with {unroll} accesses in flight",
            "use a multiple of 32 from 64 to 1024, and at most 16",
        )


def _fewest_slots(schedule: Schedule, slices: int, in_place: bool) -> int:
    """Slots without which ranks would wait for each other; some more where even four windows do not
    do, for the proof to say why.
    """
    for slots in (slices, slices + 1, 2 * slices, 4 * slices):
        try:
            proved(schedule, slots, slices, 1, in_place)
        except ScheduleError:
            continue
        return slots
    return 8 * slices


def _ctas(schedule: Schedule, *, in_place: bool) -> int:
    """Of the kernel: most where some step reduces or empties a slot, few where one only copies what
    its GPU has from the start, otherwise none.
    """
    most = 0
    for at, steps in rounds_of(schedule):
        for step in steps:
            has_slots = any(edge not in schedule.placed.get(at, ()) for edge in step.recv)
            if len(step.src) + len(step.recv) > 1 or (step.dst is not None and has_slots):
                return _CTAS
            if step.dst is None or step.recv:
                continue
            if cell(schedule, at.program, step.src[0], in_place=in_place) != cell(
                schedule, at.program, step.dst, in_place=in_place
            ):
                most = _COPYING_CTAS
    return most
