"""Whether one GPU slows all others down: a collective without each of them in turn."""

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from collbench.bench.experiment import Cost
from collbench.core.verdict import Interval, interval
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("left out",)

_LEAST = 1.08


def find(evidence: Evidence) -> Iterable[Seen]:
    everyone = next(one.busbw_gbs for one in evidence.left_out if one.gpu is None)
    gains = {
        one.gpu: interval(
            [
                math.log(rate / with_all)
                for rate, with_all in zip(one.busbw_gbs, everyone, strict=True)
            ]
        )
        for one in evidence.left_out
        if one.gpu is not None
    }
    middle = median(gain.median for gain in gains.values())
    for gpu, gain in gains.items():
        ratio = Interval(*(math.exp(value - middle) for value in gain))
        others = [one.high for other, one in gains.items() if other != gpu]
        if ratio.low > _LEAST and gain.low > max(others):
            rate = median(everyone)
            costs = (Cost(what="allreduce of 64M with this GPU", ratio=ratio),)
            found = seen("slow", f"GPU {gpu}", gpu=gpu, rate=rate, without=rate * ratio.median)
            yield replace(found, costs=costs)
