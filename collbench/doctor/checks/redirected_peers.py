"""Whether traffic between GPUs is redirected: peer access that is slower than through the host."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen

NEEDS: tuple[Need, ...] = ("pairs",)

_SLOWER = 0.9  # of the rate through the host


def find(evidence: Evidence) -> Iterable[Seen]:
    rates: dict[tuple[int, int], dict[str, float]] = {}
    for pair in evidence.pairs:
        if pair.value and not pair.is_both and pair.way in ("stores", "host"):
            rates.setdefault((pair.a, pair.b), {})[pair.way] = pair.value
    for (a, b), of_way in rates.items():
        if len(of_way) == 2 and of_way["stores"] < _SLOWER * of_way["host"]:
            peer, host = of_way["stores"], of_way["host"]
            yield seen("slower", f"GPU {a} to GPU {b}", peer=peer, host=host)
