"""What "auto" means on GPUs: algorithm, protocol and knobs by size. One table, each number with the sweep that justifies it.

The sweeps were made on 4 x H200 (NVSwitch), one process a GPU, float32 sum, in CUDA graphs.
"""

from dataclasses import dataclass, replace

from collbench.case import Case, P2p
from collbench.collectives import collective
from collbench.errors import ScheduleError
from collbench.passes import direct_count, widest_message
from collbench.plan import Kernel, Plan, lay_out, made_direct, proved
from collbench.protocols import FAMILY as PROTOCOLS
from collbench.schedule import Edge, Program, Schedule
from collbench.units import format_size

_K, _M = 1 << 10, 1 << 20
_ANY = 1 << 62
# (largest S, algorithm, protocol). Allreduce, us: 64 KiB one-shot ll 4.9, ll128 5.0; 128 KiB one-shot ll128 5.7, two-shot ll 6.4; 256 KiB
# one-shot ll128 7.0, two-shot ll 7.4; 512 KiB two-shot ll128 9.1, ring ll128 9.9; 1 MiB ring ll128 10.9, two-shot 11.2; 8 MiB ring
# ll128 44.4, two-shot simple 45.6; 16 MiB ring simple 79.8, ring ll128 86.6; 1 GiB ring simple 4392.
_BEST: dict[str, tuple[tuple[int, str, str], ...]] = {
    "allreduce": (
        (64 * _K, "oneshot", "ll"), (256 * _K, "oneshot", "ll128"), (512 * _K, "twoshot", "ll128"), (8 * _M, "ring", "ll128"), (_ANY, "ring", "simple"),
    ),
    "allgather": (
        (256 * _K, "direct", "ll"), (512 * _K, "direct", "ll128"), (4 * _M, "ring", "ll128"), (8 * _M, "direct", "simple"), (_ANY, "ring", "simple"),
    ),
    "reducescatter": ((256 * _K, "direct", "ll"), (512 * _K, "direct", "ll128"), (4 * _M, "ring", "ll128"), (_ANY, "ring", "simple")),
    "broadcast": ((128 * _K, "chain", "ll"), (16 * _M, "chain", "ll128"), (_ANY, "chain", "simple")),
    "reduce": ((64 * _K, "chain", "ll"), (16 * _M, "chain", "ll128"), (_ANY, "chain", "simple")),
    "alltoall": ((256 * _K, "direct", "ll"), (_M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "gather": ((256 * _K, "direct", "ll"), (16 * _M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "scatter": ((256 * _K, "direct", "ll"), (4 * _M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "sendrecv": ((128 * _K, "direct", "ll"), (2 * _M, "direct", "ll128"), (_ANY, "direct", "simple")),
}
# By bytes of a chunk over all channels: (largest, channels). LL with one peer: ring allreduce of 256 KiB 8.64 us with 32 channels, 10.1 with 24, of
# 1 MiB 13.9 with 32 and 16.8 with 48. One-shot allreduce of 64 KiB, where every CTA polls three peers, 4.43 with 8 and 4.57 with 16.
_LL_CHANNELS = ((512, 1), (2 * _K, 4), (4 * _K, 8), (64 * _K, 16), (_ANY, 32))
_LL_CHANNELS_ONE_PEER = ((512, 1), (2 * _K, 4), (4 * _K, 8), (8 * _K, 16), (_ANY, 32))
_LL_CHANNELS_REDUCING = ((512, 1), (2 * _K, 4), (4 * _K, 8), (32 * _K, 16), (64 * _K, 8), (_ANY, 32))
_LL128_CHANNELS = ((16 * _K, 8), (64 * _K, 16), (512 * _K, 24), (_M, 48), (_ANY, 64))
_LL128_CHANNELS_RING = ((16 * _K, 8), (64 * _K, 16), (256 * _K, 40), (512 * _K, 24), (_M, 48), (_ANY, 64))  # 1 MiB: 10.6 us, 10.9 with 24
# Broadcast of 8 MiB 27.4 us with 128 channels (simple: 29.8), of 16 MiB 52.5 (simple: 53.0); the chain has no other peer whose CTAs it would need.
_LL128_CHANNELS_ONE_PEER = (*_LL128_CHANNELS[:-1], (4 * _M, 64), (_ANY, 128))
# By S. With FIFOs 64 channels are within 1 % of 128 up to 64 MiB; without, 128 are 4 % better from 16 MiB.
_SIMPLE_CHANNELS = ((2 * _M, 32), (32 * _M, 64), (_ANY, 128))
_SIMPLE_CHANNELS_NO_FIFO = ((2 * _M, 64), (_ANY, 128))
_PROTOCOL_OF_SIZE = ((256 * _K, "ll"), (8 * _M, "ll128"), (_ANY, "simple"))  # where an algorithm is given and no protocol
# From where on messages are cut in two, so that a rank passes the first half on while the second arrives: ring allgather of 16 MiB 43.6 us, 49.8
# with one slice; ring allreduce 80.2, 84; at 4 MiB one slice is better.
_SLICED_FROM = 8 * _M
# Simple, where loops follow each other through the ranks (chain, tree), 128 channels. Broadcast of 32 MiB: 64K and 8 slots 100.4 us, 128K 102.0,
# 64 channels of 128K 105.6; 256 MiB: 32K direct 768, 1 GiB: 64K direct 2971. Reduce, which needs FIFOs, of 1 GiB: 128K and 8 slots 2964, 4 slots 2984.
_PIPELINED_CHUNK_BYTES, _PIPELINED_DIRECT_CHUNK_BYTES = 128 * _K, 64 * _K
_PIPELINED_SMALL_CHUNK_BYTES, _PIPELINED_SMALL_UP_TO = 64 * _K, 64 * _M
_PIPELINED_CHANNELS, _PIPELINED_CHANNELS_FROM = 128, 8 * _M
# Where fewer are asked for: broadcast of 256 MiB with 24 channels 797 us by 64K through FIFOs, 809 direct; sendrecv of 512 MiB 1555 by 1M, 1592 by 512K.
_FEW_CHANNELS = 64
_PIPELINED_DIRECT_FROM = 128 * _M
MAX_PROGRAM_STEPS = 24  # of a track that is compiled in: more only make the kernel's code large
MAX_CHANNELS = 1024
MAX_ENDS = 70  # of connections that a rank has: what a launch's arguments, 4096 bytes, have room for
MAX_CHUNK_BYTES = 1 << 30
FLAG_BYTES = 128  # a word that is polled has a cache line of its own
MEMORY_GRAIN_BYTES = 512  # FIFOs and scratch memory begin at multiples of this
TRANSPORT = "p2p"  # peer access or CUDA IPC, which rows do not tell apart
DEFAULT_MEMORY = 256 << 20  # of FIFOs, flags and scratch memory, a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a GPU has for one launch: CTAs that can be resident, and bytes that FIFOs may take. orders: of ranks, that use the wires best."""

    ctas: int = 132
    memory_bytes: int = DEFAULT_MEMORY
    orders: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knobs:
    """What is left to decide once the schedule and the protocol are known."""

    channels: int
    threads: int
    slots: int
    chunk: int
    slices: int
    unroll: int


def best_of(case: Case) -> tuple[str, str]:
    """Algorithm and protocol of a case that leaves one of them open.

    >>> best_of(Case(op="allreduce", backend="cuda", proto="auto", ranks=4, size_bytes=8))
    ('oneshot', 'll')
    """
    for largest, algo, proto in _BEST[case.op]:
        if case.algo == "auto" and case.size_bytes <= largest and case.proto in ("auto", proto):
            return algo, proto
    if case.algo == "auto":  # a protocol for which the table has no size: the algorithm of the size
        return next(algo for largest, algo, _ in _BEST[case.op] if case.size_bytes <= largest), case.proto
    return case.algo, next(proto for largest, proto in _PROTOCOL_OF_SIZE if case.size_bytes <= largest) if case.proto == "auto" else case.proto


def lay_out_gpu(case: Case, schedule: Schedule, proto: str, limits: Limits) -> tuple[Case, Plan]:
    """The case with nothing left to decide, and its plan. Raises ScheduleError if it cannot be done."""
    flagged = proto != "simple"
    p2p: P2p = "pull" if case.p2p == "pull" else "push"
    if flagged and (case.p2p == "pull" or case.direct == "on"):
        raise ScheduleError(f"{proto} carries flags in its FIFO, in the receiver's memory: it is neither direct nor pulled", "use --proto simple")
    if case.transport not in ("auto", TRANSPORT):
        raise ScheduleError(f"GPUs reach each other's memory by {TRANSPORT}, not by {case.transport}", "leave --transport out")
    if case.unroll and proto == "ll128":
        raise ScheduleError("ll128 has always four vectors of a line on their way: nothing to unroll", "use --proto simple or ll")
    if case.reload != "auto" and proto != "ll128":
        raise ScheduleError(f"{proto} reads no line again", "use --proto ll128")
    pipelined = _is_pipelined(schedule, case.in_place)
    direct = not flagged and case.direct != "off"
    is_narrow = 0 < case.channels < _FEW_CHANNELS
    if case.direct == "auto" and (case.buffsize or (pipelined and (is_narrow or case.size_bytes < _PIPELINED_DIRECT_FROM))):
        direct = False
    facts = PROTOCOLS.load(proto)
    ready = made_direct(schedule, p2p, case.in_place) if direct else schedule
    knobs = _knobs(case, ready, proto, limits, pipelined=pipelined)
    widest = max(1, widest_message(ready))
    slot_bytes = 0
    if case.buffsize:
        if not widest_message(ready):
            raise ScheduleError("every message goes straight to its place: there is no buffer to size", "use --direct off")
        slot_bytes = widest * (facts.payload_bytes(case.buffsize // knobs.slots // widest) // 16 * 16)
        if not slot_bytes:
            raise ScheduleError(f"a buffer of {format_size(case.buffsize)} has no room for {knobs.slots} slots", "use a larger --buffsize")
        chunk = case.chunk or slot_bytes // widest * knobs.slices
        knobs = replace(knobs, chunk=min(chunk, slot_bytes // widest) if flagged else chunk)
    tracks = max(len(program) for program in schedule.programs)
    if knobs.channels * tracks > limits.ctas:
        raise ScheduleError(
            f"{knobs.channels} channels of {tracks} tracks are {knobs.channels * tracks} CTAs; {limits.ctas} can be resident",
            f"use at most {limits.ctas // tracks} channels",
        )
    longest = max(sum(len(steps) for steps in track.rounds) for program in schedule.programs for track in program)
    specialized = flagged and (case.specialize == "on" or (case.specialize == "auto" and longest <= MAX_PROGRAM_STEPS))
    kernel = Kernel(proto=proto, threads=knobs.threads, unroll=knobs.unroll, reload=case.reload != "off", specialized=specialized)
    plan = lay_out(
        case.problem(), schedule, direct=direct, p2p=p2p, channels=knobs.channels, slots=knobs.slots, chunk_bytes=knobs.chunk, slot_bytes=slot_bytes,
        slices=knobs.slices, kernel=kernel,
    )
    needed = memory_bytes(plan)
    if needed > limits.memory_bytes:
        raise ScheduleError(
            f"FIFOs, flags and scratch of {-(-needed >> 20)}M a GPU, {limits.memory_bytes >> 20}M are allowed",
            "use fewer --channels, a smaller --chunk or --buffsize, or more --max-memory",
        )
    _refuse_too_large(plan, schedule)
    done = replace(
        case, proto=proto, algo=schedule.name, transport=TRANSPORT, direct="on" if direct and direct_count(plan.schedule) else "off", p2p=p2p,
        channels=plan.channels, threads=knobs.threads, slots=plan.slots, chunk=plan.chunk_bytes, slices=plan.slices, unroll=knobs.unroll,
        buffsize=plan.slots * slot_wire_bytes(plan),
        reload="auto" if proto != "ll128" else "on" if kernel.reload else "off", specialize="on" if specialized else "off",
    )
    return done, plan


def slot_wire_bytes(plan: Plan) -> int:
    """Bytes of a slot as it lies in memory: each chunk of a message begins where the protocol can."""
    assert plan.kernel is not None
    return plan.widest * int(PROTOCOLS.load(plan.kernel.proto).wire_bytes(plan.piece_bytes))


def memory_bytes(plan: Plan) -> int:
    """FIFOs, flags and scratch memory of the GPU that has most of them."""
    fifo = -(-plan.slots * slot_wire_bytes(plan) // MEMORY_GRAIN_BYTES) * MEMORY_GRAIN_BYTES
    found = [0] * plan.n
    for connection in plan.connections:
        found[connection.src] += FLAG_BYTES
        found[connection.dst] += FLAG_BYTES
        if connection.fifo_offset >= 0:
            found[connection.dst if plan.p2p == "push" else connection.src] += fifo
    return max(found) + plan.tmp_bytes


def _refuse_too_large(plan: Plan, schedule: Schedule) -> None:
    """Kernels count the bytes of a chunk, and of what channels are apart in FIFOs and in scratch memory, in 32 bits. Raises ScheduleError."""
    apart = max(_fifos(plan.schedule) * (plan.slots * slot_wire_bytes(plan) + MEMORY_GRAIN_BYTES), schedule.chunks["tmp"] * plan.chunk_bytes)
    if plan.chunk_bytes > MAX_CHUNK_BYTES or apart >= 1 << 32:
        raise ScheduleError(
            f"chunks of {format_size(plan.chunk_bytes)} and {plan.slots} slots", f"kernels take chunks up to {format_size(MAX_CHUNK_BYTES)}, and 4G a channel"
        )
    ends = max(sum(map(len, _edges(program))) for program in plan.schedule.programs)
    if ends > MAX_ENDS:
        raise ScheduleError(f"a rank has {ends} ends of connections: a launch has room for {MAX_ENDS}", "use an algorithm with fewer peers, such as ring")


def _knobs(case: Case, schedule: Schedule, proto: str, limits: Limits, *, pipelined: bool) -> _Knobs:
    """The table: what is asked for, else by protocol and bytes of a chunk over all channels."""
    parts = schedule.chunks["in"] if collective(case.op).is_interleaved else 1
    share = -(-case.problem().block_bytes // parts)
    tracks = max(len(program) for program in schedule.programs)
    most = max(1, limits.ctas // tracks)
    slots = case.slots or (4 if proto == "simple" and not pipelined else 8)
    slices = case.slices or (2 if proto == "simple" and case.size_bytes >= _SLICED_FROM and not pipelined and _hops(schedule, case.in_place) > 1 else 1)
    if proto != "simple" and slices > 1:
        raise ScheduleError(f"{proto} sends a message as one slice", "leave --slices out")
    conns, widest = _fifos(schedule), widest_message(schedule)
    if proto == "ll":
        wanted = _up_to(share, _LL_CHANNELS_ONE_PEER if conns == 1 else _LL_CHANNELS_REDUCING if collective(case.op).is_reduction else _LL_CHANNELS)
    elif proto == "ll128":
        table = _LL128_CHANNELS if conns > 1 else _LL128_CHANNELS_ONE_PEER if pipelined else _LL128_CHANNELS_RING
        wanted = min(_up_to(share, table), max(1, share // 1920))
    elif pipelined and case.size_bytes >= _PIPELINED_CHANNELS_FROM:
        wanted = _PIPELINED_CHANNELS
    else:
        wanted = min(_up_to(case.size_bytes, _SIMPLE_CHANNELS if widest else _SIMPLE_CHANNELS_NO_FIFO), max(1, share // (4 * _K)))
    channels = case.channels or min(most, wanted)
    if channels > MAX_CHANNELS:
        raise ScheduleError(f"{channels} channels: at most {MAX_CHANNELS}")
    own = -(-share // channels)  # bytes of a chunk on one channel, if one loop does it all
    largest = 32 * _K if proto == "ll" else 60 * _K if proto == "ll128" else _M // slices if channels < _FEW_CHANNELS else 256 * _K
    if pipelined and proto == "simple":
        is_small = case.size_bytes <= _PIPELINED_SMALL_UP_TO or channels < _FEW_CHANNELS
        largest = (_PIPELINED_SMALL_CHUNK_BYTES if is_small else _PIPELINED_CHUNK_BYTES) if widest else _PIPELINED_DIRECT_CHUNK_BYTES
    factor = 2 if proto == "ll" else 1
    roomy = limits.memory_bytes * 7 // 8 // max(1, channels * (conns * slots * widest * factor + schedule.chunks["tmp"] * slices)) * slices
    if proto == "ll128":
        roomy = PROTOCOLS.load(proto).payload_bytes(roomy)
    chunk = case.chunk or max(16, min(-(-own // 64) * 64, largest * slices, roomy // 64 * 64))
    lines = -(-min(own, chunk) // 8)
    most_threads = 512 if conns > 1 else 256  # LL: ring allreduce of 1 MiB 13.9 us with 256 threads and two lines each, 15.5 with 512
    threads = case.threads or {"ll": max(64, min(most_threads, -(-lines // 32) * 32)), "ll128": 384 if share >= 512 * _K else 256, "simple": 512}[proto]
    if threads % 32 or not 64 <= threads <= 1024:
        raise ScheduleError(f"{threads} threads of a CTA", "use a multiple of 32 from 64 to 1024")
    unroll = case.unroll or (8 if proto == "simple" else 1 if proto == "ll128" else 2 if min(own, chunk) > threads * 16 else 1)
    if unroll > 16:
        raise ScheduleError(f"{unroll} accesses in flight: at most 16")
    return _Knobs(channels=channels, threads=threads, slots=slots, chunk=chunk, slices=slices, unroll=unroll)


def _up_to(size: int, table: tuple[tuple[int, int], ...]) -> int:
    """The entry for a size."""
    return next(value for largest, value in table if size <= largest)


def _hops(schedule: Schedule, in_place: bool) -> int:
    """Messages on the longest chain of one loop."""
    return proved(schedule, 8, 1, 1, in_place).hops


def _is_pipelined(schedule: Schedule, in_place: bool) -> bool:
    """Whether a loop passes through more ranks than any of them has rounds for: then its bandwidth comes from loops that follow each other."""
    return _hops(schedule, in_place) > max(len(track.rounds) for program in schedule.programs for track in program)


def _fifos(schedule: Schedule) -> int:
    """The most FIFOs of one channel into or out of one rank."""
    return max(len(ends) for program in schedule.programs for ends in _edges(program)) if widest_message(schedule) else 0


def _edges(program: Program) -> tuple[set[Edge], set[Edge]]:
    """The connections into and out of a rank."""
    steps = [step for track in program for steps in track.rounds for step in steps]
    return {edge for step in steps for edge in step.recv}, {edge for step in steps for edge in step.send}

