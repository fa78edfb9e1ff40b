"""Slow and shared ways to the host."""

from tests.support.evidence import machine, planted

PLANTS = [
    planted(
        "a quarter of its link",
        machine("dgx1v"),
        alone={gpu: 3.0 if gpu == 6 else 11.5 for gpu in range(8)},
    ).finds("GPU 6", "3.0 GB/s to the host and back while nothing else runs", "fault"),
    planted(
        "two GPUs share a port",
        machine("dgx1v"),
        alone=dict.fromkeys(range(8), 11.5),
        together={gpu: 6.0 if gpu in (0, 1) else 11.4 for gpu in range(8)},
    ).finds("GPUs 0, 1", "11.5 GB/s to the host and back alone, 6.0 when all GPUs copy", "remark"),
]
