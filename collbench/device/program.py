"""A plan as kernels take it: the program of a rank, the ends of its connections, and the properties
that are known before anything runs.

The tables are those of types.cuh. A symmetric schedule has one program, seen from rank 0, whose
chunk numbers are shifted by the rank, so that one compiled kernel serves all ranks.
"""

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple

from collbench.planning.plan import Plan
from collbench.schedules.ir import Edge, Operand, Round
from collbench.schedules.passes import cell, has_shared_cells, is_copy, shape_of
from collbench.schedules.verify.proof import Place

IN, OUT, TMP, SLOT, PEER_IN, PEER_OUT = range(6)
DATA, ROOM, BACK, READY, TAIL, HEAD = range(6)
SIGNAL_NAMES = ("data", "room", "back", "ready", "tail", "head")
DIVIDE = 1
_KIND = {"in": IN, "out": OUT, "tmp": TMP}
_PEER_KIND = {"in": PEER_IN, "out": PEER_OUT}


class OperandRef(NamedTuple):
    """An operand of a step: see types.cuh."""

    kind: int
    end: int = 0
    message: int = 0
    chunk: int = 0


class Flag(NamedTuple):
    """A flag that a stage waits for or sets: see types.cuh."""

    signal: int
    end: int
    message: int = 0
    unused: int = 0


class DeviceStep(NamedTuple):
    """One step: Step of types.cuh."""

    sources: tuple[OperandRef, ...]
    targets: tuple[OperandRef, ...]
    flags: int
    work: int


class BlockRef(NamedTuple):
    """A block of a rank's input or output, with the rank and the chunk seen from rank 0 in a
    symmetric program.
    """

    buffer: Literal["in", "out"]
    owner: int
    chunk: int


class ConnectionEnd(NamedTuple):
    """One end of a connection: the peer, seen from rank 0 in a symmetric program, the port, the
    messages in a loop, and whether it has a FIFO.
    """

    peer: int
    port: str
    per_loop: int
    has_fifo: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The tables of types.cuh's Program, and the connection ends that its numbers index.

    blocks: of unequal blocks, those that its steps name. In the place of a chunk of an input or
    output, and of the chunk that a step works on, such a program has the number of a block from 1
    on: kernels find it in a table (Block of types.cuh).
    """

    tracks: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[int, int], ...]
    stages: tuple[tuple[int, ...], ...]
    steps: tuple[DeviceStep, ...]
    waits: tuple[Flag, ...]
    signals: tuple[Flag, ...]
    receiving: tuple[ConnectionEnd, ...]
    sending: tuple[ConnectionEnd, ...]
    blocks: tuple[BlockRef, ...] = ()

    @property
    def widest(self) -> tuple[int, int]:
        """Sources and targets of the widest step, at least one of each."""
        return max([1, *(len(s.sources) for s in self.steps)]), max(
            [1, *(len(s.targets) for s in self.steps)]
        )

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The numbers of sources and targets that its steps have."""
        return sorted({(len(step.sources), len(step.targets)) for step in self.steps})


