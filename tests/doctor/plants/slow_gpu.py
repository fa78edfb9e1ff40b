"""One GPU of four slows an allreduce down."""

import random

from collbench.doctor.evidence import LeftOut
from tests.support.evidence import Plant, evidence, machine


def measured(slow: int, factor: float, n: int = 4) -> tuple[LeftOut, ...]:
    """Bus bandwidths with noise of one percent; without the slow GPU they are so much higher."""
    noise = random.Random(slow)
    rates = {missing: factor if missing == slow else 1.0 for missing in (None, *range(n))}
    return tuple(
        LeftOut(gpu=missing, busbw_gbs=tuple(300 * rate * noise.gauss(1, 0.01) for _ in range(7)))
        for missing, rate in rates.items()
    )


PLANTS = [
    Plant(
        name="by a third",
        evidence=evidence(machine("h200_vm"), left_out=measured(2, 1.33)),
        subject="GPU 2",
        words="reaches 30",
        severity="fault",
    ),
    Plant(
        name="by a tenth",
        severity="fault",
        evidence=evidence(machine("h200_vm"), left_out=measured(0, 1.12)),
        subject="GPU 0",
        words="without this one",
    ),
]
