"""The symbolic execution behind collbench.check: every rank's tracks as generators over bounded FIFOs of symbolic values.

It raises at the first thing that is wrong. See check.py for what it proves and why one rank is enough for a symmetric schedule.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from collbench.collectives import collective
from collbench.errors import ScheduleError
from collbench.passes import cell, home, message_chunks, message_indices
from collbench.schedule import At, Edge, Operand, Round, Schedule, Step, execution_order


class Value(NamedTuple):
    """The reduction of one input chunk of the ranks in the mask; `piece` tells launch, loop and slice apart."""

    piece: int
    chunk: int
    mask: int


class Place(NamedTuple):
    """One step of one program, for messages and marks."""

    program: int
    track: int
    round: int
    step: int


class Key(NamedTuple):
    """A connection."""

    src: int
    dst: int
    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a checked schedule is known to do.

    complete: the steps at which a reduction of all ranks becomes complete (there avg divides). chunks: which input chunk each step works
    on. hops: message hand-overs on the longest chain of one loop.
    """

    complete: frozenset[Place]
    chunks: dict[Place, int]
    hops: int


@dataclass(slots=True)
class _Token:
    """One slice of a message: each chunk's value or, lent, where it lies; the hops behind it; the sender's clock."""

    chunks: dict[int, Value | tuple[Operand, int]] = field(default_factory=dict)
    depth: int = 0
    clock: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Fifo:
    """Slots between two tracks. `freed` counts slots emptied, `credited` those that the sender knows of."""

    tokens: deque[_Token] = field(default_factory=deque)
    sent: int = 0
    freed: int = 0
    credited: int = 0

    def has_data(self) -> bool:
        return bool(self.tokens)

    def has_room(self, slots: int) -> bool:
        return self.sent - self.credited < slots

    def has_back(self, ordinal: int) -> bool:
        return self.credited >= ordinal


def name_of(schedule: Schedule) -> str:
    """How messages name a schedule."""
    return f"{schedule.op} {schedule.name} over {schedule.n} ranks"


def where(schedule: Schedule, place: At | Place) -> str:
    """How messages name a place in it."""
    track = schedule.programs[place.program][place.track].name
    who = "every rank (seen from rank 0)" if schedule.is_symmetric else f"rank {place.program}"
    return f"{who}, track {track}, round {place.round}"


