"""Whether the driver shows all GPUs that are in the machine."""

from collections.abc import Iterable

from collbench.doctor.checks._siblings import numbered
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.recording import Recording

NEEDS: tuple[Need, ...] = ()


def find(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        reason, on_the_bus = host.unknown.get("gpus"), host.gpus_on_the_bus
        if on_the_bus and not host.has_driver:
            yield seen("no-driver", evidence.name(host), count=len(on_the_bus))
        elif host.has_driver and reason:
            yield seen("no-start", evidence.name(host), reason=reason)
        elif host.gpus:
            yield from _refused(evidence, host)
            yield from _unlisted(evidence, host, on_the_bus)


def _refused(evidence: Evidence, host: Recording) -> Iterable[Seen]:
    for gpu in host.gpus:
        if reason := gpu.unknown.get("handle"):
            kind = "denied" if "permission" in reason.lower() else "refused"
            yield seen(kind, evidence.on(f"GPU {gpu.index}", host), reason=reason)


def _unlisted(evidence: Evidence, host: Recording, on_the_bus: list[str]) -> Iterable[Seen]:
    """GPUs of the bus that NVML does not list: containers often get some of them only."""
    unplaced = sum(gpu.address is None for gpu in host.gpus)
    known = {gpu.address for gpu in host.gpus}
    left = [address for address in on_the_bus if address not in known]
    if len(left) > unplaced:
        yield seen(
            "unlisted",
            evidence.name(host),
            shown=numbered("GPU", [gpu.index for gpu in host.gpus]),
            count=len(on_the_bus),
            left=f"{', '.join(left[:4])}{' and more' * (len(left) > 4)}",
        )