class _ProgramBuilder:
    """Builds the program of one rank."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.schedule = plan, plan.schedule
        self.rank = 0 if plan.schedule.is_symmetric else rank
        self.sending: dict[Edge, int] = {}
        self.receiving: dict[Edge, int] = {}
        self.rounds: list[tuple[int, int]] = []
        self.stages: list[tuple[int, ...]] = []
        self.steps: list[DeviceStep] = []
        self.waits: list[Flag] = []
        self.signals: list[Flag] = []
        self.messages_sent: dict[Edge, int] = {}
        self.messages_received: dict[Edge, int] = {}
        self.message_of: dict[tuple[int, int, Edge], int] = {}
        self.blocks: dict[BlockRef, int] = {}

    def build(self) -> Program:
        tracks = []
        own = self.schedule.programs[self.rank]
        for t, track in enumerate(own):
            ends_before = len(self.receiving)
            first_round = len(self.rounds)
            for r, steps in enumerate(track.rounds):
                self._round(t, r, steps)
            received = list(self.receiving.items())[ends_before:]
            ready = [
                Flag(READY, end)
                for edge, end in received
                if edge in self.schedule.ready_at(self.rank)
            ]
            heads = [Flag(HEAD, end) for _, end in received]
            pulled = {
                edge
                for r in range(len(track.rounds))
                for edge in self.schedule.pulled_at(self.rank, t, r)
            }
            tracks.append(
                (
                    *(first_round, len(track.rounds)),
                    *(len(self.signals), len(ready)),
                    *(len(self.signals) + len(ready), len(heads)),
                    *(len(self.waits), len(pulled)),
                )
            )
            self.signals += ready + heads
            self.waits += [Flag(BACK, self.sending[edge]) for edge in sorted(pulled)]
        return Program(
            tracks=tuple(tracks),
            rounds=tuple(self.rounds),
            stages=tuple(self.stages),
            steps=tuple(self.steps),
            waits=tuple(self.waits),
            signals=tuple(self.signals),
            receiving=tuple(self._end(edge, is_sending=False) for edge in self.receiving),
            sending=tuple(self._end(edge, is_sending=True) for edge in self.sending),
            blocks=tuple(self.blocks),
        )

    def _end(self, edge: Edge, *, is_sending: bool) -> ConnectionEnd:
        key = (self.rank, edge.peer, edge.port) if is_sending else (edge.peer, self.rank, edge.port)
        messages = self.plan.messages_of_port[key]
        return ConnectionEnd(
            edge.peer, edge.port, len(messages), not all(message.is_direct for message in messages)
        )

    def _round(self, t: int, r: int, steps: Round) -> None:
        shape = shape_of(steps)
        for edge in shape.sent:
            self.sending.setdefault(edge, len(self.sending))
            self.message_of[t, r, edge] = self.messages_sent.get(edge, 0)
        for edge in shape.received:
            self.receiving.setdefault(edge, len(self.receiving))
        self.rounds.append((len(self.stages), len(shape.stages)))
        started: set[tuple[str, Edge]] = set()
        to_send, to_receive = dict(shape.sent), dict(shape.received)
        for stage in shape.stages:
            tables: tuple[Sized, ...] = self.steps, self.waits, self.signals
            firsts = [len(table) for table in tables]
            for s in stage:
                step, place = steps[s], Place(self.rank, t, r, s)
                self.waits += self._waits(place, step.recv, step.send, started)
                self._step(place, steps, shape.received_index, shape.sent_index)
                for edge in step.recv:
                    to_receive[edge] -= 1
                    if not to_receive[edge] and self._are_reads_awaited(edge):
                        self.signals.append(
                            Flag(HEAD, self.receiving[edge], self.messages_received.get(edge, 0))
                        )
                for edge in step.send:
                    to_send[edge] -= 1
                    if not to_send[edge]:
                        self.signals.append(
                            Flag(TAIL, self.sending[edge], self.messages_sent.get(edge, 0))
                        )
            spans = [
                (first, len(table) - first) for first, table in zip(firsts, tables, strict=True)
            ]
            self.stages.append(tuple(chain.from_iterable(spans)))
        for counts, edges in (
            (self.messages_sent, shape.sent),
            (self.messages_received, shape.received),
        ):
            for edge in edges:
                counts[edge] = counts.get(edge, 0) + 1

    def _are_reads_awaited(self, edge: Edge) -> bool:
        """Whether the sender ever waits until what comes along this edge was read: to reuse a slot,
        or its own buffer.
        """
        messages = self.plan.messages_of_port[edge.peer, self.rank, edge.port]
        return self.plan.p2p == "pull" or not all(message.is_direct for message in messages)

    def _waits(
        self,
        place: Place,
        recv: Sequence[Edge],
        send: Sequence[Edge],
        started: set[tuple[str, Edge]],
    ) -> list[Flag]:
        _, t, r, s = place
        schedule = self.schedule
        waits = [
            Flag(DATA, self.receiving[edge], self.messages_received.get(edge, 0))
            for edge in recv
            if ("recv", edge) not in started
        ]
        for edge in send:
            if ("send", edge) in started:
                continue
            end, message = self.sending[edge], self.messages_sent.get(edge, 0)
            if not self.plan.messages_of_port[self.rank, edge.peer, edge.port][message].is_direct:
                waits.append(Flag(ROOM, end, message))
            elif self.plan.p2p == "push" and Edge(self.rank, edge.port) in schedule.ready_at(
                edge.peer
            ):
                waits.append(Flag(READY, end, message))
        started |= {("recv", edge) for edge in recv} | {("send", edge) for edge in send}
        pulled = [
            (self.sending[pull.edge], self.message_of[t, pull.round, pull.edge])
            for pull in schedule.pending_pulls_at(self.rank, t, r, s)
        ]
        return waits + [Flag(BACK, end, message) for end, message in pulled]

    def _step(
        self,
        place: Place,
        steps: Round,
        received_index: dict[tuple[int, Edge], int],
        sent_index: dict[tuple[int, Edge], int],
    ) -> None:
        """The data movement of one step; nothing if it only waits and signals."""
        _, t, r, s = place
        step, schedule, problem = steps[s], self.schedule, self.plan.problem
        pushed = schedule.pushed_at(self.rank, t, r)
        sources = [self._own(operand) for operand in step.src]
        target = step.dst
        for edge in step.recv:
            end, number = self.receiving[edge], self.messages_received.get(edge, 0)
            message = self.plan.messages_of_port[edge.peer, self.rank, edge.port][number]
            if edge in pushed:
                assert step.dst is not None
                sources.append(self._own(step.dst))
                target = None
            elif message.is_direct:
                where = message.places[received_index[s, edge]]
                chunk = self._chunk(where, edge.peer)
                sources.append(OperandRef(_PEER_KIND[where.buffer], end, chunk=chunk))
            else:
                sources.append(OperandRef(SLOT, end, number, received_index[s, edge]))
        if (
            target is not None
            and is_copy(step)
            and self._same(step.src[0], target, problem.in_place)
        ):
            target = None
        targets = []  # those of peers first: they are waited for
        for edge in step.send:
            end, number = self.sending[edge], self.messages_sent.get(edge, 0)
            message = self.plan.messages_of_port[self.rank, edge.peer, edge.port][number]
            if not message.is_direct:
                targets.append(OperandRef(SLOT, end, number, sent_index[s, edge]))
            elif self.plan.p2p == "push":
                chunk = self._chunk(message.places[sent_index[s, edge]], edge.peer)
                targets.append(OperandRef(PEER_OUT, end, chunk=chunk))
        if target is not None:
            targets.append(self._own(target))
        if targets:
            proof = self.plan.proof
            divides = DIVIDE if place in proof.complete and problem.redop == "avg" else 0
            work = self._chunk(Operand("in", proof.chunks[place]), proof.givers[place])
            self.steps.append(DeviceStep(tuple(sources), tuple(targets), divides, work))

    def _own(self, operand: Operand) -> OperandRef:
        """A chunk of the rank's own buffers."""
        return OperandRef(_KIND[operand.buffer], chunk=self._chunk(operand, self.rank))

    def _chunk(self, operand: Operand, owner: int) -> int:
        """The number by which kernels find a chunk of a rank's buffer."""
        if operand.buffer == "tmp" or not self.plan.problem.counts:
            return operand.chunk
        block = BlockRef(operand.buffer, owner, operand.chunk)
        return self.blocks.setdefault(block, 1 + len(self.blocks))

    def _same(self, a: Operand, b: Operand, in_place: bool) -> bool:
        return cell(self.schedule, self.rank, a, in_place=in_place) == cell(
            self.schedule, self.rank, b, in_place=in_place
        )


