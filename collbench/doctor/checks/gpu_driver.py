"""Whether the driver shows all GPUs that are in the machine."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Severity, told
from collbench.machine.discovery.recording import Recording
from collbench.machine.topology.model import numbered

_RESTART = (
    "dmesg | grep -i xid, as root; restart the machine, and replace the card if it comes again"
)


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        reason = host.unknown.get("gpus")
        on_the_bus = host.gpus_on_the_bus
        if on_the_bus and not host.has_driver:
            yield _finding(
                evidence.name(host),
                f"{len(on_the_bus)} NVIDIA GPUs are on the PCI bus, and no driver was found",
                "install NVIDIA's driver; in a container docker run --gpus all",
                "risk",
            )
        elif host.has_driver and reason:
            yield _finding(
                evidence.name(host),
                f"the driver does not start: {reason}",
                "nvidia-smi shows the same; load the kernel module again, or restart the machine",
                "fault",
            )
        elif host.gpus:
            yield from _refused(evidence, host)
            yield from _unlisted(evidence, host, on_the_bus)


def _finding(subject: str, seen: str, change: str, severity: Severity) -> Finding:
    return told("gpu-driver", subject, seen, severity=severity, change=change)


def _refused(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    for gpu in host.gpus:
        reason = gpu.unknown.get("handle")
        if reason:
            is_denied = "permission" in reason.lower()
            yield _finding(
                evidence.on(f"GPU {gpu.index}", host),
                f"the driver lists it, and refuses it: {reason}",
                "ask for access to its device file /dev/nvidiaN" if is_denied else _RESTART,
                "risk" if is_denied else "fault",
            )


def _unlisted(evidence: Evidence, host: Recording, on_the_bus: list[str]) -> Iterable[Finding]:
    """GPUs of the bus that NVML does not list: containers often get some of them only."""
    unplaced = sum(gpu.address is None for gpu in host.gpus)
    known = {gpu.address for gpu in host.gpus}
    left = [address for address in on_the_bus if address not in known]
    if len(left) > unplaced:
        yield _finding(
            evidence.name(host),
            f"{numbered('GPU', [gpu.index for gpu in host.gpus])} of {len(on_the_bus)} on the PCI"
            f" bus are shown, without {', '.join(left[:4])}{' and more' * (len(left) > 4)}",
            "nothing, if a container is meant to have these alone; else docker run --gpus all, or"
            " dmesg for the reason",
            "remark",
        )
