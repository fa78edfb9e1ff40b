"""Whether counters of errors of NVLinks, PCIe links and NICs rise under load."""

from collections.abc import Iterable, Mapping

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.discovery.recording import GpuRecord, Recording

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
    row = "errors-lost" if lost else "errors-repaired"
    return told(row, name, f"rose under our load: {counts}", change=_CHANGE[what])
