"""How launches on GPUs are timed: in a graph behind a barrier of all ranks, one by one on a stream,
or each behind a barrier of its own.

Whose launches they are, this module does not know; a DeviceRank queues, synchronises and waits.
"""

from collections.abc import Callable
from functools import partial

from collbench.backends.base import REPLAYS, Answer, Batch, GpuOptions
from collbench.backends.gpu.rank import DeviceRank, Graphs, QueueOne
from collbench.backends.net.gpu_proxy import BURST
from collbench.spec.case import Problem

_EVENTS_A_TIME = 2  # one before what is timed, and one behind it


def first(
    lane: DeviceRank,
    problem: Problem,
    queue: QueueOne,
    sets: int,
    wait: Callable[[], None],
    *,
    is_checked: bool,
) -> Answer:
    """Run every set of buffers once, compare, and say roughly how long a launch takes."""
    start, stop = lane.events(_EVENTS_A_TIME)
    lane.meet()
    lane.card.record(start)
    lane.expect(sets)
    for number in range(sets):
        queue(number, lane.card.stream)
    lane.card.record(stop)
    wait()
    wrong = lane.compare(problem, range(sets)) if is_checked else None
    return Answer(wrong=wrong, seconds=lane.card.elapsed_s(start, stop) / sets)


def timed(
    lane: DeviceRank,
    problem: Problem,
    queue: QueueOne,
    sets: int,
    batch: Batch,
    options: GpuOptions,
    graphs: Graphs,
    wait: Callable[[], None],
) -> Answer:
    """Time launches; out of place, compare what the last of them left in every set that they
    used.
    """
    launches = batch.iterations * (1 if options.isolated else batch.aggregate)
    if options.isolated:
        seconds = _time_isolated(lane, queue, sets, launches, wait)
    else:
        seconds = _time_together(lane, queue, sets, launches, options, graphs, wait)
    is_compared = batch.is_checked and not problem.in_place
    wrong = lane.compare(problem, range(min(sets, launches))) if is_compared else None
    return Answer(wrong=wrong, seconds=seconds)


def burst_sizes(launches: int) -> list[int]:
    """So many launches in bursts of BURST.

    >>> burst_sizes(130), burst_sizes(64)
    ([64, 64, 2], [64])
    """
    full, rest = divmod(launches, BURST)
    return [BURST] * full + [rest] * bool(rest)


def _time_together(
    lane: DeviceRank,
    queue: QueueOne,
    sets: int,
    launches: int,
    options: GpuOptions,
    graphs: Graphs,
    wait: Callable[[], None],
) -> float:
    """Mean seconds of a launch on this rank, launches following each other."""
    events = lane.events(_EVENTS_A_TIME * (REPLAYS + 1))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    if lane.outside is not None:
        times = [
            _timed_in_bursts(lane, queue, sets, launches, options, graphs, *pair, wait)
            for pair in pairs
        ]
    elif options.launch == "graph":
        replay = _timed_graph(lane, queue, sets, launches, graphs, *pairs[0])
        times = [_replayed(lane, replay, *pairs[0], wait) for _ in pairs]
    else:
        for start, stop in pairs:
            lane.meet()
            lane.card.record(start)
            lane.each(queue, sets, launches, lane.card.stream)
            lane.card.record(stop)
        wait()
        times = [lane.card.elapsed_s(*pair) for pair in pairs]
    return sum(times[1:]) / REPLAYS / launches


def _timed_graph(
    lane: DeviceRank,
    queue: QueueOne,
    sets: int,
    launches: int,
    graphs: Graphs,
    start: int,
    stop: int,
) -> Callable[[], None]:
    """A graph that has all in it: the meeting, which so need not wait for any host, the launches,
    and the times before and behind them.

    Otherwise the time has the begin of a graph in it, some 5 us on H200s.
    """
    key = (sets, launches, "timed")

    def body(stream: int) -> None:
        lane.meet(hold_ns=0)
        lane.card.record_by_graph(start)
        lane.each(queue, sets, launches, stream)
        lane.card.record_by_graph(stop)

    if key not in graphs:
        graphs[key] = lane.card.capture(body)
    return lane.launch_of(graphs[key])


def _replayed(
    lane: DeviceRank, replay: Callable[[], None], start: int, stop: int, wait: Callable[[], None]
) -> float:
    replay()
    wait()
    return lane.card.elapsed_s(start, stop)


def _timed_in_bursts(
    lane: DeviceRank,
    queue: QueueOne,
    sets: int,
    launches: int,
    options: GpuOptions,
    graphs: Graphs,
    start: int,
    stop: int,
    wait: Callable[[], None],
) -> float:
    """Behind a meeting that the host ends, and never more launches at once than the host can queue
    without being blocked.
    """
    bursts = burst_sizes(launches)
    runs = [
        (
            lane.graph(queue, sets, size, graphs)
            if options.launch == "graph"
            else partial(lane.each, queue, sets, size, lane.card.stream)
        )
        for size in bursts
    ]
    lane.meet()
    lane.card.record(start)
    for number, (size, run) in enumerate(zip(bursts, runs, strict=True)):
        if number:
            wait()
        lane.expect(size)
        run()
    lane.card.record(stop)
    wait()
    return lane.card.elapsed_s(start, stop)


def _time_isolated(
    lane: DeviceRank, queue: QueueOne, sets: int, launches: int, wait: Callable[[], None]
) -> float:
    """Mean seconds of a launch on this rank, each behind a barrier of its own."""
    events = lane.events(_EVENTS_A_TIME * launches)
    pairs = list(zip(events[::2], events[1::2], strict=True))
    for number, (start, stop) in enumerate(pairs):
        lane.meet()
        lane.card.record(start)
        lane.expect(1)
        queue(number % sets, lane.card.stream)
        lane.card.record(stop)
        if lane.outside is not None:
            wait()
    wait()
    return sum(lane.card.elapsed_s(*pair) for pair in pairs) / launches
