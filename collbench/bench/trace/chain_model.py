"""What the constants of a machine say that the segments of a critical path take. Pure.

Nothing queues here and nobody is late: of a launch its own time, of data on their way one hop, of
bytes the rates of one processor, of a step its own time and that of its flags. Data that carry
their flags take a hop and, as all channels send at once, the time of the bytes of all of them on
the link that they share, or that of taking them if it is longer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from collbench.bench.trace.critical_path import CAUSES, Cause, Segment
from collbench.core.trace import TracedAction, TracedLaunch
from collbench.planning.price.constants import KindCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCosts:
    """The constants that price a chain. kind: of the protocol. launch_s: None where the clock of a
    launch begins on the GPU, behind most of it. price_s: the model's price of the launch, if known.
    wire_gbs: of payload on a link, if known, which so many channels share.
    """

    kind: KindCosts
    launch_s: float | None
    hop_s: float
    price_s: float | None
    machine: str
    wire_gbs: float | None = None
    channels: int = 1


def chain_model(
    launch: TracedLaunch, path: Iterable[Segment], costs: ChainCosts
) -> dict[Cause, float]:
    """Seconds by cause, of all causes; without launches where theirs are not known."""
    found = dict.fromkeys(CAUSES, 0.0)
    if costs.launch_s is None:
        del found["launch"]
    for segment in path:
        if segment.cause == "launch":
            if costs.launch_s is not None:
                found["launch"] += costs.launch_s
        elif segment.cause == "hop":
            found["hop"] += costs.hop_s
        elif segment.action >= 0:
            one = launch.actions[segment.action]
            if segment.cause == "wire":
                found["wire"] += costs.hop_s + max(_link_s(one, costs), _bytes_s(one, costs.kind))
            elif segment.cause in ("move", "reduce"):
                found[segment.cause] += _bytes_s(one, costs.kind)
            elif segment.cause == "step" and segment.end_s > one.worked_s:
                found["step"] += _step_s(one, costs.kind)
    return found


def _link_s(one: TracedAction, costs: ChainCosts) -> float:
    if not costs.wire_gbs:
        return 0.0
    return costs.channels * one.takes * one.size_bytes * 1e-9 / costs.wire_gbs


def _bytes_s(one: TracedAction, costs: KindCosts) -> float:
    a_gbs = one.reads / costs.read_gbs + one.writes / costs.write_gbs + one.sends / costs.send_gbs
    return one.size_bytes * a_gbs * 1e-9


def _step_s(one: TracedAction, costs: KindCosts) -> float:
    if one.work == "end":
        return 0.0
    return 1e-6 * (costs.step_us + one.takes * costs.take_us + one.posts * costs.post_us)
