"""Schedules in files of other programs: one format a module, and the content decides which one.

A file comes from anyone: whatever it holds, reading it gives a program or one UsageError with the
place. What a file says is proved as any schedule is, before anything runs it.

Tracks cannot wait for each other: blocks that do become one track, in the program's order. Programs
may write to their input, schedules may not: a chunk is read from the input until its first write,
which goes to the output where the two are one chunk in place, and else to scratch memory.
"""

import hashlib
import re
from collections import Counter, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError, UsageError
from collbench.core.reading import read_content
from collbench.core.registry import Family
from collbench.core.world import World
from collbench.schedules.formats._program import ThreadProgram, Turn
from collbench.schedules.ir import MAX_KEPT, Operand, Program, Round, Schedule, Step, Track, build
from collbench.schedules.verify.check import check
from collbench.schedules.verify.proof import Key

FAMILY = Family(__name__, __path__, "format")
MAX_FILE_BYTES = 32 << 20
_DIGEST_DIGITS = 8
_DIFFERENT_WAYS = "chunks of a block go different ways, or are read before they are written"
_WHOLE = "a schedule moves blocks whole"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, eq=False)
class AlgorithmFile:
    """An algorithm for one collective and one number of ranks, from a file.

    name: the file's, with a digest of its content. It is how cases and rows call the algorithm.
    """

    name: str
    op: OpName
    n: int
    root: int
    program: ThreadProgram

    def schedule(self, *, in_place: bool) -> Schedule:
        """The schedule for a placement, proved. Raises ScheduleError with what is wrong."""
        return _proved(self, in_place)


@lru_cache(maxsize=MAX_KEPT)
def _proved(file: AlgorithmFile, in_place: bool) -> Schedule:
    """The schedule with as many tracks as its proof allows."""

    def proved(is_merged: bool) -> Schedule:
        made = _woven(file.program, file.name, in_place=in_place, is_merged=is_merged)
        check(made, in_place=in_place)
        return made

    try:
        return proved(is_merged=False)
    except ScheduleError:
        with suppress(ScheduleError):
            return proved(is_merged=True)
        raise


def is_file(text: str) -> bool:
    """Whether the name of an algorithm is that of a file.

    >>> is_file("ring"), is_file("ring.xml"), is_file("./ring")
    (False, True, True)
    """
    return "." in text or "/" in text


_LOADED: dict[str, AlgorithmFile] = {}


def load(file: str) -> AlgorithmFile:
    """The algorithm of a file, which cases can name from now on. Raises UsageError with the place
    and what is wrong.
    """
    data = read_content(file, MAX_FILE_BYTES, "give a program in MSCCL's XML or MSCCL++'s JSON")
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_DIGITS]
    stem = _NO_NAME.sub("-", Path(file).stem)[:40].strip("-.") or "program"
    name = f"{stem}@{digest}"
    if name not in _LOADED:
        text = data.decode(errors="replace")
        for format_name in FAMILY:
            format_ = FAMILY.load(format_name)
            if format_.is_mine(text):
                program: ThreadProgram = format_.read(text, file)
                if program.chunks > 1 and not collective(program.op).is_interleaved:
                    program = _whole_blocks(program)
                _LOADED[name] = AlgorithmFile(name, program.op, program.n, program.root, program)
                break
        else:
            raise UsageError(
                f"{file} is no program of a collective", "MSCCL's XML and MSCCL++'s JSON are read"
            )
    return _LOADED[name]


def loaded(name: str) -> AlgorithmFile | None:
    """The algorithm that a file was loaded as, or None."""
    return _LOADED.get(name)


def _woven(program: ThreadProgram, name: str, *, in_place: bool, is_merged: bool) -> Schedule:
    """The schedule of a program. is_merged: a rank has one track; otherwise blocks that do not wait
    for each other have tracks of their own.

    A program for placement `in` alone, run out of place, gets copies of the chunks that it finds
    where they belong.
    """
    memory = [_Memory(given=program.given(rank)) for rank in range(program.n)]
    tracks = ["main"] * len(program.blocks) if is_merged else _tracks(program)
    rounds: list[dict[str, list[Round]]] = [{} for _ in memory]
    for block, track in zip(program.blocks, tracks, strict=True):
        rounds[block.rank].setdefault(track, [])
    for turn in program.order:
        rank = program.blocks[turn.block].rank
        rounds[rank][tracks[turn.block]].append(memory[rank].bound(turn.steps))
    for own, held in zip(rounds, memory, strict=True):
        copies = [(chunk, cell) for cell, chunk in held.given.items() if cell.buffer == "out"]
        if copies and not in_place:
            steps = tuple(Step(src=(chunk,), dst=cell) for chunk, cell in copies)
            own.setdefault(next(iter(own), "main"), []).insert(0, steps)
    programs: list[Program] = [
        tuple(Track(name=track, rounds=tuple(some)) for track, some in own.items())
        for own in rounds
    ]
    world = World(n=program.n, root=program.root)
    schedule = build(program.op, name, lambda _, rank: programs[rank], world)
    if collective(program.op).is_interleaved and schedule.chunks["in"] < program.chunks:
        raise ScheduleError(f"{program.file}: no step names chunk {program.chunks - 1}")
    return schedule


