"""What a price needs of a plan, and what a launch takes, from the events of a few."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

from collbench.planning.plan import Plan
from collbench.planning.price.constants import CpuCosts
from collbench.planning.price.events import Events, events_of
from collbench.schedules.ir import Schedule

# Of a plan these many are played: what one more of them adds is the same from then on.
_LAUNCHES, _LOOPS = 4, 3
_FEW_LAUNCHES, _FEW_LOOPS, _MANY_RANKS = 3, 2, 16
THROUGH_HOST = ("shm", "shm+net")  # transports with memory of the host


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """kind: of the constants, a protocol or "ce". slots: that a sender can count on. slices: of a
    full loop, each of piece_bytes. amount: slices of the fullest channel in one launch; of less
    than one, the slice is as much shorter. channels: of the launch; spread: full ones that have as
    many bytes as all. set_bytes: of a rank's buffers. turns: orders of the ranks at once, of which
    the schedule is the first; in each a host begins so many ranks later (far.py).
    """

    schedule: Schedule
    kind: str
    proto: str
    slots: int
    slices: int
    piece_bytes: float
    amount: float
    channels: int
    spread: float
    set_bytes: float
    threads: int = 0
    has_pdl: bool = False
    through_host: bool = False
    turns: tuple[int, ...] = (0,)


def work_of(plan: Plan) -> Work:
    """The work of a plan."""
    problem, kernel = plan.problem, plan.kernel
    share = plan.channel_range(0)[1]
    piece_bytes = plan.chunk_bytes / plan.slices
    is_even = share and not problem.counts
    return Work(
        schedule=plan.schedule,
        kind="ce" if plan.transport == "ce" else plan.proto,
        proto=plan.proto,
        slots=kernel.sure_slots(plan.slots) if kernel else plan.slots,
        slices=plan.slices,
        piece_bytes=piece_bytes,
        amount=share / plan.parts / piece_bytes,
        channels=plan.channels,
        spread=problem.block_bytes / share if is_even else used_channels(plan),
        set_bytes=max(problem.buffers(rank).total_bytes for rank in range(plan.n)),
        threads=kernel.threads if kernel else 0,
        has_pdl=kernel is not None and kernel.pdl != "off",
        through_host=plan.transport in THROUGH_HOST,
    )


def used_channels(plan: Plan) -> int:
    """Channels that have data."""
    return sum(1 for channel in range(plan.channels) if plan.channel_range(channel)[1])


Play = Callable[[Events, float], Sequence[float]]


def launch_seconds(
    work: Work, play: Play, *, few: int = 0, together: int = 1, is_alone: bool = False
) -> float:
    """Seconds of one launch: of one more behind others, or alone, once all ranks are ready.

    play(events, piece_bytes): when each launch is over. few, together: see events_of. A loop or a
    message that is not full costs its part of what a full one would add.
    """
    is_large = work.schedule.n > _MANY_RANKS and few != 1
    launches = 1 if is_alone else _FEW_LAUNCHES if is_large else _LAUNCHES

    def played(loops: int, slices: int, piece_bytes: float = work.piece_bytes) -> float:
        events = events_of(
            work.schedule,
            slices=slices,
            loops=loops,
            launches=launches,
            slots=work.slots,
            few=few,
            together=together,
        )
        ends = play(events, piece_bytes)
        return ends[-1] - (ends[-2] if launches > 1 else 0.0)

    def between(number: float, most: int, of: Callable[[int], float]) -> float:
        """What so many take, of which at most `most` are played."""
        if number == floor(number) <= most:
            return of(floor(number))
        first = min(floor(number), most - 1)
        seconds = of(first)
        return seconds + (number - first) * max(0.0, of(first + 1) - seconds)

    if work.amount <= 1:
        return played(1, 1, work.amount * work.piece_bytes)
    if work.amount <= work.slices:
        return between(work.amount, work.slices, lambda slices: played(1, slices))
    most = _FEW_LOOPS if is_large else _LOOPS
    return between(work.amount / work.slices, most, lambda loops: played(loops, work.slices))


def cpu_price(plan: Plan, on: CpuCosts, *, is_alone: bool = False) -> float:
    """Seconds of one launch.

    >>> from collbench.planning.planner import resolve
    >>> from collbench.planning.price.constants import cpu_costs
    >>> from collbench.core.case import Case
    >>> small = Case(op="allreduce", backend="cpu", algo="ring", ranks=2, size_bytes=1024)
    >>> 1e-6 < cpu_price(resolve(small).plan, cpu_costs()) < 1e-4
    True
    """
    work = work_of(plan)

    def ends(events: Events, piece_bytes: float) -> Sequence[float]:
        return _ends(work, events, piece_bytes, on)

    return launch_seconds(work, ends, is_alone=is_alone)


def _ends(work: Work, events: Events, piece_bytes: float, on: CpuCosts) -> Sequence[float]:
    """When each launch is over on all ranks, in seconds. A rank does an event for all channels."""
    costs = on.kinds[work.proto]
    bytes_ = work.spread * piece_bytes
    step_s, take_s, post_s = (
        work.spread * us * 1e-6 for us in (costs.step_us, costs.take_us, costs.post_us)
    )
    read_s, write_s, send_s = (
        bytes_ / (gbs * 1e9) for gbs in (costs.read_gbs, costs.write_gbs, costs.send_gbs)
    )
    memory_s = bytes_ / (on.memory_gbs * 1e9)
    hop_s = on.hop_s(work.schedule.n)
    amounts, waits = events.on_cores
    worked, moved = list[float](), list[float]()
    for event in amounts:
        seconds = on.launch_us * 1e-6 if event.is_launch else 0.0
        seconds += event.steps * step_s + event.takes * take_s + event.posts * post_s
        seconds += event.loads * read_s + event.writes * write_s + event.stores * send_s
        worked.append(seconds)
        moved.append((event.reads + event.writes + event.stores) * memory_s)
    end = list[float]()
    cores, memory = [0.0] * on.cores, 0.0
    for rank, amount, own, others in waits:  # millions of turns: no call in them
        start = cores[rank % on.cores]
        for one in own:
            if end[one] > start:
                start = end[one]
        for one in others:
            if end[one] + hop_s > start:
                start = end[one] + hop_s
        memory = (memory if memory > start else start) + moved[amount]
        over = start + worked[amount]
        cores[rank % on.cores] = over if over > memory else memory
        end.append(cores[rank % on.cores])
    return [max(end[one] for one in ends) for ends in events.ends]
