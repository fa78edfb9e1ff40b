"""Whether counters of errors of NVLinks, PCIe links and NICs rise under load."""

from collections.abc import Iterable, Mapping

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Finding
from collbench.machine.discovery.recording import GpuRecord, Nic, NvLink

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
        later_gpus = {gpu.uuid or str(gpu.index): gpu for gpu in after.gpus}
        for gpu in host.gpus:
            later_gpu = later_gpus.get(gpu.uuid or str(gpu.index))
            if later_gpu is not None:
                yield from _of_gpu(evidence.on(f"GPU {gpu.index}", host), gpu, later_gpu)
        later_nics = {nic.name: nic for nic in after.nics}
        for nic in host.nics:
            if nic.name in later_nics:
                yield from _of_nic(evidence.on(nic.name, host), nic, later_nics[nic.name])


def _of_gpu(name: str, before: GpuRecord, after: GpuRecord) -> Iterable[Finding]:
    later_links = {link.number: link for link in after.links}
    risen: dict[str, tuple[int, int]] = {}
    for link in before.links:
        if link.number in later_links:
            more = _risen(_counters(link), _counters(later_links[link.number]))
            risen |= {f"NVLink {link.number} {counter}": pair for counter, pair in more.items()}
    yield from _finding(name, "NVLink", risen)
    if before.condition is None or after.condition is None:
        return
    risen = _risen(before.condition.counters, after.condition.counters)
    of_memory = {counter: pair for counter, pair in risen.items() if counter.startswith("ecc")}
    of_pcie = {counter: pair for counter, pair in risen.items() if counter not in of_memory}
    yield from _finding(name, "PCIe", of_pcie)
    yield from _finding(name, "memory", of_memory)


def _of_nic(name: str, before: Nic, after: Nic) -> Iterable[Finding]:
    yield from _finding(name, "NIC", _risen(before.counters, after.counters))
    later_ports = {port.number: port for port in after.ports}
    for port in before.ports:
        if port.number in later_ports:
            risen = _risen(port.counters, later_ports[port.number].counters)
            yield from _finding(
                name, "NIC", {f"port {port.number} {one}": pair for one, pair in risen.items()}
            )


def _counters(link: NvLink) -> dict[str, int]:
    counters = {"replay": link.replay, "recovery": link.recovery, "crc": link.crc}
    return {name: count for name, count in counters.items() if count is not None}


def _risen(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Counters that rose, before and after. One that fell was set back meanwhile."""
    return {
        name: (count, after[name])
        for name, count in before.items()
        if after.get(name, count) > count
    }


def _finding(name: str, what: str, risen: Mapping[str, tuple[int, int]]) -> Iterable[Finding]:
    if not risen:
        return
    counts = ", ".join(
        f"{counter} from {first} to {then}" for counter, (first, then) in risen.items()
    )
    lost = {counter for counter in risen if counter.split()[-1] in _LOST}
    yield Finding(
        subject=name,
        seen=f"rose under our load: {counts}",
        why="What cannot be repaired ends connections, and a link that is trained again carries"
        " nothing meanwhile."
        if lost
        else "What is corrupted is repaired, mostly by sending it again: it comes late.",
        change=_CHANGE[what],
        severity="fault" if lost else "risk",
    )
