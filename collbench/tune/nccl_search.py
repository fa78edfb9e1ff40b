"""Searches what NCCL can be forced to, and proves the gains over its own choice.

A setting is a set of variables of the environment, which NCCL reads once: each is a process with
ranks of its own, measured in turns with one that leaves the choice to NCCL (bench/lab.py). First
every setting is measured for a short time at all sizes; those that are the fastest at some size are
measured again, and only these repeats give the gains.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import nan, prod

from collbench.bench.experiment import Arm, Cost, Experiment
from collbench.bench.lab import FailsUnchanged
from collbench.core.errors import UnavailableError
from collbench.core.limits import LEAST_GAIN
from collbench.core.peers import NCCL_ALGOS, NCCL_PROTOS
from collbench.tune.nccl_file import variables_of, variables_text
from collbench.tune.nccl_gains import Gain, TunerMatch, TunerSetting

Measure = Callable[[Experiment, float], tuple[Cost, ...]]

LEAST_S = 8.0  # of an experiment: two starts of NCCL, and six rounds
_CHANNELS = (8, 16, 32)
_BUFFERS = (1 << 20, 16 << 20)  # bytes; NCCL's own are of 4 MiB
_SEARCH_SHARE = 0.5  # of the time, for the short measurements


def settings(
    algos: Sequence[str], first: Mapping[TunerSetting, Sequence[Cost]]
) -> Iterator[TunerSetting]:
    """What is tried, in this order: a protocol alone, channels alone; algorithm, protocol and
    channels together, as a line of the tuner file needs them, for each size in turn those whose
    parts alone gained most; buffers. first: what was measured by the time that the next is asked
    for.
    """
    yield from (TunerSetting("", proto, 0, 0) for proto in NCCL_PROTOS)
    yield from (TunerSetting("", "", channels, 0) for channels in _CHANNELS)
    together = [TunerSetting(*one, 0) for one in product(algos, NCCL_PROTOS, _CHANNELS)]

    def ranked(place: int) -> list[TunerSetting]:
        def promise(one: TunerSetting) -> float:
            alone = (TunerSetting("", one.proto, 0, 0), TunerSetting("", "", one.channels, 0))
            return prod(first[part][place].ratio.median for part in alone if part in first)

        return sorted(together, key=promise, reverse=True)

    sizes = len(next(iter(first.values()), [0]))
    yield from dict.fromkeys(chain.from_iterable(zip(*map(ranked, range(sizes)), strict=True)))
    yield from (TunerSetting("", "", 0, buffer) for buffer in _BUFFERS)


def algorithms(op: str) -> tuple[str, ...]:
    """NCCL's algorithms that serve a collective; its Tree is for allreduce alone."""
    return tuple(name for name in NCCL_ALGOS if name == "ring" or op == "allreduce")


def search(
    match: TunerMatch,
    sizes: Sequence[int],
    budget_s: float,
    measure: Measure,
    tell: Callable[[str], None],
) -> dict[int, list[Gain]]:
    """The gains of the fastest settings at each size, within about that time. Raises
    UnavailableError if none could be measured.
    """
    start_s = time.monotonic()
    algos = algorithms(match.op)
    first: dict[TunerSetting, tuple[Cost, ...]] = {}
    reason, number = "there was no time for any setting", len(list(settings(algos, {})))
    for place, setting in enumerate(settings(algos, first), 1):
        left_s = start_s + _SEARCH_SHARE * budget_s - time.monotonic()
        # where nothing is slow an experiment takes less than half of what it may
        if left_s < (LEAST_S / 2 if first else 0):
            break
        tell(f"{match.op}: setting {place} of {number}, {variables_text(match, setting)}")
        try:
            first[setting] = measure(_experiment(match, sizes, setting), LEAST_S)
        except (UnavailableError, FailsUnchanged) as error:
            reason = str(error)
    if not first:
        raise UnavailableError(f"no setting of NCCL could be measured: {reason}")
    proofs: dict[TunerSetting, tuple[Cost, ...]] = {}
    finalists = _fastest(first, len(sizes))
    for number, setting in enumerate(finalists):
        left_s = start_s + budget_s - time.monotonic()
        if number and left_s < LEAST_S:
            break
        tell(f"{match.op}: proving {variables_text(match, setting)}")
        try:
            share_s = max(LEAST_S, left_s / (len(finalists) - number))
            proofs[setting] = measure(_experiment(match, sizes, setting), share_s)
        except (UnavailableError, FailsUnchanged):
            continue
    return {
        size: [_gain(setting, costs[place]) for setting, costs in proofs.items()]
        for place, size in enumerate(sizes)
    }


def _experiment(match: TunerMatch, sizes: Sequence[int], setting: TunerSetting) -> Experiment:
    """NCCL's own choice, and the setting in its place."""
    return Experiment(
        backend="nccl",
        ranks=match.ranks,
        op=match.op,
        sizes=tuple(sizes),
        found=Arm(),
        changed=Arm(environment=dict(variables_of(match, setting))),
    )


def _fastest(first: dict[TunerSetting, tuple[Cost, ...]], sizes: int) -> list[TunerSetting]:
    """The fastest setting of each size, and the fastest that a line of the tuner file can say;
    those that are it at the most sizes first.
    """
    wins = Counter[TunerSetting]()
    for place in range(sizes):
        for able in (list(first), [one for one in first if one.is_for_tuner]):
            if able:
                wins[max(able, key=lambda one: first[one][place].ratio.median)] += 1
    return [setting for setting, _ in wins.most_common()]


def _gain(setting: TunerSetting, proof: Cost) -> Gain:
    """What fresh repeats say of a setting at a size."""
    is_better = not proof.is_noisy and proof.ratio.low > 1 and proof.ratio.median >= LEAST_GAIN
    return Gain(
        setting=setting,
        ratio=proof.ratio,
        deviate=nan,
        is_faster=is_better,
        is_worse=proof.ratio.high < 1 and proof.ratio.median * LEAST_GAIN <= 1,
        is_better=is_better,
    )
