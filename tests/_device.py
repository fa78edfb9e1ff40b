"""GPUs made of NumPy arrays: they run what collbench.device lowers and packs, one CTA beside the other, as the kernels walk it.

Everything comes from the bytes that a kernel would get: arguments and programs are unpacked by the structures of types.cuh, and memory is
found by address, which every rank sees elsewhere, as processes do. CTAs are coroutines that a seeded scheduler takes turns with; of a CTA of
ll or ll128 two threads or warps run apart. What is not here: caches, the memory order, timeouts, the lanes of a warp.

A launch of a rank begins when its last one ended, whatever the others do. Between two of them its answers are compared, then all of its
user buffers are spoilt and filled anew, with other values.
"""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from collbench.backends._gpu import stride_bytes
from collbench.case import Problem
from collbench.collectives import collective
from collbench.device.compile import kernel_source
from collbench.device.layout import Memory, layout, pack_args, pack_program
from collbench.device.program import lower
from collbench.dtypes import divide, dtype, ufunc
from collbench.pattern import PERIOD, inputs, reduced
from collbench.plan import Plan

from ._structures import enumerators, unpack

ARENA, USER, PROGRAM = range(3)
_SIZE = 1 << 36  # of the addresses of one region
_LANES = 2  # threads (ll) or warps (ll128) of a CTA
_POISON = 0xA5
_PERSISTENCE = 0.9  # how likely a coroutine goes on that could

KIND, SIGNAL, FLAG = (SimpleNamespace(**enumerators(name)) for name in ("Kind", "Signal", "StepFlags"))
Coroutine = Iterator[bool]  # yields whether it waits for others


class Run(NamedTuple):
    """A launch: which set of user buffers, and elements of a block where that is not the plan's number."""

    number: int = 0
    block_count: int = 0


