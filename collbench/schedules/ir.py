"""Schedules: an algorithm as data, written once, run by every backend.

    Step(src, recv, dst, send)       Round = steps at once
    Track = rounds in order          Program = the tracks of one rank

A step reduces its local operands and one chunk from every edge in `recv` (one operand: it copies),
writes the result to `dst` if there is one, and sends it along every edge in `send`. Operands are
reduced in the order written, `src` first. A round is unordered: no step of it needs another of the
same round. All chunks that a round sends along one edge are one message. A rank's tracks run at the
same time. What a schedule must fulfil is proved by collbench.schedules.verify.check; this module
only holds it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.world import World

BufferName = Literal["in", "out", "tmp"]
# Schedules of which results are kept: a sweep comes back to a shape for every size.
MAX_KEPT = 4096


class Operand(NamedTuple):
    """A chunk of a buffer: the rank's input, its output, or scratch memory of the channel."""

    buffer: BufferName
    chunk: int


class Edge(NamedTuple):
    """A connection to a peer. Only one track sends on a port, only one receives on it."""

    peer: int
    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Reduce `src` and one chunk from each of `recv`; write to `dst`; send along each of `send`.

    >>> Step(src=(Operand("in", 3),), recv=(Edge(0, "ring"),), send=(Edge(2, "ring"),)).verb
    'recvReduceSend'
    """

    src: tuple[Operand, ...] = ()
    recv: tuple[Edge, ...] = ()
    dst: Operand | None = None
    send: tuple[Edge, ...] = ()

    @property
    def verb(self) -> str:
        """NCCL's name of this shape: send, recv, copySend, recvCopySend, recvReduceSend,
        recvReduceCopy, recvReduceCopySend, copy.
        """
        parts = ["recv"] if self.recv else []
        if len(self.src) + len(self.recv) > 1:
            parts.append("reduce")
        if self.dst is not None and (self.src or self.send):
            parts.append("copy")
        if self.send:
            parts.append("send")
        return parts[0] + "".join(part.capitalize() for part in parts[1:])


Round = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A named sequence of rounds that one rank runs in order."""

    name: str
    rounds: tuple[Round, ...]


Program = tuple[Track, ...]


class At(NamedTuple):
    """A place in a schedule: `program` is a rank, or 0 for all ranks of a symmetric schedule."""

    program: int
    track: int
    round: int


class PendingPull(NamedTuple):
    """A pulled message, sent in `round` along `edge`, which the peer may still be reading."""

    round: int
    edge: Edge


class Message(NamedTuple):
    """One message of a loop, as what the round at `at` sends, or receives, along `edge`."""

    at: At
    edge: Edge


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The programs of n ranks for one collective.

    chunks: how many chunks the buffers in, out and tmp are cut into. programs: one for each rank;
    or a single one if is_symmetric, for rank 0, every other rank's being the same with peers and
    chunks of rank-indexed buffers (those of n chunks) shifted by the rank. pulled, pending_pulls:
    the result of passes.pull_zero_copy: at `pulled[at]` the edges whose message the peer reads in
    place, and at `pending_pulls[at][step]` the pulls that must be over before that step may write.
    pushed, ready: the result of zero_copy.push_zero_copy: at `pushed[at]`, a round of the receiver,
    the edges whose message the sender writes straight into the receiver's output, and at
    `ready[program]` the edges on which the receiver says, once a launch, that the launch has begun.
    The sender waits for that before its first such write of the launch.
    """

    op: OpName
    name: str
    n: int
    root: int
    chunks: dict[BufferName, int]
    programs: tuple[Program, ...]
    is_symmetric: bool
    pulled: dict[At, frozenset[Edge]] = field(default_factory=dict)
    pending_pulls: dict[At, dict[int, tuple[PendingPull, ...]]] = field(default_factory=dict)
    pushed: dict[At, frozenset[Edge]] = field(default_factory=dict)
    ready: dict[int, frozenset[Edge]] = field(default_factory=dict)

    def program(self, rank: int) -> Program:
        """The rank's own program, with absolute peers and chunks."""
        return _program_of(self, rank) if self.is_symmetric else self.programs[rank]

    def pulled_at(self, rank: int, track: int, round_index: int) -> frozenset[Edge]:
        """The edges of that round whose message the peer reads in place, absolute."""
        at = self._at(rank, track, round_index)
        return self._absolute(self.pulled.get(at, frozenset()), rank)

    def pushed_at(self, rank: int, track: int, round_index: int) -> frozenset[Edge]:
        """The edges of that round whose message the peer writes into the output, absolute."""
        at = self._at(rank, track, round_index)
        return self._absolute(self.pushed.get(at, frozenset()), rank)

    def ready_at(self, rank: int) -> frozenset[Edge]:
        """The edges on which the rank says, at the start of every launch, that its output may be
        written, absolute.
        """
        ready = self.ready.get(0 if self.is_symmetric else rank, frozenset())
        return self._absolute(ready, rank)

    def pending_pulls_at(
        self, rank: int, track: int, round_index: int, step: int
    ) -> tuple[PendingPull, ...]:
        """The pulls that must be over before that step writes, absolute."""
        pulls = self.pending_pulls.get(self._at(rank, track, round_index), {}).get(step, ())
        by = rank if self.is_symmetric else 0
        return tuple(PendingPull(pull.round, self._moved(pull.edge, by)) for pull in pulls)

    def _at(self, rank: int, track: int, round_index: int) -> At:
        """Where the schedule holds what it says of that round of a rank."""
        return At(0 if self.is_symmetric else rank, track, round_index)

    def _absolute(self, edges: frozenset[Edge], rank: int) -> frozenset[Edge]:
        if not self.is_symmetric:
            return edges
        return frozenset(self._moved(edge, rank) for edge in edges)

    def _moved(self, edge: Edge, by: int) -> Edge:
        return Edge((edge.peer + by) % self.n, edge.port)


