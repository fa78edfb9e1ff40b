"""Ranks on processors that note what each action of a launch waited for, and how long.

A rank's clock is the one of its host since boot. Ranks of other hosts exchange some messages with
rank 0 before and after the launches, of which the fastest there and back gives the difference of
their clocks to half of its time; between the two the difference changes evenly.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from collbench.backends.cpu.backend import CpuSession
from collbench.backends.cpu.flags import LINE_WORDS, YIELDS_A_LOOK
from collbench.backends.cpu.interpreter import BoundStep, Runner
from collbench.backends.cpu.layout import has_lines
from collbench.backends.cpu.lines import refuse_repeats
from collbench.backends.cpu.rank import CpuRank, LoadedCpuPlan
from collbench.backends.net.proxy import Proxy, SendConnector
from collbench.backends.repeat import ANSWER_S, prepare_buffers
from collbench.core.group import RankContext
from collbench.core.host import boot_id
from collbench.planning.plan import Plan

_LOAD_S = 60.0
_EXCHANGES, _TAG = 30, 5
ANY_FLAG = -2  # of an event that may have waited for any of its flags


class TraceEvent(NamedTuple):
    """An action of a launch: the number of its actor and its own there; when it could run, when its
    bytes were moved and when its flags were set, in seconds; the word of the flag for which it
    waited last, -1 or ANY_FLAG, and when the rank offered its core to others just before, or 0.
    """

    actor: int
    position: int
    ready: float
    worked: float
    done: float
    word: int
    offered: float = 0.0


class MessageEvent(NamedTuple):
    """A message that the proxy moved: its connection, its number since FIFOs were cleared, and when
    it was seen posted and done.
    """

    edge: int
    is_sending: bool
    number: int
    posted: float
    done: float


class RankTrace(NamedTuple):
    """One launch of a rank: when it arrived, when its actors began, its events in the order of
    time, and its messages.
    """

    arrived: float
    begun: float
    events: list[TraceEvent]
    messages: list[MessageEvent]


class TraceOrder(NamedTuple):
    """Launches to trace, each preceded by one that is not. delays_s: of each rank, between a
    barrier and its launch.
    """

    delays_s: tuple[float, ...]
    launches: int


class RankTraces(NamedTuple):
    """What a rank has to say of an order. plain: the arrival and the end of launches that were not
    traced. wrong: elements of the last result. clocks: before and after, when on this clock, what
    to add to have rank 0's, and the error.
    """

    traces: list[RankTrace]
    plain: list[tuple[float, float]]
    wrong: int
    clocks: tuple["ClockReading", "ClockReading"]


class ClockReading(NamedTuple):
    """What to add to a rank's clock to have rank 0's, at that time of its own; and the error."""

    at: float
    offset: float
    error: float


class MessageNotes:
    """Notes when messages of a proxy are posted and done, at each of its turns."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        numbered = (*proxy.sending.items(), *proxy.receiving.items())
        self.ends = [(edge, end, isinstance(end, SendConnector)) for edge, end in numbered]
        self.posted: dict[tuple[int, bool, int], float] = {}
        self.seen = [(0, 0)] * len(self.ends)
        self.events: list[MessageEvent] = []

    def turn(self) -> None:
        """The proxy's turn, and what it changed."""
        before = time.monotonic()
        self.proxy.turn()
        now = 0.0
        for number, (edge, end, is_sending) in enumerate(self.ends):
            posted, done = self.seen[number]
            if (end.posted, end.done) == (posted, done):
                continue
            now = now or time.monotonic()
            for message in range(posted, end.posted):
                self.posted[edge, is_sending, message] = before
            for message in range(done, end.done):
                since = self.posted.pop((edge, is_sending, message))
                self.events.append(MessageEvent(edge, is_sending, message, since, now))
            self.seen[number] = end.posted, end.done

    def take(self) -> list[MessageEvent]:
        """The messages that are done since the last time."""
        events, self.events = self.events, []
        return events


class TracingRunner(Runner):
    """A runner that can note every action. It runs them as launch() does."""

    def traced(
        self, programs: Sequence[Sequence[BoundStep]], limit_s: float
    ) -> tuple[float, list[TraceEvent]]:
        """One launch: when its actors began, and what they did. Raises HangError as launch()."""
        flags, launches, clock = self.flags, self.launches, time.monotonic
        turn = self.turn or _no_turn
        blocked_since = 0.0
        positions, blocked = [0] * len(programs), [-1] * len(programs)
        running = list(range(len(programs)))
        events: list[tuple[int, int, float, float, float, int, float]] = []
        polls, offered = 0, 0.0
        begun = clock()
        while running:
            for index in running:
                program, position = programs[index], positions[index]
                size = len(program)
                while position < size:
                    waits, calls, posts, lines = program[position]
                    for word, per_launch, offset in waits:
                        if flags[word] < per_launch * launches + offset:
                            blocked[index] = word
                            break
                    else:
                        if lines is None or lines.have_arrived(launches):
                            ready = clock()
                            for function, args in calls:
                                function(*args)
                            worked = clock()
                            if lines is not None:
                                lines.set(launches)
                            for word, per_launch, offset in posts:
                                flags[word] = per_launch * launches + offset
                            noted = index, position, ready, worked, clock(), blocked[index]
                            events.append((*noted, offered))
                            blocked[index] = -1
                            position += 1
                            continue
                        blocked[index] = 2 * LINE_WORDS * lines.missing_edge(launches)
                    break
                if position != positions[index]:
                    positions[index], polls = position, 0
            running = [index for index in running if positions[index] < len(programs[index])]
            if polls == 0:
                offered = 0.0
            polls += 1
            turn()
            if polls > self.polls and running:
                offered = clock()
                self.offer_core()
                if polls == self.polls + 1:
                    blocked_since = offered
                if polls % YIELDS_A_LOOK == 0:
                    at = [(programs[index], positions[index], index) for index in running]
                    self.refuse_to_hang(at, blocked_since, limit_s)
        self.launches += 1
        return begun, [TraceEvent(*event) for event in events]