class Gpus:
    """n GPUs with a plan's memory, and two sets of user buffers. any_size: their kernels serve smaller problems too."""

    def __init__(self, plan: Plan, seed: int = 0, *, any_size: bool = False) -> None:
        self.plan, self.chance, self.changes = plan, random.Random(seed), 0
        self.stride = stride_bytes(plan.problem)
        self.arenas = [np.zeros(layout(plan, rank).total, np.uint8) for rank in range(plan.n)]
        self.users = [np.full(2 * self.stride, _POISON, np.uint8) for _ in range(plan.n)]
        for rank in range(plan.n):
            self.arenas[rank][layout(plan, rank).tmp :] = _POISON
        self.sizes = [macros_of(plan, rank, any_size=any_size) for rank in range(plan.n)]
        self.programs = [unpack(pack_program(lower(plan, rank)), "Program", self.sizes[rank]) for rank in range(plan.n)]

    # Memory, as a rank sees it

    def at(self, viewer: int, address: int, size: int) -> np.ndarray:
        """Memory at an address of a rank."""
        (who, owner, region), offset = place_of(address)
        assert who == viewer, f"rank {viewer} uses an address {address:#x} that is rank {who}'s"
        memory = (self.arenas if region == ARENA else self.users)[owner]
        assert region in (ARENA, USER)
        assert 0 <= offset <= offset + size <= len(memory), f"rank {viewer} reaches {size} bytes at {offset} of {len(memory)} of rank {owner}"
        return memory[offset : offset + size]

    def user(self, cta: "Cta", address: int, size: int) -> np.ndarray:
        """A chunk of someone's buffers of this launch's set, or of the rank's own scratch memory."""
        (_, owner, region), offset = place_of(address)
        if region == ARENA:
            assert owner == cta.rank
            assert offset >= layout(self.plan, owner).tmp
        else:
            first = offset - cta.a.set
            assert 0 <= first <= first + size <= cta.problem.buffers(owner).total_bytes
        unit = self.sizes[cta.rank].get("ALIGNED", 0) * (16 if self.plan.kernel and self.plan.kernel.proto == "ll128" else 8)
        assert not unit or (address % unit == 0 and size % unit == 0), f"{size} bytes at {address:#x} where all is a multiple of {unit}"
        return self.at(cta.rank, address, size)

    def word(self, viewer: int, address: int) -> int:
        return int(self._words(viewer, address)[0])

    def tell(self, viewer: int, address: int, value: int) -> None:
        """Set a word that another rank hears; such words only grow."""
        word = self._words(viewer, address)
        assert value >= word[0]
        word[0] = value
        self.changes += 1

    def _words(self, viewer: int, address: int) -> np.ndarray:
        (_, owner, region), offset = place_of(address)
        where = layout(self.plan, owner)
        assert region == ARENA
        assert offset < where.fifos
        return self.at(viewer, address, 8).view("<u8")

    def reduce(self, operands: Sequence[np.ndarray], is_divided: int) -> np.ndarray:
        """One step's arithmetic, on bytes."""
        if len(operands) == 1:
            return operands[0].copy()
        kind = dtype(self.plan.problem.dtype)
        with np.errstate(all="ignore"):  # what lies past the end of a line is computed too
            total = operands[0].view(kind.numpy()).astype(kind.accumulator())
            for operand in operands[1:]:
                ufunc(self.plan.problem.redop)(total, operand.view(kind.numpy()).astype(total.dtype), total)
            if is_divided:
                divide(total, self.plan.n)
            return total.astype(kind.numpy()).view(np.uint8)

    # Launches

    def run(self, *runs: Run) -> None:
        """Launches, one after the other on every rank, each compared. Asserts that all end."""
        streams = [self._stream(rank, runs) for rank in range(self.plan.n)]
        live: list[list[Coroutine]] = [next(stream) for stream in streams]
        haste = [self.chance.choice((0.1, 0.5, 1.0)) for _ in streams]
        is_patient = False
        while any(live):
            before = self.changes
            turns = [(rank, one) for rank, ctas in enumerate(live) for one in ctas]
            self.chance.shuffle(turns)
            for rank, one in turns:
                if not is_patient and self.chance.random() > haste[rank]:
                    continue
                try:
                    while not next(one):
                        self.changes += 1
                        if self.chance.random() > _PERSISTENCE:
                            break
                except StopIteration:
                    self.changes += 1
                    live[rank].remove(one)
                    if not live[rank]:
                        live[rank] = next(streams[rank], [])
            if self.changes == before:
                assert not is_patient, f"all wait for each other: CTAs left by rank {[len(ctas) for ctas in live]}"
            is_patient = self.changes == before  # then everybody is asked before it counts as a deadlock

    def _stream(self, rank: int, runs: Sequence[Run]) -> Iterator[list[Coroutine]]:
        """The coroutines of one launch after the other."""
        for number, run in enumerate(runs):
            problem, phase = problem_of(self.plan, run), 1009 * number
            self.fill(rank, run, phase)
            args = args_of(self.plan, rank, run, self.sizes[rank])
            ctas = [Cta(self, rank, index, problem, args) for index in range(self.plan.channels * self.sizes[rank]["TRACKS"])]
            yield [one for cta in ctas for one in cta.coroutines()]
            self.compare(rank, run, phase)
            self.set_of(rank, run)[:] = _POISON

    def set_of(self, rank: int, run: Run) -> np.ndarray:
        return self.users[rank][run.number * self.stride :][: problem_of(self.plan, run).buffers(rank).total_bytes]

    def fill(self, rank: int, run: Run, phase: int) -> None:
        """Poison and a rank's input, whose values start at a phase of the pattern."""
        problem, mine = problem_of(self.plan, run), self.set_of(rank, run)
        mine[:] = _POISON
        at = problem.buffers(rank)
        mine[at.in_offset :][: at.in_bytes] = input_bytes(problem, rank, 0, at.in_bytes, phase)

    def compare(self, rank: int, run: Run, phase: int) -> None:
        """Assert what the collective's definition says, and that an input which is not written over is as it was."""
        problem, mine = problem_of(self.plan, run), self.set_of(rank, run)
        at, size = problem.buffers(rank), problem.block_bytes
        for want in collective(problem.op).wants(problem.n, problem.root, rank):
            got = mine[at.out_offset + want.out_block * size :][:size]
            first = want.in_block * problem.block_count
            if collective(problem.op).is_reduction:
                wanted = _tiled(reduced(problem.dtype, problem.redop, problem.n), first, size, phase)
            else:
                wanted = input_bytes(problem, want.ranks[0], first, size, phase)
            wrong = np.flatnonzero(got != wanted)
            assert not len(wrong), f"rank {rank}, block {want.out_block}: {len(wrong)} of {size} bytes wrong, the first at {wrong[0]}"
        if not problem.in_place:
            assert (mine[at.in_offset :][: at.in_bytes] == input_bytes(problem, rank, 0, at.in_bytes, phase)).all()