def expanded(schedule: Schedule) -> Schedule:
    """The same schedule with a program of its own for every rank."""
    if not schedule.is_symmetric:
        return schedule
    ranks = range(schedule.n)
    return replace(
        schedule,
        programs=tuple(map(schedule.program, ranks)),
        is_symmetric=False,
        pulled={
            At(rank, *at[1:]): schedule.pulled_at(rank, *at[1:])
            for rank in ranks
            for at in schedule.pulled
        },
        pending_pulls={
            At(rank, *at[1:]): {
                step: schedule.pending_pulls_at(rank, *at[1:], step) for step in steps
            }
            for rank in ranks
            for at, steps in schedule.pending_pulls.items()
        },
        pushed={
            At(rank, *at[1:]): schedule.pushed_at(rank, *at[1:])
            for rank in ranks
            for at in schedule.pushed
        },
        ready={rank: schedule.ready_at(rank) for rank in ranks if schedule.ready},
    )


def execution_order(steps: Round) -> list[int]:
    """The order in which every backend, and the check, take the steps of a round: what other ranks
    wait for comes first.

    Sends of local data, then what passes data on, then local copies, then what only receives.
    """

    def rank(index: int) -> int:
        step = steps[index]
        return (1 if step.send else 3) if step.recv else (0 if step.send else 2)

    return sorted(range(len(steps)), key=rank)


def stages(steps: Round) -> list[list[int]]:
    """The steps of a round in execution order, cut where the kind changes: what a stage's steps
    wait for may be waited for together.

    >>> local, passed_on = (
    ...     Step(src=(Operand("in", 0),), send=(Edge(1, "a"),)),
    ...     Step(recv=(Edge(1, "a"),), send=(Edge(2, "a"),)),
    ... )
    >>> stages((passed_on, local, local))
    [[1, 2], [0]]
    """

    def kind(index: int) -> tuple[bool, bool]:
        return bool(steps[index].send), bool(steps[index].recv)

    return [list(group) for _, group in groupby(execution_order(steps), kind)]


def mapped(
    program: Program,
    operand: Callable[[Operand], Operand],
    edge: Callable[[Edge], Edge],
    track_name: Callable[[str], str] = str,
) -> Program:
    """The program with every operand, every edge and every name of a track replaced."""

    def step(old: Step) -> Step:
        return Step(
            src=tuple(map(operand, old.src)),
            recv=tuple(map(edge, old.recv)),
            dst=None if old.dst is None else operand(old.dst),
            send=tuple(map(edge, old.send)),
        )

    return tuple(
        Track(
            name=track_name(track.name),
            rounds=tuple(tuple(map(step, steps)) for steps in track.rounds),
        )
        for track in program
    )


@lru_cache(maxsize=64)  # every channel and track asks again; of many ranks, each is large
def _program_of(schedule: Schedule, rank: int) -> Program:
    """A rank's own program of a symmetric schedule."""
    return shifted(schedule.programs[0], rank, schedule.n, schedule.chunks)


