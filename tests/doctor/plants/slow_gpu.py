"""One GPU of four slows an allreduce down."""

import random

from collbench.doctor.check import LeftOut
from tests.support.evidence import machine, planted


def measured(slow: int, factor: float, n: int = 4) -> tuple[LeftOut, ...]:
    """Bus bandwidths with noise of one percent; without the slow GPU they are so much higher."""
    noise = random.Random(slow)
    rates = {missing: factor if missing == slow else 1.0 for missing in (None, *range(n))}
    return tuple(
        LeftOut(gpu=missing, busbw_gbs=tuple(300 * rate * noise.gauss(1, 0.01) for _ in range(7)))
        for missing, rate in rates.items()
    )


PLANTS = [
    planted("by a third", machine("h200_vm"), left_out=measured(2, 1.33)).finds(
        "GPU 2", "reaches 30", "fault"
    ),
    planted("by a tenth", machine("h200_vm"), left_out=measured(0, 1.12)).finds(
        "GPU 0", "without this one", "fault"
    ),
]
