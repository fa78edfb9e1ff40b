"""The price of a plan on CPU cores: its events, each rank on core `rank mod cores`, by a machine's
constants. Bytes also queue at the memory that all cores share.
"""

from collections.abc import Sequence

from collbench.planning.plan import Plan
from collbench.planning.price.constants import CpuCosts
from collbench.planning.price.events import Events
from collbench.planning.price.work import Work, launch_seconds, work_of


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
    end = [0.0] * len(events.events)
    cores, memory = [0.0] * on.cores, 0.0
    for number, (event, own, others, loads, stores) in enumerate(events.on_cores):
        core = event.rank % on.cores
        start = cores[core]
        for one in own:
            start = max(start, end[one])
        for one in others:
            start = max(start, end[one] + hop_s)
        seconds = on.launch_us * 1e-6 if event.is_launch else 0.0
        seconds += event.steps * step_s + event.takes * take_s + event.posts * post_s
        seconds += loads * read_s + event.writes * write_s + stores * send_s
        memory = max(memory, start) + (event.reads + event.writes + stores) * memory_s
        end[number] = cores[core] = max(start + seconds, memory)
    return [max(end[one] for one in ends) for ends in events.ends]