class Execution:
    """One symbolic execution. Memory is per rank: (cell, piece) -> value, scratch being kept by launch and slice only."""

    def __init__(self, schedule: Schedule, slots: int, slices: int, credit_batch: int, in_place: bool, loops: int, launches: int) -> None:
        self.schedule, self.what = schedule, collective(schedule.op)
        self.slots, self.slices, self.credit_batch, self.in_place = slots, slices, credit_batch, in_place
        self.loops, self.launches = loops, launches
        self.fifos: dict[Key, _Fifo] = {}
        self.memory: list[dict[tuple[Operand, int], Value]] = [{} for _ in schedule.programs]
        self.complete: set[Place] = set()
        self.chunks: dict[Place, int] = {}
        self.hops = 0
        self.has_tracks = any(len(program) > 1 for program in schedule.programs)
        self.last_write: dict[tuple[int, Operand, int], tuple[int, int]] = {}
        self.last_reads: dict[tuple[int, Operand, int], dict[int, int]] = {}
        self.on_loan: dict[tuple[int, Operand, int], set[tuple[Key, int]]] = {}
        self.full = (1 << schedule.n) - 1

    def prove(self) -> Proof:
        self._fill_inputs()
        places = [(rank, track) for rank, program in enumerate(self.schedule.programs) for track in range(len(program))]
        actors = [_Actor(self, rank, track, number) for number, (rank, track) in enumerate(places)]
        running = [(actor, actor.steps()) for actor in actors]
        while running:
            still = [(actor, steps) for actor, steps in running if next(steps, "done") != "done"]
            if len(still) == len(running) and not any(actor.moved for actor, _ in still):
                raise self._deadlock([actor for actor, _ in still])
            for actor, _ in still:
                actor.moved = False
            running = still
        self._check_end()
        return Proof(complete=frozenset(self.complete), chunks=self.chunks, hops=self.hops)

    def _fill_inputs(self) -> None:
        schedule = self.schedule
        for rank in range(len(schedule.programs)):
            count = schedule.chunks["in"] if self.what.blocks("in", schedule.n, schedule.root, rank) else 0
            for piece in range(self.launches * self.loops * self.slices):
                for chunk in range(count):
                    at = cell(schedule, rank, Operand("in", chunk), in_place=self.in_place)
                    self.memory[rank][at, piece] = Value(piece, chunk, 1 << rank)

    def fifo(self, key: Key) -> _Fifo:
        return self.fifos.setdefault(key, _Fifo())

    def incoming(self, rank: int, edge: Edge) -> tuple[Key, int]:
        """The connection that an edge receives from, and by how much what it carries is shifted."""
        if self.schedule.is_symmetric:
            return Key(0, -edge.peer % self.schedule.n, edge.port), edge.peer
        return Key(edge.peer, rank, edge.port), 0

    def shift(self, value: Value, by: int) -> Value:
        n = self.schedule.n
        mask = ((value.mask << by) | (value.mask >> (n - by))) & self.full
        return Value(value.piece, (value.chunk + by) % n if self.schedule.chunks["in"] == n else value.chunk, mask)

    def fail(self, place: Place, problem: str) -> ScheduleError:
        return ScheduleError(f"{name_of(self.schedule)}: {where(self.schedule, place)}: {problem}")

    def _deadlock(self, actors: list["_Actor"]) -> ScheduleError:
        stuck = "; ".join(actor.waits_for for actor in actors[:4])
        slots = f"{self.slots} slot{'s' * (self.slots != 1)} and {self.slices} slice{'s' * (self.slices != 1)} a message"
        return ScheduleError(
            f"{name_of(self.schedule)} deadlocks with {slots}: {stuck}", "slots must outnumber the slices that a rank sends before it receives"
        )

    def _check_end(self) -> None:
        schedule, name = self.schedule, name_of(self.schedule)
        for key, fifo in self.fifos.items():
            if fifo.tokens:
                raise ScheduleError(f"{name}: {len(fifo.tokens)} slices stay in port {key.port} from rank {key.src} to rank {key.dst}")
        for rank in range(len(schedule.programs)):
            for want in self.what.wants(schedule.n, schedule.root, rank):
                mask = sum(1 << giver for giver in want.ranks)
                pairs = [(c, c) for c in range(schedule.chunks["out"])] if self.what.is_interleaved else [(want.out_block, want.in_block)]
                for out_chunk, in_chunk in pairs:
                    for piece in range(self.launches * self.loops * self.slices):
                        found, wanted = self.memory[rank].get((Operand("out", out_chunk), piece)), Value(piece, in_chunk, mask)
                        if found != wanted:
                            raise ScheduleError(f"{name}: rank {rank} out[{out_chunk}] ends as {_tell(found)}, wanted {_tell(wanted)}")


def _tell(value: Value | None) -> str:
    if value is None:
        return "nothing"
    ranks = [str(rank) for rank in range(value.mask.bit_length()) if value.mask >> rank & 1]
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"input chunk {value.chunk} of ranks {', '.join(ranks[:8])}{more} (piece {value.piece})"


