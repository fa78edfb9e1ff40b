"""The price of a plan on CPU cores: its events, each rank on core `rank mod cores`, by a machine's
constants. Bytes also queue at the memory that all cores share.
"""

from collections.abc import Sequence

from collbench.planning.plan import Plan
from collbench.pricing.constants import CpuCosts
from collbench.pricing.events import Events
from collbench.pricing.launches import Shape, one_more_launch, shape_of


def cpu_price(plan: Plan, on: CpuCosts) -> float:
    """Seconds of one launch.

    >>> from collbench.planning.planner import resolve
    >>> from collbench.pricing.constants import cpu_costs
    >>> from collbench.spec.case import Case
    >>> small = Case(op="allreduce", backend="cpu", algo="ring", ranks=2, size_bytes=1024)
    >>> 1e-6 < cpu_price(resolve(small).plan, cpu_costs()) < 1e-4
    True
    """
    shape = shape_of(plan)
    return one_more_launch(plan, shape, lambda events: _ends(plan, shape, events, on))


def _ends(plan: Plan, shape: Shape, events: Events, on: CpuCosts) -> Sequence[float]:
    """When each launch is over on all ranks, in seconds. A rank does an event for all channels."""
    costs = on.kinds[plan.proto]
    bytes_ = shape.channels * shape.piece_bytes
    step_s, take_s, post_s = (
        shape.channels * us * 1e-6 for us in (costs.step_us, costs.take_us, costs.post_us)
    )
    read_s, write_s, send_s = (
        bytes_ / (gbs * 1e9) for gbs in (costs.read_gbs, costs.write_gbs, costs.send_gbs)
    )
    memory_s = bytes_ / (on.memory_gbs * 1e9)
    hop_s = on.hop_s(plan.n)
    end = [0.0] * len(events.events)
    cores, memory = [0.0] * on.cores, 0.0
    for number, event in enumerate(events.events):
        core = event.rank % on.cores
        start = max(cores[core], *(end[one] for one in event.after if one >= 0), 0.0)
        for one, _ in (*event.arrived, *event.returned):
            start = max(start, end[one] + hop_s)
        reads = event.reads + sum(pieces for _, pieces in event.pulled)
        sends = sum(pieces for _, pieces in event.sent)
        seconds = on.launch_us * 1e-6 if event.is_launch else 0.0
        seconds += event.steps * step_s + event.takes * take_s + event.posts * post_s
        seconds += reads * read_s + event.writes * write_s + sends * send_s
        memory = max(memory, start) + (reads + event.writes + sends) * memory_s
        end[number] = cores[core] = max(start + seconds, memory)
    return [max(end[one] for one in ends) for ends in events.ends]
