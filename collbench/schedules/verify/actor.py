"""A track of a rank in a symbolic execution. It raises at the first thing that is wrong."""

from collections.abc import Callable, Iterator
from functools import partial

from collbench.schedules.ir import At, Edge, Message, Operand, Round, Step
from collbench.schedules.passes import cell, home, shape_of
from collbench.schedules.verify.clocks import Access, Cell, Clock, learn
from collbench.schedules.verify.proof import Key, Place, Value, tell, where
from collbench.schedules.verify.state import Fifo, Placed, State, Token


class Actor:
    """One track of one rank, as a generator that yields whenever it has to wait."""

    def __init__(self, run: State, rank: int, track: int, number: int) -> None:
        self.run, self.rank, self.track, self.number = run, rank, track, number
        self.moved = False
        self.waits_for = ""
        self.launch = 0
        self.depth = 0
        self.clock: Clock = {number: 0}
        self.posted: dict[tuple[int, Edge, int], int] = {}
        self.shapes = [shape_of(steps) for steps in run.schedule.programs[rank][track].rounds]
        self.back: set[tuple[Key, int]] = set()
        self.into = {
            edge: run.fifo(run.incoming(rank, edge))
            for shape in self.shapes
            for edge in shape.received
        }
        self.out = {
            edge: run.fifo(Key(rank, edge.peer, edge.port))
            for shape in self.shapes
            for edge in shape.sent
        }

    def steps(self) -> Iterator[str]:
        run, schedule = self.run, self.run.schedule
        rounds = schedule.programs[self.rank][self.track].rounds
        pulled = {
            edge
            for r in range(len(rounds))
            for edge in schedule.pulled.get(At(self.rank, self.track, r), ())
        }
        for self.launch in range(run.launches):
            if run.has_clocks:
                yield from self._start()
            for loop in range(run.loops):
                for r, steps in enumerate(rounds):
                    for number in range(run.slices):
                        yield from self._round(At(self.rank, self.track, r), steps, loop, number)
            for edge in pulled:
                fifo = self.out[edge]
                yield from self._wait(
                    partial(fifo.has_back, fifo.sent),
                    f"rank {edge.peer} to have read what it pulls",
                )
            if run.has_clocks:
                run.history.ends.setdefault((self.rank, self.launch), []).append(self.clock)

    def _start(self) -> Iterator[str]:
        """Begin a launch, which every track of the rank does after all of them have ended the one
        before.
        """
        run, before = self.run, self.launch - 1
        if before >= 0:
            tracks = len(run.schedule.programs[self.rank])
            yield from self._wait(
                partial(run.history.has_ended, self.rank, before, tracks),
                "the rank's other tracks to end the launch",
            )
            for clock in run.history.ends[self.rank, before]:
                learn(self.clock, clock)
        self.clock[self.number] += 1
        self.moved = True
        run.history.start(self.rank, self.launch, self.track, self.number, self.clock)

    def _wait(self, is_ready: Callable[[], bool], what: str) -> Iterator[str]:
        while not is_ready():
            self.waits_for = (
                f"rank {self.rank} (track {self.run.schedule.programs[self.rank][self.track].name})"
                f" waits for {what}"
            )
            yield "wait"
        self.moved = True

    def _round(self, at: At, steps: Round, loop: int, number: int) -> Iterator[str]:
        """One slice of a round, stage by stage: wait for data, room and pending pulls of all its
        steps, compute, hand over.

        A backend may do so, or take step after step, which can only wait less. What a step knows of
        others is what it would know then; but what it reads of its own memory it may read before
        its own messages have come, as ll and ll128 do.
        """
        run, schedule = self.run, self.run.schedule
        piece = (self.launch * run.loops + loop) * run.slices + number
        pulled, pushed = (of.get(at, frozenset()) for of in (schedule.pulled, schedule.pushed))
        due, shape = schedule.pending_pulls.get(at, {}), self.shapes[at.round]
        to_send, to_take = dict(shape.sent), dict(shape.received)
        sent_index, taken_index = shape.sent_index, shape.received_index
        sending: dict[Edge, Token] = {}
        taking: dict[Edge, Token] = {}
        depth = self.depth
        for stage in shape.stages:
            time = self.clock.get(self.number, 0)
            known: list[tuple[Clock, Clock]] = []
            for s in stage:
                before = dict(self.clock) if run.has_clocks else self.clock
                if s in shape.opening or s in due:
                    yield from self._prepare(at, s, steps[s], number, sending, taking)
                known.append((before, dict(self.clock) if run.has_clocks else self.clock))
            freed: list[Fifo] = []
            filled: list[Edge] = []
            for s, (before, clock) in zip(stage, known, strict=True):
                step, place = steps[s], Place(*at, s)
                self.clock, time = clock, time + 1
                clock[self.number] = before[self.number] = time
                hops = self.depth
                for edge in step.recv:
                    hops = max(hops, taking[edge].depth + 1)
                value = self._reduce(
                    step,
                    place,
                    piece,
                    [(edge, taking[edge].chunks[taken_index[s, edge]]) for edge in step.recv],
                    before,
                )
                if step.dst is not None and pushed.isdisjoint(step.recv):
                    self._write(step.dst, piece, value, place)
                for edge in step.send:
                    token = sending[edge]
                    if run.pushed and Message(at, edge) in run.pushed:
                        self._write_away(
                            run.pushed[Message(at, edge)], sent_index[s, edge], piece, value, place
                        )
                    token.chunks[sent_index[s, edge]] = (
                        self._lend(step, piece, edge) if edge in pulled else value
                    )
                    token.depth = max(token.depth, hops)
                    to_send[edge] -= 1
                    if not to_send[edge]:
                        token.clock = dict(clock) if run.has_clocks else {}
                        filled.append(edge)
                for edge in step.recv:
                    to_take[edge] -= 1
                    if not to_take[edge]:
                        freed.append(self.into[edge])
                depth = max(depth, hops)
            self.moved = True
            for fifo in freed:
                fifo.freed += 1
            for edge in filled:
                fifo = self.out[edge]
                fifo.sent += 1
                fifo.tokens.append(sending[edge])
                self.posted[at.round, edge, number] = fifo.sent
        if piece == 0:
            self.depth = depth
            run.hops = max(run.hops, depth)

    def _prepare(
        self,
        at: At,
        s: int,
        step: Step,
        number: int,
        sending: dict[Edge, Token],
        taking: dict[Edge, Token],
    ) -> Iterator[str]:
        """Wait for what a step needs: data, room, the launch at a rank that is written to, pulled
        messages that it would overwrite.
        """
        run = self.run
        for edge in step.recv:
            if edge not in taking:
                fifo = self.into[edge]
                if not fifo.tokens:
                    yield from self._wait(
                        fifo.has_data, f"data from rank {edge.peer} on port {edge.port}"
                    )
                taking[edge] = token = fifo.tokens.popleft()
                read = self.shapes[at.round].received[edge]
                if len(token.chunks) != read:
                    raise run.fail(
                        Place(*at, s),
                        f"a message of {len(token.chunks)} chunks from rank {edge.peer} where"
                        f" {read} are read",
                    )
                learn(self.clock, token.clock)
        for edge in step.send:
            if edge not in sending:
                fifo = self.out[edge]
                if fifo.sent - fifo.freed >= run.slots:
                    yield from self._wait(
                        partial(fifo.has_room, run.slots),
                        f"room to rank {edge.peer} on port {edge.port}",
                    )
                sending[edge] = Token()
                if run.pushed and Message(at, edge) in run.pushed:
                    yield from self._hear(run.pushed[Message(at, edge)].message)
        for pull in run.schedule.pending_pulls.get(at, {}).get(s, ()):
            key, ordinal = (
                Key(self.rank, pull.edge.peer, pull.edge.port),
                self.posted[pull.round, pull.edge, number],
            )
            fifo = run.fifo(key)
            yield from self._wait(
                partial(fifo.has_back, ordinal), f"rank {pull.edge.peer} to finish a pull"
            )
            self.back.add((key, ordinal))

    def _reduce(
        self,
        step: Step,
        place: Place,
        piece: int,
        received: list[tuple[Edge, Value | tuple[Operand, int]]],
        before: Clock,
    ) -> Value:
        run = self.run
        values = [self._read(operand, piece, place, before) for operand in step.src]
        for edge, carried in received:
            if not isinstance(carried, Value):  # pulled: read where it lies, as it is now
                operand_value = run.memory[run.incoming(self.rank, edge).src][carried]
            elif run.pushed and edge in run.schedule.pushed.get(At(*place[:3]), ()):
                operand_value = self._arrived(step, piece, carried, place)
            else:
                operand_value = carried
            values.append(
                run.shift(operand_value, edge.peer) if run.schedule.is_symmetric else operand_value
            )
        result = values[0]
        for value in values[1:]:
            if not run.what.is_reduction:
                raise run.fail(place, f"{run.schedule.op} reduces nothing")
            if value.chunk != result.chunk or value.piece != result.piece:
                raise run.fail(place, f"adds {tell(value)} to {tell(result)}")
            if value.mask & result.mask:
                raise run.fail(place, f"adds a rank twice: {tell(value)} to {tell(result)}")
            result = Value(piece, result.chunk, result.mask | value.mask)
        if result.piece != piece:
            raise run.fail(place, f"uses stale data: {tell(result)} in piece {piece}")
        self._check_size(step, result, place)
        run.chunks[place] = result.chunk
        if run.formed is not None and piece == 0:
            run.formed[place] = result
        run.givers[place] = (result.mask & -result.mask).bit_length() - 1
        if len(values) > 1 and result.mask == run.full:
            run.complete.add(place)
        return result

    def _check_size(self, step: Step, value: Value, place: Place) -> None:
        """Refuse a value in an output chunk that may be shorter, as a vector's last ones are."""
        if not self.run.what.is_interleaved or step.dst is None or step.dst.buffer != "out":
            return
        if step.dst.chunk != value.chunk:
            raise self.run.fail(
                place,
                f"writes input chunk {value.chunk} to out[{step.dst.chunk}], which may be shorter",
            )

    def _index(self, operand: Operand, piece: int) -> int:
        return (
            self.launch * self.run.slices + piece % self.run.slices
            if operand.buffer == "tmp"
            else piece
        )

    def _read(self, operand: Operand, piece: int, place: Place, clock: Clock) -> Value:
        run, at = self.run, cell(self.run.schedule, self.rank, operand, in_place=self.run.in_place)
        index = self._index(at, piece)
        value = run.memory[self.rank].get((at, index))
        if value is None:
            raise run.fail(
                place, f"reads {at.buffer}[{at.chunk}] before anything was written there"
            )
        if run.has_clocks:
            touched = Cell(self.rank, at, index)
            others = run.history.read(touched, self._access(place), clock)
            self._ordered(others, touched, place)
        return value

    def _write(self, operand: Operand, piece: int, value: Value, place: Place) -> None:
        run, at = self.run, cell(self.run.schedule, self.rank, operand, in_place=self.run.in_place)
        index = self._index(at, piece)
        if run.on_pull.get((self.rank, at, index), set()) - self.back:
            raise run.fail(place, f"overwrites {at.buffer}[{at.chunk}] while it is pulled")
        if run.has_clocks:
            touched = Cell(self.rank, at, index)
            others = run.history.write(touched, self._access(place), self.clock)
            self._ordered(others, touched, place)
        run.memory[self.rank][at, index] = value

    def _access(self, place: Place, message: Message | None = None) -> Access:
        return Access(self.number, self.clock[self.number], place, message)

    def _ordered(
        self, others: list[Access], at: Cell, place: Place, message: Message | None = None
    ) -> None:
        """Refuse accesses without an order to the one at `place`; while pushed messages are tried
        out, record the one that is to blame.
        """
        run = self.run
        for other in others:
            to_blame = message or other.message
            if run.findings is None or to_blame is None:
                what = f"{at.operand.buffer}[{at.operand.chunk}] of rank {at.rank}"
                raise run.fail(
                    place,
                    f"two tracks touch {what} without an order between them; the other:"
                    f" {where(run.schedule, other.place)}",
                )
            run.findings.refused.add(to_blame)

    def _hear(self, message: Message) -> Iterator[str]:
        """Before a pushed message: wait until its receiver has signalled that the launch has begun
        there, if it signals.
        """
        run, rank, track = self.run, message.at.program, message.at.track
        if run.findings is not None and not run.history.knows_start(self.clock, rank, self.launch):
            run.findings.ready.add(message)
        elif message.edge not in run.schedule.ready.get(rank, ()):
            return
        yield from self._wait(
            partial(run.history.has_started, rank, self.launch, track),
            f"rank {rank} to begin the launch",
        )
        learn(self.clock, run.history.starts[rank, self.launch][track][1])

    def _write_away(
        self, pushed: Placed, index: int, piece: int, value: Value, place: Place
    ) -> None:
        """Write a chunk of a message where its receiver wants it."""
        run, message, rank = self.run, pushed.message, pushed.message.at.program
        if index >= len(pushed.targets):
            raise run.fail(
                place,
                f"writes {index + 1} chunks to rank {rank}, which takes {len(pushed.targets)}",
            )
        at = cell(run.schedule, rank, pushed.targets[index], in_place=run.in_place)
        if not run.history.knows_start(self.clock, rank, self.launch):
            raise run.fail(
                place,
                f"writes {at.buffer}[{at.chunk}] of rank {rank} without knowing that the launch has"
                " begun there",
            )
        touched = Cell(rank, at, piece)
        others = run.history.write(touched, self._access(place, message), self.clock)
        self._ordered(others, touched, place, message)
        if run.findings is None:
            run.memory[rank][at, piece] = value

    def _arrived(self, step: Step, piece: int, sent: Value, place: Place) -> Value:
        """What the sender has written into the output of this rank."""
        if self.run.findings is not None:
            self.run.memory[self.rank][
                cell(self.run.schedule, self.rank, home(step), in_place=self.run.in_place), piece
            ] = sent
        return self._read(home(step), piece, place, self.clock)

    def _lend(self, step: Step, piece: int, edge: Edge) -> tuple[Operand, int]:
        at = cell(self.run.schedule, self.rank, home(step), in_place=self.run.in_place)
        key = Key(self.rank, edge.peer, edge.port)
        self.run.on_pull.setdefault((self.rank, at, piece), set()).add(
            (key, self.run.fifo(key).sent + 1)
        )
        return at, piece
