"""How launches on GPUs are timed: in a graph behind a barrier of all ranks, one by one on a stream,
or each behind a barrier of its own, in a graph or on a stream.

Whose launches they are, this module does not know; a DeviceRank queues, synchronises and waits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, median

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.gpu.proof import Queue, prove
from collbench.backends.gpu.rank import MAX_FLAGS, DeviceRank, Graphs, Launches, captured
from collbench.backends.net.gpu_proxy import BURST
from collbench.backends.repeat import FLAG_LAUNCHES, LEAST_PROVED, REPLAYS, RankTiming

GRAPH_LAUNCHES = 100  # timed one by one in a graph, behind one that does not count
_AGREEING_NS = 20_000  # in which ranks agree on a moment (see barrier.cu)
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
    """Time a batch, which should take work_s seconds, on poisoned outputs, compare what its last
    launches left, and prove it by as many launches.
    """
    count = batch.iterations if options.isolated else batch.iterations * batch.aggregate
    checked = launches.checked(count) if batch.is_checked else range(0)
    seconds = (
        _time_isolated(launches, count, checked, work_s)
        if options.isolated
        else _time_together(launches, count, checked, options, work_s)
    )
    wrong = launches.compare(checked)
    if not batch.is_checked:
        return RankTiming(wrong=wrong, seconds=seconds)
    order = launches.timed(proved(count))
    run = partial(_run, launches, options, work_s, order)
    unproved, proved_s = prove([launches], _queues(launches, order), run)
    is_known = has_pure_times(options) and launches.gpu.outside is None
    proved_s = proved_s if is_known else 0.0
    return RankTiming(wrong=wrong or unproved, seconds=seconds, proved_s=proved_s)


def has_pure_times(options: GpuOptions) -> bool:
    """Whether no host queues anything between the marks of a batch: in what proves it a host would
    queue five kernels for one.
    """
    return options.launch == "graph" and not options.isolated


def proved(launches: int) -> int:
    """How many launches prove a batch of so many; the last one is by itself."""
    return max(LEAST_PROVED, launches)


def _run(
    launches: Launches,
    options: GpuOptions,
    work_s: float,
    order: Sequence[int],
    name: str,
    queues: Sequence[Queue],
) -> float:
    """Seconds of some launches, once, as a batch of them is timed. order, name: whose graphs these
    are.
    """
    gpu, wait = launches.gpu, partial(launches.wait, work_s)
    if options.isolated:
        return time_apart(gpu, queues, wait)
    key, is_graph = (name, *order), options.launch == "graph"
    if gpu.outside is not None:
        runs = list[tuple[int, Callable[[], object]]]()
        for size in burst_sizes(len(queues)):
            burst = partial(each, queues[sum(n for n, _ in runs) :][:size])
            queue = (
                launches.captured((*key, len(runs)), burst)
                if is_graph
                else partial(burst, gpu.card.stream)
            )
            runs.append((size, queue))
        return _time_bursts(launches, runs, work_s, *_pairs(gpu, 1)[0]) / len(queues)
    capture = partial(launches.captured, key) if is_graph else None
    return replayed(gpu, partial(each, queues), wait, capture, count=1)[0] / len(queues)


def each(queues: Sequence[Queue], stream: int) -> None:
    """Queue some launches."""
    for queue in queues:
        queue(stream)


def launches_of(batch: Batch, options: GpuOptions) -> int:
    """How many launches timed() makes of a batch."""
    count = batch.iterations * (1 if options.isolated else batch.aggregate)
    return count * (1 if options.isolated else REPLAYS + 1) + proved(count) * batch.is_checked


def timed_singly(
    launches: Launches, batch: Batch, options: GpuOptions, work_s: float
) -> RankTiming:
    """Time each of the batch's single launches, which should take work_s seconds, on buffers that
    were reset, and compare what they left.

    A launch's time on this GPU is that between two CUDA events around it, behind a barrier of all
    ranks. In a graph no host takes part in it.
    """
    gpu = launches.gpu
    orders = single_orders(launches, batch.single_launches)
    checked = launches.checked(max(map(len, orders))) if batch.is_checked else range(0)
    is_in_graph = options.launch == "graph" and not options.isolated and gpu.outside is None
    clock = _times_in_graph if is_in_graph else _times_on_stream
    times_s = tuple(
        time
        for order in orders
        for time in clock(launches, ("singly", *order), _queues(launches, order), work_s)[1:]
    )
    wrong = launches.compare(checked)
    if batch.is_checked:
        proving = launches.timed(proved(min(batch.single_launches, GRAPH_LAUNCHES)))

        def run(name: str, queues: Sequence[Queue]) -> float:
            return fmean(clock(launches, (name, "singly", *proving), queues, work_s))

        unproved, _ = prove([launches], _queues(launches, proving), run)
        wrong = wrong or unproved
    return RankTiming(wrong=wrong, seconds=fmean(times_s), launch_times_s=times_s)


def _queues(launches: Launches, order: Sequence[int]) -> list[Queue]:
    return [partial(launches.queue, number) for number in order]


def single_orders(launches: Launches, count: int) -> list[list[int]]:
    """The sets of so many launches that are timed one by one, by the parts that are queued at
    once; each part begins with one more, which finds what the host did before in the caches.
    """
    sizes = [1 + size for size in burst_sizes(count, GRAPH_LAUNCHES)]
    return [*map(launches.in_turn, sizes[:-1]), launches.timed(sizes[-1])]


def flag_s(gpu: DeviceRank, options: GpuOptions, ways: int) -> float:
    """Seconds of the least launch on this rank, as launches are timed by those options (see
    DeviceRank.flag); 0 where a rank cannot reach the others' memory, or they are too many.
    """
    is_reached = gpu.is_peered and gpu.assemble is None and gpu.outside is None
    if not is_reached or gpu.barriers.ranks > MAX_FLAGS:
        return 0.0
    queues: list[Queue] = [partial(gpu.flag, ways=ways)] * FLAG_LAUNCHES
    wait = partial(gpu.wait, gpu.timeout_s)
    if options.isolated:
        return time_apart(gpu, queues, wait)
    capture = partial(captured, gpu.card, Graphs(), ("flag",))
    return min(replayed(gpu, partial(each, queues), wait, capture)[1:]) / len(queues)


def burst_sizes(launches: int, burst: int = BURST) -> list[int]:
    """So many launches in bursts.

    >>> burst_sizes(130), burst_sizes(64)
    ([64, 64, 2], [64])
    """
    full, rest = divmod(launches, burst)
    return [burst] * full + [rest] * bool(rest)


def _time_together(
    launches: Launches, count: int, checked: range, options: GpuOptions, work_s: float
) -> float:
    """Mean seconds of a launch on this rank, launches following each other. The checked sets are
    poisoned before each replay, which so finds the caches as the one before did.
    """
    gpu, order = launches.gpu, launches.timed(count)
    poison = partial(launches.poison, checked)
    if gpu.outside is not None:
        times, bursts = list[float](), burst_sizes(count)
        orders = [*map(launches.in_turn, bursts[:-1]), launches.timed(bursts[-1])]
        runs = [
            (
                len(order),
                launches.graph(order)
                if options.launch == "graph"
                else partial(launches.each, order, gpu.card.stream),
            )
            for order in orders
        ]
        for pair in _pairs(gpu, REPLAYS + 1):
            poison()
            times.append(_time_bursts(launches, runs, work_s, *pair))
    else:
        times = replayed(
            gpu,
            partial(launches.each, order),
            partial(launches.wait, work_s),
            partial(launches.captured, ("timed", *order)) if options.launch == "graph" else None,
            poison,
        )
    return sum(times[1:]) / REPLAYS / count


def replayed(
    gpu: DeviceRank,
    each: Callable[[int], None],
    wait: Callable[[], None],
    capture: Callable[[Callable[[int], None]], Callable[[], None]] | None,
    poison: Callable[[], object] = lambda: None,
    count: int = REPLAYS + 1,
) -> list[float]:
    """Seconds of a batch behind a barrier of all ranks, so many times; the first of several does
    not count. each: queues the batch in a stream. capture: makes a graph of what queues
    something in a stream, and returns what queues the graph; None: nothing is in a graph.
    """
    pairs, times = _pairs(gpu, count), list[float]()
    if capture is None:
        for start, stop in pairs:
            poison()
            gpu.barrier()
            gpu.card.record(start)
            each(gpu.card.stream)
            gpu.card.record(stop)
        wait()
        return [gpu.card.elapsed_s(*pair) for pair in pairs]
    start, stop = pairs[0]

    def body(stream: int) -> None:
        gpu.barrier(hold_ns=0)
        gpu.card.record_by_graph(start)
        each(stream)
        gpu.card.record_by_graph(stop)

    # The graph has all in it: the barrier, which then need not wait for any host, the launches
    # and the events. Otherwise the time would include the start of a graph.
    replay = capture(body)
    for _ in pairs:
        poison()
        replay()
        wait()
        times.append(gpu.card.elapsed_s(start, stop))
    return times


def _time_bursts(
    launches: Launches,
    runs: Sequence[tuple[int, Callable[[], object]]],
    work_s: float,
    start: int,
    stop: int,
) -> float:
    """Seconds of launches behind a barrier that the host ends, never more of them at once than the
    host can queue without being blocked. runs: how many are queued at once, and what queues them.
    """
    gpu = launches.gpu
    gpu.barrier()
    gpu.card.record(start)
    for number, (size, run) in enumerate(runs):
        if number:
            launches.wait(work_s)
        gpu.expect(size)
        run()
    gpu.card.record(stop)
    launches.wait(work_s)
    return gpu.card.elapsed_s(start, stop)


def _time_isolated(launches: Launches, count: int, checked: range, work_s: float) -> float:
    """Seconds of a launch on this rank, each behind a barrier of its own."""
    launches.poison(checked)
    queues = _queues(launches, launches.timed(count))
    return time_apart(launches.gpu, queues, partial(launches.wait, work_s))


def _pairs(gpu: DeviceRank, count: int) -> list[tuple[int, int]]:
    """The events before and behind each of so many launches."""
    events = gpu.events(_EVENTS_A_TIME * count)
    return list(zip(events[::2], events[1::2], strict=True))


def _times_in_graph(
    launches: Launches, key: tuple[object, ...], queues: Sequence[Queue], work_s: float
) -> list[float]:
    """Seconds of each launch on this rank, in the graph of that key that has the barriers, too."""
    gpu, pairs = launches.gpu, _pairs(launches.gpu, len(queues))

    def body(stream: int) -> None:
        for queue, (start, stop) in zip(queues, pairs, strict=True):
            gpu.barrier(_AGREEING_NS)
            gpu.card.record_by_graph(start)
            queue(stream)
            gpu.card.record_by_graph(stop)

    launches.captured(key, body)()
    launches.wait(work_s)
    return [gpu.card.elapsed_s(*pair) for pair in pairs]


def _times_on_stream(
    launches: Launches, key: object, queues: Sequence[Queue], work_s: float
) -> list[float]:
    """Seconds of each launch on this rank."""
    return times_apart(launches.gpu, queues, partial(launches.wait, work_s))


def time_apart(gpu: DeviceRank, queues: Sequence[Queue], wait: Callable[[], None]) -> float:
    """Seconds of a launch behind a barrier of its own: the median of some. About one in a hundred
    takes 100 us more than the others, whatever its kernel.
    """
    return median(times_apart(gpu, queues, wait))


def times_apart(gpu: DeviceRank, queues: Sequence[Queue], wait: Callable[[], None]) -> list[float]:
    """Seconds of each of some launches on this rank, each behind a barrier of its own that holds
    all ranks until their hosts have queued it.
    """
    pairs = _pairs(gpu, len(queues))
    for queue, (start, stop) in zip(queues, pairs, strict=True):
        gpu.barrier()
        gpu.card.record(start)
        gpu.expect(1)
        queue(gpu.card.stream)
        gpu.card.record(stop)
        if gpu.outside is not None:
            wait()
    wait()
    return [gpu.card.elapsed_s(*pair) for pair in pairs]
