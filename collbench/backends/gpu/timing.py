"""How launches on GPUs are timed: in a graph behind a barrier of all ranks, one by one on a stream,
or each behind a barrier of its own.

Whose launches they are, this module does not know; a DeviceRank queues, synchronises and waits.
"""

from collections.abc import Callable
from functools import partial

from collbench.backends.base import REPLAYS, Batch, GpuOptions, RankTiming
from collbench.backends.gpu.rank import DeviceRank, Graphs, QueueOne
from collbench.backends.net.gpu_proxy import BURST
from collbench.spec.case import Problem

_EVENTS_A_TIME = 2  # one before what is timed, and one behind it


def first(
    gpu: DeviceRank,
    problem: Problem,
    queue: QueueOne,
    sets: int,
    wait: Callable[[], None],
    *,
    is_checked: bool,
) -> RankTiming:
    """Run every set of buffers once, compare, and say roughly how long a launch takes."""
    start, stop = gpu.events(_EVENTS_A_TIME)
    gpu.barrier()
    gpu.card.record(start)
    gpu.expect(sets)
    for number in range(sets):
        queue(number, gpu.card.stream)
    gpu.card.record(stop)
    wait()
    wrong = gpu.compare(problem, range(sets)) if is_checked else None
    return RankTiming(wrong=wrong, seconds=gpu.card.elapsed_s(start, stop) / sets)


def timed(
    gpu: DeviceRank,
    problem: Problem,
    queue: QueueOne,
    sets: int,
    batch: Batch,
    options: GpuOptions,
    graphs: Graphs,
    wait: Callable[[], None],
) -> RankTiming:
    """Time launches; out of place, compare what the last of them left in every set that they
    used.
    """
    launches = batch.iterations * (1 if options.isolated else batch.aggregate)
    if options.isolated:
        seconds = _time_isolated(gpu, queue, sets, launches, wait)
    else:
        seconds = _time_together(gpu, queue, sets, launches, options, graphs, wait)
    is_compared = batch.is_checked and not problem.in_place
    wrong = gpu.compare(problem, range(min(sets, launches))) if is_compared else None
    return RankTiming(wrong=wrong, seconds=seconds)


def burst_sizes(launches: int) -> list[int]:
    """So many launches in bursts of BURST.

    >>> burst_sizes(130), burst_sizes(64)
    ([64, 64, 2], [64])
    """
    full, rest = divmod(launches, BURST)
    return [BURST] * full + [rest] * bool(rest)


def _time_together(
    gpu: DeviceRank,
    queue: QueueOne,
    sets: int,
    launches: int,
    options: GpuOptions,
    graphs: Graphs,
    wait: Callable[[], None],
) -> float:
    """Mean seconds of a launch on this rank, launches following each other."""
    events = gpu.events(_EVENTS_A_TIME * (REPLAYS + 1))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    if gpu.outside is not None:
        times = [
            _timed_in_bursts(gpu, queue, sets, launches, options, graphs, *pair, wait)
            for pair in pairs
        ]
    elif options.launch == "graph":
        replay = _timed_graph(gpu, queue, sets, launches, graphs, *pairs[0])
        times = [_replayed(gpu, replay, *pairs[0], wait) for _ in pairs]
    else:
        for start, stop in pairs:
            gpu.barrier()
            gpu.card.record(start)
            gpu.each(queue, sets, launches, gpu.card.stream)
            gpu.card.record(stop)
        wait()
        times = [gpu.card.elapsed_s(*pair) for pair in pairs]
    return sum(times[1:]) / REPLAYS / launches


def _timed_graph(
    gpu: DeviceRank,
    queue: QueueOne,
    sets: int,
    launches: int,
    graphs: Graphs,
    start: int,
    stop: int,
) -> Callable[[], None]:
    """A graph that has all in it: the barrier, which then need not wait for any host, the launches,
    and the times before and behind them.

    Otherwise the time would include the start of a graph.
    """
    key = (sets, launches, "timed")

    def body(stream: int) -> None:
        gpu.barrier(hold_ns=0)
        gpu.card.record_by_graph(start)
        gpu.each(queue, sets, launches, stream)
        gpu.card.record_by_graph(stop)

    if key not in graphs:
        graphs[key] = gpu.card.capture(body)
    return gpu.launch_of(graphs[key])


def _replayed(
    gpu: DeviceRank, replay: Callable[[], None], start: int, stop: int, wait: Callable[[], None]
) -> float:
    replay()
    wait()
    return gpu.card.elapsed_s(start, stop)


def _timed_in_bursts(
    gpu: DeviceRank,
    queue: QueueOne,
    sets: int,
    launches: int,
    options: GpuOptions,
    graphs: Graphs,
    start: int,
    stop: int,
    wait: Callable[[], None],
) -> float:
    """Behind a barrier that the host ends, and never more launches at once than the host can queue
    without being blocked.
    """
    bursts = burst_sizes(launches)
    runs = [
        (
            gpu.graph(queue, sets, size, graphs)
            if options.launch == "graph"
            else partial(gpu.each, queue, sets, size, gpu.card.stream)
        )
        for size in bursts
    ]
    gpu.barrier()
    gpu.card.record(start)
    for number, (size, run) in enumerate(zip(bursts, runs, strict=True)):
        if number:
            wait()
        gpu.expect(size)
        run()
    gpu.card.record(stop)
    wait()
    return gpu.card.elapsed_s(start, stop)


def _time_isolated(
    gpu: DeviceRank, queue: QueueOne, sets: int, launches: int, wait: Callable[[], None]
) -> float:
    """Mean seconds of a launch on this rank, each behind a barrier of its own."""
    events = gpu.events(_EVENTS_A_TIME * launches)
    pairs = list(zip(events[::2], events[1::2], strict=True))
    for number, (start, stop) in enumerate(pairs):
        gpu.barrier()
        gpu.card.record(start)
        gpu.expect(1)
        queue(number % sets, gpu.card.stream)
        gpu.card.record(stop)
        if gpu.outside is not None:
            wait()
    wait()
    return sum(gpu.card.elapsed_s(*pair) for pair in pairs) / launches
