"""How launches on GPUs are timed: in a graph behind a barrier of all ranks, one by one on a stream,
or each behind a barrier of its own.

Whose launches they are, this module does not know; a DeviceRank queues, synchronises and waits.
"""

from functools import partial

from collbench.backends.base import REPLAYS, Batch, GpuOptions, RankTiming
from collbench.backends.gpu.rank import Launches
from collbench.backends.net.gpu_proxy import BURST

_EVENTS_A_TIME = 2  # one before what is timed, and one behind it


def first(launches: Launches, *, is_checked: bool) -> RankTiming:
    """Run every set of buffers once, compare, and say roughly how long a launch takes."""
    gpu, sets = launches.gpu, launches.sets
    start, stop = gpu.events(_EVENTS_A_TIME)
    gpu.barrier()
    gpu.card.record(start)
    gpu.expect(sets)
    launches.each(sets, gpu.card.stream)
    gpu.card.record(stop)
    launches.wait(0.0)
    wrong = launches.compare(sets) if is_checked else None
    return RankTiming(wrong=wrong, seconds=gpu.card.elapsed_s(start, stop) / sets)


def timed(launches: Launches, batch: Batch, options: GpuOptions, work_s: float) -> RankTiming:
    """Time a batch, which should take work_s seconds; out of place, compare what the last launches
    left in every set that they used.
    """
    if options.isolated:
        count = batch.iterations
        seconds = _time_isolated(launches, count, work_s)
    else:
        count = batch.iterations * batch.aggregate
        seconds = _time_together(launches, count, options, work_s)
    is_compared = batch.is_checked and not launches.problem.in_place
    wrong = launches.compare(min(launches.sets, count)) if is_compared else None
    return RankTiming(wrong=wrong, seconds=seconds)


def burst_sizes(launches: int) -> list[int]:
    """So many launches in bursts of BURST.

    >>> burst_sizes(130), burst_sizes(64)
    ([64, 64, 2], [64])
    """
    full, rest = divmod(launches, BURST)
    return [BURST] * full + [rest] * bool(rest)


def _time_together(launches: Launches, count: int, options: GpuOptions, work_s: float) -> float:
    """Mean seconds of a launch on this rank, launches following each other."""
    gpu = launches.gpu
    events = gpu.events(_EVENTS_A_TIME * (REPLAYS + 1))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    times: list[float] = []
    if gpu.outside is not None:
        times = [_time_bursts(launches, count, options, work_s, *pair) for pair in pairs]
    elif options.launch == "graph":
        start, stop = pairs[0]

        def body(stream: int) -> None:
            gpu.barrier(hold_ns=0)
            gpu.card.record_by_graph(start)
            launches.each(count, stream)
            gpu.card.record_by_graph(stop)

        # The graph has all in it: the barrier, which then need not wait for any host, the launches
        # and the events. Otherwise the time would include the start of a graph.
        replay = launches.captured((launches.sets, count, "timed"), body)
        for _ in pairs:
            replay()
            launches.wait(work_s)
            times.append(gpu.card.elapsed_s(start, stop))
    else:
        for start, stop in pairs:
            gpu.barrier()
            gpu.card.record(start)
            launches.each(count, gpu.card.stream)
            gpu.card.record(stop)
        launches.wait(work_s)
        times = [gpu.card.elapsed_s(*pair) for pair in pairs]
    return sum(times[1:]) / REPLAYS / count


def _time_bursts(
    launches: Launches, count: int, options: GpuOptions, work_s: float, start: int, stop: int
) -> float:
    """Seconds of so many launches behind a barrier that the host ends, never more of them at once
    than the host can queue without being blocked.
    """
    gpu = launches.gpu
    bursts = burst_sizes(count)
    runs = [
        (
            launches.graph(size)
            if options.launch == "graph"
            else partial(launches.each, size, gpu.card.stream)
        )
        for size in bursts
    ]
    gpu.barrier()
    gpu.card.record(start)
    for number, (size, run) in enumerate(zip(bursts, runs, strict=True)):
        if number:
            launches.wait(work_s)
        gpu.expect(size)
        run()
    gpu.card.record(stop)
    launches.wait(work_s)
    return gpu.card.elapsed_s(start, stop)


def _time_isolated(launches: Launches, count: int, work_s: float) -> float:
    """Mean seconds of a launch on this rank, each behind a barrier of its own."""
    gpu = launches.gpu
    events = gpu.events(_EVENTS_A_TIME * count)
    pairs = list(zip(events[::2], events[1::2], strict=True))
    for number, (start, stop) in enumerate(pairs):
        gpu.barrier()
        gpu.card.record(start)
        gpu.expect(1)
        launches.queue(number % launches.sets, gpu.card.stream)
        gpu.card.record(stop)
        if gpu.outside is not None:
            launches.wait(work_s)
    launches.wait(work_s)
    return sum(gpu.card.elapsed_s(*pair) for pair in pairs) / count