@lru_cache(maxsize=1024)
def lower(plan: Plan, rank: int) -> Program:
    """The program of the rank. All ranks of a symmetric schedule have the same one."""
    return (
        _ProgramBuilder(plan, rank).build()
        if rank == 0 or not plan.schedule.is_symmetric
        else lower(plan, 0)
    )


def needs_fences(plan: Plan) -> bool:
    """Whether tracks of a rank pass data to each other through memory, so that flags alone do not
    order the accesses.
    """
    return has_shared_cells(plan.schedule, in_place=plan.problem.in_place)


def is_narrow(plan: Plan) -> bool:
    """Whether 32 bits can count the bytes of a set of user buffers and of a loop."""
    parts = max(1, *plan.schedule.chunks.values())
    return (
        max(plan.problem.buffers(rank).total_bytes for rank in range(plan.n)) < 1 << 31
        and parts * plan.chunk_bytes < 1 << 31
    )


def is_aligned(plan: Plan, unit: int) -> bool:
    """Whether all pieces of all chunks begin at multiples of `unit` bytes. They end there, too, if
    the size of a block is such a multiple, which unequal blocks all must be.
    """
    what = plan.problem
    if (plan.chunk_bytes | plan.piece_bytes) % unit:
        return False
    counts = what.counts or (what.block_count,)
    if not plan.is_interleaved and any(count * what.item_bytes % unit for count in counts):
        return False
    return all(
        (loop.offset | loop.chunk) % unit == 0
        for channel in range(plan.channels)
        for loop in plan.loops(channel)
    )


