"""Launches concurrent with computing: matrix multiplications (GEMMs) on a stream of their own,
launches on the rank's, and when each of them had ended.

Both begin behind one barrier of all ranks. Every turn of some GEMMs, and every replay of a graph of
some launches, records an event, so that rates can be taken over the time in which both ran,
whichever ended first. This module does not know what is launched.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.backends.gpu.rank import DeviceRank, Launches
from collbench.core.pattern import Wrong

# of what is queued of each, if it runs alone; longer where LEAST_QUEUED of either take longer
WINDOW_S = 0.06
TURN_S = 0.001  # between two marks, roughly
LEAST_QUEUED = 8  # GEMMs, and launches
MAX_GRAPH_LAUNCHES = 100  # of a graph
PATIENCE = 20  # times as long as alone may both take: launches may have to wait for whole GEMMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentWork:
    """What a rank queues: turns of so many GEMMs, and replays of so many launches; 0: none.

    seconds: how long it may take, beyond which a deadline begins. load: the size of the matrices,
    or None: copies in memory, each of which stands for a GEMM.
    """

    seconds: float
    load: int | None = None
    turns: int = 0
    gemms: int = 1
    replays: int = 0
    launches: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """When a rank's turns of computing, and its replays, had ended, in seconds; first when they
    could begin. And what was wrong afterwards.
    """

    computing: tuple[float, ...] = ()
    launches: tuple[float, ...] = ()
    wrong: Wrong | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentRepeat:
    """One repeat, marks by rank: computing alone, launches alone, both at once; and how many
    products, and launches, lie between two marks.
    """

    gemms: int
    launches: int
    computing_alone: tuple[EventTimes, ...]
    launches_alone: tuple[EventTimes, ...]
    both: tuple[EventTimes, ...]
    notes: tuple[str, ...] = ()


def run(launches: Launches, work: ConcurrentWork) -> EventTimes:
    """A rank's part: poison outputs, queue the work behind a barrier, wait for it, compare
    what launches left.
    """
    gpu = launches.gpu
    card, runtime, load = gpu.card, gpu.card.runtime, gpu.loads[work.load]
    replay = launches.graph(launches.in_turn(work.launches)) if work.replays else None
    checked = launches.checked(work.launches) if work.replays else range(0)
    begun, *events = gpu.events(1 + work.turns + work.replays)
    computed, launched = events[: work.turns], events[work.turns :]
    launches.poison(checked)
    gpu.barrier()
    card.record(begun)
    if computed:
        runtime.streamWaitEvent(load.stream, begun)
    # in turn: neither waits until the host has queued all of the other
    for number in range(max(work.turns, work.replays)):
        if number < work.replays and replay is not None:
            replay()
            card.record(launched[number])
        if number < work.turns:
            load.queue(work.gemms)
            runtime.eventRecord(computed[number], load.stream)
    if computed:
        runtime.streamWaitEvent(card.stream, computed[-1])
    launches.wait(work.seconds)
    return EventTimes(
        computing=_times(gpu, begun, computed),
        launches=_times(gpu, begun, launched),
        wrong=launches.compare(checked),
    )


def _times(gpu: DeviceRank, begun: int, events: Sequence[int]) -> tuple[float, ...]:
    return (0.0, *(gpu.card.elapsed_s(begun, event) for event in events)) if events else ()


def last_of(times: Sequence[Sequence[float]]) -> float:
    """Seconds between the last two marks, of the slowest rank.

    >>> last_of([(0.0, 5.0, 6.0), (0.0, 5.0, 7.0)])
    2.0
    """
    return max(of_rank[-1] - of_rank[-2] for of_rank in times)


def work_of(gemm_s: float, launch_s: float) -> ConcurrentWork:
    """As much of both as fills the window, in turns of about TURN_S.

    >>> work_of(1.6e-3, 3.3e-4)
    ConcurrentWork(seconds=1.2, load=None, turns=38, gemms=1, replays=61, launches=3)
    >>> work_of(0.1, 1e-6).turns, work_of(0.1, 1e-6).launches
    (8, 100)
    """
    gemm_s, launch_s = max(gemm_s, 1e-7), max(launch_s, 1e-7)
    window_s = max(WINDOW_S, LEAST_QUEUED * gemm_s, LEAST_QUEUED * launch_s)
    turn_s = max(TURN_S, TURN_S * window_s / WINDOW_S)
    gemms = max(1, round(turn_s / gemm_s))
    launches = max(1, min(MAX_GRAPH_LAUNCHES, round(turn_s / launch_s)))
    return ConcurrentWork(
        seconds=PATIENCE * window_s,
        turns=math.ceil(window_s / (gemms * gemm_s)),
        gemms=gemms,
        replays=math.ceil(window_s / (launches * launch_s)),
        launches=launches,
    )
