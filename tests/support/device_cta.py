"""One CTA of a launch on GPUs made of NumPy arrays (device.py): its walk through the data, and the
coroutines of its threads and warps.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from collbench.core.case import Problem
from collbench.planning.protocols import FAMILY as PROTOCOLS
from tests.support.device_wire import LANES, slot_bytes, wire_share
from tests.support.structures import enumerators

if TYPE_CHECKING:
    from tests.support.device import Gpus

KIND, SIGNAL, FLAG = (
    SimpleNamespace(**enumerators(name)) for name in ("Kind", "Signal", "StepFlags")
)
# where what a program's part has begins
FIRST = {what: f"first_{what[:-1]}" for what in ("rounds", "stages", "waits", "steps", "signals")}
Coroutine = Iterator[bool]  # yields whether it waits for another coroutine


def shifted(chunk: int, shift: int, ranks: int) -> int:
    chunk += shift
    return chunk - ranks if chunk >= ranks and shift else chunk


class Walk:
    """walk.cuh: the position of a CTA in its part of the data. Sizes wrap where the kernel counts
    them in 32 bits.
    """

    def __init__(
        self,
        args: SimpleNamespace,
        sizes: dict[str, int],
        item: int,
        channel: int,
        done: int,
        blocks: Sequence[tuple[int, int]] | None,
    ) -> None:
        self.a, self.channel, self.done, self.item = args, channel, done, item
        self.parts, self.slots, self.is_sliced = sizes["PARTS"], sizes["SLOTS"], sizes["SLICED"]
        self.mask = (1 << (32 if sizes["NARROW"] else 64)) - 1
        self.slice = self.size = self.slices = self.chunk = 0
        self.offset = min(channel * args.share_bytes & self.mask, args.block_bytes)
        self.end = self.offset + min(args.share_bytes, args.block_bytes - self.offset)
        self.blocks = blocks  # the channel's table, where blocks are unequal
        if blocks is not None:
            self.offset, self.end = 0, blocks[0][1]

    def advance(self) -> bool:
        """Go on to the next loop; False if there is none."""
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
        self.slices = (
            -(-self.chunk // self.a.piece_bytes)
            if self.is_sliced and self.a.piece_bytes < self.chunk
            else 1
        )
        return True

    def piece(self, work: int) -> tuple[int, int]:
        """The first byte and the size of the current slice of a chunk."""
        size = self.size
        if self.blocks is not None:
            size = max(0, min(self.chunk, self.blocks[work][1] - self.offset))
        if self.parts:
            start = shifted(work, self.a.shift_work, self.a.ranks) * self.chunk & self.mask
            size = min(self.chunk, self.size - start) if start < self.size else 0
        first = min(self.slice * self.a.piece_bytes, size) if self.is_sliced else 0
        return first, min(self.a.piece_bytes, size - first)

    def number(self, end: SimpleNamespace, message: int) -> int:
        """The number of the current slice of a message on its connection."""
        return (
            int(
                self.done * end.per_loop
                + message * (self.slices if self.is_sliced else 1)
                + self.slice
            )
            & 0xFFFFFFFF
        )

    def local_flag(self, end: SimpleNamespace) -> int:
        return int(end.local_flag + self.channel * end.local_flag_stride)

    def remote_flag(self, end: SimpleNamespace) -> int:
        return int(end.remote_flag + self.channel * end.remote_flag_stride)

    def slot(self, end: SimpleNamespace, number: int) -> int:
        return int(
            end.slots + self.channel * end.slots_stride + number % self.slots * self.a.slot_bytes
        )

    def buffer_at(self, ref: SimpleNamespace, ends: Sequence[SimpleNamespace], first: int) -> int:
        """The address of a chunk of one of the rank's own or a peer's buffers."""
        a = self.a
        if ref.kind == KIND.TMP:
            return int(
                a.tmp
                + self.channel * a.tmp_stride
                + shifted(ref.chunk, a.shift_tmp, a.ranks) * a.chunk_bytes
                + first
            )
        is_in = ref.kind in (KIND.IN, KIND.PEER_IN)
        if self.blocks is not None:
            begin, size = self.blocks[ref.chunk]
            at = begin + min(self.offset, size)
        else:
            chunk = shifted(ref.chunk, a.shift_in if is_in else a.shift_out, a.ranks)
            at = self.offset + (
                min(chunk * self.chunk, self.size) if self.parts else chunk * a.block_bytes
            )
        own = {KIND.IN: vars(a)["in"], KIND.OUT: a.out}
        base = (
            own[ref.kind]
            if ref.kind in own
            else ends[ref.end].peer_in
            if is_in
            else ends[ref.end].peer_out
        )
        return int(base + a.set + at + first)


class Cta:
    """One CTA of one launch: its arguments, program and barriers."""

    def __init__(
        self, gpus: "Gpus", rank: int, index: int, problem: Problem, args: SimpleNamespace
    ) -> None:
        self.gpus, self.rank, self.index, self.problem, self.a = gpus, rank, index, problem, args
        self.program, self.sizes = gpus.programs[rank], gpus.sizes[rank]
        self.track = self.program.tracks[index % self.sizes["TRACKS"]]
        self.arrived = 0
        self.seen_filled = [0] * len(args.receiving)
        self.seen_read = [0] * len(args.sending)
        self.done, self.launch = struct.unpack(
            "<2I", gpus.at(rank, args.state + 8 * index, 8).tobytes()
        )

    def walk(self) -> Walk:
        channel, tables = self.index // self.sizes["TRACKS"], self.gpus.blocks[self.rank]
        return Walk(
            self.a,
            self.sizes,
            self.problem.item_bytes,
            channel,
            self.done,
            None if tables is None else tables[channel],
        )

    def leave(self, walk: Walk) -> None:
        """Store the state from which the next launch starts."""
        self.gpus.at(self.rank, self.a.state + 8 * self.index, 8)[:] = np.frombuffer(
            struct.pack("<2I", walk.done, self.launch + 1), np.uint8
        )

    def barrier(self, parties: int, turn: int) -> Coroutine:
        """turn: how often the coroutine has come to it."""
        self.arrived += 1
        self.gpus.changes += 1
        while self.arrived < turn * parties:
            yield True

    def coroutines(self) -> list[Coroutine]:
        assert self.gpus.plan.kernel is not None
        if self.gpus.plan.kernel.proto == "simple":
            return [self.work(), self.hand_over()]
        return [self.flagged(lane) for lane in range(LANES)]

    def part(self, of: SimpleNamespace, what: str) -> list[SimpleNamespace]:
        """What a track, round or stage has of the program."""
        first = getattr(of, FIRST[what])
        found: list[SimpleNamespace] = getattr(self.program, what)[
            first : first + getattr(of, what)
        ]
        return found

    def stages(self, w: Walk) -> Iterator[SimpleNamespace]:
        """Those of each slice of each round of each loop."""
        while w.advance():
            for round_ in self.part(self.track, "rounds"):
                for number in range(w.slices):
                    w.slice = number
                    yield from self.part(round_, "stages")
                w.slice = 0

    # simple.cu

    def work(self) -> Coroutine:
        """The workers."""
        w, turns = self.walk(), count(1)
        for stage in self.stages(w):
            for flag in self.part(stage, "waits"):
                yield from self.wait(w, flag)
            for step in self.part(stage, "steps"):
                self.run_plain(w, step)
                yield False
            yield from self.barrier(2, next(turns))
        for flag in self.program.waits[self.track.first_back :][: self.track.backs]:
            yield from self.wait(w, flag)
        self.leave(w)

    def hand_over(self) -> Coroutine:
        """The last warp, which signals what is done."""
        w, turns = self.walk(), count(1)
        for flag in self.program.signals[self.track.first_ready :][: self.track.readies]:
            self.signal(w, flag)
        yield False
        for stage in self.stages(w):
            yield from self.barrier(2, next(turns))
            for flag in self.part(stage, "signals"):
                self.signal(w, flag)
                yield False

    def wait(self, w: Walk, flag: SimpleNamespace) -> Coroutine:
        is_data = flag.signal == SIGNAL.DATA
        end = (self.a.receiving if is_data else self.a.sending)[flag.end]
        wanted, word = w.number(end, flag.message) + (1 if w.slices else 0), w.local_flag(end)
        if flag.signal == SIGNAL.READY:
            wanted, word = self.launch + 1, word + 8
        elif flag.signal == SIGNAL.ROOM:
            if wanted <= w.slots:
                return
            wanted -= w.slots
        cached = self.seen_filled if is_data else self.seen_read
        if flag.signal != SIGNAL.READY and cached[flag.end] >= wanted:
            return
        words = self.gpus.words(self.rank, word)
        while (seen := int(words[0])) < wanted:
            yield True
        if flag.signal != SIGNAL.READY:
            cached[flag.end] = seen

    def signal(self, w: Walk, flag: SimpleNamespace) -> None:
        end = (self.a.sending if flag.signal == SIGNAL.TAIL else self.a.receiving)[flag.end]
        if flag.signal == SIGNAL.READY:
            self.gpus.set_flag(self.rank, w.remote_flag(end) + 8, self.launch + 1)
        else:
            assert flag.signal in (SIGNAL.TAIL, SIGNAL.HEAD)
            self.gpus.set_flag(self.rank, w.remote_flag(end), w.number(end, flag.message) + 1)

    def run_plain(self, w: Walk, step: SimpleNamespace) -> None:
        first, size = w.piece(step.work)
        if not size:
            return

        def memory(ref: SimpleNamespace, ends: Sequence[SimpleNamespace]) -> np.ndarray:
            if ref.kind != KIND.SLOT:
                return self.gpus.user(self, w.buffer_at(ref, ends, first), size)
            assert ref.chunk * self.a.piece_bytes + size <= self.a.slot_bytes
            end = ends[ref.end]
            return self.gpus.at(
                self.rank,
                w.slot(end, w.number(end, ref.message)) + ref.chunk * self.a.piece_bytes,
                size,
            )

        result = self.gpus.reduce(
            [memory(ref, self.a.receiving) for ref in step.source[: step.sources]],
            step.flags & FLAG.DIVIDE,
        )
        for ref in step.target[: step.targets]:
            memory(ref, self.a.sending)[:] = result

    # flagged.cuh, lines.cuh, ll128.cu

    def flagged(self, lane: int) -> Coroutine:
        """One thread of ll or sentinel, or warp of ll128: it has every LANES-th line or tile of a
        chunk.
        """
        w, turns = self.walk(), count(1)
        is_single, is_uncredited = self.sizes["SINGLE"], self.sizes["UNCREDITED"]
        ends = () if is_uncredited else self.a.sending[: self.sizes["SENDING"]]
        seen = [self.gpus.word(self.rank, w.local_flag(end)) for end in ends]
        if clears := PROTOCOLS.load(self.gpus.plan.proto).CLEARS:
            self.give_back(w, lane)
        for stage in self.stages(w):
            for flag in () if is_uncredited else self.part(stage, "waits"):
                if flag.signal == SIGNAL.ROOM:
                    yield from self.wait_for_room(w, flag, seen)
            for step in self.part(stage, "steps"):
                yield from self.run_flagged(w, step, lane)
            for flag in () if is_single else self.part(stage, "signals"):
                if flag.signal == SIGNAL.HEAD:
                    yield from self.free_slots(w, flag, lane, turns)
        assert not is_single or w.done <= self.done + 1, "the kernel has code for one loop only"
        yield from self.barrier(LANES, next(turns))
        if not clears:
            self.give_back(w, lane)
        if lane == 0:
            self.leave(w)

    def give_back(self, w: Walk, lane: int) -> None:
        """Tell senders how many slices were read, unless nobody counts them."""
        heads = range(self.track.first_head, self.track.first_head + self.track.heads)
        for k in () if self.sizes["UNCREDITED"] else heads:
            if lane == k % LANES:
                end = self.a.receiving[self.program.signals[k].end]
                done = w.done * end.per_loop & 0xFFFFFFFF
                self.gpus.set_flag(self.rank, w.remote_flag(end), done)

    def wait_for_room(self, w: Walk, flag: SimpleNamespace, seen: list[int]) -> Coroutine:
        """Wait until a message's slot is free."""
        end = self.a.sending[flag.end]
        number = w.number(end, flag.message)
        while number >= w.slots + seen[flag.end]:
            seen[flag.end] = self.gpus.word(self.rank, w.local_flag(end))
            if number >= w.slots + seen[flag.end]:
                yield True

    def free_slots(
        self, w: Walk, flag: SimpleNamespace, lane: int, turns: Iterator[int]
    ) -> Coroutine:
        """Report the slots that were read, each time they are a whole batch."""
        end = self.a.receiving[flag.end]
        following = w.number(end, flag.message) + 1
        if following % self.sizes["BATCH"] == 0:
            yield from self.barrier(LANES, next(turns))
            if lane == 0:
                self.gpus.set_flag(self.rank, w.remote_flag(end), following)

    def run_flagged(self, w: Walk, step: SimpleNamespace, lane: int) -> Coroutine:
        first, size = w.piece(step.work)
        assert self.gpus.plan.kernel is not None
        proto = self.gpus.plan.kernel.proto
        wire = wire_share(proto, size, lane)
        if not len(wire.index):
            return

        def slot(ref: SimpleNamespace, ends: Sequence[SimpleNamespace]) -> tuple[np.ndarray, int]:
            end = ends[ref.end]
            number = w.number(end, ref.message)
            at = ref.chunk * slot_bytes(proto, self.a.piece_bytes)
            assert at + slot_bytes(proto, size) <= self.a.slot_bytes
            return (
                self.gpus.at(self.rank, w.slot(end, number) + at, slot_bytes(proto, size)),
                number + 1,
            )

        def user(ref: SimpleNamespace, ends: Sequence[SimpleNamespace]) -> np.ndarray:
            return self.gpus.user(self, w.buffer_at(ref, ends, first), size)

        operands = []
        for ref in step.source[: step.sources]:
            if ref.kind == KIND.SLOT:
                memory, flag = slot(ref, self.a.receiving)
                while not wire.has_arrived(memory, flag):
                    yield True
                operands.append(wire.received(memory))
            else:
                operands.append(wire.loaded(user(ref, self.a.receiving)))
        result = self.gpus.reduce(operands, step.flags & FLAG.DIVIDE)
        for ref in step.target[: step.targets]:
            if ref.kind == KIND.SLOT:
                memory, flag = slot(ref, self.a.sending)
                wire.send(memory, result, flag)
            else:
                wire.store(user(ref, self.a.sending), result)
            yield False
