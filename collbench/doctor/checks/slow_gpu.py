"""Whether one GPU slows all others down: a collective without each of them in turn."""

import math
from collections.abc import Iterable
from statistics import median

from collbench.bench.experiment import Cost
from collbench.core.verdict import Interval, interval
from collbench.doctor.check import Evidence, Finding, Need

TITLE = "A GPU whose absence makes the others faster"
NEEDS: tuple[Need, ...] = ("left out",)
NO_EXPERIMENT = "the check is the experiment"
EXPLANATION = """
A collective is as slow as its slowest rank. A GPU that is throttled, shared with another program or
broken slows all others down, and their times look all the same: nobody's own numbers show which it
is.

The check measures an allreduce of 64 MiB on all GPUs of this host, and on all but one, for each of
them, in turns. Bus bandwidth is what the links carry, so it should stay the same whoever is left
out. If it rises without one GPU and without no other, that GPU is the slow one. With a cost of at
least 8 % beyond the interval, it is a fault. It needs three GPUs and no launcher; under one,
`collbench hunt` measures pairs instead.

Look at that GPU's clocks, temperature and processes (`nvidia-smi -q -i N`), and at what the other
checks say about it. If nothing explains it, leave it out of jobs and have it replaced.
"""

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
