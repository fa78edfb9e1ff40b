"""Whether traffic between GPUs is redirected: peer access that is slower than through the host."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told

_SLOWER = 0.9  # of the rate through the host


def find(evidence: Evidence) -> Iterable[Finding]:
    rates: dict[tuple[int, int], dict[str, float]] = {}
    for pair in evidence.pairs:
        if pair.value and not pair.is_both and pair.way in ("stores", "host"):
            rates.setdefault((pair.a, pair.b), {})[pair.way] = pair.value
    for (a, b), of_way in rates.items():
        if len(of_way) == 2 and of_way["stores"] < _SLOWER * of_way["host"]:
            yield told(
                "redirected-peers",
                f"GPU {a} to GPU {b}",
                f"{of_way['stores']:.1f} GB/s by peer access, {of_way['host']:.1f} through"
                " the host",
            )