def shifted(program: Program, by: int, n: int, chunks: dict[BufferName, int]) -> Program:
    """The program with every peer, and every chunk of n-chunk buffers, moved by `by` modulo n."""
    if by % n == 0:
        return program

    def operand(at: Operand) -> Operand:
        return Operand(at.buffer, (at.chunk + by) % n) if chunks[at.buffer] == n else at

    return mapped(program, operand, lambda edge: Edge((edge.peer + by) % n, edge.port))


# of a program: its shape with its ports, the buffers and the chunks of its operands, and the peers
# of its edges, all in its order
_Flat = tuple[list[object], list[BufferName], list[int], list[int]]


def _flat(program: Program) -> _Flat:
    steps = [step for track in program for steps in track.rounds for step in steps]
    operands = [at for s in steps for at in (s.src if s.dst is None else (*s.src, s.dst))]
    edges = [edge for s in steps for edge in s.recv + s.send]
    shape: list[object] = [(track.name, list(map(len, track.rounds))) for track in program]
    shape += [(len(s.src), s.dst is None, len(s.recv), len(s.send)) for s in steps]
    shape += [edge.port for edge in edges]
    return (
        shape,
        [at.buffer for at in operands],
        [at.chunk for at in operands],
        [edge.peer for edge in edges],
    )


def _is_shift(flat: _Flat, program: Program, by: int, n: int, indexed: set[BufferName]) -> bool:
    """Whether a program equals shifted(the flat one, by, ...), found without building it. indexed:
    the buffers of n chunks.
    """
    shape, buffers, places, peers = flat
    return _flat(program) == (
        shape,
        buffers,
        [
            (place + by) % n if buffer in indexed else place
            for buffer, place in zip(buffers, places, strict=True)
        ],
        [(peer + by) % n for peer in peers],
    )


def _highest_chunks(program: Program, highest: dict[BufferName, int]) -> None:
    for track in program:
        for steps in track.rounds:
            for step in steps:
                for operand in (*step.src, step.dst) if step.dst is not None else step.src:
                    if operand.chunk >= highest[operand.buffer]:
                        highest[operand.buffer] = operand.chunk + 1


def build(
    op: OpName, name: str, program_of: Callable[[World, int], Program], world: World
) -> Schedule:
    """The schedule of an algorithm, whose `program_of` gives the program of one rank of a world in
    absolute numbers.

    Empty rounds and empty tracks are dropped. Finds out by itself whether one program of one track,
    shifted, serves every rank. Cost: every rank's program is built once, and none is kept if the
    schedule is symmetric.

    >>> from collbench.schedules.algorithms import ring
    >>> build("allreduce", "ring", ring.allreduce, World(n=4)).is_symmetric
    True
    """
    what = collective(op)
    n, root = world.n, world.root
    highest: dict[BufferName, int] = {"in": 0, "out": 0, "tmp": 0}

    def program_at(rank: int) -> Program:
        program = tuple(
            Track(name=t.name, rounds=tuple(r for r in t.rounds if r))
            for t in program_of(world, rank)
        )
        _highest_chunks(program, highest)
        return tuple(track for track in program if track.rounds)

    def chunks_so_far() -> dict[BufferName, int]:
        shared = max(highest["in"], highest["out"])
        if what.is_interleaved:
            return {"in": shared, "out": shared, "tmp": highest["tmp"]}
        inputs, outputs = (n if count == "n" else 1 for count, _ in (what.inputs, what.outputs))
        return {"in": inputs, "out": outputs, "tmp": highest["tmp"]}

    first = program_at(0)
    programs = [first]
    guess, flat = chunks_so_far(), _flat(first)
    indexed = {buffer for buffer, count in guess.items() if count == n}
    # tracks advance independently of each other, which one rank's steps do not show
    symmetric = not what.is_rooted and len(first) == 1
    for rank in range(1, n):
        program = program_at(rank)
        if symmetric and _is_shift(flat, program, rank, n, indexed):
            continue
        if symmetric:
            symmetric = False
            programs += [shifted(first, earlier, n, guess) for earlier in range(1, rank)]
        programs.append(program)
    chunks = chunks_so_far()
    # rank 0 does not touch every chunk: the shift was judged with wrong counts
    if symmetric and chunks != guess:
        symmetric, programs = False, [program_at(rank) for rank in range(n)]
    return Schedule(
        op=op,
        name=name,
        n=n,
        root=root,
        chunks=chunks,
        programs=tuple(programs),
        is_symmetric=symmetric,
    )
