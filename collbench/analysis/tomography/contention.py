"""Whether flows share a link: their rates alone against those together, and how probable the fall
is where nothing is shared.

The noise is pooled over the repeats of all measurements. A fall is judged by Student's t with 3
degrees of freedom (chance.py), because what differs between two measurements has heavier tails than
what differs between repeats, and its probability is multiplied by the number of tests (Bonferroni).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, median

from collbench.results.flows import Flow, FlowSet, Repeats, flow_set
from collbench.results.verdict import deviate, scale_of

SURE = 0.99  # what is claimed: so that 95 % hold for all claims of a machine together
REPEATS, MOST_REPEATS = 3, 12  # of a measurement; the most where a test is undecided
NOBODYS = math.log(1.05)  # a fall up to here is no link's: engines and memory cost as much
LEAST = math.log(1.1)  # what is called a fall
_CLEAR = math.log(1.2)  # less than this is surely none
_LEAST_NOISE = 0.01  # of a rate: few repeats may agree by chance
_HIGHEST = 0.9999  # confidence that is stated
_NORMAL = NormalDist()


def confidence(effect: float, sd: float, tests: int) -> float:
    """That chance alone does not explain an effect of one of some tests. sd: the standard deviation
    of one of the two sides.

    >>> confidence(0.69, 0.02, 28) > 0.99, confidence(0.05, 0.02, 28) < 0.5
    (True, True)
    """
    if effect <= 0:
        return 0.0
    tail = _NORMAL.cdf(-deviate(effect, scale_of(sd)))
    return min(_HIGHEST, max(0.0, 1 - tests * tail))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """What flows reached alone and together, GB/s. effect: the logarithm of the totals' ratio.
    shared: the confidence that they share a link that limits them. apart: that they do not, for
    this test alone.
    """

    flows: FlowSet
    alone: tuple[float, ...]
    together: tuple[float, ...]
    effect: float
    shared: float
    apart: float

    @property
    def fall(self) -> str:
        """By how much the total falls."""
        return f"{100 * -math.expm1(-self.effect):.1f} %"

    @property
    def is_clear(self) -> bool:
        """Whether they surely share no link that limits them."""
        return self.apart >= SURE and not self.is_shared

    @property
    def is_shared(self) -> bool:
        """Whether they surely share a link."""
        return self.shared >= SURE and self.effect >= LEAST


@dataclass(slots=True)
class Bench:
    """The measurements that there are, and those that are wanted, with how many repeats."""

    repeats: Repeats
    wanted: dict[FlowSet, int] = field(default_factory=dict)
    noise: float = field(init=False)

    def __post_init__(self) -> None:
        squares, freedom = 0.0, 0
        for repeats in self.repeats.values():
            for rates in zip(*repeats, strict=True):
                logs = [math.log(rate) for rate in rates]
                squares += sum((one - fmean(logs)) ** 2 for one in logs)
                freedom += len(logs) - 1
        self.noise = max(_LEAST_NOISE, math.sqrt(squares / freedom) if freedom else 0.0)

    def sd(self, flows: FlowSet) -> float:
        """The standard deviation of the logarithm of a median of the repeats."""
        return self.noise * math.sqrt(math.pi / 2 / len(self.repeats[flows]))

    def rates(self, flows: FlowSet, least: int = REPEATS) -> tuple[float, ...] | None:
        """The medians of the repeats of flows at once; None, and wanted, if there are too few."""
        there = self.repeats.get(flows, ())
        if len(there) < least:
            self.wanted[flows] = max(least, self.wanted.get(flows, 0))
        return tuple(map(median, zip(*there, strict=True))) if there else None

    def alone(self, flow: Flow) -> float | None:
        """The rate of a flow with nothing beside it."""
        rates = self.rates((flow,))
        return None if rates is None else rates[0]

    def repeat(self, flows: FlowSet) -> None:
        """Want twice the repeats of what does not decide yet, until there are the most."""
        there = len(self.repeats[flows])
        if there < MOST_REPEATS:
            self.wanted[flows] = max(2 * there, self.wanted.get(flows, 0))

    def contention(self, flows: Sequence[Flow], tests: int) -> Contention | None:
        """Flows alone against the same together; None as long as measurements are missing."""
        together = flow_set(*flows)
        alone = [self.alone(flow) for flow in together]
        rates = self.rates(together)
        known = [rate for rate in alone if rate is not None]
        if rates is None or len(known) < len(together):
            return None
        effect = math.log(sum(known) / sum(rates))
        sd = max(self.sd(one) for one in (together, *((flow,) for flow in together)))
        one = Contention(
            flows=together,
            alone=tuple(known),
            together=rates,
            effect=effect,
            shared=confidence(effect - NOBODYS, sd, tests),
            apart=confidence(_expected_fall(known) - effect, sd, 1),
        )
        if not one.is_shared and not one.is_clear:
            for flows in (together, *((flow,) for flow in together)):
                self.repeat(flows)
        return one


def _expected_fall(alone: Sequence[float]) -> float:
    """What is too small for flows that share a link which limits them: half of the fall where it is
    as narrow as the fastest of them needs, if that is little.
    """
    return min(_CLEAR, math.log(sum(alone) / max(alone)) / 2)