def _no_turn() -> None:
    """The turn of a rank without messages."""


class TracedRank(CpuRank):
    """A rank whose launches are traced."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self._comm = context.comm

    def clock_reading(self) -> ClockReading:
        """What to add to this rank's clock to have rank 0's."""
        if self._comm is None:
            return ClockReading(time.monotonic(), 0.0, 0.0)
        hosts = self._comm.allgather(boot_id())  # ranks of one boot have one clock
        reading = ClockReading(time.monotonic(), 0.0, 0.0)
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
            reading = ClockReading(time.monotonic(), difference, round_trip / 2)
        return reading

    def trace(self, digest: str, order: TraceOrder, deadline_s: float) -> RankTraces:
        """Launches, each behind a barrier."""
        loaded = self.loaded[digest, True]
        plan, first = loaded.plan, loaded.runner
        notes = MessageNotes(loaded.proxy) if loaded.proxy is not None else None
        turn = notes.turn if notes is not None else None
        runner = TracingRunner(plan, first.actors, first.flags, first.is_aborted, turn)
        loaded.runner = runner
        before = self.clock_reading()
        self._clear(loaded, order.launches * 2, deadline_s)
        if notes is not None:
            notes.turn()
        traces, plain = [], []
        for _ in range(order.launches):
            arrived = self._at_start(loaded, order, deadline_s)
            runner.launch(loaded.programs[0], deadline_s)
            plain.append((arrived, time.monotonic()))
            if notes is not None:
                notes.take()
            arrived = self._at_start(loaded, order, deadline_s)
            begun, events = runner.traced(loaded.programs[0], deadline_s)
            messages = notes.take() if notes is not None else []
            traces.append(RankTrace(arrived, begun, events, messages))
        self._barrier(loaded, deadline_s)
        wrong = loaded.buffers.compare(range(1))
        loaded.runner = first
        clocks = before, self.clock_reading()
        return RankTraces(traces, plain, wrong.count if wrong is not None else 0, clocks)

    def _at_start(self, loaded: LoadedCpuPlan, order: TraceOrder, deadline_s: float) -> float:
        """Write input and poison, meet all ranks, be late; returns when the rank arrives."""
        problem, buffers = loaded.plan.problem, loaded.buffers.arrays(0)
        prepare_buffers(problem, self.rank, *buffers, 0)
        self._barrier(loaded, deadline_s)
        if delay_s := order.delays_s[self.rank]:
            time.sleep(delay_s)
        return time.monotonic()


class TracedLaunches(NamedTuple):
    """Launches, each a trace of every rank by rank 0's clock, with the error of the clocks.
    plain_s: seconds of each launch that was not traced, from the first arrival to the last end.
    wrong: elements of the last result.
    """

    launches: list[list[RankTrace]]
    plain_s: list[float]
    wrong: int
    clock_error_s: float


class TracedSession(CpuSession):
    """Drives ranks whose launches are traced."""

    rank = TracedRank

    def trace(self, plan: Plan, order: TraceOrder, timeout_s: float) -> TracedLaunches:
        """Trace launches of a plan. Raises ScheduleError if flags cannot count so many."""
        if has_lines(plan):
            refuse_repeats(plan, order.launches * 2)
        self._load(plan, True, _LOAD_S + ANSWER_S)
        limit_s = timeout_s + max(order.delays_s)
        answers = self._workers(plan).call(
            TracedRank.trace,  # type: ignore[arg-type]
            plan.digest,
            order,
            limit_s,
            timeout_s=2 * order.launches * limit_s + ANSWER_S + _LOAD_S,
        )
        shifts = [_shift(answer.clocks) for answer in answers]
        by_rank = [
            [shifted(trace, shift) for trace in answer.traces]
            for answer, shift in zip(answers, shifts, strict=True)
        ]
        plain = [
            [(shift(arrived), shift(ended)) for arrived, ended in answer.plain]
            for answer, shift in zip(answers, shifts, strict=True)
        ]
        return TracedLaunches(
            [list(ranks) for ranks in zip(*by_rank, strict=True)],
            [
                max(ended for _, ended in ranks) - min(arrived for arrived, _ in ranks)
                for ranks in zip(*plain, strict=True)
            ],
            sum(answer.wrong for answer in answers),
            max(reading.error for answer in answers for reading in answer.clocks),
        )


def _shift(clocks: tuple[ClockReading, ClockReading]) -> Callable[[float], float]:
    """A time of a rank's clock by rank 0's, with the drift between two readings.

    >>> _shift((ClockReading(0.0, 1.0, 0.1), ClockReading(10.0, 2.0, 0.1)))(5.0)
    6.5
    """
    before, after = clocks
    drift = (after.offset - before.offset) / max(after.at - before.at, 1e-9)
    return lambda at: at + before.offset + drift * (at - before.at)


def shifted(trace: RankTrace, shift: Callable[[float], float]) -> RankTrace:
    """A trace by another clock."""
    return RankTrace(
        shift(trace.arrived),
        shift(trace.begun),
        [
            one._replace(
                ready=shift(one.ready),
                worked=shift(one.worked),
                done=shift(one.done),
                offered=shift(one.offered) if one.offered else 0.0,
            )
            for one in trace.events
        ],
        [one._replace(posted=shift(one.posted), done=shift(one.done)) for one in trace.messages],
    )
