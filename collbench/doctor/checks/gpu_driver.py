"""Whether the driver shows all GPUs that are in the machine."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.discovery.recording import Recording
from collbench.machine.topology.model import numbered


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        reason = host.unknown.get("gpus")
        on_the_bus = host.gpus_on_the_bus
        if on_the_bus and not host.has_driver:
            seen = f"{len(on_the_bus)} NVIDIA GPUs are on the PCI bus, and no driver was found"
            yield told("driver-missing", evidence.name(host), seen)
        elif host.has_driver and reason:
            seen = f"the driver does not start: {reason}"
            yield told("driver-down", evidence.name(host), seen)
        elif host.gpus:
            yield from _refused(evidence, host)
            yield from _unlisted(evidence, host, on_the_bus)


def _refused(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    for gpu in host.gpus:
        reason = gpu.unknown.get("handle")
        if reason:
            yield told(
                "gpu-denied" if "permission" in reason.lower() else "gpu-refused",
                evidence.on(f"GPU {gpu.index}", host),
                f"the driver lists it, and refuses it: {reason}",
            )


def _unlisted(evidence: Evidence, host: Recording, on_the_bus: list[str]) -> Iterable[Finding]:
    """GPUs of the bus that NVML does not list: containers often get some of them only."""
    unplaced = sum(gpu.address is None for gpu in host.gpus)
    known = {gpu.address for gpu in host.gpus}
    left = [address for address in on_the_bus if address not in known]
    if len(left) > unplaced:
        yield told(
            "gpus-hidden",
            evidence.name(host),
            f"{numbered('GPU', [gpu.index for gpu in host.gpus])} of {len(on_the_bus)} on the PCI"
            f" bus are shown, without {', '.join(left[:4])}{' and more' * (len(left) > 4)}",
        )
