"""Stand-ins for GPUs that compute and communicate: a card that keeps a clock for every stream, and
sessions with made-up times.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from collbench.backends.base import SessionFacts
from collbench.backends.gpu.concurrent import ConcurrentRepeat, EventTimes
from collbench.core.pattern import Wrong

COMM, COMPUTE = 1, 2  # streams


class Card:
    """Streams with a clock each; what is queued takes its time, events remember, waits push the
    clock on.
    """

    def __init__(self) -> None:
        self.stream, self.log = COMM, list[tuple[Any, ...]]()
        self.clock, self.at = {COMM: 0.0, COMPUTE: 0.0}, dict[int, float]()
        self._captured: list[tuple[int, float | int]] | None = None  # work, or an event to record
        self.runtime = SimpleNamespace(streamWaitEvent=self._wait_event, eventRecord=self._record)

    def work(self, stream: int, seconds: float) -> None:
        """Queue something that takes so long."""
        if self._captured is not None:
            self._captured.append((stream, seconds))
            return
        self.clock[stream] += seconds
        self.log.append(("work", stream))

    def as_cupy(self, stream: int) -> int:
        return stream

    def capture(self, body: Callable[[int], None]) -> Any:
        self._captured = []
        body(self.stream)
        works, self._captured = self._captured, None

        def launch(stream: int) -> None:
            for on, what in works:
                if isinstance(what, int):
                    self._record(what, on)
                else:
                    self.work(on, what)

        return SimpleNamespace(launch=launch)

    def event(self) -> int:
        self.at[len(self.at)] = 0.0
        return len(self.at) - 1

    def record(self, event: int) -> None:
        self._record(event, self.stream)

    def record_by_graph(self, event: int) -> None:
        assert self._captured is not None
        self._captured.append((self.stream, event))

    def _record(self, event: int, stream: int) -> None:
        self.at[event] = self.clock[stream]
        self.log.append(("record", stream, event))

    def _wait_event(self, stream: int, event: int) -> None:
        self.clock[stream] = max(self.clock[stream], self.at[event])
        self.log.append(("wait", stream, event))

    def elapsed_s(self, start: int, stop: int) -> float:
        return self.at[stop] - self.at[start]


def marks(first: float, each: float, turns: int) -> tuple[float, ...]:
    """A beginning and the ends of so many turns."""
    return tuple(first + each * turn for turn in range(turns + 1))


def repeat(
    *,
    product: float = 1e-3,
    launch: float = 1e-3,
    gemm_slower: float = 1.0,
    slower: float = 1.0,
    turns: int = 60,
    ranks: int = 2,
    launches: int = 1,
) -> ConcurrentRepeat:
    """One repeat in which both slow each other down by so much."""
    computing, alone = marks(0.0, product, turns), marks(0.0, launch * launches, turns)
    both = EventTimes(
        computing=marks(0.0, product * gemm_slower, turns),
        launches=marks(0.0, launch * launches * slower, turns),
    )
    return ConcurrentRepeat(
        gemms=1,
        launches=launches,
        computing_alone=(EventTimes(computing=computing),) * ranks,
        launches_alone=(EventTimes(launches=alone),) * ranks,
        both=(both,) * ranks,
    )


class Session(SessionFacts):
    """In place of a backend's session. cost: by how much a case slows computing down, and is slowed
    down; memory: by how much it slows copies down; raises: instead of measuring it.
    """

    opened: ClassVar[list[tuple[str, Any]]] = []
    closed: ClassVar[int] = 0
    cost: ClassVar[Callable[[Any], tuple[float, float]]] = staticmethod(lambda case: (1.0, 1.0))
    memory: ClassVar[float] = 1.0
    raises: ClassVar[Callable[[Any], BaseException | None]] = staticmethod(lambda case: None)
    wrong: ClassVar[Sequence[Wrong]] = ()
    device, version = "2 x stand-in", "stand-in"

    def __init__(self, group: Any, jobs: Sequence[Any], *, hot: bool, options: Any) -> None:
        backend = "cuda" if hasattr(jobs[0], "schedule") else str(jobs[0].backend)
        Session.opened.append((backend, options))

    def run_concurrently(
        self, job: Any, size: int | None, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        error = Session.raises(job)
        if error is not None:
            raise error
        gemm_slower, slower = Session.cost(job)
        gemm_slower = Session.memory if size is None else gemm_slower
        noise = [1.0, 1.01, 0.99, 1.0, 1.0]
        found = [
            repeat(product=1e-3 * noise[k % 5], gemm_slower=gemm_slower, slower=slower)
            for k in range(repeats)
        ]
        return found, list(Session.wrong)

    def close(self) -> None:
        Session.closed += 1
