"""Programs of thread blocks that read and write each other's memory, and the same programs with
messages.

Such a program is played with vector clocks over the memory of all ranks. A chunk that a block
writes at another rank becomes a message, which the first block there that learns of it receives
before it goes on; a chunk that it reads there becomes a message that the other rank sends at the
last point that the reader knows of. Signals carry the order, and where that order joins blocks of
one rank, the later one waits for the earlier one. Where two blocks touch a chunk in no order, or
nobody waits for what is written, the program is refused with the places.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from collbench.core.errors import ScheduleError
from collbench.schedules.formats._threads import Block, Instruction, ThreadProgram
from collbench.schedules.ir import Edge, Operand, Step
from collbench.schedules.verify.clocks import Access, Cell, Clock, History, learn
from collbench.schedules.verify.proof import Place


class Address(NamedTuple):
    """A chunk of a rank's memory."""

    rank: int
    operand: Operand


class Move(NamedTuple):
    """The reduction of chunks, written to chunks."""

    src: tuple[Address, ...]
    dst: tuple[Address, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a block does at once: take what it waits for, move chunks, give what others wait for.

    takes, gives: counters by name. meets: a meeting by name, and how many blocks come. packets:
    whether chunks are written with flags; awaited: the chunks whose flags are waited for.
    """

    place: str
    moves: tuple[Move, ...] = ()
    takes: tuple[Hashable, ...] = ()
    gives: tuple[Hashable, ...] = ()
    meets: tuple[Hashable, int] | None = None
    has_packets: bool = False
    awaited: frozenset[Address] = frozenset()


class _Event(NamedTuple):
    """An operation of a block that was played."""

    rank: int
    block: int
    number: int


class _Arrival(NamedTuple):
    """Where a chunk that was written at another rank is received."""

    event: _Event
    port: str


@dataclass(slots=True)
class _Put:
    """A chunk written at another rank, by the chunk number `move` of an operation."""

    source: _Event
    time: int
    move: int
    position: int
    target: Address
    is_packet: bool
    arrival: _Arrival | None = None


def with_messages(
    program: ThreadProgram,
    ranks: tuple[tuple[tuple[str, tuple[Operation, ...]], ...], ...],
    initial: dict[Hashable, int],
) -> ThreadProgram:
    """The program, which has no blocks yet, with those of `ranks`: names and operations. initial:
    what counters hold from the start. Raises ScheduleError with the place and what is wrong.
    """
    play = _Play(program, ranks, initial)
    play.run()
    return play.program_with_messages()


@dataclass(slots=True)
class _Play:
    """The operations of all blocks, one after the other."""

    program: ThreadProgram
    ranks: tuple[tuple[tuple[str, tuple[Operation, ...]], ...], ...]
    initial: dict[Hashable, int]
    given: dict[Hashable, list[Clock]] = field(default_factory=dict)
    taken: dict[Hashable, int] = field(default_factory=dict)
    met: dict[Hashable, list[_Event]] = field(default_factory=dict)
    flagged: dict[Address, Clock] = field(default_factory=dict)
    clocks: list[Clock] = field(default_factory=list)
    actors: dict[tuple[int, int], int] = field(default_factory=dict)
    waiting: dict[Hashable, list[int]] = field(default_factory=dict)
    history: History = field(default_factory=History)
    puts: list[list[_Put]] = field(default_factory=list)
    writer: dict[Address, Access] = field(default_factory=dict)
    recvs: dict[_Event, dict[str, list[_Put]]] = field(default_factory=dict)
    gets: dict[_Event, list[tuple[Edge, list[Operand]]]] = field(default_factory=dict)
    reads: dict[tuple[_Event, int, int], Edge] = field(default_factory=dict)
    sent: dict[_Event, list[_Put]] = field(default_factory=dict)
    after: dict[_Event, list[tuple[int, int]]] = field(default_factory=dict)

    def run(self) -> None:
        """Play all operations. Raises ScheduleError with the place and what is wrong."""
        places = [(r, b) for r, blocks in enumerate(self.ranks) for b in range(len(blocks))]
        self.actors = {place: actor for actor, place in enumerate(places)}
        self.clocks = [{actor: 0} for actor in range(len(places))]
        self.puts = [[] for _ in self.ranks]
        done = [0] * len(places)
        active = list(range(len(places)))
        while active:
            waking: list[int] = []
            for actor in active:
                rank, block = places[actor]
                event = _Event(rank, block, done[actor])
                if event.number == len(self.ranks[rank][block][1]):
                    continue
                need = self._need(event)
                if need is not None:
                    self.waiting.setdefault(need, []).append(actor)
                    continue
                for happened in self._do(actor, event):
                    waking += self.waiting.pop(happened, ())
                done[actor] += 1
                waking.append(actor)
            active = list(dict.fromkeys(waking))
        for actors in self.waiting.values():
            for actor in actors:
                rank, block = places[actor]
                raise ScheduleError(
                    f"{self.ranks[rank][block][1][done[actor]].place}: waits for ever",
                    "no other block does what it waits for",
                )
        for pending in self.puts:
            for put in pending:
                raise ScheduleError(
                    f"{self._operation(put.source).place}: nobody at rank {put.target.rank} waits"
                    " for what it writes there",
                    "the program can end before the data is there",
                )

    def _operation(self, event: _Event) -> Operation:
        return self.ranks[event.rank][event.block][1][event.number]

    def _need(self, event: _Event) -> Hashable:
        """What an operation waits for that is not there yet, or None."""
        operation = self._operation(event)
        if operation.meets is not None:
            name, count = operation.meets
            here = self.met.setdefault(name, [])
            if event not in here:
                here.append(event)
            turn = here.index(event) // count
            return None if len(here) // count > turn else (name, turn)
        for counter, count in Counter(operation.takes).items():
            held = self.initial.get(counter, 0) + len(self.given.get(counter, ()))
            if held < self.taken.get(counter, 0) + count:
                return counter
        return next((at for at in operation.awaited if at not in self.flagged), None)

    def _do(self, actor: int, event: _Event) -> list[Hashable]:
        """Play an operation; returns what others may have waited for."""
        operation, clock = self._operation(event), self.clocks[actor]
        known = dict(clock)
        for counter in operation.takes:
            number = self.taken.get(counter, 0)
            self.taken[counter] = number + 1
            number -= self.initial.get(counter, 0)
            if number >= 0:
                learn(clock, self.given[counter][number])
        happened: list[Hashable] = list(operation.gives)
        if operation.meets is not None:
            happened.append(self._meet(event, clock))
        for address in operation.awaited:
            learn(clock, self.flagged[address])
        self._receive(event, clock, operation.awaited)
        clock[actor] += 1
        self.after[event] = [
            (block, clock[other] - 1)
            for (rank, block), other in self.actors.items()
            if rank == event.rank and other != actor and clock.get(other, 0) > known.get(other, 0)
        ]
        happened += self._move(actor, event, clock)
        for counter in operation.gives:
            self.given.setdefault(counter, []).append(dict(clock))
        return happened

    def _meet(self, event: _Event, clock: Clock) -> Hashable:
        """Know what all know that come together here."""
        operation = self._operation(event)
        assert operation.meets is not None
        name, count = operation.meets
        here = self.met[name]
        first = here.index(event) // count * count
        for other in here[first : first + count]:
            learn(clock, self.clocks[self.actors[other.rank, other.block]])
        return name, first // count

    def _receive(self, event: _Event, clock: Clock, awaited: frozenset[Address]) -> None:
        """Receive what the block has learnt of now: first of all its operation, in the order of
        what was written.
        """
        left: list[_Put] = []
        for put in self.puts[event.rank]:
            actor = self.actors[put.source.rank, put.source.block]
            is_here = put.target in awaited if put.is_packet else clock.get(actor, 0) >= put.time
            if not is_here:
                left.append(put)
                continue
            cell = f".{put.target.operand.buffer}{put.target.operand.chunk}" * put.is_packet
            port = f"b{put.source.block}-b{event.block}.{put.position}{cell}"
            put.arrival = _Arrival(event, port)
            self.recvs.setdefault(event, {}).setdefault(f"{put.source}{port}", []).append(put)
        self.puts[event.rank] = left

    def _move(self, actor: int, event: _Event, clock: Clock) -> list[Address]:
        """Read and write; returns the chunks that have flags now."""
        operation = self._operation(event)
        access = Access(actor, clock[actor], Place(event.rank, event.block, event.number, 0))
        asked: dict[Edge, tuple[_Event, list[Operand]]] = {}
        flagged: list[Address] = []
        for m, move in enumerate(operation.moves):
            for position, address in enumerate(move.src):
                at = self._address(address)
                conflicts = self.history.read(Cell(at.rank, at.operand, 0), access, clock)
                self._refuse(operation, conflicts, at)
                if at.rank != event.rank:
                    source = self._source(operation, at, clock)
                    edge = Edge(at.rank, f"b{source.block}-b{event.block}.get{position}")
                    self.reads[event, m, position] = edge
                    asked.setdefault(edge, (source, []))[1].append(at.operand)
        for edge, (source, operands) in asked.items():
            back = Edge(event.rank, edge.port)
            self.gets.setdefault(source, []).append((back, operands))
        for m, move in enumerate(operation.moves):
            for position, address in enumerate(move.dst):
                at = self._address(address)
                conflicts = self.history.write(Cell(at.rank, at.operand, 0), access, clock)
                self._refuse(operation, conflicts, at)
                self.writer[at] = access
                if operation.has_packets and at.operand.buffer == "tmp":
                    self.flagged[at] = dict(clock)
                    flagged.append(at)
                if at.rank != event.rank:
                    put = _Put(event, clock[actor], m, position, at, operation.has_packets)
                    self.puts[at.rank].append(put)
                    self.sent.setdefault(event, []).append(put)
        return flagged

    def _address(self, address: Address) -> Address:
        return Address(address.rank, self.program.cell(address.rank, address.operand))

    def _refuse(self, operation: Operation, conflicts: list[Access], at: Address) -> None:
        for other in conflicts:
            place = self.ranks[other.place.program][other.place.track][1][other.place.round].place
            raise ScheduleError(
                f"{operation.place}: touches {at.operand.buffer}[{at.operand.chunk}] of rank"
                f" {at.rank} in no order to {place}",
                "one of the two has to wait for the other: which one comes first decides the"
                " result",
            )

    def _source(self, operation: Operation, at: Address, clock: Clock) -> _Event:
        """The last operation of the other rank that the reader knows of and that knows what was
        written there.
        """
        known = [
            (clock[actor], block)
            for (rank, block), actor in self.actors.items()
            if rank == at.rank and clock.get(actor, 0) > 0
        ]
        write = self.writer.get(at)
        for time, block in sorted(known, reverse=True):
            event = _Event(at.rank, block, time - 1)
            if write is None or self._knows(event, write, time):
                return event
        raise ScheduleError(
            f"{operation.place}: reads {at.operand.buffer}[{at.operand.chunk}] of rank {at.rank},"
            " which has not said that it is there",
            "a signal from there has to be waited for",
        )

    def _knows(self, event: _Event, write: Access, time: int) -> bool:
        """Whether a rank's operation comes after what was written there."""
        by = write.place
        if by.program == event.rank:
            return by.track == event.block and write.time <= time
        puts = self.sent[_Event(by.program, by.track, by.round)]
        arrivals = [put.arrival for put in puts if put.target.rank == event.rank]
        return any(
            arrival is not None
            and arrival.event.block == event.block
            and arrival.event.number <= event.number
            for arrival in arrivals
        )

    def program_with_messages(self) -> ThreadProgram:
        """The blocks with messages in the place of what they do to other ranks."""
        last: dict[_Event, int] = {}
        drafts: list[list[tuple[str, list[tuple[_Event | None, Instruction]]]]] = []
        for rank, blocks in enumerate(self.ranks):
            drafts.append([])
            for block, (name, operations) in enumerate(blocks):
                made: list[tuple[_Event | None, Instruction]] = []
                for number in range(len(operations)):
                    event = _Event(rank, block, number)
                    first: _Event | None = event
                    for instruction in self._instructions(event):
                        made.append((first, instruction))
                        first = None
                    last[event] = len(made) - 1
                drafts[-1].append((name, made))
        program_ranks = tuple(
            tuple(
                Block(
                    name=name,
                    instructions=tuple(
                        Instruction(
                            place=instruction.place,
                            steps=instruction.steps,
                            after=tuple(
                                (block, last[_Event(rank, block, number)])
                                for block, number in (self.after[event] if event else ())
                            ),
                        )
                        for event, instruction in made
                    ),
                )
                for name, made in blocks
            )
            for rank, blocks in enumerate(drafts)
        )
        return replace(self.program, ranks=program_ranks)

    def _instructions(self, event: _Event) -> Iterator[Instruction]:
        """What an operation becomes: receptions, itself, and what others read here after it."""
        operation = self._operation(event)
        yield Instruction(place=operation.place)
        for puts in self.recvs.get(event, {}).values():
            arrival = puts[0].arrival
            assert arrival is not None
            edge = Edge(puts[0].source.rank, arrival.port)
            yield Instruction(
                place=operation.place,
                steps=tuple(Step(recv=(edge,), dst=put.target.operand) for put in puts),
            )
        sends: dict[int, dict[int, _Arrival]] = {}
        for put in self.sent.get(event, ()):
            assert put.arrival is not None
            sends.setdefault(put.move, {})[put.position] = put.arrival
        groups: dict[tuple[_Arrival, ...], list[Step]] = {}
        copies: list[Step] = []
        for m, move in enumerate(operation.moves):
            arrivals = sends.get(m, {})
            own = [at.operand for at in move.dst if at.rank == event.rank]
            step = Step(
                src=tuple(at.operand for at in move.src if at.rank == event.rank),
                recv=tuple(
                    self.reads[event, m, position]
                    for position, at in enumerate(move.src)
                    if at.rank != event.rank
                ),
                dst=own[0] if own else None,
                send=tuple(Edge(arrival.event.rank, arrival.port) for arrival in arrivals.values()),
            )
            groups.setdefault(tuple(arrivals.values()), []).append(step)
            copies += [Step(src=(own[0],), dst=other) for other in own[1:]]
        for steps in (*groups.values(), copies):
            yield Instruction(place=operation.place, steps=tuple(steps))
        for edge, operands in self.gets.get(event, ()):
            yield Instruction(
                place=operation.place,
                steps=tuple(Step(src=(operand,), send=(edge,)) for operand in operands),
            )
