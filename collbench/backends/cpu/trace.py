"""Ranks on processors that note what each action of a launch waited for, and how long.

A rank's clock is the one of its host since boot. Ranks of other hosts exchange some messages with
rank 0, of which the fastest there and back gives the difference of their clocks to half of its
time.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from collbench.backends.base import ANSWER_S, prepare_buffers
from collbench.backends.cpu.backend import CpuRank, CpuSession
from collbench.backends.cpu.flags import YIELDS_A_LOOK
from collbench.backends.cpu.interpreter import Bound, Runner
from collbench.launch.group import RankContext
from collbench.planning.plan import Plan
from collbench.util.errors import HangError

_BOOT_ID = "/proc/sys/kernel/random/boot_id"  # ranks of one boot have one clock
_LOAD_S = 60.0
_EXCHANGES, _TAG = 30, 5


class Event(NamedTuple):
    """An action of a launch: the number of its actor and its own there, when it could run and when
    it had, in seconds; the word of the flag for which it waited last, or -1.
    """

    actor: int
    position: int
    ready: float
    done: float
    word: int


class RankTrace(NamedTuple):
    """One launch of a rank: when it arrived, and its events in the order of time."""

    arrived: float
    events: list[Event]


class TracingRunner(Runner):
    """A runner that notes every action, at about a microsecond each."""

    def traced(self, programs: Sequence[Sequence[Bound]], limit_s: float) -> list[Event]:
        """One launch. Raises HangError as launch() does."""
        flags, launches, turn, clock = self.flags, self.launches, self.turn, time.monotonic
        positions, blocked = [0] * len(programs), [-1] * len(programs)
        running, events = list(range(len(programs))), list[Event]()
        looks, since = 0, clock()
        while running:
            for index in running:
                bound = programs[index][positions[index]]
                missing = next(
                    (
                        word
                        for word, per_launch, offset in bound.waits
                        if flags[word] < per_launch * launches + offset
                    ),
                    None,
                )
                if missing is not None:
                    blocked[index] = missing
                    continue
                ready = clock()
                for function, args in bound.calls:
                    function(*args)
                for word, per_launch, offset in bound.posts:
                    flags[word] = per_launch * launches + offset
                since = clock()
                events.append(Event(index, positions[index], ready, since, blocked[index]))
                positions[index] += 1
                blocked[index] = -1
            running = [index for index in running if positions[index] < len(programs[index])]
            if turn is not None:
                turn()
            looks += 1
            self.offer_core()
            if looks % YIELDS_A_LOOK == 0 and (clock() > since + limit_s or self.is_aborted()):
                raise HangError(
                    self.story([(programs[index], positions[index], index) for index in running])
                )
        self.launches += 1
        return events


class TracedRank(CpuRank):
    """A rank whose launches are traced."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self._comm = context.comm

    def clock_offset(self) -> tuple[float, float]:
        """What to add to this rank's clock to have rank 0's, and the error, in seconds."""
        if self._comm is None:
            return 0.0, 0.0
        hosts = self._comm.allgather(Path(_BOOT_ID).read_text())
        offset = (0.0, 0.0)
        for rank in range(1, self.n):
            if hosts[rank] == hosts[0] or self.rank not in (0, rank):
                continue
            if self.rank == 0:
                for _ in range(_EXCHANGES):
                    self._comm.recv(source=rank, tag=_TAG)
                    self._comm.send(time.monotonic(), rank, _TAG)
                continue
            seen = []
            for _ in range(_EXCHANGES):
                start = time.monotonic()
                self._comm.send(None, 0, _TAG)
                theirs = self._comm.recv(source=0, tag=_TAG)
                end = time.monotonic()
                seen.append((end - start, theirs - (start + end) / 2))
            round_trip, difference = min(seen)
            offset = difference, round_trip / 2
        return offset

    def trace(
        self, digest: str, delays_s: Sequence[float], launches: int, deadline_s: float
    ) -> tuple[list[RankTrace], int]:
        """Launches; and how many elements of the last were wrong. Between a barrier and its launch
        each rank writes its input, which is equal work for all, and sleeps for its delay.
        """
        loaded = self.loaded[digest, True]
        plan, first = loaded.plan, loaded.runner
        runner = TracingRunner(plan, first.actors, first.flags, first.is_aborted, first.turn)
        loaded.runner = runner
        self._clear(loaded, launches, deadline_s)
        found = []
        for _ in range(launches):
            self._barrier(loaded, deadline_s)
            prepare_buffers(plan.problem, self.rank, *self._buffers(loaded, 0), 0)
            time.sleep(delays_s[self.rank])
            arrived = time.monotonic()
            found.append(RankTrace(arrived, runner.traced(loaded.programs[0], deadline_s)))
        self._barrier(loaded, deadline_s)
        wrong = self._compare(loaded, range(1))
        return found, wrong.count if wrong is not None else 0


class TracedSession(CpuSession):
    """Drives ranks whose launches are traced."""

    rank = TracedRank

    def trace(
        self, plan: Plan, delays_s: Sequence[float], launches: int, timeout_s: float
    ) -> tuple[list[list[RankTrace]], int]:
        """The launches, each a trace of every rank by rank 0's clock; and wrong elements."""
        self._load(plan, True, _LOAD_S + ANSWER_S)
        workers = self._workers(plan)
        limit_s = timeout_s + max(delays_s)
        offsets = workers.call(TracedRank.clock_offset, timeout_s=_LOAD_S)  # type: ignore[arg-type]
        answers = workers.call(
            TracedRank.trace,  # type: ignore[arg-type]
            plan.digest,
            delays_s,
            launches,
            limit_s,
            timeout_s=launches * limit_s + ANSWER_S,
        )
        by_rank = [
            [_shifted(trace, offset) for trace in traces]
            for (traces, _), (offset, _) in zip(answers, offsets, strict=True)
        ]
        return [list(ranks) for ranks in zip(*by_rank, strict=True)], sum(
            wrong for _, wrong in answers
        )


def _shifted(trace: RankTrace, offset: float) -> RankTrace:
    return RankTrace(
        trace.arrived + offset,
        [one._replace(ready=one.ready + offset, done=one.done + offset) for one in trace.events],
    )
