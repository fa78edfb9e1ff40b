"""Which GPUs share a path to the host's memory, from their copies alone and two at once. Pure.

Copies go to two blocks of the memory, which were allocated on the first and on the last core. Two
GPUs share a path if the total of their copies falls on the way to both: the way to one of them may
lead over a link between sockets, which is no path of theirs to the other. A link that two of them
do not fill leaves no trace.

The noise is pooled over the repeats of all measurements. A fall is judged by Student's t with few
degrees of freedom (core/verdict.py), because what differs between two measurements has heavier
tails than what differs between repeats, and its probability is multiplied by the number of tests
(Bonferroni).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist, fmean, median
from typing import Protocol

from collbench.core.limits import (
    CLEAR_FALL,
    LEAST_FALL,
    LEAST_FALL_NOISE,
    NOBODYS_FALL,
    SHARED_SURE,
)
from collbench.core.verdict import deviate, scale_of

PLACES = 2  # blocks of the host's memory
REPEATS, MOST_REPEATS = 3, 12  # of a measurement; the most where a test is undecided
_HIGHEST = 0.9999  # confidence that is stated
_MOST_TURNS = 20  # each wants something new: measurements and their repeats are fewer
_NORMAL = NormalDist()

Flow = tuple[int, int]  # a GPU, and the block of memory that it copies to
FlowSet = tuple[Flow, ...]  # flows at once, in order
Pair = tuple[int, int]  # of GPUs


class FlowSource(Protocol):
    """What can be measured of so many GPUs."""

    @property
    def gpus(self) -> int: ...
    def rates(self, flows: FlowSet) -> list[float]:
        """GB/s of each flow while all of them run, once. Raises UnavailableError or HangError."""
        ...


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
    """What flows reached alone and together, GB/s. fall: of the total, as a share. is_clear: they
    surely share no link that limits them.
    """

    flows: FlowSet
    alone: tuple[float, ...]
    together: tuple[float, ...]
    fall: float
    shared: float
    is_shared: bool
    is_clear: bool


@dataclass(frozen=True, slots=True)
class SharedPath:
    """GPUs that share a path. confidence: that chance does not explain the weakest of the pairs
    that hold them together.
    """

    gpus: tuple[int, ...]
    confidence: float
    weakest: Contention


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPaths:
    """What the measurements say. undecided: pairs that neither do nor do not. wanted: measurements
    that are missing, with the number of repeats. noise: the standard deviation of the logarithm of
    a rate.
    """

    paths: tuple[SharedPath, ...]
    undecided: tuple[tuple[Pair, Contention], ...]
    wanted: Mapping[FlowSet, int]
    noise: float


@dataclass(slots=True)
class FlowSearch:
    """The measurements of a source. clock: seconds since the budget began. repeats: GB/s of every
    flow of a set, for each repeat.
    """

    source: FlowSource
    clock: Callable[[], float]
    budget_s: float
    repeats: dict[FlowSet, list[list[float]]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The measurements until now, each repeat counted."""
        return sum(map(len, self.repeats.values()))

    def run(self, step: Callable[[int, int], None] = lambda done, of: None) -> SharedPaths:
        """Measure and judge until nothing is wanted or the budget is spent. step: told how many
        measurements of a turn are done, and of how many. However it ends, `repeats` has what was
        measured until then.
        """
        for _ in range(_MOST_TURNS):
            left = self._left(self.judge().wanted)
            if not left:
                break
            for done, flows in enumerate(left):
                if self.clock() >= self.budget_s:
                    return self.judge()
                step(done, len(left))
                self.repeats.setdefault(flows, []).append(self.source.rates(flows))
        return self.judge()

    def judge(self) -> SharedPaths:
        """What the measurements say until now."""
        return shared_paths(self.repeats, self.source.gpus)

    def _left(self, wanted: Mapping[FlowSet, int]) -> list[FlowSet]:
        """What to measure, a repeat of everything before the next of anything: drift is shared."""
        missing = {
            flows: range(len(self.repeats.get(flows, ())), times) for flows, times in wanted.items()
        }
        turns = max(wanted.values(), default=0)
        return [flows for turn in range(turns) for flows in missing if turn in missing[flows]]