class _Actor:
    """One track of one rank, as a generator that yields whenever it has to wait."""

    def __init__(self, run: Execution, rank: int, track: int, number: int) -> None:
        self.run, self.rank, self.track, self.number = run, rank, track, number
        self.moved = False
        self.waits_for = ""
        self.launch = 0
        self.depth = 0
        self.clock: dict[int, int] = {number: 0}
        self.posted: dict[tuple[int, Edge, int], int] = {}
        self.back: set[tuple[Key, int]] = set()

    def steps(self) -> Iterator[str]:
        run, schedule = self.run, self.run.schedule
        rounds = schedule.programs[self.rank][self.track].rounds
        received = {edge for steps in rounds for edge in message_chunks(steps)[1]}
        lent = {edge for r in range(len(rounds)) for edge in schedule.lent.get(At(self.rank, self.track, r), ())}
        for self.launch in range(run.launches):
            for loop in range(run.loops):
                for r, steps in enumerate(rounds):
                    for number in range(run.slices):
                        yield from self._round(At(self.rank, self.track, r), steps, loop, number)
            for edge in received:  # credits held back are given at the end of a launch
                fifo = run.fifo(run.incoming(self.rank, edge)[0])
                fifo.credited = fifo.freed
            for edge in lent:
                fifo = run.fifo(Key(self.rank, edge.peer, edge.port))
                yield from self._wait(partial(fifo.has_back, fifo.sent), f"rank {edge.peer} to have read what was lent")

    def _wait(self, is_ready: Callable[[], bool], what: str) -> Iterator[str]:
        while not is_ready():
            self.waits_for = f"rank {self.rank} (track {self.run.schedule.programs[self.rank][self.track].name}) waits for {what}"
            yield "wait"
        self.moved = True

    def _round(self, at: At, steps: Round, loop: int, number: int) -> Iterator[str]:
        """One slice of a round: in execution order wait for data, room and loans, compute, hand over."""
        run, schedule = self.run, self.run.schedule
        piece = (self.launch * run.loops + loop) * run.slices + number
        lent, returns = schedule.lent.get(at, frozenset()), schedule.returns.get(at, {})
        to_send, to_take = message_chunks(steps)
        sent_index, taken_index = message_indices(steps)
        sending: dict[Edge, _Token] = {}
        taking: dict[Edge, _Token] = {}
        depth = self.depth
        for s in execution_order(steps):
            step, place = steps[s], Place(*at, s)
            for edge in step.recv:
                if edge not in taking:
                    fifo = run.fifo(run.incoming(self.rank, edge)[0])
                    yield from self._wait(fifo.has_data, f"data from rank {edge.peer} on port {edge.port}")
                    taking[edge] = token = fifo.tokens.popleft()
                    if len(token.chunks) != to_take[edge]:
                        raise run.fail(place, f"a message of {len(token.chunks)} chunks from rank {edge.peer} where {to_take[edge]} are read")
                    for actor, time in token.clock.items():
                        self.clock[actor] = max(time, self.clock.get(actor, 0))
            for edge in step.send:
                if edge not in sending:
                    fifo = run.fifo(Key(self.rank, edge.peer, edge.port))
                    yield from self._wait(partial(fifo.has_room, run.slots), f"room to rank {edge.peer} on port {edge.port}")
                    sending[edge] = _Token()
            for loan in returns.get(s, ()):
                key, ordinal = Key(self.rank, loan.edge.peer, loan.edge.port), self.posted[loan.round, loan.edge, number]
                fifo = run.fifo(key)
                yield from self._wait(partial(fifo.has_back, ordinal), f"rank {loan.edge.peer} to return a loan")
                self.back.add((key, ordinal))
            hops = max([self.depth, *(taking[edge].depth + 1 for edge in step.recv)])
            self.clock[self.number] = self.clock.get(self.number, 0) + 1
            value = self._reduce(step, place, piece, {edge: taking[edge].chunks[taken_index[s, edge]] for edge in step.recv})
            if step.dst is not None:
                self._write(step.dst, piece, value, place)
            for edge in step.send:
                token = sending[edge]
                token.chunks[sent_index[s, edge]] = self._lend(step, piece, edge) if edge in lent else value
                token.depth = max(token.depth, hops)
            for edge in step.recv:
                to_take[edge] -= 1
                if not to_take[edge]:
                    fifo = run.fifo(run.incoming(self.rank, edge)[0])
                    fifo.freed += 1
                    if fifo.freed - fifo.credited >= run.credit_batch:
                        fifo.credited = fifo.freed
            for edge in step.send:
                to_send[edge] -= 1
                if not to_send[edge]:
                    fifo = run.fifo(Key(self.rank, edge.peer, edge.port))
                    fifo.sent += 1
                    fifo.tokens.append(sending[edge])
                    self.posted[at.round, edge, number] = fifo.sent
                    if run.has_tracks:
                        sending[edge].clock = dict(self.clock)
            depth = max(depth, hops)
        if piece == 0:
            self.depth = depth
            run.hops = max(run.hops, depth)

    def _reduce(self, step: Step, place: Place, piece: int, received: dict[Edge, Value | tuple[Operand, int]]) -> Value:
        run = self.run
        values = [self._read(operand, piece, place) for operand in step.src]
        for edge in step.recv:
            found = received[edge]
            key, by = run.incoming(self.rank, edge)
            if not isinstance(found, Value):  # lent: read where it lies, as it is now
                found = run.memory[key.src][found]
            values.append(run.shift(found, by) if by else found)
        result = values[0]
        for value in values[1:]:
            if not run.what.is_reduction:
                raise run.fail(place, f"{run.schedule.op} reduces nothing")
            if value.chunk != result.chunk or value.piece != result.piece:
                raise run.fail(place, f"adds {_tell(value)} to {_tell(result)}")
            if value.mask & result.mask:
                raise run.fail(place, f"adds a rank twice: {_tell(value)} to {_tell(result)}")
            result = Value(piece, result.chunk, result.mask | value.mask)
        if result.piece != piece:
            raise run.fail(place, f"uses stale data: {_tell(result)} in piece {piece}")
        run.chunks[place] = result.chunk
        if len(values) > 1 and result.mask == run.full:
            run.complete.add(place)
        return result

    def _index(self, operand: Operand, piece: int) -> int:
        return self.launch * self.run.slices + piece % self.run.slices if operand.buffer == "tmp" else piece

    def _read(self, operand: Operand, piece: int, place: Place) -> Value:
        run, at = self.run, cell(self.run.schedule, self.rank, operand, in_place=self.run.in_place)
        index = self._index(at, piece)
        value = run.memory[self.rank].get((at, index))
        if value is None:
            raise run.fail(place, f"reads {at.buffer}[{at.chunk}] before anything was written there")
        if run.has_tracks:
            self._ordered(run.last_write.get((self.rank, at, index)), at, place)
            run.last_reads.setdefault((self.rank, at, index), {})[self.number] = self.clock[self.number]
        return value

    def _write(self, operand: Operand, piece: int, value: Value, place: Place) -> None:
        run, at = self.run, cell(self.run.schedule, self.rank, operand, in_place=self.run.in_place)
        index = self._index(at, piece)
        if run.on_loan.get((self.rank, at, index), set()) - self.back:
            raise run.fail(place, f"overwrites {at.buffer}[{at.chunk}] while it is lent")
        if run.has_tracks:
            self._ordered(run.last_write.get((self.rank, at, index)), at, place)
            for reader in run.last_reads.pop((self.rank, at, index), {}).items():
                self._ordered(reader, at, place)
            run.last_write[self.rank, at, index] = (self.number, self.clock[self.number])
        run.memory[self.rank][at, index] = value

    def _ordered(self, access: tuple[int, int] | None, at: Operand, place: Place) -> None:
        if access is not None and self.clock.get(access[0], 0) < access[1]:
            raise self.run.fail(place, f"two tracks touch {at.buffer}[{at.chunk}] without an order between them")

    def _lend(self, step: Step, piece: int, edge: Edge) -> tuple[Operand, int]:
        at = cell(self.run.schedule, self.rank, home(step), in_place=self.run.in_place)
        key = Key(self.rank, edge.peer, edge.port)
        self.run.on_loan.setdefault((self.rank, at, piece), set()).add((key, self.run.fifo(key).sent + 1))
        return at, piece
