"""Peer access that goes up to the root."""

from collbench.bench.pairs import RankPair
from tests.support.evidence import machine, planted

PLANTS = [
    planted(
        "one pair",
        machine("pcie_box"),
        pairs=tuple(
            RankPair(a=a, b=b, way=way, value=value)
            for a, b, way, value in (
                (0, 1, "stores", 9.0),
                (0, 1, "host", 18.0),
                (1, 0, "stores", 22.0),
                (1, 0, "host", 18.0),
            )
        ),
    ).finds("GPU 0 to GPU 1", "9.0 GB/s by peer access, 18.0 through the host", "fault")
]
