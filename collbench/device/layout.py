"""The memory layout: a rank's flags, FIFOs and scratch memory in its arena, and programs and
arguments packed as types.cuh declares them.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import NamedTuple

from collbench.device.program import BlockRef, ConnectionEnd, Program, lower, tables_of
from collbench.planning.limits import FLAG_STRIDE_BYTES, MEMORY_GRAIN_BYTES, slot_wire_bytes
from collbench.planning.plan import Loop, Plan

FLAG_LINE_BYTES = FLAG_STRIDE_BYTES
# at the start of a rank's arena: abort word, flags of barriers, counters and reports of CTAs
CONTROL_BYTES = 128 << 10
ABORT_AT, BARRIER_AT, STATES_AT, REPORTS_AT = 0, 256, 16 << 10, 32 << 10
STATE_BYTES, REPORT_BYTES = 8, 48
MAX_CTAS = 1024
_FIFO_ALIGN = MEMORY_GRAIN_BYTES
_NET_ALIGN = 4096  # pages, which MPI copies from and to


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaLayout:
    """Offsets of a rank's flags, FIFOs and scratch memory in its arena, and the stride between
    channels, in bytes.

    If FIFOs are in host memory (is_in_host), everything before fifos_end is there, and scratch
    memory follows the control words of the GPU's arena.
    """

    tails: int
    heads: int
    fifos: int
    fifos_end: int
    tmp: int
    total: int
    fifo_stride: int
    fifo_of: dict[tuple[bool, int], int]  # (is sending, end) -> offset on channel 0


@lru_cache(maxsize=1024)
def layout(plan: Plan, rank: int) -> ArenaLayout:
    """The arena of a rank: the FIFOs that it reads (push), or those that it writes (pull), without
    those of connections to other shared-memory domains.
    """
    program, channels, slot = lower(plan, rank), plan.channels, slot_wire_bytes(plan)
    tails = CONTROL_BYTES
    heads = tails + channels * len(program.receiving) * FLAG_LINE_BYTES
    fifos = (
        -(-(heads + channels * len(program.sending) * FLAG_LINE_BYTES) // _FIFO_ALIGN) * _FIFO_ALIGN
    )
    one = -(-plan.slots * slot // _FIFO_ALIGN) * _FIFO_ALIGN
    is_sender = plan.p2p == "pull"
    ends = program.sending if is_sender else program.receiving
    owned = [
        e
        for e, end in enumerate(ends)
        if end.has_fifo and not plan.is_remote(rank, peer_of(plan, rank, end))
    ]
    fifo_of = {(is_sender, end): fifos + number * one for number, end in enumerate(owned)}
    stride = one * len(owned)
    fifos_end = fifos + channels * stride
    tmp = CONTROL_BYTES if is_in_host(plan) else fifos_end
    total = tmp + -(-plan.tmp_bytes // _FIFO_ALIGN) * _FIFO_ALIGN
    return ArenaLayout(
        tails=tails,
        heads=heads,
        fifos=fifos,
        fifos_end=fifos_end,
        tmp=tmp,
        total=total,
        fifo_stride=stride,
        fifo_of=fifo_of,
    )


def layouts(plan: Plan) -> list[ArenaLayout]:
    """The arenas of all ranks whose layouts may differ."""
    return [
        layout(plan, rank)
        for rank in range(1 if plan.schedule.is_symmetric and not plan.domains else plan.n)
    ]


def is_in_host(plan: Plan) -> bool:
    """Whether ranks share the memory of their host instead of their GPUs' memory."""
    return plan.transport in ("shm", "shm+net")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLayout:
    """The layout of a rank's ends of connections to other shared-memory domains: flags in host
    memory behind the control words, slots in memory of their own.

    An end is (whether the rank sends along it, its number). The k-th end has two flags on channel
    0, at words + 2 k lines: the local flag, which the kernel polls, and one line behind it the
    remote flag, which the kernel sets. Its slots are at k times fifo_bytes. Strides lead to the
    other channels.
    """

    ends: tuple[tuple[bool, int], ...]
    words: int
    words_stride: int
    words_end: int
    fifo_bytes: int
    slots_stride: int
    slots_bytes: int


