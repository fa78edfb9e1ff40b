"""Plays a schedule on plain memory in a random order of events: what a wrong proof of direct writes
would let through shows as wrong data.

It knows no clocks. FIFOs are unbounded, so that ranks run as far ahead as data and handshakes let
them; a rank poisons its output and fills its input when it begins a launch, and compares its output
when it ends one, as a user between two launches might.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from collbench.schedules.ir import At, Edge, Message, Operand, Schedule, execution_order, expanded
from collbench.schedules.passes import arrivals, cell, landing, message_indices
from collbench.spec.collectives import collective

Value = tuple[int, int, int] | None  # launch, input chunk, mask of ranks
Event = Callable[[], bool] | None  # what an actor waits for before its next event


class Adversary:
    """One random play of a few launches of one loop each."""

    def __init__(self, schedule: Schedule, *, in_place: bool, launches: int, seed: int) -> None:
        self.schedule, self.in_place, self.launches = expanded(schedule), in_place, launches
        self.what, self.random, self.wrong = collective(schedule.op), random.Random(seed), 0
        self.memory: list[dict[Operand, Value]] = [{} for _ in range(schedule.n)]
        self.fifos: dict[tuple[int, int, str], deque[list[Value]]] = {}
        self.begun, self.ended = (
            [0] * schedule.n,
            [[0] * len(program) for program in self.schedule.programs],
        )
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

    def play(self) -> int:
        """How many outputs came out wrong."""
        actors: list[Iterator[Event]] = [self._rank(rank) for rank in range(self.schedule.n)]
        actors += [
            self._track(rank, track)
            for rank, program in enumerate(self.schedule.programs)
            for track in range(len(program))
        ]
        waiting: list[tuple[Iterator[Event], Event]] = [(actor, None) for actor in actors]
        # always late: only when nobody else can move
        slow = {id(actor) for actor in actors if self.random.random() < 0.3}
        while waiting:
            able = [k for k, (_, event) in enumerate(waiting) if event is None or event()]
            quick = [k for k in able if id(waiting[k][0]) not in slow]
            k = self.random.choice(quick or able)
            actor, _ = waiting.pop(k)
            for event in actor:
                waiting.append((actor, event))
                break
        return self.wrong

    def _has_begun(self, rank: int, launch: int) -> bool:
        return self.begun[rank] > launch

    def _has_ended(self, rank: int, launch: int) -> bool:
        return all(done > launch for done in self.ended[rank])

    def _rank(self, rank: int) -> Iterator[Event]:
        """Begins and ends launches: all tracks of a rank together."""
        n, root, schedule, memory = (
            self.schedule.n,
            self.schedule.root,
            self.schedule,
            self.memory[rank],
        )
        for launch in range(self.launches):
            for chunk in range(schedule.chunks["out"]):
                memory[Operand("out", chunk)] = None
            for chunk in range(
                schedule.chunks["in"] if self.what.blocks("in", n, root, rank) else 0
            ):
                memory[cell(schedule, rank, Operand("in", chunk), in_place=self.in_place)] = (
                    launch,
                    chunk,
                    1 << rank,
                )
            self.begun[rank] = launch + 1
            yield partial(self._has_ended, rank, launch)
            for want in self.what.wants(n, root, rank):
                mask = sum(1 << giver for giver in want.ranks)
                pairs = (
                    [(c, c) for c in range(schedule.chunks["out"])]
                    if self.what.is_interleaved
                    else [(want.out_block, want.in_block)]
                )
                self.wrong += sum(
                    memory[Operand("out", out)] != (launch, chunk, mask) for out, chunk in pairs
                )
            yield None

    def _track(self, rank: int, track: int) -> Iterator[Event]:
        for launch in range(self.launches):
            yield partial(self._has_begun, rank, launch)
            for r in range(len(self.schedule.programs[rank][track].rounds)):
                yield from self._round(At(rank, track, r), launch)
            self.ended[rank][track] = launch + 1

    def _round(self, at: At, launch: int) -> Iterator[Event]:
        rank, steps = at.program, self.schedule.programs[at.program][at.track].rounds[at.round]
        sent_index, taken_index = message_indices(steps)
        taken: dict[Edge, list[Value]] = {}
        sending: dict[Edge, list[Value]] = {
            edge: [None] * sum(edge in step.send for step in steps)
            for step in steps
            for edge in step.send
        }
        left = {edge: len(values) for edge, values in sending.items()}
        for s in execution_order(steps):
            step = steps[s]
            for edge in step.recv:
                if edge not in taken:
                    fifo = self.fifos.setdefault((edge.peer, rank, edge.port), deque())
                    yield partial(bool, fifo)
                    taken[edge] = fifo.popleft()
            for edge in step.send:
                message, _ = self.targets.get(Message(at, edge), (None, ()))
                if message is not None and message.edge in self.schedule.ready.get(edge.peer, ()):
                    yield partial(self._has_begun, edge.peer, launch)
            yield None
            values = [
                self.memory[rank].get(cell(self.schedule, rank, operand, in_place=self.in_place))
                for operand in step.src
            ]
            for edge in step.recv:
                is_placed = step.dst is not None and edge in self.schedule.pushed.get(at, ())
                values.append(
                    self.memory[rank][step.dst]
                    if is_placed and step.dst
                    else taken[edge][taken_index[s, edge]]
                )
            result = _sum(values)
            yield None  # what was read is a moment old when it is written
            if step.dst is not None and not any(
                edge in self.schedule.pushed.get(at, ()) for edge in step.recv
            ):
                self.memory[rank][step.dst] = result
            for edge in step.send:
                sending[edge][sent_index[s, edge]] = result
                message, targets = self.targets.get(Message(at, edge), (None, ()))
                if message is not None:
                    self.memory[edge.peer][targets[sent_index[s, edge]]] = result
                left[edge] -= 1
                if not left[edge]:
                    self.fifos.setdefault((rank, edge.peer, edge.port), deque()).append(
                        sending[edge]
                    )


def _sum(values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        if total is None or value is None or value[:2] != total[:2] or value[2] & total[2]:
            return None
        total = (*total[:2], total[2] | value[2])
    return total
