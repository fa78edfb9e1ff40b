"""Passes over a schedule: its size and hops, another rank order, and which messages can be pulled,
which means that their receiver reads them at the sender without a copy. Messages that can be pushed
are found with the proof: zero_copy.py.

Each is a pure function of a schedule. No algorithm declares any of this itself.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from collbench.core.collectives import collective
from collbench.schedules.ir import (
    MAX_KEPT,
    At,
    BufferName,
    Edge,
    Message,
    Operand,
    PendingPull,
    Program,
    Round,
    Schedule,
    Step,
    mapped,
    stages,
)


def cell(schedule: Schedule, rank: int, operand: Operand, *, in_place: bool) -> Operand:
    """The memory that an operand stands for: in place, the input block that is also an output block
    is named by the output.
    """
    if not in_place or operand.buffer != "in":
        return operand
    what = collective(schedule.op)
    alias = what.alias(schedule.n, schedule.root, rank)
    if alias is None:
        return operand
    if what.is_interleaved:
        return Operand("out", operand.chunk)
    return Operand("out", alias[1]) if operand.chunk == alias[0] else operand


def has_shared_cells(schedule: Schedule, *, in_place: bool) -> bool:
    """Whether tracks of a rank pass data to each other through memory: one writes what another one
    reads or writes.
    """
    for rank in range(len(schedule.programs)):
        readers = _tracks(schedule, rank, in_place, lambda step: step.src)
        writers = _writers(schedule, rank, in_place)
        if any(len(tracks | readers.get(place, set())) > 1 for place, tracks in writers.items()):
            return True
    return False


def message_chunks(steps: Round) -> tuple[dict[Edge, int], dict[Edge, int]]:
    """How many chunks one round sends, and receives, along each edge."""
    return (
        Counter(edge for step in steps for edge in step.send),
        Counter(edge for step in steps for edge in step.recv),
    )


def message_indices(
    steps: Round,
) -> tuple[dict[tuple[int, Edge], int], dict[tuple[int, Edge], int]]:
    """For every step and edge, which chunk of its message the step sends, and receives."""
    return _indices(step.send for step in steps), _indices(step.recv for step in steps)


def _indices(edges: Iterable[tuple[Edge, ...]]) -> dict[tuple[int, Edge], int]:
    indices: dict[tuple[int, Edge], int] = {}
    counts: dict[Edge, int] = {}
    for s, of_step in enumerate(edges):
        for edge in of_step:
            indices[s, edge] = counts.setdefault(edge, 0)
            counts[edge] += 1
    return indices


class Shape(NamedTuple):
    """A round seen once: chunks sent and received by edge, the place of each step's chunk in its
    message, its stages (schedule.stages).

    opening: the steps that are the first to use one of their edges, which so wait for data or room.
    """

    sent: dict[Edge, int]
    received: dict[Edge, int]
    sent_index: dict[tuple[int, Edge], int]
    received_index: dict[tuple[int, Edge], int]
    stages: list[list[int]]
    opening: frozenset[int]

    @property
    def order(self) -> list[int]:
        """The steps in execution order."""
        return [step for stage in self.stages for step in stage]


@lru_cache(maxsize=1 << 12)
def shape_of(steps: Round) -> Shape:
    """What running a round needs to know beside its steps."""
    opening: dict[tuple[int, Edge], int] = {}
    ordered = stages(steps)
    for s in (s for stage in ordered for s in stage):
        for is_sent, edges in enumerate((steps[s].recv, steps[s].send)):
            for edge in edges:
                opening.setdefault((is_sent, edge), s)
    return Shape(
        *message_chunks(steps), *message_indices(steps), ordered, frozenset(opening.values())
    )


def rounds_of(schedule: Schedule) -> Iterator[tuple[At, Round]]:
    """Every round of every program that the schedule holds."""
    for p, program in enumerate(schedule.programs):
        for t, track in enumerate(program):
            for r, steps in enumerate(track.rounds):
                yield At(p, t, r), steps


def pull_zero_copy(schedule: Schedule, *, in_place: bool, is_single: bool = False) -> Schedule:
    """The schedule with every message pulled that can be: the peer reads it where it lies instead
    of from a FIFO.

    A message can be pulled if each of its chunks is left in the rank's input or output by the step
    that sends it (it is the step's only operand, or its dst), and if no other track of the rank
    writes there. A later step of the same track that writes there waits until the pull is over.
    is_single: only messages of one chunk, which lie in one piece.
    """
    pulled: dict[At, frozenset[Edge]] = {}
    pending_pulls: dict[At, dict[int, tuple[PendingPull, ...]]] = {}
    for p, program in enumerate(schedule.programs):
        writers = _writers(schedule, p, in_place)
        for t, track in enumerate(program):
            pulls: dict[Operand, list[PendingPull]] = {}
            for r, steps in enumerate(track.rounds):
                due = {
                    s: tuple(pulls.pop(cell(schedule, p, step.dst, in_place=in_place), ()))
                    for s, step in enumerate(steps)
                    if step.dst is not None
                }
                due = {s: waits for s, waits in due.items() if waits}
                if due:
                    pending_pulls[At(p, t, r)] = due
                edges = {edge for step in steps for edge in step.send}
                for edge in edges:
                    homes = [
                        _home(schedule, p, step, in_place) for step in steps if edge in step.send
                    ]
                    known = [
                        home for home in homes if home is not None and writers.get(home, {t}) == {t}
                    ]
                    if len(known) < len(homes) or (is_single and len(homes) > 1):
                        continue
                    pulled[At(p, t, r)] = pulled.get(At(p, t, r), frozenset()) | {edge}
                    for home in known:
                        pulls.setdefault(home, []).append(PendingPull(r, edge))
    return replace(schedule, pulled=pulled, pending_pulls=pending_pulls)


def _home(schedule: Schedule, rank: int, step: Step, in_place: bool) -> Operand | None:
    """Where in the rank's input or output the step leaves what it sends, or None."""
    left = kept(step)
    return None if left is None else cell(schedule, rank, left, in_place=in_place)


def is_copy(step: Step) -> bool:
    """Whether a step only passes on what the rank has: then it can be pulled from where it lies,
    before it is copied anywhere.
    """
    return len(step.src) == 1 and not step.recv


def kept(step: Step) -> Operand | None:
    """The chunk of the input or output in which a step leaves what it sends, or None."""
    left = step.src[0] if is_copy(step) else step.dst
    return None if left is None or left.buffer == "tmp" else left


def home(step: Step) -> Operand:
    """Where a step whose message is pulled keeps it."""
    if is_copy(step):
        return step.src[0]
    assert step.dst is not None
    return step.dst


def _writers(schedule: Schedule, rank: int, in_place: bool) -> dict[Operand, set[int]]:
    """The tracks that write each cell of the rank."""
    return _tracks(schedule, rank, in_place, lambda step: () if step.dst is None else (step.dst,))


def _tracks(
    schedule: Schedule, rank: int, in_place: bool, operands: Callable[[Step], Sequence[Operand]]
) -> dict[Operand, set[int]]:
    """The tracks that use each cell of the rank as one of these operands."""
    found: dict[Operand, set[int]] = {}
    for t, track in enumerate(schedule.programs[rank]):
        for operand in (one for steps in track.rounds for step in steps for one in operands(step)):
            found.setdefault(cell(schedule, rank, operand, in_place=in_place), set()).add(t)
    return found


def landing(steps: Round, edge: Edge) -> tuple[Operand, ...]:
    """Where the chunks of the message from `edge` end if every step of the round that takes one
    only copies it to the output; else ().
    """
    takers = [step for step in steps if edge in step.recv]
    targets = tuple(
        step.dst
        for step in takers
        if step.recv == (edge,)
        and not step.src
        and step.dst is not None
        and step.dst.buffer == "out"
    )
    return targets if len(targets) == len(takers) else ()


def arrivals(schedule: Schedule) -> dict[Message, Message]:
    """For every message as its sender sees it, the same message as its receiver does; of a
    symmetric schedule, relative to rank 0.
    """
    sent: dict[tuple[int, int, str], list[Message]] = {}
    received: dict[tuple[int, int, str], list[Message]] = {}
    for at, steps in rounds_of(schedule):
        out, into = message_chunks(steps)
        for edge in out:
            sent.setdefault((at.program, edge.peer, edge.port), []).append(Message(at, edge))
        for edge in into:
            key = (
                (0, -edge.peer % schedule.n, edge.port)
                if schedule.is_symmetric
                else (edge.peer, at.program, edge.port)
            )
            received.setdefault(key, []).append(Message(at, edge))
    return {
        message: taken
        for key, messages in sent.items()
        for message, taken in zip(messages, received.get(key, ()), strict=False)
    }


def message_count(schedule: Schedule) -> int:
    """Messages of all ranks in one loop."""
    copies = schedule.n if schedule.is_symmetric else 1
    return copies * sum(len(message_chunks(steps)[0]) for _, steps in rounds_of(schedule))


def direct_count(schedule: Schedule) -> int:
    """How many of them are read or written in place."""
    copies = schedule.n if schedule.is_symmetric else 1
    return copies * sum(map(len, (*schedule.pulled.values(), *schedule.pushed.values())))


@lru_cache(maxsize=MAX_KEPT)
def widest_message(schedule: Schedule) -> int:
    """The most chunks that any one message through a FIFO carries; 0 if none goes through one."""
    side, direct = (1, schedule.pushed) if schedule.pushed else (0, schedule.pulled)
    return max(
        (
            count
            for at, steps in rounds_of(schedule)
            for edge, count in message_chunks(steps)[side].items()
            if edge not in direct.get(at, ())
        ),
        default=0,
    )


@lru_cache(maxsize=MAX_KEPT)
def step_count(schedule: Schedule) -> int:
    """The steps of the busiest rank in one loop."""
    return max(
        sum(len(steps) for track in program for steps in track.rounds)
        for program in schedule.programs
    )


@lru_cache(maxsize=MAX_KEPT)
def operand_count(schedule: Schedule) -> int:
    """The operands of the steps of the busiest rank in one loop, received ones included."""
    return max(
        sum(
            len(step.src) + len(step.recv)
            for track in program
            for steps in track.rounds
            for step in steps
        )
        for program in schedule.programs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the busiest rank sends and receives, as fractions of the size S, and the messages that
    it sends, in one loop.
    """

    sent: Fraction
    received: Fraction
    messages: int


def _pieces(schedule: Schedule) -> int:
    """How many chunks the size S is."""
    what = collective(schedule.op)
    if what.is_interleaved:
        return schedule.chunks["in"]
    return schedule.n if what.size_in_blocks else 1


@lru_cache(maxsize=MAX_KEPT)
def traffic(schedule: Schedule) -> Traffic:
    """Bytes and messages of the busiest rank.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> traffic(build("allreduce", "ring", ring.allreduce, World(n=4))).sent
    Fraction(3, 2)
    """
    pieces = _pieces(schedule)
    sent, received, messages = ([0] * len(schedule.programs) for _ in range(3))
    for at, steps in rounds_of(schedule):
        out, into = message_chunks(steps)
        sent[at.program] += sum(out.values())
        received[at.program] += sum(into.values())
        messages[at.program] += len(out)
    return Traffic(
        sent=Fraction(max(sent), pieces),
        received=Fraction(max(received), pieces),
        messages=max(messages),
    )


def pair_traffic(schedule: Schedule) -> dict[tuple[int, int], Fraction]:
    """What one loop sends from rank to rank, as fractions of the size S.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> pair_traffic(build("allgather", "ring", ring.allgather, World(n=3)))
    {(0, 1): Fraction(2, 3), (1, 2): Fraction(2, 3), (2, 0): Fraction(2, 3)}
    """
    n, pieces = schedule.n, _pieces(schedule)
    shares: dict[tuple[int, int], Fraction] = {}
    for at, steps in rounds_of(schedule):
        for rank in range(n) if schedule.is_symmetric else (at.program,):
            shift = rank if schedule.is_symmetric else 0
            for edge, count in message_chunks(steps)[0].items():
                pair = (rank, (edge.peer + shift) % n)
                shares[pair] = shares.get(pair, Fraction(0)) + Fraction(count, pieces)
    return shares


def between_hosts(schedule: Schedule, hosts: Sequence[int]) -> Fraction:
    """What the busiest host sends to other hosts in one loop, as a fraction of the size S; hosts[r]
    is the host of rank r.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> between_hosts(build("allreduce", "ring", ring.allreduce, World(n=4)), (0, 0, 1, 1))
    Fraction(3, 2)
    """
    leaving = dict.fromkeys(hosts, Fraction(0))
    for (source, target), share in pair_traffic(schedule).items():
        leaving[hosts[source]] += share if hosts[source] != hosts[target] else 0
    return max(leaving.values())


def braid(schedules: Sequence[Schedule]) -> Schedule:
    """Schedules of one algorithm in different rank orders as one: each has its part of the vector,
    and tracks of its own.

    For interleaved collectives only, whose vector can be cut anywhere. Raises ValueError for
    others.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.core.world import World
    >>> one = build("allreduce", "ring", ring.allreduce, World(n=3))
    >>> both = braid([one, reorder(one, (2, 1, 0))])
    >>> both.chunks["in"], [track.name for track in both.program(0)], pair_traffic(both)[0, 1]
    (6, ['main.0', 'main.1'], Fraction(2, 3))
    """
    first = schedules[0]
    if len(schedules) == 1:
        return first
    if not collective(first.op).is_interleaved:
        raise ValueError(f"{first.op} cannot be cut into {len(schedules)} parts")
    programs = tuple(
        tuple(
            track
            for k, schedule in enumerate(schedules)
            for track in _braided(schedule.program(rank), k, schedule.chunks)
        )
        for rank in range(first.n)
    )
    chunks: dict[BufferName, int] = {
        buffer: sum(schedule.chunks[buffer] for schedule in schedules) for buffer in first.chunks
    }
    return Schedule(
        op=first.op,
        name=first.name,
        n=first.n,
        root=first.root,
        chunks=chunks,
        programs=programs,
        is_symmetric=False,
    )


def _braided(program: Program, k: int, chunks: dict[BufferName, int]) -> Program:
    """A program as the k-th of a braid: its chunks behind those of the others, its ports and tracks
    with a number.
    """
    return mapped(
        program,
        lambda at: Operand(at.buffer, at.chunk + k * chunks[at.buffer]),
        lambda edge: Edge(edge.peer, f"{edge.port}.{k}"),
        lambda name: f"{name}.{k}",
    )


def reorder(schedule: Schedule, order: tuple[int, ...]) -> Schedule:
    """The schedule with rank order[p] in the place of position p, also as an index of blocks. No
    order given: the schedule itself.
    """
    if not order or order == tuple(range(schedule.n)):
        return schedule
    what = collective(schedule.op)
    indexed: set[BufferName] = set()
    if not what.is_interleaved:
        indexed |= {"in"} if what.inputs[0] == "n" else set()
        indexed |= {"out"} if what.outputs[0] == "n" else set()

    def operand(at: Operand) -> Operand:
        return Operand(at.buffer, order[at.chunk]) if at.buffer in indexed else at

    programs: list[Program] = [()] * schedule.n
    for position in range(schedule.n):
        programs[order[position]] = mapped(
            schedule.program(position), operand, lambda edge: Edge(order[edge.peer], edge.port)
        )
    root = order[schedule.root] if what.is_rooted else schedule.root
    return replace(
        schedule,
        programs=tuple(programs),
        is_symmetric=False,
        root=root,
        pulled={},
        pending_pulls={},
        pushed={},
        ready={},
    )
