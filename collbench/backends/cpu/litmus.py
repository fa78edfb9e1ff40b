"""Litmus tests of CPUs: two ranks, each pinned to a core, race over cells in the memory that they
share, and every cell of every round is a trial.

The accesses are NumPy's, as those of the backend's protocols are. A test with plain accesses makes
one call a round: a strided copy of two elements a cell, the first element a cell's first access and
the second its second one, so that a few instructions lie between them. An element of 4 or 8 bytes
is one load and one store, one of 16 bytes at most two of each, and one of 128 bytes as many as the
C library takes. NumPy walks the elements of the inner axis in order, which compilers keep because
both sides of the copy may be the same memory. A test of a protocol makes the calls of lines.py and
interpreter.py instead: a pass over data, then a pass over flags.

A round: both ranks meet twice, pause for a random moment, run their calls, meet, and the last rank
counts. Twice, because whoever comes last to the first meeting would be done before the other one
has its core back, where other programs use the cores. Every wait has a deadline.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from collbench.backends.cpu.flags import LINE_WORDS
from collbench.backends.cpu.lines import chunk_in
from collbench.launch.group import Rank, RankContext
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.spec.litmus import Litmus, litmus
from collbench.util.errors import HangError

if TYPE_CHECKING:
    from collbench.spec.dtypes import Array

CELLS = 1024  # of a round: small enough that all of them stay in a core's own cache
_LINE_BYTES = LINE_WORDS * 8
_CONTROL_BYTES = 4096
_AREA_BYTES = CELLS * 1024  # of a side
ARENA_BYTES = _CONTROL_BYTES + 2 * _AREA_BYTES
_POLLS = 2_000  # of a rank that waits, before it sleeps between them
_NAP_S = 20e-6
_NAPS_A_LOOK = 64  # naps between two looks at the clock and the abort word
_MOST_PAUSE = 64  # turns of an empty loop, by which one side begins later than the other
_DEADLINE_S = 10.0  # for the other rank to come to a meeting
SLICES, SLICE_LINES, _SLICE_BYTES = 16, 64, 132 * _LINE_BYTES  # of a test of a protocol
FLAG_FIRST = "flag-first"  # planted by tests: a writer that sets the flag before the data


class Sides(NamedTuple):
    """What a rank calls in a round, after its number is given to `prepare`, and how rank 1 counts
    the outcomes of all cells.
    """

    prepare: Callable[[int], None]
    play: Callable[[int], None]
    outcomes: Callable[[int], "Array"]


class LitmusRank(Rank):
    """One side of the tests."""

    def __init__(self, context: RankContext) -> None:
        assert context.arena is not None
        self.rank, self.arena = context.rank, context.arena
        self.bytes: Array = np.frombuffer(context.arena, np.uint8)
        self.words = context.arena[:_CONTROL_BYTES].cast("q")
        self.met = 0

    def play(
        self, name: str, core: tuple[int, int], trials: int, seconds: float, plant: str, seed: int
    ) -> tuple[int, tuple[int, ...], float]:
        """Rounds until there are so many trials or the seconds are over. Returns the trials, the
        counts of each outcome (of rank 1; zeros of the other) and the seconds.
        """
        os.sched_setaffinity(0, {core[self.rank]})
        test = litmus(name, "cpu")
        area = self.bytes[_CONTROL_BYTES:]
        self._meet()
        if self.rank == 0:
            area[...] = 0
        self._meet()
        sides = _sides_of(test, self.rank, area, plant)
        total = np.zeros(len(test.outcomes), np.int64)
        chance, start, done, number = random.Random(f"{seed} {self.rank}"), time.monotonic(), 0, 0
        while True:
            number += 1
            sides.prepare(number)
            if self.rank == 0:  # one clock decides for both
                self.words[3 * LINE_WORDS] = int(
                    done >= trials or (number > 1 and time.monotonic() - start > seconds)
                )
            self._meet()
            if self.words[3 * LINE_WORDS]:
                return done, tuple(total.tolist()), time.monotonic() - start
            self._meet()  # whoever came last to the one before: the other has its core back now
            for _ in range(chance.randrange(_MOST_PAUSE)):
                pass
            sides.play(number)
            self._meet()
            counts = sides.outcomes(number)
            done += CELLS if test.shape != "lines" else SLICES * SLICE_LINES
            if self.rank == 1:
                total += counts

    def _meet(self) -> None:
        """Both ranks are here. A rank that waits for long sleeps: where other programs use the
        cores, one that sleeps has its core back sooner than one that offers it. Raises HangError if
        the other one does not come, or was aborted.
        """
        self.met += 1
        words, other = self.words, (2 - self.rank) * LINE_WORDS
        words[(1 + self.rank) * LINE_WORDS] = self.met
        polls, deadline = 0, 0.0
        while words[other] < self.met:
            polls += 1
            if polls > _POLLS:
                time.sleep(_NAP_S)
                if polls % _NAPS_A_LOOK == 0:
                    deadline = deadline or time.monotonic() + _DEADLINE_S
                    if time.monotonic() > deadline or self.arena[0]:
                        raise HangError(f"rank {self.rank} waited for the other side of a test")


def _sides_of(test: Litmus, rank: int, area: "Array", plant: str) -> Sides:
    if test.shape == "lines":
        return _line_sides(test, rank, area, plant)
    if test.fence:
        return _fenced_sides(rank, area)
    return _plain_sides(test, rank, area, plant)


# ------------------------------------------------------------------------------ plain accesses


class _Layout(NamedTuple):
    """What each side does to x and y, and where things lie. A cell has a row in each of two areas:
    what a side writes lies in one area and what it reads in the other, because NumPy copies first
    where the two could overlap. x: in area 0. y_area: of y. into: the area that each side writes.
    slots: the places in a row: x, y, the number that is written, and what is read; of the two
    writes of a side the first is to the lower one, because NumPy goes upwards.
    """

    programs: tuple[str, str]
    y_area: int
    into: tuple[int, int]
    slots: str


_ROW = 5  # places of a row, each in cache lines of its own
_LAYOUTS = {
    "mp": _Layout(("WxWy", "RyRx"), 0, (0, 1), "xyn01"),
    "flag-first": _Layout(("WyWx", "RyRx"), 0, (0, 1), "yxn01"),
    "sb": _Layout(("WxRy", "WyRx"), 1, (0, 1), "xyn01"),
    "lb": _Layout(("RxWy", "RyWx"), 1, (1, 0), "01nxy"),
    "corr": _Layout(("Wx", "RxRx"), 0, (0, 1), "xyn01"),
    "whole": _Layout(("Wx", "Rx"), 0, (0, 1), "xyn01"),
}
_ELEMENTS = {4: "u4", 8: "u8", 16: "c16", 128: "V128"}


def _plain_sides(test: Litmus, rank: int, area: "Array", plant: str) -> Sides:
    layout = _LAYOUTS[plant if plant and test.shape == "mp" else test.shape]
    step = max(_LINE_BYTES, test.width)
    element, word = np.dtype(_ELEMENTS[test.width]), np.dtype(f"u{min(test.width, 8)}")

    def offset(name: str, of: int) -> int:
        """Where a value of a side lies: x, y, n or a result."""
        into = layout.into[of]
        places = {"x": 0, "y": layout.y_area, "n": 1 - into}
        return places.get(name, into) * _AREA_BYTES + layout.slots.index(name) * step

    def words_of(name: str, of: int) -> "Array":
        """A value of every cell, in words."""
        first = area[offset(name, of) :][: word.itemsize].view(word)
        shape = CELLS, test.width // word.itemsize
        return as_strided(first, shape, (_ROW * step, word.itemsize))

    def operand(offsets: list[int]) -> "Array":
        """What the accesses of a side are to, of every cell."""
        stride = offsets[-1] - offsets[0]
        first = area[offsets[0] :][: element.itemsize].view(element)
        return as_strided(first, (CELLS, len(offsets)), (_ROW * step, stride))

    program = layout.programs[rank]
    accesses = [program[at : at + 2] for at in range(0, len(program), 2)]
    sources, targets, reads = [], [], 0
    for access in accesses:
        kind, name = access[0], access[1]
        sources.append(offset("n" if kind == "W" else name, rank))
        targets.append(offset(name if kind == "W" else str(reads), rank))
        reads += kind == "R"
    assert targets == sorted(targets)
    into, out_of, number_cells = operand(targets), operand(sources), words_of("n", rank)
    results = [words_of(*where) for where in _RESULTS[test.shape]]

    def prepare(number: int) -> None:
        number_cells[...] = number

    def play(_: int) -> None:
        into[...] = out_of

    def count(number: int) -> "Array":
        if rank == 0:
            return np.zeros(len(test.outcomes), np.int64)
        if test.shape == "whole":
            new = (results[0] == number).sum(axis=1)
            kinds = np.where(new == 0, 0, np.where(new == results[0].shape[1], 1, 2))
            return np.bincount(kinds, minlength=3)
        first = results[0][:, -1] == number
        second = (results[1] == number).all(axis=1)
        return np.bincount(2 * first + second, minlength=4)

    return Sides(prepare, play, count)


# shape -> the results that tell its outcomes, each with the side that read it
_RESULTS = {
    "mp": (("0", 1), ("1", 1)),
    "sb": (("0", 0), ("0", 1)),
    "lb": (("0", 0), ("0", 1)),
    "corr": (("0", 1), ("1", 1)),
    "whole": (("0", 1),),
}


# -------------------------------------------------------------------------------- with a fence


def _fenced_sides(rank: int, area: "Array") -> Sides:
    """Store buffering with a lock between the accesses of a side: taking one is an instruction that
    x86 completes all older stores for. A loop of Python, because NumPy has no such instruction.
    """
    words = area[: 4 * CELLS * _LINE_BYTES].data.cast("q")
    row = CELLS * LINE_WORDS
    mine, other, results = (
        words[at * row : (at + 1) * row][::LINE_WORDS] for at in (rank, 1 - rank, 2 + rank)
    )
    seen = [area[at * 8 * row : (at + 1) * 8 * row].view(np.int64)[::LINE_WORDS] for at in (2, 3)]
    lock = threading.Lock()

    def play(number: int) -> None:
        for cell in range(CELLS):
            mine[cell] = number
            lock.acquire()
            lock.release()
            results[cell] = other[cell]

    def count(number: int) -> "Array":
        if rank == 0:
            return np.zeros(4, np.int64)
        return np.bincount(2 * (seen[0] == number) + (seen[1] == number), minlength=4)

    return Sides(lambda _: None, play, count)


# ---------------------------------------------------------------------- the protocols' own calls


def _line_sides(test: Litmus, rank: int, area: "Array", plant: str) -> Sides:
    """Slices as the backend sends them: a call that copies data, then a call, or a store of a word,
    that sets flags. Every line (of simple: every word) is a trial.
    """
    source = np.zeros((SLICE_LINES, test.width), np.uint8)
    slices = [_slice_of(test, area[at * _SLICE_BYTES :]) for at in range(SLICES)]
    seen = [(np.empty_like(flags), np.empty_like(data)) for data, flags in slices]
    is_planted = bool(plant)

    def prepare(number: int) -> None:
        source.view("u4")[...] = number

    def play(number: int) -> None:
        if rank:
            for (data, flags), (seen_flags, seen_data) in zip(slices, seen, strict=True):
                seen_flags[...] = flags
                seen_data[...] = data
            return
        for data, flags in slices:
            if is_planted:
                flags[...] = number
            data[...] = source
            flags[...] = number

    def count(number: int) -> "Array":
        if rank == 0:
            return np.zeros(4, np.int64)
        total = np.zeros(4, np.int64)
        for flags, data in seen:
            is_new = (data.view("u4") == number).all(axis=1)
            total += np.bincount(2 * (flags == number) + is_new, minlength=4)
        return total

    return Sides(prepare, play, count)


def _slice_of(test: Litmus, memory: "Array") -> tuple["Array", "Array"]:
    """The data of a slice, and its flags: one of each line, or of simple one word for all."""
    if test.proto == "simple":
        data = memory[_LINE_BYTES : _LINE_BYTES + SLICE_LINES * test.width]
        return data.reshape(SLICE_LINES, test.width), memory[:8].view(np.int64)
    facts = PROTOCOLS.load(test.proto)
    data_bytes, flag_bytes = facts.DATA_BYTES, facts.FLAG_BYTES
    return chunk_in(memory, SLICE_LINES * data_bytes, data_bytes, flag_bytes)
