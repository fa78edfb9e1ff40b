"""Proof that every launch of a batch works: behind the timed batch a shorter one goes the same
way, in which some elements of the buffers change from launch to launch.

Results that are compared at the end say nothing of a launch whose work another one did, too: on the
same buffers the first is enough. So each launch here has inputs of its own in every block, at three
elements that move, on outputs that are poisoned there; in every second launch two of the three are
the first and the last. In the others these stay as the launch before left them, so a kernel that
looks there whether it ran already does nothing, and is seen. They are read when the launch returns:
nobody else writes them, and who pulls from them has ended by then. The last launch has all of its
output poisoned and compared.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from collbench.backends.repeat import compare_output, phase, poison_again
from collbench.core.case import Problem
from collbench.core.collectives import collective
from collbench.core.dtypes import Array, dtype
from collbench.core.pattern import PERIOD, Wrong, bits, inputs, reduced

_LAUNCH_SHIFT = 1009  # elements of the pattern between the inputs of two launches
_ENOUGH = 8  # launches, that one of them met no load of the machine
_MOVE = 7919  # elements from one that moves to the next; both are prime


class Elements:
    """What changes from launch to launch of a rank. All arrays are [launches, elements].

    into, given, plain: places in the input, what stands there for the launch, and what the set of
    user buffers has there otherwise. at, wanted: places in the output, and what must come out.
    Values are bits, as whole numbers.
    """

    def __init__(self, problem: Problem, rank: int, order: Sequence[int]) -> None:
        numbers = np.arange(len(order))[:, None, None]
        shifts = phase(problem, 0) + _LAUNCH_SHIFT * (1 + numbers)
        phases = np.array([phase(problem, number) for number in order])[:, None, None]
        of, is_reduction = (
            (problem.dtype, problem.redop, problem.n),
            collective(problem.op).is_reduction,
        )
        own = bits(inputs(*of, rank, is_reduction))
        counts = zip(
            problem.block_firsts("in", rank), problem.block_counts("in", rank), strict=False
        )
        given = [(first, size, first) for first, size in counts if size]
        into, _ = _places(numbers, given)
        blocks = [block for block in problem.blocks(rank) if block.size]
        at, whence = _places(numbers, [(one.first, one.size, one.given_first) for one in blocks])
        wanted = np.empty(at.shape, own.dtype)
        for number, block in enumerate(blocks):
            table = reduced(*of) if is_reduction else inputs(*of, block.giver, is_reduction=False)
            places = whence[:, number] + shifts[:, 0]
            wanted[:, number] = bits(table)[places % PERIOD]
        self.into, self.given, self.plain, self.at, self.wanted = (
            values.reshape(len(order), -1)
            for values in (
                into,
                own[(into + shifts) % PERIOD],
                own[(into + phases) % PERIOD],
                at,
                wanted,
            )
        )

    def wrong(self, problem: Problem, rank: int, seen: "Array") -> Wrong | None:
        """What differs of the outputs that were seen, [launches, elements]."""
        differs = seen != self.wanted[: len(seen)]
        if not differs.any():
            return None
        first = np.unravel_index(differs.argmax(), differs.shape)
        got, wanted = (
            str(values[first][None].view(dtype(problem.dtype).numpy())[0])
            for values in (seen, self.wanted)
        )
        count, index = int(differs.sum()), int(self.at[first])
        return Wrong(rank=rank, count=count, index=index, got=got, wanted=wanted)


def _places(numbers: "Array", blocks: Sequence[tuple[int, int, int]]) -> tuple["Array", "Array"]:
    """Of blocks with a beginning, a size and a beginning elsewhere the elements that change in each
    launch: their places here and there, [launches, blocks, 3].
    """
    first, size, there = np.array(blocks, np.int64).reshape(-1, 3).T[:, None, :, None]
    inside = (size // 2 + (3 * numbers + np.arange(3)) * _MOVE) % size
    inside[1::2, :, :2] = np.concatenate([0 * size, size - 1], axis=2)
    return inside + first, inside + there


class ProvedPart(NamedTuple):
    """A rank's part of a batch: the set of each launch, and the input and output of a set."""

    problem: Problem
    rank: int
    order: Sequence[int]
    buffers: Callable[[int], tuple["Array", "Array"]]


class _Changing:
    """The elements of a part that change, in its buffers."""

    def __init__(self, part: ProvedPart) -> None:
        self.part, self.elements = part, Elements(*part[:3])
        self.sets = {
            number: tuple(map(bits, part.buffers(number))) for number in dict.fromkeys(part.order)
        }
        self.poison = ~self.elements.wanted
        self.seen = np.zeros_like(self.elements.wanted)[:-1]

    def before(self, number: int) -> None:
        """Poison the output, then write the input: in place they may be the same."""
        source, target = self.sets[self.part.order[number]]
        target[self.elements.at[number]] = self.poison[number]
        source[self.elements.into[number]] = self.elements.given[number]

    def after(self, number: int) -> None:
        """Keep what came out, and write the input as it was where results are not there."""
        source, target = self.sets[self.part.order[number]]
        self.seen[number] = target[self.elements.at[number]]
        if not self.part.problem.in_place:
            source[self.elements.into[number]] = self.elements.plain[number]

    def poison_last(self) -> None:
        """Have all of the last launch's output wrong."""
        problem, rank, order, buffers = self.part
        poison_again(problem, rank, *buffers(order[-1]), order[-1])

    def wrong(self) -> Wrong | None:
        problem, rank, order, buffers = self.part
        return self.elements.wrong(problem, rank, self.seen) or compare_output(
            problem, rank, buffers(order[-1])[1], order[-1]
        )


def prove(
    parts: Sequence[ProvedPart], launch: Callable[[int], object]
) -> tuple[Wrong | None, float]:
    """What was wrong in launches of some parts at once, and the seconds of the shortest (0: there
    are too few to say). launch: does the launch of that number, of all parts.
    """
    changing, last = [_Changing(part) for part in parts], len(parts[0].order) - 1
    times_s: list[float] = []
    for number in range(last):
        for one in changing:
            one.before(number)
        start = time.perf_counter()
        launch(number)
        times_s.append(time.perf_counter() - start)
        for one in changing:
            one.after(number)
    for one in changing:
        one.poison_last()
    launch(last)
    wrong = next(filter(None, (one.wrong() for one in changing)), None)
    return wrong, shortest_s(times_s)


def shortest_s(times_s: Sequence[float]) -> float:
    """The shortest of the times of launches, 0 where these are too few to say."""
    return min(times_s) if len(times_s) >= _ENOUGH else 0.0
