"""Whether NICs can read and write the memory of GPUs directly, and by a short way."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._siblings import are_all_beside, nearest_nics
from collbench.machine.topology.model import numbered
from collbench.machine.topology.rdma import rdma


def find(evidence: Evidence) -> Iterable[Finding]:
    for number, host in enumerate(evidence.hosts):
        gpus = [gpu for gpu in host.usable_gpus if gpu.name and "GeForce" not in gpu.name]
        nics = [nic for nic in host.nics if nic.is_rdma]
        if not gpus or not nics:
            continue
        if host.rdma.has_peermem is False and host.rdma.has_open_driver is False:
            yield told(
                "gpudirect-off",
                evidence.name(host),
                f"{numbered('GPU', [gpu.index for gpu in gpus])} and {len(nics)} RDMA"
                f" device{'s' * (len(nics) > 1)}, but neither nvidia_peermem nor the open kernel"
                " modules of NVIDIA's driver",
                severity="fault" if len(evidence.hosts) > 1 else "risk",
            )
        elif not are_all_beside(host, nics):
            yield from _far(evidence, number)


def _far(evidence: Evidence, number: int) -> Iterable[Finding]:
    """GPUs that reach the nearest NIC through the processor only, be it up or down."""
    host, topology = evidence.hosts[number], evidence.topologies[number]
    if host.processor.has_hypervisor is not False and not topology.of_kind("pci"):
        return
    by_way: dict[str, list[int]] = {}
    for gpu, ways in nearest_nics(host, topology):
        found = rdma(topology, gpu, topology.by_id[ways[0].b])
        if gpu.name and "GeForce" not in gpu.name and found.direct == "through the CPU":
            by_way.setdefault(found.why, []).append(int(gpu.fact("nvml")))
    for why, numbers in by_way.items():
        yield told(
            "gpudirect-far",
            evidence.on(numbered("GPU", numbers), host),
            f"no NIC below the same switch: the nearest one is reached {why.split(';')[0]}",
        )
