"""What one more launch of a plan adds, from the times of a few launches with few loops."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from collbench.planning.plan import Plan
from collbench.pricing.events import Events, events_of

# Of a plan these many are played: what one more of them adds is the same from then on.
_LAUNCHES, _LOOPS = 4, 3
_FEW_LAUNCHES, _MANY_RANKS = 3, 16


class Shape(NamedTuple):
    """What a channel does: loops, slices of each, bytes of a slice; and channels that have data."""

    loops: float
    slices: int
    piece_bytes: float
    channels: int


def shape_of(plan: Plan) -> Shape:
    """The shape of the channel that has most, with slices of equal size."""
    size = plan.channel_range(0)[1]
    slices_of_loop = [loop.slices for loop in plan.loops(0)]
    total = sum(slices_of_loop) or 1
    slices = min(max(slices_of_loop, default=1), total)
    channels = sum(1 for channel in range(plan.channels) if plan.channel_range(channel)[1])
    return Shape(total / slices, slices, size / plan.parts / total, channels)


def one_more_launch(
    plan: Plan,
    shape: Shape,
    play: Callable[[Events], Sequence[float]],
    *,
    is_one: bool = False,
    few: int = 0,
) -> float:
    """Seconds that one more launch takes. play: when each launch is over. is_one: one rank stands
    for all, so that more can be played. few: how many ranks do (events_of).
    """
    is_large = plan.n > _MANY_RANKS and not is_one

    def with_loops(loops: int) -> float:
        events = events_of(
            plan.schedule,
            slices=shape.slices,
            loops=loops,
            launches=_FEW_LAUNCHES if is_large else _LAUNCHES,
            slots=plan.kernel.sure_slots(plan.slots) if plan.kernel else plan.slots,
            few=few,
        )
        ends = play(events)
        return ends[-1] - ends[-2]

    most = _LOOPS - is_large
    if shape.loops <= most:
        return with_loops(max(1, round(shape.loops)))
    seconds = with_loops(most)
    return seconds + (shape.loops - most) * max(0.0, seconds - with_loops(most - 1))
