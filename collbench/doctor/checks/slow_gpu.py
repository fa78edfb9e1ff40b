"""Whether one GPU slows all others down: a collective without each of them in turn."""

import math
from collections.abc import Iterable
from statistics import median

from collbench.bench.experiment import Cost
from collbench.core.verdict import Interval, interval
from collbench.doctor.check import Evidence, Finding

_LEAST = 1.08


def find(evidence: Evidence) -> Iterable[Finding]:
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
            yield Finding(
                subject=f"GPU {gpu}",
                seen=f"an allreduce of 64M reaches {rate:.1f} GB/s with all GPUs, and"
                f" {rate * ratio.median:.1f} without this one",
                why="A collective is as slow as its slowest rank: this GPU slows all others down.",
                change=f"look at its clocks, temperature and processes (nvidia-smi -q -i {gpu}),"
                " and leave it out of jobs until it is mended",
                severity="fault",
                costs=(Cost(what="allreduce of 64M with this GPU", ratio=ratio),),
            )