@lru_cache(maxsize=1024)
def net_layout(plan: Plan, rank: int) -> NetLayout:
    """The ends of a rank's connections to other shared-memory domains."""
    program = lower(plan, rank)
    ends = tuple(
        (is_sending, number)
        for is_sending, own in ((True, program.sending), (False, program.receiving))
        for number, end in enumerate(own)
        if plan.is_remote(rank, peer_of(plan, rank, end))
    )
    fifo_bytes = -(-plan.slots * slot_wire_bytes(plan) // _NET_ALIGN) * _NET_ALIGN
    stride = 2 * FLAG_LINE_BYTES * len(ends)
    return NetLayout(
        ends=ends,
        words=CONTROL_BYTES,
        words_stride=stride,
        words_end=CONTROL_BYTES + plan.channels * stride,
        fifo_bytes=fifo_bytes,
        slots_stride=fifo_bytes * len(ends),
        slots_bytes=plan.channels * fifo_bytes * len(ends),
    )


def peer_of(plan: Plan, rank: int, end: ConnectionEnd) -> int:
    """The rank at the other end of the connection."""
    return (rank + end.peer) % plan.n if plan.schedule.is_symmetric else end.peer


def shifted(plan: Plan, rank: int, chunk: int, buffer: str) -> int:
    """The chunk of a buffer that a chunk number of the rank's program refers to: see walk.cuh."""
    schedule = plan.schedule
    is_shifted = schedule.is_symmetric and schedule.chunks[buffer] == plan.n  # type: ignore[index]
    return (chunk + rank) % plan.n if is_shifted else chunk


def block_of(plan: Plan, rank: int, number: int) -> BlockRef:
    """Which of unequal blocks a number in the rank's program is."""
    buffer, owner, chunk = lower(plan, rank).blocks[number - 1]
    if plan.schedule.is_symmetric:
        owner = (owner + rank) % plan.n
    return BlockRef(buffer, owner, shifted(plan, rank, chunk, buffer))


def piece_of(
    plan: Plan, rank: int, channel: int, loop: Loop, part: int, work: int
) -> tuple[int, int]:
    """The first byte within a chunk, and the size, of a slice of the chunk that a step works on:
    see walk.cuh.
    """
    if not plan.problem.counts:
        return plan.piece(loop, part, shifted(plan, rank, work, "in"))
    _, giver, chunk = block_of(plan, rank, work)
    return plan.piece_of_block(channel, loop, part, giver, chunk)


def other_end(plan: Plan, rank: int, end: ConnectionEnd, *, is_sending: bool) -> int:
    """The number of the other end among the peer's receiving or sending ends."""
    peer = peer_of(plan, rank, end)
    theirs = lower(plan, peer).receiving if is_sending else lower(plan, peer).sending
    return next(
        number
        for number, other in enumerate(theirs)
        if other.port == end.port and peer_of(plan, peer, other) == rank
    )


def pack_program(program: Program) -> bytes:
    """The program as types.cuh declares it: all its tables are of 16-bit numbers."""
    numbers: list[int] = []

    def add(table: Iterable[object]) -> None:
        for part in table:
            if isinstance(part, tuple | list):
                add(part)
            else:
                assert isinstance(part, int)
                numbers.append(part)

    add(tables_of(program))
    return struct.pack(f"<{len(numbers)}H", *numbers)


def pack_blocks(plan: Plan, rank: int) -> bytes:
    """The tables of unequal blocks that types.cuh declares, of each channel in turn."""
    numbers = range(1, 1 + len(lower(plan, rank).blocks))
    parts: list[tuple[int, int]] = []
    for channel in range(plan.channels):
        parts.append(plan.channel_range(channel))
        parts += [plan.part_of_block(channel, *block_of(plan, rank, number)) for number in numbers]
    return b"".join(starmap(BLOCK.pack, parts))


def pack_constants(plan: Plan, rank: int) -> bytes:
    """What a rank's kernel reads but never writes: its program, and behind it the tables of unequal
    blocks where blocks are unequal.
    """
    packed = pack_program(lower(plan, rank))
    if not plan.problem.counts:
        return packed
    return packed.ljust(-(-len(packed) // BLOCK.size) * BLOCK.size, b"\0") + pack_blocks(plan, rank)


def macros(program: Program) -> dict[str, int]:
    """The sizes that types.cuh needs."""
    sources, targets = program.widest
    receiving, sending = len(program.receiving), len(program.sending)
    return {
        "MAX_SOURCES": sources,
        "MAX_TARGETS": targets,
        "RECEIVING": receiving,
        "SENDING": sending,
        "TRACKS": len(program.tracks),
        "ROUNDS": len(program.rounds),
        "STAGES": len(program.stages),
        "STEPS": max(1, len(program.steps)),
        "WAITS": max(1, len(program.waits)),
        "SIGNALS": max(1, len(program.signals)),
        "ARGS_BYTES": ARGS.size + (max(1, receiving) + max(1, sending)) * END.size,
        "PROGRAM_BYTES": len(pack_program(program)),
    }


ARGS = struct.Struct("<12Q12I")
END = struct.Struct("<5Q3I2H")
BLOCK = struct.Struct("<2Q")
TRACE_ARGS = struct.Struct("<2Q")  # Trace of trace.cuh
STAMPS = 4  # of a record there
STAMP_BYTES = 8 * STAMPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Addresses, as one rank sees them.

    arenas: every rank's flags and FIFOs, on the plan's transport; own: the rank's own arena, in its
    GPU's memory; abort: its abort word; aborts: a table of the abort words of all ranks; inputs,
    outputs: every rank's first set of user buffers; net, net_slots: the rank's ends of connections
    to other shared-memory domains.
    """

    arenas: tuple[int, ...]
    own: int
    abort: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    program: int
    aborts: int
    net: int = 0
    net_slots: int = 0


def pack_args(
    plan: Plan,
    rank: int,
    memory: Memory,
    *,
    set_offset: int,
    timeout_ns: int,
    delay_ns: int = 0,
    block_bytes: int | None = None,
) -> bytes:
    """The arguments of a launch on a rank. block_bytes: of the problem, if it has another size than
    the plan's.
    """
    if block_bytes is None:
        block_bytes = plan.problem.block_bytes
    program, own, base = lower(plan, rank), layout(plan, rank), memory.own
    schedule, n = plan.schedule, plan.n
    shift = rank if schedule.is_symmetric else 0
    shifts = [shift if schedule.chunks[buffer] == n else 0 for buffer in ("in", "out", "tmp", "in")]
    buffers = memory.inputs[rank], memory.outputs[rank], base + own.tmp
    control = base + STATES_AT, memory.abort, memory.aborts, base + REPORTS_AT, memory.program
    sizes = plan.chunk_bytes, plan.piece_bytes, slot_wire_bytes(plan)
    out = [
        ARGS.pack(
            *buffers,
            *(set_offset, block_bytes, plan.share_of(block_bytes)),
            *control,
            timeout_ns,
            *sizes,
            schedule.chunks["tmp"] * plan.chunk_bytes,
            *(rank, n, *shifts, delay_ns, 0),
        )
    ]
    for is_sending, ends in ((False, program.receiving), (True, program.sending)):
        packed = [
            END.pack(
                *reach(plan, rank, memory, number, end, is_sending=is_sending),
                end.per_loop,
                peer_of(plan, rank, end),
            )
            for number, end in enumerate(ends)
        ]
        out += packed or [bytes(END.size)]
    return b"".join(out)


class EndAddresses(NamedTuple):
    """The addresses of a connection's end on channel 0, as END packs them: its slots, its local and
    remote flag, the peer's buffers, and the strides between channels.
    """

    slots: int
    local_flag: int
    remote_flag: int
    peer_in: int
    peer_out: int
    slots_stride: int
    local_flag_stride: int
    remote_flag_stride: int


def reach(
    plan: Plan, rank: int, memory: Memory, number: int, end: ConnectionEnd, *, is_sending: bool
) -> EndAddresses:
    """The addresses of an end: number `number` of the rank's sending or receiving ends."""
    peer = peer_of(plan, rank, end)
    if plan.is_remote(rank, peer):
        where = net_layout(plan, rank)
        k = where.ends.index((is_sending, number))
        word = memory.net + where.words + 2 * k * FLAG_LINE_BYTES
        slots, strides = memory.net_slots + k * where.fifo_bytes, (where.words_stride,) * 2
        return EndAddresses(slots, word, word + FLAG_LINE_BYTES, 0, 0, where.slots_stride, *strides)
    other = other_end(plan, rank, end, is_sending=is_sending)
    own, theirs = layout(plan, rank), layout(plan, peer)
    here, there = lower(plan, rank), lower(plan, peer)
    apart = [
        FLAG_LINE_BYTES * len(ends)
        for ends in (
            (here.sending, there.receiving) if is_sending else (here.receiving, there.sending)
        )
    ]
    flags, peer_flags = (own.heads, theirs.tails) if is_sending else (own.tails, theirs.heads)
    local_flag = memory.arenas[rank] + flags + number * FLAG_LINE_BYTES
    remote_flag = memory.arenas[peer] + peer_flags + other * FLAG_LINE_BYTES
    slots = stride = 0
    if end.has_fifo and (plan.p2p == "pull") == is_sending:
        slots, stride = memory.arenas[rank] + own.fifo_of[is_sending, number], own.fifo_stride
    elif end.has_fifo:
        slots = memory.arenas[peer] + theirs.fifo_of[not is_sending, other]
        stride = theirs.fifo_stride
    return EndAddresses(
        slots, local_flag, remote_flag, memory.inputs[peer], memory.outputs[peer], stride, *apart
    )
