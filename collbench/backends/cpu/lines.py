"""Protocols whose data carries its own flags (ll, ll128), on CPUs: a slot is lines, each of
data and of a flag behind it.

A sender makes two passes over a slice: the data of all its lines, then the flags of all its lines.
A receiver waits until every flag is the slice's number, then copies or reduces the data. No counter
says that data is there; slots that were read are counted as by simple.

Why that is enough, on x86-64 and nowhere else (cpu.why_not):
- Stores. The two passes are two calls, so each store of the data comes before each store of a flag,
  and other CPUs see stores in their order. Two kinds of stores that a copy may use are
  weaker, and neither reaches over the end of the call: those of one string instruction (rep movs)
  have no order among themselves, but no later store overtakes them; non-temporal ones have none at
  all, and the C library ends them with a fence. So one flag would do to know that all of the
  slice's data is there. Each is looked at all the same, because within a pass nothing has an order
  (NumPy may take it in vectors, parts, or backwards): a line counts when its own flag is there, and
  no earlier.
- A flag is one aligned word of 4 or 8 bytes, stored and loaded whole. Loads are not reordered: data
  is loaded after the flags were.
- A slot is written again after its credit came back, which the receiver stored after its last load
  of the data; no store overtakes an older load.
- A flag is the slice's number since FIFOs were cleared, plus one: never 0, and never what another
  slice left behind (see refuse_repeats).
Source: Intel SDM volume 3A, "Memory Ordering"; AMD64 APM volume 2, 7.2; the layouts are NCCL's.

Of a chunk the last line may be padded; an empty chunk is one line, so that its hand-over orders
what it orders with counters. A slice is awaited and flagged as a whole, with all of its chunks, as
the proof of its schedule has it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from collbench.backends.cpu.flags import LineFlags, SliceFlags
from collbench.backends.cpu.interpreter import BoundStep, address, arithmetic, bind, copy
from collbench.backends.cpu.layout import fifos_before
from collbench.backends.net.proxy import BoundCall
from collbench.core.dtypes import Array, dtype
from collbench.core.errors import ScheduleError
from collbench.planning.limits import slot_wire_bytes
from collbench.planning.lowering import Action, Region, SlotSequence, TrackActions
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS

View = Callable[[Region], "Array"]


class Chunk(NamedTuple):
    """A chunk of a slice as it lies in a slot: `data`, the bytes of each line, and `flags`, one a
    line.
    """

    data: "Array"
    flags: "Array"


def chunk_in(memory: "Array", size: int, data_bytes: int, flag_bytes: int) -> Chunk:
    """The lines that so many bytes of payload take from the start of `memory` on.

    >>> data, flags = chunk_in(np.arange(32, dtype=np.uint8), 9, 4, 4)
    >>> data.tolist(), flags.tobytes().hex()
    ([[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]], '040506070c0d0e0f14151617')
    """
    count = max(1, -(-size // data_bytes))
    lines = memory[: count * (data_bytes + flag_bytes)].reshape(count, data_bytes + flag_bytes)
    return Chunk(lines[:, :data_bytes], lines[:, data_bytes:].view(f"u{flag_bytes}")[:, 0])


def refuse_repeats(plan: Plan, launches: int) -> None:
    """Raise ScheduleError if a flag would come back, so many launches after FIFOs were cleared."""
    flag_bytes = PROTOCOLS.load(plan.proto).FLAG_BYTES
    most = plan.most_slices
    if most * launches >= 1 << 8 * flag_bytes:
        raise ScheduleError(
            f"{launches} launches of {most} slices: flags of {plan.proto} count them in"
            f" {8 * flag_bytes} bits",
            "use fewer --iters or a larger --chunk",
        )


class Binder:
    """Binds actors of a plan to FIFOs made of lines. Chunks, flags and scratch memory are the same
    for every set of user buffers.

    An action takes twice the memory and time to bind that it takes with counters.
    """

    def __init__(self, plan: Plan, fifos: "Array") -> None:
        self.plan, self.fifos = plan, fifos
        facts = PROTOCOLS.load(plan.proto)
        self.data_bytes, self.flag_bytes = facts.DATA_BYTES, facts.FLAG_BYTES
        self.piece_wire_bytes = int(facts.wire_bytes(plan.piece_bytes))
        self.element = dtype(plan.problem.dtype).numpy()
        self._chunks: dict[Region, Chunk] = {}
        self._marks: dict[SlotSequence, SliceFlags] = {}
        self._scratch: dict[int, Array] = {}

    def bind(self, actors: Sequence[TrackActions], view: "View") -> list[list[BoundStep]]:
        """The actions of each actor; `view` resolves regions outside of slots."""
        programs = bind(
            self.plan,
            [
                actor._replace(actions=[_credits_of(action) for action in actor.actions])
                for actor in actors
            ],
            view,
        )
        for actor, program in zip(actors, programs, strict=True):
            slices = _slices(actor)
            for number, action in enumerate(actor.actions):
                calls = tuple(self._calls(action, view))
                flags = LineFlags(
                    *(
                        tuple(self._mark(turn, slices[turn]) for turn in turns)
                        for turns in (action.take, action.post)
                    )
                )
                program[number] = program[number]._replace(
                    calls=calls, lines=flags if action.take or action.post else None
                )
        return programs

    def chunk(self, region: Region) -> Chunk:
        """The lines of a region of a slot."""
        if region not in self._chunks:
            slot, place = divmod(region.offset, self.plan.slot_bytes)
            fifo = fifos_before(self.plan, self.plan.connections[region.owner].fifo_offset)
            offset = (fifo * self.plan.slots + slot) * slot_wire_bytes(
                self.plan
            ) + place // self.plan.piece_bytes * self.piece_wire_bytes
            self._chunks[region] = chunk_in(
                self.fifos[offset:], region.size, self.data_bytes, self.flag_bytes
            )
        return self._chunks[region]

    def _mark(self, turn: SlotSequence, regions: Sequence[Region]) -> SliceFlags:
        if turn not in self._marks:
            flags = tuple(self.chunk(region).flags for region in regions)
            self._marks[turn] = SliceFlags(
                turn.edge,
                self.plan.connections[turn.edge].slices,
                turn.number + 1,
                flags,
                flags[-1].data,
            )
        return self._marks[turn]

    def _calls(self, action: Action, view: "View") -> list[BoundCall]:
        """Elements as wide as a line's data are reached where they lie; others are bytes, which
        pass through contiguous memory.
        """
        if not action.targets or not action.operands[0].size:
            return []
        if self.element.itemsize == self.data_bytes:
            return arithmetic(
                self.plan,
                action,
                lambda region: self._elements(region) if region.space == "slot" else view(region),
            )
        first = action.operands[0]
        arrays: dict[Region, Array] = {}

        def at(region: Region) -> "Array":
            return arrays[region] if region in arrays else view(region)

        result = next(
            (region for region in action.targets if region.space != "slot"), action.targets[0]
        )
        if len(action.operands) == 1 and first.space != "slot":
            result = first  # nothing to compute: what is sent is packed from where it is
        arrays |= {
            region: self._staged(number, region)
            for number, region in enumerate((result, *action.operands))
            if region.space == "slot"
        }
        if len(action.operands) == 1 and first.space == "slot":
            # nothing to compute: what arrives is unpacked to where it goes
            arrays[first] = at(result)
        calls = [
            copy(whole, lines)
            for region in action.operands
            if region.space == "slot"
            for lines, whole in self._pairs(region, at(region))
        ]
        calls += arithmetic(self.plan, action._replace(targets=(result,)), at)
        for region in action.targets:
            if region.space == "slot":
                calls += [copy(lines, whole) for lines, whole in self._pairs(region, at(result))]
            elif address(view(region)) != address(at(result)):
                calls.append(copy(view(region), at(result)))
        return calls

    def _elements(self, region: Region) -> "Array":
        return self.chunk(region).data.view(self.element)[: region.size // self.element.itemsize, 0]

    def _staged(self, number: int, region: Region) -> "Array":
        """Scratch memory for a region, the same for all actions: a rank does one at a time."""
        memory = self._scratch.setdefault(number, np.empty(self.plan.piece_bytes, np.uint8))
        return memory[: region.size].view(self.element)

    def _pairs(self, region: Region, array: "Array") -> list[tuple["Array", "Array"]]:
        """The region's lines and the parts of a contiguous array that they hold: whole lines,
        then a rest.
        """
        data, flat, width = self.chunk(region).data, array.view(np.uint8), self.data_bytes
        whole, rest = divmod(len(flat), width)
        pairs = (
            [(data[:whole].view(f"V{width}")[:, 0], flat[: whole * width].view(f"V{width}"))]
            if whole
            else []
        )
        return pairs + ([(data[whole, :rest], flat[whole * width :])] if rest else [])


def _credits_of(action: Action) -> Action:
    """What counters do of an action."""
    return action._replace(take=(), post=(), operands=(), targets=())


def _slices(actor: TrackActions) -> dict[SlotSequence, list[Region]]:
    """The chunks of every slice that a track sends or receives."""
    slices: dict[SlotSequence, list[Region]] = {}
    current: dict[int, SlotSequence] = {}
    for action in actor.actions:
        current |= {turn.edge: turn for turn in (*action.room, *action.take)}
        for region in (*action.operands, *action.targets):
            if region.space == "slot":
                slices.setdefault(current[region.owner], []).append(region)
    return slices