def input_bytes(problem: Problem, rank: int, first: int, size: int, phase: int) -> np.ndarray:
    """Bytes of a rank's input from element `first` on."""
    return _tiled(inputs(problem.dtype, problem.redop, problem.n, rank, collective(problem.op).is_reduction), first, size, phase)


def _tiled(values: np.ndarray, first: int, size: int, phase: int) -> np.ndarray:
    return np.ascontiguousarray(values[(np.arange(size // values.itemsize) + first + phase) % PERIOD]).view(np.uint8)


def problem_of(plan: Plan, run: Run) -> Problem:
    """What a launch computes."""
    return replace(plan.problem, block_count=run.block_count or plan.problem.block_count)


def args_of(plan: Plan, rank: int, run: Run, sizes: dict[str, int]) -> SimpleNamespace:
    """What a kernel gets, unpacked."""
    problem, set_offset = problem_of(plan, run), run.number * stride_bytes(plan.problem)
    packed = pack_args(plan, rank, memory_of(problem, rank), set_offset=set_offset, timeout_ns=10**10, block_bytes=problem.block_bytes)
    return unpack(packed, "Args", sizes)


def macros_of(plan: Plan, rank: int, *, any_size: bool = False) -> dict[str, int]:
    """The macros of a rank's kernel that are numbers."""
    return {name: int(value) for name, value in kernel_source(plan, rank, any_size=any_size).macros if value.isdecimal()}


def memory_of(problem: Problem, viewer: int) -> Memory:
    """Addresses of all memory as one rank sees it: no other rank uses the same."""
    def base(owner: int, region: int) -> int:
        return ((viewer + 1) * 64 + owner) * 4 * _SIZE + region * _SIZE

    buffers = [problem.buffers(rank) for rank in range(problem.n)]
    return Memory(
        arenas=tuple(base(rank, ARENA) for rank in range(problem.n)),
        inputs=tuple(base(rank, USER) + at.in_offset for rank, at in enumerate(buffers)),
        outputs=tuple(base(rank, USER) + at.out_offset for rank, at in enumerate(buffers)),
        program=base(viewer, PROGRAM), aborts=base(viewer, PROGRAM) + _SIZE // 2,
    )


def place_of(address: int) -> tuple[tuple[int, int, int], int]:
    """Whose address it is, whose memory and which region it means, and the offset there."""
    region, offset = divmod(address, _SIZE)
    return (region // 256 - 1, region // 4 % 64, region % 4), offset


def moved(chunk: int, shift: int, ranks: int) -> int:
    chunk += shift
    return chunk - ranks if chunk >= ranks and shift else chunk


class Walk:
    """walk.cuh: a CTA's place in its part of the data. Sizes wrap where the kernel counts them in 32 bits."""

    def __init__(self, args: SimpleNamespace, sizes: dict[str, int], item: int, channel: int, done: int) -> None:
        self.a, self.channel, self.done, self.item = args, channel, done, item
        self.parts, self.slots, self.is_sliced = sizes["PARTS"], sizes["SLOTS"], sizes["SLICED"]
        self.mask = (1 << (32 if sizes["NARROW"] else 64)) - 1
        self.slice = self.size = self.slices = self.chunk = 0
        self.offset = min(channel * args.share_bytes & self.mask, args.block_bytes)
        self.end = self.offset + min(args.share_bytes, args.block_bytes - self.offset)

    def advance(self) -> bool:
        """On to the next loop; False if there is none."""
        self.done += self.slices
        self.offset += self.size
        self.slices = 0
        if self.offset >= self.end:
            return False
        left, cut = self.end - self.offset, self.parts or 1
        self.chunk, self.size = self.a.chunk_bytes, cut * self.a.chunk_bytes & self.mask
        if left < self.size:
            even = (left + cut - 1) // cut
            grain = 64 if even > 64 else self.item
            self.chunk, self.size = min((even + grain - 1) & ~(grain - 1), self.a.chunk_bytes), left
        self.slices = -(-self.chunk // self.a.piece_bytes) if self.is_sliced and self.a.piece_bytes < self.chunk else 1
        return True

    def piece(self, work: int) -> tuple[int, int]:
        """First byte and size of the current slice of a chunk."""
        size = self.size
        if self.parts:
            start = moved(work, self.a.shift_work, self.a.ranks) * self.chunk & self.mask
            size = min(self.chunk, self.size - start) if start < self.size else 0
        first = min(self.slice * self.a.piece_bytes, size) if self.is_sliced else 0
        return first, min(self.a.piece_bytes, size - first)

    def number(self, end: SimpleNamespace, message: int) -> int:
        """Of the current slice of a message, on its connection."""
        return int(self.done * end.per_loop + message * (self.slices if self.is_sliced else 1) + self.slice) & 0xFFFFFFFF

    def heard(self, end: SimpleNamespace) -> int:
        return int(end.heard + self.channel * end.heard_stride)

    def said(self, end: SimpleNamespace) -> int:
        return int(end.said + self.channel * end.said_stride)

    def slot(self, end: SimpleNamespace, number: int) -> int:
        return int(end.slots + self.channel * end.slots_stride + number % self.slots * self.a.slot_bytes)

    def buffer_at(self, ref: SimpleNamespace, ends: Sequence[SimpleNamespace], first: int) -> int:
        """The address of a chunk of one of the rank's own or a peer's buffers."""
        a = self.a
        if ref.kind == KIND.TMP:
            return int(a.tmp + self.channel * a.tmp_stride + moved(ref.chunk, a.shift_tmp, a.ranks) * a.chunk_bytes + first)
        is_in = ref.kind in (KIND.IN, KIND.PEER_IN)
        chunk = moved(ref.chunk, a.shift_in if is_in else a.shift_out, a.ranks)
        at = self.offset + (min(chunk * self.chunk, self.size) if self.parts else chunk * a.block_bytes)
        own = {KIND.IN: vars(a)["in"], KIND.OUT: a.out}
        base = own[ref.kind] if ref.kind in own else ends[ref.end].peer_in if is_in else ends[ref.end].peer_out
        return int(base + a.set + at + first)


class Cta:
    """One CTA of one launch: its arguments, program and barriers."""

    def __init__(self, gpus: Gpus, rank: int, index: int, problem: Problem, args: SimpleNamespace) -> None:
        self.gpus, self.rank, self.index, self.problem, self.a = gpus, rank, index, problem, args
        self.program, self.sizes = gpus.programs[rank], gpus.sizes[rank]
        self.track = self.program.tracks[index % self.sizes["TRACKS"]]
        self.arrived: dict[str, int] = {}
        self.seen_filled = [0] * len(args.receiving)
        self.seen_read = [0] * len(args.sending)
        self.done, self.launch = struct.unpack("<2I", gpus.at(rank, args.state + 8 * index, 8).tobytes())

    def walk(self) -> Walk:
        return Walk(self.a, self.sizes, self.problem.item_bytes, self.index // self.sizes["TRACKS"], self.done)

    def leave(self, walk: Walk) -> None:
        """What the next launch starts from."""
        self.gpus.at(self.rank, self.a.state + 8 * self.index, 8)[:] = np.frombuffer(struct.pack("<2I", walk.done, self.launch + 1), np.uint8)

    def barrier(self, name: str, parties: int, mine: dict[str, int]) -> Coroutine:
        mine[name] = mine.get(name, 0) + 1
        self.arrived[name] = self.arrived.get(name, 0) + 1
        self.gpus.changes += 1
        while self.arrived[name] < mine[name] * parties:
            yield True

    def coroutines(self) -> list[Coroutine]:
        assert self.gpus.plan.kernel is not None
        if self.gpus.plan.kernel.proto == "simple":
            return [self.work(), self.hand_over()]
        return [self.flagged(lane) for lane in range(_LANES)]

    # simple.cu

    def rounds(self) -> Iterator[SimpleNamespace]:
        first = self.track.first_round
        return iter(self.program.rounds[first : first + self.track.rounds])

    def stages(self, round_: SimpleNamespace) -> Iterator[SimpleNamespace]:
        return iter(self.program.stages[round_.first_stage : round_.first_stage + round_.stages])

    def work(self) -> Coroutine:
        """The workers."""
        w, mine = self.walk(), dict[str, int]()
        while w.advance():
            for round_ in self.rounds():
                for number in range(w.slices):
                    w.slice = number
                    for stage in self.stages(round_):
                        for mark in self.program.waits[stage.first_wait : stage.first_wait + stage.waits]:
                            yield from self.wait(w, mark)
                        for step in self.program.steps[stage.first_step : stage.first_step + stage.steps]:
                            self.run_plain(w, step)
                            yield False
                        yield from self.barrier("all", 2, mine)
                w.slice = 0
        for mark in self.program.waits[self.track.first_back : self.track.first_back + self.track.backs]:
            yield from self.wait(w, mark)
        self.leave(w)

    def hand_over(self) -> Coroutine:
        """The last warp, which says what is done."""
        w, mine = self.walk(), dict[str, int]()
        for mark in self.program.posts[self.track.first_ready : self.track.first_ready + self.track.readies]:
            self.say(w, mark)
        yield False
        while w.advance():
            for round_ in self.rounds():
                for number in range(w.slices):
                    w.slice = number
                    for stage in self.stages(round_):
                        yield from self.barrier("all", 2, mine)
                        for mark in self.program.posts[stage.first_post : stage.first_post + stage.posts]:
                            self.say(w, mark)
                            yield False
                w.slice = 0

    def wait(self, w: Walk, mark: SimpleNamespace) -> Coroutine:
        is_data = mark.signal == SIGNAL.DATA
        end = (self.a.receiving if is_data else self.a.sending)[mark.end]
        wanted, word = w.number(end, mark.message) + (1 if w.slices else 0), w.heard(end)
        if mark.signal == SIGNAL.READY:
            wanted, word = self.launch + 1, word + 8
        elif mark.signal == SIGNAL.ROOM:
            if wanted <= w.slots:
                return
            wanted -= w.slots
        cached = self.seen_filled if is_data else self.seen_read
        if mark.signal != SIGNAL.READY and cached[mark.end] >= wanted:
            return
        while (seen := self.gpus.word(self.rank, word)) < wanted:
            yield True
        if mark.signal != SIGNAL.READY:
            cached[mark.end] = seen

    def say(self, w: Walk, mark: SimpleNamespace) -> None:
        end = (self.a.sending if mark.signal == SIGNAL.TAIL else self.a.receiving)[mark.end]
        if mark.signal == SIGNAL.READY:
            self.gpus.tell(self.rank, w.said(end) + 8, self.launch + 1)
        else:
            assert mark.signal in (SIGNAL.TAIL, SIGNAL.HEAD)
            self.gpus.tell(self.rank, w.said(end), w.number(end, mark.message) + 1)

    def run_plain(self, w: Walk, step: SimpleNamespace) -> None:
        first, size = w.piece(step.work)
        if not size:
            return

        def memory(ref: SimpleNamespace, ends: Sequence[SimpleNamespace]) -> np.ndarray:
            if ref.kind != KIND.SLOT:
                return self.gpus.user(self, w.buffer_at(ref, ends, first), size)
            assert ref.chunk * self.a.piece_bytes + size <= self.a.slot_bytes
            end = ends[ref.end]
            return self.gpus.at(self.rank, w.slot(end, w.number(end, ref.message)) + ref.chunk * self.a.piece_bytes, size)

        result = self.gpus.reduce([memory(ref, self.a.receiving) for ref in step.source[: step.sources]], step.flags & FLAG.DIVIDE)
        for ref in step.target[: step.targets]:
            memory(ref, self.a.sending)[:] = result

    # flagged.cuh, ll.cu, ll128.cu

    def flagged(self, lane: int) -> Coroutine:
        """One thread of ll, or one warp of ll128: it has every _LANES-th line, or turn, of each chunk."""
        w, mine = self.walk(), dict[str, int]()
        is_single, is_uncredited = self.sizes["SINGLE"], self.sizes["UNCREDITED"]
        seen = [] if is_uncredited else [self.gpus.word(self.rank, w.heard(end)) for end in self.a.sending[: self.sizes["SENDING"]]]
        while w.advance():
            for round_ in self.rounds():
                for stage in self.stages(round_):
                    for mark in self.program.waits[stage.first_wait : stage.first_wait + stage.waits]:
                        if mark.signal == SIGNAL.ROOM and not is_uncredited:
                            end = self.a.sending[mark.end]
                            number = w.number(end, mark.message)
                            while number >= w.slots + seen[mark.end]:
                                seen[mark.end] = self.gpus.word(self.rank, w.heard(end))
                                if number >= w.slots + seen[mark.end]:
                                    yield True
                    for step in self.program.steps[stage.first_step : stage.first_step + stage.steps]:
                        yield from self.run_flagged(w, step, lane)
                    for mark in () if is_single else self.program.posts[stage.first_post : stage.first_post + stage.posts]:
                        if mark.signal == SIGNAL.HEAD:
                            end = self.a.receiving[mark.end]
                            following = w.number(end, mark.message) + 1
                            if following % self.sizes["BATCH"] == 0:
                                yield from self.barrier("all", _LANES, mine)
                                if lane == 0:
                                    self.gpus.tell(self.rank, w.said(end), following)
            if is_single:
                assert not w.advance(), "the kernel has code for one loop only"
                break
        yield from self.barrier("all", _LANES, mine)
        for k in () if is_uncredited else range(self.track.first_head, self.track.first_head + self.track.heads):
            if lane == k % _LANES:
                end = self.a.receiving[self.program.posts[k].end]
                self.gpus.tell(self.rank, w.said(end), w.done * end.per_loop & 0xFFFFFFFF)
        if lane == 0:
            self.leave(w)

    def run_flagged(self, w: Walk, step: SimpleNamespace, lane: int) -> Coroutine:
        first, size = w.piece(step.work)
        assert self.gpus.plan.kernel is not None
        proto = self.gpus.plan.kernel.proto
        wire = wire_of(proto, size, lane)
        if not len(wire.index):
            return

        def slot(ref: SimpleNamespace, ends: Sequence[SimpleNamespace]) -> tuple[np.ndarray, int]:
            end = ends[ref.end]
            number = w.number(end, ref.message)
            at = ref.chunk * slot_bytes(proto, self.a.piece_bytes)
            assert at + slot_bytes(proto, size) <= self.a.slot_bytes
            return self.gpus.at(self.rank, w.slot(end, number) + at, slot_bytes(proto, size)), number + 1

        operands = []
        for ref in step.source[: step.sources]:
            if ref.kind == KIND.SLOT:
                memory, flag = slot(ref, self.a.receiving)
                while not wire.has_come(memory, flag):
                    yield True
                operands.append(wire.taken(memory))
            else:
                operands.append(wire.loaded(self.gpus.user(self, w.buffer_at(ref, self.a.receiving, first), size)))
        result = self.gpus.reduce(operands, step.flags & FLAG.DIVIDE)
        for ref in step.target[: step.targets]:
            if ref.kind == KIND.SLOT:
                memory, flag = slot(ref, self.a.sending)
                wire.send(memory, result, flag)
            else:
                wire.store(self.gpus.user(self, w.buffer_at(ref, self.a.sending, first), size), result)
            yield False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wire:
    """One thread's (ll) or warp's (ll128) part of a chunk: which bytes of user memory it has, and which words of 4 bytes of a slot."""

    index: np.ndarray  # of its bytes in the chunk; some stand past its end
    is_there: np.ndarray  # which do not
    words: np.ndarray  # where each 4 of them lie in the slot
    flags: np.ndarray  # words that hold the flag
    zeros: np.ndarray  # words that hold its upper half

    def loaded(self, memory: np.ndarray) -> np.ndarray:
        """Its part of user memory; zeros past the end."""
        found = np.zeros(len(self.index), np.uint8)
        found[self.is_there] = memory[self.index[self.is_there]]
        return found

    def store(self, memory: np.ndarray, payload: np.ndarray) -> None:
        memory[self.index[self.is_there]] = payload[self.is_there]

    def has_come(self, memory: np.ndarray, flag: int) -> bool:
        slot = memory.view("<u4")
        return bool((slot[self.flags] == flag).all() and not slot[self.zeros].any())

    def taken(self, memory: np.ndarray) -> np.ndarray:
        found: np.ndarray = memory.view("<u4")[self.words].view(np.uint8)
        return found

    def send(self, memory: np.ndarray, payload: np.ndarray, flag: int) -> None:
        slot = memory.view("<u4")
        slot[self.words], slot[self.flags], slot[self.zeros] = payload.view("<u4"), flag, 0


@lru_cache(maxsize=4096)
def wire_of(proto: str, size: int, lane: int) -> Wire:
    """The part of a chunk of that size. Every _LANES-th line, or turn, is one thread's or warp's."""
    payload, whole = _UNITS[proto]
    units = np.arange(lane, -(-size // payload), _LANES)[:, None]
    words, flags, zeros = (_LINE_WORDS, _LINE_FLAGS, np.empty(0, int)) if proto == "ll" else (_TURN_WORDS, _TURN_FLAGS, _TURN_FLAGS + 1)
    index, words, flags, zeros = units * payload + np.arange(payload), units * (whole // 4) + words, units * (whole // 4) + flags, units * (whole // 4) + zeros
    if proto == "ll128" and len(units) and size - int(units[-1, 0]) * payload <= payload // 2:  # the last turn is half a turn
        half = (part[-1, : part.shape[1] // 2] for part in (index, words, flags, zeros))
        index, words, flags, zeros = (np.concatenate([part[:-1].reshape(-1), last]) for part, last in zip((index, words, flags, zeros), half, strict=True))
    index = index.reshape(-1)
    return Wire(index=index, is_there=index < size, words=words.reshape(-1), flags=flags.reshape(-1), zeros=zeros.reshape(-1))


def slot_bytes(proto: str, payload: int) -> int:
    """What that much of a chunk takes in a slot."""
    one, whole = _UNITS[proto]
    return -(-payload // one) * whole


def _words_of_a_turn() -> tuple[np.ndarray, np.ndarray]:
    """ll128.cu: the words of a turn that hold payload, in its order, and those that hold flags."""
    units, flags = [[0] * 4 for _ in range(120)], []
    for g in range(4):
        for lane in range(32):
            at, ends_line = 128 * g + 4 * lane, lane % 8 == 7
            if ends_line:
                flags.append(at + 2)
            if g % 2 == 0:
                later = at + 128 if ends_line else at + 2
                units[g // 2 * 60 + lane] = [at, at + 1, later, later + 1]
            elif not ends_line:
                units[g // 2 * 60 + 32 + lane - lane // 8] = [at, at + 1, at + 2, at + 3]
    return np.array(units).reshape(-1), np.array(flags)


_UNITS = {"ll": (8, 16), "ll128": (1920, 2048)}  # payload and bytes of a line, and of a turn
_LINE_WORDS, _LINE_FLAGS = np.array([0, 2]), np.array([1, 3])
_TURN_WORDS, _TURN_FLAGS = _words_of_a_turn()
