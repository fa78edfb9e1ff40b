"""Whether traffic between GPUs is redirected: peer access that is slower than through the host."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

NEEDS: tuple[Need, ...] = ("pairs",)

_SLOWER = 0.9  # of the rate through the host


def find(evidence: Evidence) -> Iterable[Finding]:
    rates: dict[tuple[int, int], dict[str, float]] = {}
    for pair in evidence.pairs:
        if pair.value and not pair.is_both and pair.way in ("stores", "host"):
            rates.setdefault((pair.a, pair.b), {})[pair.way] = pair.value
    for (a, b), of_way in rates.items():
        if len(of_way) == 2 and of_way["stores"] < _SLOWER * of_way["host"]:
            yield Finding(
                subject=f"GPU {a} to GPU {b}",
                seen=f"{of_way['stores']:.1f} GB/s by peer access, {of_way['host']:.1f} through"
                " the host",
                why="Peer access takes one trip over the links where the host takes two: it is"
                " redirected, by ACS or by an IOMMU that translates.",
                change="turn ACS off on the bridges above the GPUs (setpci, as root) and boot with"
                " iommu=pt; until then NCCL_P2P_DISABLE=1 is faster here",
                risk="Without ACS devices of different virtual machines are not kept apart.",
                severity="fault",
            )
