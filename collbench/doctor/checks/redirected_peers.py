"""Whether traffic between GPUs is redirected: peer access that is slower than through the host."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need

TITLE = "Peer access that is slower than copies through the host"
NEEDS: tuple[Need, ...] = ("pairs",)
NO_EXPERIMENT = "the two rates of the pair are the measurement"
EXPLANATION = """
Two GPUs below one PCIe switch can reach each other without the CPU. Access Control Services (ACS)
of the switch, or an IOMMU that translates addresses, sends such traffic up to the CPU's root and
back down again. Then it is slow, it shares the root's bandwidth with everything else, and on some
machines it hangs or brings wrong data.

The bits of ACS can be read by root alone. The check proves it otherwise: it measures each pair of
GPUs by peer access and by copies that go through pinned host memory. Peer access takes one trip
over the links and the other way takes two, so it should never be the slower one. If it is, by more
than a tenth, the peers' traffic is redirected.

As root, turn ACS off for the bridges above the GPUs (`setpci -s BRIDGE ECAP_ACS+0x6.w=0000`, again
after each start of the machine), and set the IOMMU to pass addresses through (`iommu=pt`). In
virtual machines neither is possible. `NCCL_P2P_DISABLE=1` or a lower `NCCL_P2P_LEVEL` makes NCCL go
through the host, which is faster there until it is mended.
"""

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
