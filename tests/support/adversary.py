"""A play of a schedule on symbolic memory in a random order of events: what a wrong proof would let
through shows as wrong data, as a write past the end of a vector, or as a hang.

It knows no clocks and no rules. A rank poisons its memory and fills its input when it begins a
launch, and compares its output when it ends one, as a user between two launches might. Credits for
slots come back as kernels give them: each time that a multiple of `batch` slots was read, and at
the end of a launch. The last loop of a launch is short: it sends fewer slices, and the last chunks
of a vector are shorter than the others, or empty.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Literal

from collbench.core.collectives import collective
from collbench.schedules.ir import At, Edge, Message, Operand, Schedule, Step, expanded
from collbench.schedules.passes import Shape, arrivals, cell, home, landing, shape_of

Verdict = Literal["right", "wrong", "hang"]
Piece = tuple[int, int, int]  # launch, loop, slice
Value = tuple[Piece, int, int] | None  # of which piece and input chunk, mask of ranks
Cell = tuple[Operand, Piece]
Event = Callable[[], bool] | None  # what an actor waits for before its next event
_Waiting = tuple[Iterator[Event], Event]
UNBOUNDED = 1 << 30
_PERSISTENCE = 0.7  # probability that an actor which can go on does so
_WHOLE = 4  # elements of a chunk, unless the loop is short


@dataclass(slots=True)
class _Fifo:
    """Messages on their way, each a list of values or of cells of the sender, if it is pulled."""

    messages: deque[list[Value | Cell]] = field(default_factory=deque)
    sent: int = 0
    freed: int = 0
    credited: int = 0


@dataclass(slots=True)
class _Slice:
    """One slice of a round: what its steps took, and what they have sent so far."""

    at: At
    shape: Shape
    piece: Piece
    taken: dict[Edge, list[Value | Cell]]
    sending: dict[Edge, list[Value | Cell]]
    to_send: dict[Edge, int]  # chunks of a message that no step has given yet
    to_take: dict[Edge, int]  # and that no step has read yet
    early: dict[Operand, Value]


class Adversary:
    """One random play of a few launches of that many loops, of which the last of several is
    short.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        in_place: bool,
        launches: int,
        seed: int,
        loops: int = 1,
        slices: int = 1,
        slots: int = UNBOUNDED,
        batch: int = 1,
    ) -> None:
        self.schedule, self.in_place, self.launches = expanded(schedule), in_place, launches
        self.what, self.random, self.is_wrong = collective(schedule.op), random.Random(seed), False
        self.slots, self.batch = slots, batch
        whole = _WHOLE * schedule.chunks["in"]
        self.slices, self.elements = [slices] * loops, [whole] * loops
        if loops > 1:
            self.slices[-1] = self.random.randint(1, slices)
            self.elements[-1] = self.random.randint(1, whole)
        self.by_stage = self.random.random() < 0.5
        self.reads_early = not self.by_stage and self.random.random() < 0.5
        self.memory: list[dict[Cell, Value]] = [{} for _ in range(schedule.n)]
        self.fifos: dict[tuple[int, int, str], _Fifo] = {}
        self.begun = [0] * schedule.n
        self.ended = [[0] * len(program) for program in self.schedule.programs]
        self.targets = {
            sent: (
                taken,
                landing(
                    self.schedule.programs[taken.at.program][taken.at.track].rounds[taken.at.round],
                    taken.edge,
                ),
            )
            for sent, taken in arrivals(self.schedule).items()
            if taken.edge in self.schedule.pushed.get(taken.at, ())
        }

    def play(self) -> Verdict:
        """How it ends."""
        actors: list[Iterator[Event]] = [self._rank(rank) for rank in range(self.schedule.n)]
        actors += [
            self._track(rank, track)
            for rank, program in enumerate(self.schedule.programs)
            for track in range(len(program))
        ]
        quick: list[_Waiting] = []
        slow: list[_Waiting] = []  # always late: only when nobody else can move
        for actor in actors:
            (slow if self.random.random() < 0.3 else quick).append((actor, None))
        while quick or slow:
            group, k = quick, self._able(quick)
            if k is None:
                group, k = slow, self._able(slow)
            if k is None:
                return "hang"
            actor, _ = group.pop(k)
            for event in actor:
                can_go_on = event is None or event()
                if not can_go_on or self.random.random() > _PERSISTENCE:
                    group.append((actor, event))
                    break
        is_left = any(fifo.messages for fifo in self.fifos.values())
        return "wrong" if self.is_wrong or is_left else "right"

    def _able(self, group: list[_Waiting]) -> int | None:
        """Some actor of the group that can go on."""
        first = self.random.randrange(len(group)) if group else 0
        for k in chain(range(first, len(group)), range(first)):
            if (event := group[k][1]) is None or event():
                return k
        return None

    def _fifo(self, src: int, dst: int, port: str) -> _Fifo:
        return self.fifos.setdefault((src, dst, port), _Fifo())

    def _has_begun(self, rank: int, launch: int) -> bool:
        return self.begun[rank] > launch

    def _has_ended(self, rank: int, launch: int) -> bool:
        return min(self.ended[rank], default=launch + 1) > launch

    def _has_read(self, fifo: _Fifo, count: int) -> bool:
        return fifo.credited >= count

    def _has_room(self, fifo: _Fifo) -> bool:
        return fifo.sent - fifo.credited < self.slots

    def _length(self, loop: int, chunk: int) -> int:
        """Elements of a chunk of a vector in a loop."""
        whole = -(-self.elements[loop] // self.schedule.chunks["in"])
        return max(0, min(whole, self.elements[loop] - chunk * whole))

    def _cell(self, rank: int, operand: Operand, piece: Piece) -> Cell:
        at = cell(self.schedule, rank, operand, in_place=self.in_place)
        return at, (0, 0, piece[2]) if at.buffer == "tmp" else piece

    def _rank(self, rank: int) -> Iterator[Event]:
        """Begins and ends launches: all tracks of a rank together."""
        n, root, schedule, memory = (
            self.schedule.n,
            self.schedule.root,
            self.schedule,
            self.memory[rank],
        )
        given = schedule.chunks["in"] if self.what.blocks("in", n, root, rank) else 0
        for launch in range(self.launches):
            pieces = [
                (launch, loop, number)
                for loop, slices in enumerate(self.slices)
                for number in range(slices)
            ]
            memory.clear()
            for piece in pieces:
                for chunk in range(given):
                    at = self._cell(rank, Operand("in", chunk), piece)
                    memory[at] = (piece, chunk, 1 << rank)
            self.begun[rank] = launch + 1
            yield partial(self._has_ended, rank, launch)
            for want in self.what.wants(n, root, rank):
                mask = sum(1 << giver for giver in want.ranks)
                pairs = (
                    [(c, c) for c in range(schedule.chunks["out"])]
                    if self.what.is_interleaved
                    else [(want.out_block, want.in_block)]
                )
                self.is_wrong |= any(
                    memory.get((Operand("out", out), piece)) != (piece, chunk, mask)
                    for out, chunk in pairs
                    for piece in pieces
                )
            memory.clear()
            yield None

    def _track(self, rank: int, track: int) -> Iterator[Event]:
        rounds = self.schedule.programs[rank][track].rounds
        pulled = {
            edge
            for r in range(len(rounds))
            for edge in self.schedule.pulled.get(At(rank, track, r), ())
        }
        taken = {edge for steps in rounds for step in steps for edge in step.recv}
        for launch in range(self.launches):
            yield partial(self._has_begun, rank, launch)
            for loop, slices in enumerate(self.slices):
                posted: dict[tuple[int, Edge, int], int] = {}
                for r in range(len(rounds)):
                    for number in range(slices):
                        yield from self._round(At(rank, track, r), (launch, loop, number), posted)
            for edge in taken:
                fifo = self._fifo(edge.peer, rank, edge.port)
                fifo.credited = fifo.freed
            for edge in pulled:
                fifo = self._fifo(rank, edge.peer, edge.port)
                yield partial(self._has_read, fifo, fifo.sent)
            self.ended[rank][track] = launch + 1

    def _round(
        self, at: At, piece: Piece, posted: dict[tuple[int, Edge, int], int]
    ) -> Iterator[Event]:
        steps = self.schedule.programs[at.program][at.track].rounds[at.round]
        shape = shape_of(steps)
        sending: dict[Edge, list[Value | Cell]] = {
            edge: [None] * count for edge, count in shape.sent.items()
        }
        now = _Slice(at, shape, piece, {}, sending, dict(shape.sent), dict(shape.received), {})
        for stage in shape.stages:
            groups = [stage] if self.by_stage else [[s] for s in stage]
            for group in groups:
                if self.reads_early:
                    now.early = {
                        operand: self._load(at.program, operand, piece)
                        for s in group
                        for operand in steps[s].src
                    }
                for s in group:
                    yield from self._wait(now, s, posted)
                yield None
                for s in group:
                    yield from self._compute(now, s)
                for s in group:
                    self._hand_over(now, steps[s], posted)
                    yield None

    def _wait(
        self, now: _Slice, s: int, posted: dict[tuple[int, Edge, int], int]
    ) -> Iterator[Event]:
        """Wait for the data, the room, and the ends of pulls that a step needs."""
        at, rank = now.at, now.at.program
        step = self.schedule.programs[rank][at.track].rounds[at.round][s]
        for edge in step.recv:
            if edge not in now.taken:
                fifo = self._fifo(edge.peer, rank, edge.port)
                yield partial(bool, fifo.messages)
                now.taken[edge] = fifo.messages.popleft()
        for edge in step.send:
            yield partial(self._has_room, self._fifo(rank, edge.peer, edge.port))
            message, _ = self.targets.get(Message(at, edge), (None, ()))
            if message is not None and message.edge in self.schedule.ready.get(edge.peer, ()):
                yield partial(self._has_begun, edge.peer, now.piece[0])
        for pull in self.schedule.pending_pulls.get(at, {}).get(s, ()):
            fifo = self._fifo(rank, pull.edge.peer, pull.edge.port)
            count = posted[pull.round, pull.edge, now.piece[2]]
            yield partial(self._has_read, fifo, count)

    def _load(self, rank: int, operand: Operand, piece: Piece) -> Value:
        return self.memory[rank].get(self._cell(rank, operand, piece))

    def _store(self, rank: int, operand: Operand, piece: Piece, value: Value) -> None:
        if value is not None and operand.buffer == "out" and self.what.is_interleaved:
            loop = piece[1]
            self.is_wrong |= self._length(loop, value[1]) > self._length(loop, operand.chunk)
        self.memory[rank][self._cell(rank, operand, piece)] = value

    def _compute(self, now: _Slice, s: int) -> Iterator[Event]:
        """Reduce the operands of a step, and write the result, a moment later, where it goes."""
        at, rank, piece = now.at, now.at.program, now.piece
        steps = self.schedule.programs[rank][at.track].rounds[at.round]
        step, sent_index, taken_index = steps[s], now.shape.sent_index, now.shape.received_index
        pushed = self.schedule.pushed.get(at, frozenset())
        values = [
            now.early[operand] if self.reads_early else self._load(rank, operand, piece)
            for operand in step.src
        ]
        for edge in step.recv:
            carried = now.taken[edge][taken_index[s, edge]]
            if edge in pushed:
                values.append(self._load(rank, home(step), piece))
            elif carried is not None and isinstance(carried[0], Operand):
                values.append(self.memory[edge.peer].get(carried))
            else:
                values.append(carried)
        result = _sum(values)
        yield None
        if step.dst is not None and pushed.isdisjoint(step.recv):
            self._store(rank, step.dst, piece, result)
        for edge in step.send:
            message, targets = self.targets.get(Message(at, edge), (None, ()))
            carried = result
            if message is not None:
                self._store(edge.peer, targets[sent_index[s, edge]], piece, result)
            elif edge in self.schedule.pulled.get(at, ()):
                carried = self._cell(rank, home(step), piece)
            now.sending[edge][sent_index[s, edge]] = carried

    def _hand_over(self, now: _Slice, step: Step, posted: dict[tuple[int, Edge, int], int]) -> None:
        """Send the messages that a step completes, and free the slots that it was the last to
        read.
        """
        rank = now.at.program
        for edge in step.send:
            now.to_send[edge] -= 1
            if not now.to_send[edge]:
                fifo = self._fifo(rank, edge.peer, edge.port)
                fifo.sent += 1
                fifo.messages.append(now.sending[edge])
                posted[now.at.round, edge, now.piece[2]] = fifo.sent
        for edge in step.recv:
            now.to_take[edge] -= 1
            if not now.to_take[edge]:
                fifo = self._fifo(edge.peer, rank, edge.port)
                fifo.freed += 1
                if not fifo.freed % self.batch:
                    fifo.credited = fifo.freed


def _sum(values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        if total is None or value is None or value[:2] != total[:2] or value[2] & total[2]:
            return None
        total = (*total[:2], total[2] | value[2])
    return total
