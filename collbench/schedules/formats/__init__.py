"""Schedules in files of other programs: one format a file, found by the file's name; the content
decides which one it is.

A file comes from anyone: whatever it holds, reading it gives a program or one UsageError with the
place. What a file says is proved as any schedule is, before anything runs it.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError, UsageError
from collbench.core.reading import read_content
from collbench.core.registry import Family
from collbench.schedules.formats._threads import ThreadProgram, Turn, alike, parted, played, woven
from collbench.schedules.ir import Schedule
from collbench.schedules.verify.check import check

FAMILY = Family(__name__, __path__, "format")
MAX_FILE_BYTES = 32 << 20
_DIGEST_DIGITS = 8
_MAX_PARTS = 1 << 20  # steps of a program times the chunks of a block
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True, eq=False)
class AlgorithmFile:
    """An algorithm for one collective and one number of ranks, from a file.

    name: the file's, with a digest of its content. It is how cases and rows call the algorithm.
    """

    name: str
    program: ThreadProgram
    _schedules: dict[bool, Schedule | ScheduleError] = field(default_factory=dict)

    @property
    def op(self) -> OpName:
        return self.program.op

    @property
    def n(self) -> int:
        return self.program.n

    @property
    def root(self) -> int:
        return self.program.root

    @property
    def parts(self) -> int:
        """Chunks that the file cuts a block into; all of them go the same way."""
        return 1 if collective(self.op).is_interleaved else self.program.chunks

    @cached_property
    def _part(self) -> tuple[ThreadProgram, list[Turn]]:
        """The program of one chunk of every block, and the order in which it can run."""
        order = played(self.program)
        if self.parts == 1:
            return self.program, order
        if self.parts * len(order) > _MAX_PARTS:
            raise ScheduleError(
                f"{self.program.file}: {len(order)} steps that cut a block into {self.parts}"
                " chunks are too many",
                f"at most {_MAX_PARTS} steps times chunks are read",
            )
        first, *others = parted(self.program, order)
        order = played(first)
        schedule = woven(first, order, self.name, in_place=True, is_merged=False)
        for number, other in enumerate(others, 1):
            if not alike(
                schedule, woven(other, played(other), self.name, in_place=True, is_merged=False)
            ):
                raise ScheduleError(
                    f"{self.program.file}: cuts a block into {self.parts} chunks, and chunks 0 and"
                    f" {number} of a block go different ways",
                    "a schedule moves blocks whole",
                )
        return first, order

    def schedule(self, *, in_place: bool) -> Schedule:
        """The schedule for a placement, proved. Raises ScheduleError with what is wrong."""
        if in_place not in self._schedules:
            try:
                made: Schedule | ScheduleError = _proved(*self._part, self.name, in_place)
            except ScheduleError as error:
                made = error
            self._schedules[in_place] = made
        known = self._schedules[in_place]
        if isinstance(known, ScheduleError):
            raise known
        return known

    def notes(self, *, in_place: bool) -> list[str]:
        """What the schedule does otherwise than the file says, in sentences."""
        schedule, notes = self.schedule(in_place=in_place), []
        if self.parts > 1:
            notes.append(
                f"The file cuts each block into {self.parts} chunks that go the same way: the"
                f" schedule moves whole blocks, and --channels {self.parts} cuts them."
            )
        program, _ = self._part
        blocks = sum(any(one.steps for one in block.instructions) for block in program.ranks[0])
        tracks = len(schedule.program(0))
        if blocks > tracks:
            notes.append(
                f"Rank 0 has {blocks} thread blocks and {tracks} track{'s' * (tracks > 1)}: blocks"
                " that wait for each other are one track, in an order in which they can run."
            )
        if self.program.is_aliased and not in_place:
            notes.append("The file is for in place: out of place, the input stays as it is.")
        return notes


def _proved(program: ThreadProgram, order: Sequence[Turn], name: str, in_place: bool) -> Schedule:
    """The schedule with as many tracks as its proof allows."""
    apart = woven(program, order, name, in_place=in_place, is_merged=False)
    try:
        check(apart, in_place=in_place)
    except ScheduleError as error:
        if all(len(apart.program(rank)) < 2 for rank in range(apart.n)):
            raise
        merged = woven(program, order, name, in_place=in_place, is_merged=True)
        try:
            check(merged, in_place=in_place)
        except ScheduleError:
            raise error from None
        return merged
    return apart


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
                _LOADED[name] = AlgorithmFile(name=name, program=format_.read(text, file))
                break
        else:
            raise UsageError(
                f"{file} is no program of a collective", "MSCCL's XML and MSCCL++'s JSON are read"
            )
    return _LOADED[name]


def loaded(name: str) -> AlgorithmFile | None:
    """The algorithm that a file was loaded as, or None."""
    return _LOADED.get(name)
