"""Launches on GPUs that prove others (see backends/proof.py): kernels change the elements before
each launch, and keep them after it, in the same stream or graph.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from collbench.backends.gpu.rank import DeviceRank, Launches, stride_bytes
from collbench.backends.proof import Elements
from collbench.core.case import Problem
from collbench.core.pattern import Wrong

# Of four kernels that change single elements, at most: they wait for each other.
_EXCHANGES_S = 20e-6

Queue = Callable[[int], None]  # queues something in a stream


class Changing:
    """The elements of a rank's buffers that change, on its GPU. Nothing may be captured while it is
    made.
    """

    def __init__(self, gpu: DeviceRank, problem: Problem, order: Sequence[int]) -> None:
        self._gpu, self._problem, self._order = gpu, problem, order
        self._elements = elements = Elements(problem, gpu.rank, order)
        self._seen = np.zeros_like(elements.wanted[:-1])
        self._at, self._poison, self._into, self._given, self._plain, self._kept = (
            gpu.keep(("proof", number, gpu.user, problem, *order), values.tobytes())
            for number, values in enumerate(
                (
                    elements.at,
                    ~elements.wanted,
                    elements.into,
                    elements.given,
                    elements.plain,
                    self._seen,
                )
            )
        )

        # what an earlier repeat kept must not stand for a launch of this one
        if self._seen.size:
            gpu.card.clear(self._kept, self._seen.nbytes)

    def before(self, number: int, stream: int) -> None:
        """Queue poison for the output, then the input: in place they may be the same."""
        self._exchange("out", number, stream, values=self._poison)
        self._exchange("in", number, stream, values=self._given)

    def after(self, number: int, stream: int) -> None:
        """Queue to keep what came out, and to write the input as it was."""
        self._exchange("out", number, stream, seen=self._kept)
        self._exchange("in", number, stream, values=self._plain)

    def _exchange(
        self, which: str, number: int, stream: int, *, values: int = 0, seen: int = 0
    ) -> None:
        is_out, problem = which == "out", self._problem
        count = (self._elements.at if is_out else self._elements.into).shape[1]
        first, item = number * count, problem.item_bytes
        address, _ = self._gpu.buffer(problem, which, self._order[number])
        places = (self._at if is_out else self._into) + first * self._elements.at.itemsize
        values, seen = (one + first * item if one else 0 for one in (values, seen))
        self._gpu.exchange(item, (address, places, values, seen, count), stream)

    def wrong(self) -> Wrong | None:
        """What came out wrong of launches that have ended."""
        data = self._gpu.card.download(self._kept, self._seen.nbytes) if self._seen.size else b""
        seen = np.frombuffer(data, self._seen.dtype).reshape(self._seen.shape)
        return self._elements.wrong(self._problem, self._gpu.rank, seen)


def prove(
    parts: Sequence[Launches], queues: Sequence[Queue], run: Callable[[str, Sequence[Queue]], float]
) -> tuple[Wrong | None, float]:
    """What is wrong in launches of some parts at once, and the mean seconds of one at least.
    queues: what queues each launch of all parts in the main stream; run: runs that under a name, as
    those that were timed. All of the last launch's output is poisoned and compared.
    """
    orders, last = [one.timed(len(queues)) for one in parts], len(queues) - 1
    sets = [range(order[last], order[last] + 1) for order in orders]
    changing = [
        Changing(one.gpu, one.problem, order) for one, order in zip(parts, orders, strict=True)
    ]

    def proved(number: int, stream: int) -> None:
        for one in changing:
            one.before(number, stream)
        queues[number](stream)
        for one in changing:
            one.after(number, stream)

    def proved_wholly(stream: int) -> None:
        for part, some in zip(parts, sets, strict=True):
            part.gpu.prepare(part.problem, some, stride_bytes(part.problem))
        queues[last](stream)

    seconds = run("proved", [*(partial(proved, number) for number in range(last)), proved_wholly])
    wrong = [one.wrong() for one in changing]
    wrong += [part.compare(some) for part, some in zip(parts, sets, strict=True)]
    return next(filter(None, wrong), None), max(0.0, seconds - len(parts) * _EXCHANGES_S)
