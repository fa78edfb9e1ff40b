"""Slow and shared ways to the host."""

from tests.support.evidence import Plant, evidence, machine

PLANTS = [
    Plant(
        name="a quarter of its link",
        evidence=evidence(
            machine("dgx1v"), alone={gpu: 3.0 if gpu == 6 else 11.5 for gpu in range(8)}
        ),
        subject="GPU 6",
        words="3.0 GB/s to the host and back while nothing else runs",
        severity="fault",
    ),
    Plant(
        name="two GPUs share a port",
        evidence=evidence(
            machine("dgx1v"),
            alone=dict.fromkeys(range(8), 11.5),
            together={gpu: 6.0 if gpu in (0, 1) else 11.4 for gpu in range(8)},
        ),
        subject="GPUs 0, 1",
        words="11.5 GB/s to the host and back alone, 6.0 when all GPUs copy",
        severity="remark",
    ),
]
