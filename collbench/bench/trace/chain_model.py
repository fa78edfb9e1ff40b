"""What the constants of a machine say that the segments of a critical path take. Pure.

Nothing queues here and nobody is late: of a launch its own time, of data on their way one hop, of
bytes the rates of one processor, of a step its own time and that of its flags. Data that carry
their flags take a hop and, as all channels send at once, the time of the bytes of all of them on
the link that they share, or that of taking them if it is longer.
"""

from collections.abc import Iterable

from collbench.bench.trace.critical_path import CAUSES, Cause, Segment
from collbench.core.trace import TracedAction, TracedLaunch
from collbench.planning.price.constants import KindCosts


def chain_model(
    launch: TracedLaunch,
    path: Iterable[Segment],
    costs: KindCosts,
    *,
    launch_s: float | None,
    hop_s: float,
    wire_gbs: float | None = None,
    channels: int = 1,
) -> dict[Cause, float]:
    """Seconds by cause, of all causes; without launches where launch_s is None. costs: of the
    protocol. wire_gbs: of payload on a link, if known, which so many channels share.
    """
    found = dict.fromkeys(CAUSES, 0.0)
    if launch_s is None:
        del found["launch"]
    for segment in path:
        if segment.cause == "launch":
            if launch_s is not None:
                found["launch"] += launch_s
        elif segment.cause == "hop":
            found["hop"] += hop_s
        elif segment.cause == "wire":
            one = launch.actions[segment.action]
            link_s = channels * one.takes * one.size_bytes * 1e-9 / wire_gbs if wire_gbs else 0.0
            found["wire"] += hop_s + max(link_s, _bytes_s(one, costs))
        elif segment.cause in ("move", "reduce"):
            found[segment.cause] += _bytes_s(launch.actions[segment.action], costs)
        elif (
            segment.cause == "step"
            and segment.action >= 0
            and segment.end_s > launch.actions[segment.action].worked_s
        ):
            found["step"] += _step_s(launch.actions[segment.action], costs)
    return found


def _bytes_s(one: TracedAction, costs: KindCosts) -> float:
    a_gbs = one.reads / costs.read_gbs + one.writes / costs.write_gbs + one.sends / costs.send_gbs
    return one.size_bytes * a_gbs * 1e-9


def _step_s(one: TracedAction, costs: KindCosts) -> float:
    if one.work == "end":
        return 0.0
    return 1e-6 * (costs.step_us + one.takes * costs.take_us + one.posts * costs.post_us)
