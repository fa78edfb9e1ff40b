"""The effect of each knob on the time, the rest as in the best configuration. Pure."""

from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

from collbench.compare.best import Best
from collbench.core.limits import LEAST_GAIN
from collbench.core.record import Record
from collbench.core.rows import KNOB_FIELDS, is_own_choice, median_of, times_of
from collbench.core.verdict import is_separated

KNOBS_WITH_EFFECT = ("algo", "proto", *KNOB_FIELDS)


class Effect(NamedTuple):
    """The effect of a knob at one size: the time of its slowest value over that of its fastest, the
    rest as in the best configuration. is_clear: whether the repeats show it, and it is LEAST_GAIN
    or more.
    """

    factor: float
    best: object
    worst: object
    values: int
    is_clear: bool


def effect_of(best: Best, knobs: Mapping[str, Sequence[str]], name: str) -> Effect | None:
    """The effect of a knob beside the best row; None if the knob took one value there."""
    chosen = best.row
    names = ("algo", "proto", *knobs.get(chosen.backend, ()))
    if name not in names:
        return None
    others = attrgetter("backend", *[other for other in names if other != name])
    rest = others(chosen)
    # of each value the fastest row: what no knob tells apart is no effect of this one
    least: dict[object, tuple[float, Record]] = {}
    for row in best.rows:
        if others(row) == rest and not is_own_choice(row):
            value, time_us = getattr(row, name), median_of(row)
            if value not in least or time_us < least[value][0]:
                least[value] = time_us, row
    if len(least) < 2:
        return None
    ordered = sorted(least.values(), key=itemgetter(0))
    (least_us, fast), (most_us, slow) = ordered[0], ordered[-1]
    factor = most_us / least_us
    return Effect(
        factor=factor,
        best=getattr(fast, name),
        worst=getattr(slow, name),
        values=len(least),
        is_clear=factor >= LEAST_GAIN and is_separated(times_of(fast), times_of(slow)),
    )
