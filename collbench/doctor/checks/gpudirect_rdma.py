"""Whether NICs can read and write the memory of GPUs directly, and by a short way."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.checks._siblings import are_all_beside, nearest_nics, numbered
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.topology.rdma import rdma

NEEDS: tuple[Need, ...] = ("gpus", "nics")


def find(evidence: Evidence) -> Iterable[Seen]:
    for number, host in enumerate(evidence.hosts):
        gpus = [gpu for gpu in host.usable_gpus if gpu.name and "GeForce" not in gpu.name]
        nics = [nic for nic in host.nics if nic.is_rdma]
        if not gpus or not nics:
            continue
        if host.rdma.has_peermem is False and host.rdma.has_open_driver is False:
            yield seen(
                "no-module",
                evidence.name(host),
                "fault" if len(evidence.hosts) > 1 else "risk",
                gpus=numbered("GPU", [gpu.index for gpu in gpus]),
                nics=counted(len(nics), "RDMA device"),
            )
        elif not are_all_beside(host, nics):
            yield from _far(evidence, number)


def _far(evidence: Evidence, number: int) -> Iterable[Seen]:
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
        subject = evidence.on(numbered("GPU", numbers), host)
        yield seen("far", subject, way=why.split(";")[0])
