"""The effect of each knob on the time, the rest as in the best configuration. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from collbench.analysis.best import candidates
from collbench.analysis.rows import KNOB_FIELDS, LEAST_GAIN, Row, is_separated, median_time

KNOBS_WITH_EFFECT = ("algo", "proto", *KNOB_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a knob at one size: the time of its slowest value over that of its fastest, the
    rest as in the best configuration. is_clear: whether the repeats show it, and it is LEAST_GAIN
    or more.
    """

    factor: float
    best: object
    worst: object
    values: int
    is_clear: bool


def effect_of(
    rows: Sequence[Row], best: Row, knobs: Mapping[str, Sequence[str]], name: str
) -> Effect | None:
    """The effect of a knob beside the best row; None if the knob took one value there."""
    names = ("algo", "proto", *knobs.get(best.backend, ()))
    if name not in names:
        return None
    others = attrgetter("backend", *[other for other in names if other != name])
    rest = others(best)
    # of each value the fastest row: what no knob tells apart is no effect of this one
    least: dict[object, Row] = {}
    for row in candidates(rows):
        if others(row) == rest and not row.is_own_choice:
            value = getattr(row, name)
            if value not in least or median_time(row.times_us) < median_time(least[value].times_us):
                least[value] = row
    if len(least) < 2:
        return None
    ordered = sorted(least.values(), key=lambda row: median_time(row.times_us))
    fast, slow = ordered[0], ordered[-1]
    factor = median_time(slow.times_us) / median_time(fast.times_us)
    return Effect(
        factor=factor,
        best=getattr(fast, name),
        worst=getattr(slow, name),
        values=len(least),
        is_clear=factor >= LEAST_GAIN and is_separated(fast.times_us, slow.times_us),
    )