def shared_paths(repeats: Mapping[FlowSet, Sequence[Sequence[float]]], gpus: int) -> SharedPaths:
    """What the measurements say of so many GPUs, and which are missing."""
    known = _Known(repeats)
    pairs = list(combinations(range(gpus), 2))
    weakest: dict[Pair, Contention] = {}
    undecided = []
    for pair in pairs:
        tried = [known.contention(pair, place, PLACES * len(pairs)) for place in range(PLACES)]
        at = [one for one in tried if one is not None]
        if len(at) == PLACES and all(one.is_shared for one in at):
            weakest[pair] = min(at, key=lambda one: one.shared)
        elif len(at) == PLACES and not any(one.is_clear for one in at):
            undecided.append((pair, min(at, key=lambda one: one.fall)))
            for one in at:
                known.repeat(one.flows)
    return SharedPaths(
        paths=tuple(_joined(weakest)),
        undecided=tuple(undecided),
        wanted=known.wanted,
        noise=known.noise,
    )


class _Known:
    """The measurements that there are, and those that are wanted, with how many repeats."""

    def __init__(self, repeats: Mapping[FlowSet, Sequence[Sequence[float]]]) -> None:
        self._repeats, self.wanted = repeats, dict[FlowSet, int]()
        squares, freedom = 0.0, 0
        for times in repeats.values():
            for rates in zip(*times, strict=True):
                logs = [math.log(rate) for rate in rates]
                squares += sum((one - fmean(logs)) ** 2 for one in logs)
                freedom += len(logs) - 1
        self.noise = max(LEAST_FALL_NOISE, math.sqrt(squares / freedom) if freedom else 0.0)

    def _rates(self, flows: FlowSet) -> tuple[float, ...] | None:
        """The medians of the repeats of flows at once; None, and wanted, if there are too few."""
        there = self._repeats.get(flows, ())
        if len(there) < REPEATS:
            self.wanted[flows] = max(REPEATS, self.wanted.get(flows, 0))
        return tuple(map(median, zip(*there, strict=True))) if there else None

    def repeat(self, flows: FlowSet) -> None:
        """Want twice the repeats of flows together and alone, until there are the most."""
        for some in (flows, *((flow,) for flow in flows)):
            there = len(self._repeats[some])
            if there < MOST_REPEATS:
                self.wanted[some] = max(2 * there, self.wanted.get(some, 0))

    def contention(self, gpus: Pair, place: int, tests: int) -> Contention | None:
        """Copies to a place alone and together; None as long as measurements are missing."""
        flows = tuple((gpu, place) for gpu in gpus)
        found = [self._rates((flow,)) for flow in flows]
        together = self._rates(flows)
        alone = [rate for rates in found if rates is not None for rate in rates]
        if together is None or len(alone) < len(flows):
            return None
        effect = math.log(sum(alone) / sum(together))
        fewest = min(len(self._repeats[some]) for some in (flows, *((flow,) for flow in flows)))
        sd = self.noise * math.sqrt(math.pi / 2 / fewest)  # of the logarithm of a median
        # less than half of what a link would take that is as narrow as the fastest of them needs
        least = min(CLEAR_FALL, math.log(sum(alone) / max(alone)) / 2)
        shared = confidence(effect - NOBODYS_FALL, sd, tests)
        is_shared = shared >= SHARED_SURE and effect >= LEAST_FALL
        return Contention(
            flows=flows,
            alone=tuple(alone),
            together=together,
            fall=-math.expm1(-effect),
            shared=shared,
            is_shared=is_shared,
            is_clear=not is_shared and confidence(least - effect, sd, 1) >= SHARED_SURE,
        )


def _joined(pairs: Mapping[Pair, Contention]) -> Iterable[SharedPath]:
    """The groups of GPUs that pairs join: on the way to one memory paths that meet stay together.
    The confidence of a group is that of the weakest pair without which it would fall apart, where
    the surest pairs are joined first.
    """
    group = {gpu: gpu for pair in pairs for gpu in pair}
    weakest: dict[int, Contention] = {}
    for pair, contention in sorted(pairs.items(), key=lambda item: (-item[1].shared, item[0])):
        one, other = sorted(group[gpu] for gpu in pair)
        if one != other:
            group = {gpu: one if of == other else of for gpu, of in group.items()}
            weakest.pop(other, None)
            weakest[one] = contention
    for first, contention in sorted(weakest.items()):
        members = tuple(sorted(gpu for gpu, of in group.items() if of == first))
        yield SharedPath(members, contention.shared, contention)
