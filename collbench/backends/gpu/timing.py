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
    launches.each(range(sets), gpu.card.stream)
    gpu.card.record(stop)
    launches.wait(0.0)
    wrong = launches.compare(range(sets)) if is_checked else None
    return RankTiming(wrong=wrong, seconds=gpu.card.elapsed_s(start, stop) / sets)


def timed(launches: Launches, batch: Batch, options: GpuOptions, work_s: float) -> RankTiming:
    """Time a batch, which should take work_s seconds, on poisoned outputs, and compare what its
    last launches left.
    """
    count = batch.iterations if options.isolated else batch.iterations * batch.aggregate
    checked = launches.checked(count) if batch.is_checked else range(0)
    seconds = (
        _time_isolated(launches, count, checked, work_s)
        if options.isolated
        else _time_together(launches, count, checked, options, work_s)
    )
    return RankTiming(wrong=launches.compare(checked), seconds=seconds)


def burst_sizes(launches: int) -> list[int]:
    """So many launches in bursts of BURST.

    >>> burst_sizes(130), burst_sizes(64)
    ([64, 64, 2], [64])
    """
    full, rest = divmod(launches, BURST)
    return [BURST] * full + [rest] * bool(rest)


def _time_together(
    launches: Launches, count: int, checked: range, options: GpuOptions, work_s: float
) -> float:
    """Mean seconds of a launch on this rank, launches following each other. The checked sets are
    poisoned before each replay, which so finds the caches as the one before did.
    """
    gpu, order = launches.gpu, launches.timed(count)
    events = gpu.events(_EVENTS_A_TIME * (REPLAYS + 1))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    times: list[float] = []
    if gpu.outside is not None:
        for pair in pairs:
            launches.poison(checked)
            times.append(_time_bursts(launches, count, options, work_s, *pair))
    elif options.launch == "graph":
        start, stop = pairs[0]

        def body(stream: int) -> None:
            gpu.barrier(hold_ns=0)
            gpu.card.record_by_graph(start)
            launches.each(order, stream)
            gpu.card.record_by_graph(stop)

        # The graph has all in it: the barrier, which then need not wait for any host, the launches
        # and the events. Otherwise the time would include the start of a graph.
        replay = launches.captured(("timed", *order), body)
        for _ in pairs:
            launches.poison(checked)
            replay()
            launches.wait(work_s)
            times.append(gpu.card.elapsed_s(start, stop))
    else:
        for start, stop in pairs:
            launches.poison(checked)
            gpu.barrier()
            gpu.card.record(start)
            launches.each(order, gpu.card.stream)
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
    gpu, bursts = launches.gpu, burst_sizes(count)
    orders = [*map(launches.in_turn, bursts[:-1]), launches.timed(bursts[-1])]
    runs = [
        (
            launches.graph(order)
            if options.launch == "graph"
            else partial(launches.each, order, gpu.card.stream)
        )
        for order in orders
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


def _time_isolated(launches: Launches, count: int, checked: range, work_s: float) -> float:
    """Mean seconds of a launch on this rank, each behind a barrier of its own."""
    gpu = launches.gpu
    events = gpu.events(_EVENTS_A_TIME * count)
    pairs = list(zip(events[::2], events[1::2], strict=True))
    launches.poison(checked)
    for number, (start, stop) in zip(launches.timed(count), pairs, strict=True):
        gpu.barrier()
        gpu.card.record(start)
        gpu.expect(1)
        launches.queue(number, gpu.card.stream)
        gpu.card.record(stop)
        if gpu.outside is not None:
            launches.wait(work_s)
    launches.wait(work_s)
    return sum(gpu.card.elapsed_s(*pair) for pair in pairs) / count