def largest_piece(plan: Plan) -> int:
    """The most bytes of a chunk that a message carries at once."""
    chunks = (loop.chunk for channel in range(plan.channels) for loop in plan.loops(channel))
    return min(plan.piece_bytes, max(chunks, default=0))


def waiters(plan: Plan) -> int:
    """Tracks, over all channels, of the GPU that has most; each of them waits by itself."""
    return plan.channels * max(len(program) for program in plan.schedule.programs)


def ctas(plan: Plan) -> int:
    """CTAs of the GPU that has most."""
    return plan.kernel.ctas if plan.kernel is not None and plan.transport == "ce" else waiters(plan)


def launches_counted(plan: Plan) -> int:
    """Launches after which the number of a connection's slices exceeds 32 bits, so that FIFOs must
    be cleared.
    """
    return ((1 << 32) - 1) // max(1, plan.most_slices)


def tables_of(program: Program) -> list[Sequence[object]]:
    """The tables of a program as types.cuh declares them: an empty one has one entry of zeros, and
    every step as many operands as the widest.
    """

    def padded(refs: tuple[OperandRef, ...], most: int) -> list[OperandRef]:
        return [*refs, *[OperandRef(0)] * (most - len(refs))]

    sources, targets = program.widest
    steps = [
        (
            *(len(step.sources), len(step.targets), step.flags, step.work),
            *(padded(step.sources, sources), padded(step.targets, targets)),
        )
        for step in program.steps or (DeviceStep((), (), 0, 0),)
    ]
    waits, signals = program.waits or (Flag(0, 0),), program.signals or (Flag(0, 0),)
    return [program.tracks, program.rounds, program.stages, steps, waits, signals]


def program_text(program: Program) -> str:
    """The program as a C++ constant."""

    def braced(values: Iterable[object]) -> str:
        return (
            "{"
            + ", ".join(
                braced(value) if isinstance(value, tuple | list) else str(value) for value in values
            )
            + "}"
        )

    tables = ",\n".join(braced(table) for table in tables_of(program))
    return f"static constexpr Program PROGRAM = {{{tables}}};\n"
