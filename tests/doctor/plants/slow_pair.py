"""Slow links and slow GPUs among four that are joined alike."""

from itertools import permutations

from collbench.bench.pairs import RankPair
from collbench.doctor.check import Evidence
from tests.support.evidence import Plant, evidence, machine


def measured(slow: dict[tuple[int, int], float], n: int = 4) -> Evidence:
    """All pairs at 370 GB/s but some, by (from, to)."""
    return evidence(
        machine("h200_vm"),
        pairs=tuple(
            RankPair(a=a, b=b, way=way, value=slow.get((a, b), 370.0) if way == "stores" else 25.0)
            for a, b in permutations(range(n), 2)
            for way in ("stores", "host")
        ),
    )


PLANTS = [
    Plant("one link in one direction", measured({(0, 3): 200.0})).finds(
        "GPU 0 to GPU 3", "200.0 GB/s where other pairs like it (NV18) reach 370.0", "fault"
    ),
    Plant("a GPU that sends slowly", measured({(2, peer): 250.0 for peer in (0, 1, 3)})).finds(
        "GPU 2", "all its 3 pairs are slow, sending", "fault"
    ),
    Plant("a GPU that receives slowly", measured({(peer, 1): 250.0 for peer in (0, 2, 3)})).finds(
        "GPU 1", "all its 3 pairs are slow, receiving", "fault"
    ),
]