@dataclass(slots=True, kw_only=True)
class _Memory:
    """Where the chunks of a rank are while its steps are bound one after the other. given: the
    cells that still hold an input chunk.
    """

    given: dict[Operand, Operand]
    scratch: dict[Operand, int] = field(default_factory=dict)

    def bound(self, steps: Round) -> Round:
        """Steps with the operands of a schedule."""
        bound = tuple(
            replace(
                step,
                src=tuple(self.given.get(cell) or self._target(cell) for cell in step.src),
                dst=step.dst and self._target(step.dst),
            )
            for step in steps
        )
        for step in steps:
            if step.dst:
                self.given.pop(step.dst, None)
        return bound

    def _target(self, cell: Operand) -> Operand:
        if cell.buffer == "out":
            return cell
        return Operand("tmp", self.scratch.setdefault(cell, len(self.scratch)))


def _tracks(program: ThreadProgram) -> list[str]:
    """The name of the track of every block: joined blocks are in one."""
    leaders = list(range(len(program.blocks)))
    for pair in program.joined:
        first, second = sorted(leaders[block] for block in pair)
        leaders = [first if leader == second else leader for leader in leaders]
    return [program.blocks[leader].name for leader in leaders]


def _whole_blocks(program: ThreadProgram) -> ThreadProgram:
    """A program that cuts every block into several chunks, all of which go the same way, with
    whole blocks. Raises ScheduleError where chunks of different places meet, or go different ways.
    """
    parts: list[list[Turn]] = [[] for _ in range(program.chunks)]
    ways: list[Counter[tuple[object, ...]]] = [Counter() for _ in parts]
    # of what is in scratch memory, or on its way: the place in its block, and what it comes from
    values: dict[tuple[int, Operand], tuple[int, object]] = {}
    carried: defaultdict[Key, deque[tuple[int, object]]] = defaultdict(deque)

    def value(rank: int, at: Operand) -> tuple[int, object]:
        if at.buffer == "tmp":
            return values.get((rank, at), (-1, None))
        return at.chunk % program.chunks, _block(at, program.chunks)

    for turn in program.order:
        rank = program.blocks[turn.block].rank
        steps: defaultdict[int, list[Step]] = defaultdict(list)
        for step in turn.steps:
            queues = [carried[Key(edge.peer, rank, edge.port)] for edge in step.recv]
            read = [value(rank, at) for at in step.src]
            read += [queue.popleft() if queue else (-1, None) for queue in queues]
            dst = step.dst and _block(step.dst, program.chunks)
            written = [value(rank, step.dst)] if step.dst and step.dst.buffer != "tmp" else []
            place, *others = {place for place, _ in (*read, *written)}
            if others or place < 0:
                raise ScheduleError(f"{turn.place}: {_DIFFERENT_WAYS}", _WHOLE)
            made = place, hash(tuple(what for _, what in read))
            if step.dst:
                values[rank, step.dst] = made
            for edge in step.send:
                carried[Key(rank, edge.peer, edge.port)].append(made)
            src = tuple(_block(at, program.chunks) for at in step.src)
            steps[place].append(replace(step, src=src, dst=dst))
            peers = [edge.peer for edge in (*step.recv, *step.send)]
            ways[place][rank, made[1], bool(written) and dst, *peers] += 1
        for place, own in steps.items():
            parts[place].append(turn._replace(steps=tuple(own)))
    if any(way != ways[0] for way in ways):
        raise ScheduleError(f"{program.file}: {_DIFFERENT_WAYS}", _WHOLE)
    return replace(program, chunks=1, order=tuple(parts[0]))


def _block(at: Operand, chunks: int) -> Operand:
    """The block of a chunk; scratch memory has none."""
    return at if at.buffer == "tmp" else Operand(at.buffer, at.chunk // chunks)
