"""Whether counters of errors of NVLinks, PCIe links and NICs rise under load."""

from collections.abc import Iterable, Mapping

from collbench.doctor.check import Evidence, Finding, Need
from collbench.machine.discovery.recording import GpuRecord, Recording

TITLE = "Counters of errors that rise under load"
NEEDS: tuple[Need, ...] = ("load",)
NO_EXPERIMENT = (
    "errors cannot be switched off: compare this link with others by collbench topo --measure"
)
EXPLANATION = """
Links repair most of their errors by sending again: NVLink calls it replay, PCIe replay and NAK,
InfiniBand retries. The data is right, but it comes late, and a collective waits for the slowest
link. Errors that cannot be repaired end the connection or the program. NVLink's recovery, and
`link_downed` and `link_error_recovery` of InfiniBand, mean that the link was trained again; nothing
went through it meanwhile.

The check reads all counters before and after the load of our own traffic, and names those that
rose: of NVLinks `NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY`, `_RECOVERY` and `_CRC`; of GPUs
`NVML_FI_DEV_PCIE_...` and `NVML_FI_DEV_ECC_...`; of NICs the files of
`/sys/class/infiniband/NIC/ports/N/counters` and `hw_counters`, and of
`/sys/class/net/NAME/statistics`. A number that stands still is never judged: all machines count a
few errors when their links are trained.

Reseat or replace the cable, the riser or the bridge; a PCIe link that fails at its generation may
work at a lower one (a setting of the BIOS). `packet_seq_err`, `out_of_sequence` and
`local_ack_timeout_err` on RoCE are lost packets: look at flow control (PFC, ECN) on the switches.
To be sure, run `collbench doctor` again: the counters must stand still.
"""

# Errors that no repetition repairs, or after which a link is trained again.
_LOST = frozenset(
    {
        "recovery",
        "pcie_count_non_fatal_error",
        "pcie_count_fatal_error",
        "ecc_dbe_vol_total",
        "link_downed",
        "link_error_recovery",
        "req_transport_retries_exceeded",
    }
)
_CHANGE = {
    "NVLink": "reset the GPU (nvidia-smi --gpu-reset, as root); reseat or replace the bridge or the"
    " board if it goes on",
    "PCIe": "reseat the card, riser or cable; set the slot to a lower generation in the BIOS if it"
    " goes on",
    "memory": "look at nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU, and replace it if it goes"
    " on",
    "NIC": "reseat or replace the cable or transceiver; on RoCE look at flow control (PFC, ECN) of"
    " the switches",
}


def find(evidence: Evidence) -> Iterable[Finding]:
    for host, after in zip(evidence.hosts, evidence.after, strict=False):
        names = {_identity(gpu): f"GPU {gpu.index}" for gpu in host.gpus}
        then = _counters(after)
        for (part, what), counts in _counters(host).items():
            later = then.get((part, what), {})
            # one that fell was set back meanwhile
            risen = {
                name: (count, later[name])
                for name, count in counts.items()
                if later.get(name, count) > count
            }
            if risen:
                yield _finding(evidence.on(names.get(part, part), host), what, risen)


def _identity(gpu: GpuRecord) -> str:
    return gpu.uuid or str(gpu.index)


def _counters(host: Recording) -> dict[tuple[str, str], dict[str, int]]:
    """Of each GPU and NIC, by what counts."""
    counters: dict[tuple[str, str], dict[str, int]] = {}
    for gpu in host.gpus:
        counters[_identity(gpu), "NVLink"] = {
            f"NVLink {link.number} {name}": count
            for link in gpu.links
            for name in ("replay", "recovery", "crc")
            if (count := getattr(link, name)) is not None
        }
        for name, count in gpu.condition.counters.items() if gpu.condition else ():
            what = "memory" if name.startswith("ecc") else "PCIe"
            counters.setdefault((_identity(gpu), what), {})[name] = count
    for nic in host.nics:
        counters[nic.name, "NIC"] = dict(nic.counters) | {
            f"port {port.number} {name}": count
            for port in nic.ports
            for name, count in port.counters.items()
        }
    return counters


def _finding(name: str, what: str, risen: Mapping[str, tuple[int, int]]) -> Finding:
    counts = ", ".join(
        f"{counter} from {first} to {then}" for counter, (first, then) in risen.items()
    )
    lost = {counter for counter in risen if counter.split()[-1] in _LOST}
    return Finding(
        subject=name,
        seen=f"rose under our load: {counts}",
        why="What cannot be repaired ends connections, and a link that is trained again carries"
        " nothing meanwhile."
        if lost
        else "What is corrupted is repaired, mostly by sending it again: it comes late.",
        change=_CHANGE[what],
        severity="fault" if lost else "risk",
    )
