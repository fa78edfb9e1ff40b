"""How launches on GPUs are timed: in a graph behind a meeting of all ranks, one by one on a stream,
or each behind a meeting of its own.

Whose launches they are, this module does not know; a lane (_gpu.py) queues, meets and waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from collbench.backends.net.gpu_proxy import BURST

if TYPE_CHECKING:
    from collbench.backends.gpu.rank import DeviceRank

TARGET_S, MIN_ITERATIONS, MAX_ITERATIONS = 0.004, 4, 100  # launches of one graph
REPLAYS = 3  # that count, behind one that does not

QueueOne = Callable[[int, int], None]  # (set, stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """How launches are timed: in a graph or one by one on a stream, each behind a meeting or back
    to back.

    work_s: what they should take altogether, beyond which a deadline begins.
    """

    launch: str = "graph"
    isolated: bool = False
    iterations: int = 20
    aggregate: int = 1
    work_s: float = 0.0

    @property
    def launches(self) -> int:
        """How many each timed go has, on the sets of buffers in turn."""
        return self.iterations * (1 if self.isolated else self.aggregate)


def auto_iterations(seconds: float) -> int:
    """Launches of a graph if one takes that long.

    >>> auto_iterations(3e-6), auto_iterations(1e-4), auto_iterations(1.0)
    (100, 40, 4)
    """
    return max(MIN_ITERATIONS, min(MAX_ITERATIONS, round(TARGET_S / max(seconds, 1e-9))))


def burst_sizes(launches: int) -> list[int]:
    """So many launches in bursts of BURST.

    >>> burst_sizes(130), burst_sizes(64)
    ([64, 64, 2], [64])
    """
    full, rest = divmod(launches, BURST)
    return [BURST] * full + [rest] * bool(rest)


def launch_s(
    lane: "DeviceRank",
    queue: QueueOne,
    sets: int,
    how: TimingOptions,
    graphs: dict[Any, Any],
    wait: Callable[[], None],
) -> float:
    """Mean seconds of a launch on this rank."""
    if how.isolated:
        return _time_isolated(lane, queue, sets, how, wait)
    launches, events = how.launches, lane.events(2 * (REPLAYS + 1))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    if lane.outside is not None:
        times = [
            _timed_in_bursts(lane, queue, sets, launches, how.launch, graphs, *pair, wait)
            for pair in pairs
        ]
    elif how.launch == "graph":
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
    lane: "DeviceRank",
    queue: QueueOne,
    sets: int,
    launches: int,
    graphs: dict[Any, Any],
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
    lane: "DeviceRank", replay: Callable[[], None], start: int, stop: int, wait: Callable[[], None]
) -> float:
    replay()
    wait()
    return lane.card.elapsed_s(start, stop)


def _timed_in_bursts(
    lane: "DeviceRank",
    queue: QueueOne,
    sets: int,
    launches: int,
    how: str,
    graphs: dict[Any, Any],
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
            if how == "graph"
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
    lane: "DeviceRank", queue: QueueOne, sets: int, how: TimingOptions, wait: Callable[[], None]
) -> float:
    events = lane.events(2 * how.iterations)
    for number in range(how.iterations):
        lane.meet()
        lane.card.record(events[2 * number])
        lane.expect(1)
        queue(number % sets, lane.card.stream)
        lane.card.record(events[2 * number + 1])
        if lane.outside is not None:
            wait()
    wait()
    return (
        sum(lane.card.elapsed_s(events[2 * k], events[2 * k + 1]) for k in range(how.iterations))
        / how.iterations
    )
