"""Whether NICs can read and write the memory of GPUs directly, and by a short way."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._siblings import are_all_beside, nearest_nics
from collbench.machine.topology.model import numbered
from collbench.machine.topology.rdma import rdma

TITLE = "GPUDirect RDMA between GPUs and NICs"
NEEDS: tuple[Need, ...] = ("gpus", "nics")
NO_EXPERIMENT = "it takes two hosts, and a driver that root loads"
EXPLANATION = """
With GPUDirect RDMA a NIC reads and writes the memory of a GPU itself. Without it every message is
copied to the host's memory and sent from there, which takes the bandwidth of PCIe twice and costs a
thread of the CPU for each GPU. It needs a driver that shows the memory to the NIC: the module
`nvidia_peermem`, or NVIDIA's open kernel modules with the kernel's dma-buf. It is fast where both
are below one PCIe switch; through the processor it is slower on most machines, and NCCL then does
not use it unless `NCCL_NET_GDR_LEVEL` says so.

The check looks for the module in `/sys/module` and `/sys/kernel/mm/memory_peers`, reads in
`/proc/driver/nvidia/version` which driver is loaded, and finds the nearest RDMA device of each GPU
in the tree of PCIe. In virtual machines with a flat tree the way is unknown, and nothing is said of
it; GeForce cards have no GPUDirect RDMA.

Load the module (`modprobe nvidia_peermem`, as root, after the NIC's driver; a container must see
it), or install the open kernel modules, which Turing and later GPUs can use. Place NICs below the
switches of the GPUs. NCCL's log says which way it takes: `NCCL_DEBUG=INFO` shows `GDRDMA` at the
channels of the network; `collbench topo --rails` shows GPUs with their NICs.
"""


def find(evidence: Evidence) -> Iterable[Finding]:
    for number, host in enumerate(evidence.hosts):
        gpus = [gpu for gpu in host.usable_gpus if gpu.name and "GeForce" not in gpu.name]
        nics = [nic for nic in host.nics if nic.is_rdma]
        if not gpus or not nics:
            continue
        if host.rdma.has_peermem is False and host.rdma.has_open_driver is False:
            yield Finding(
                subject=evidence.name(host),
                seen=f"{numbered('GPU', [gpu.index for gpu in gpus])} and {len(nics)} RDMA"
                f" device{'s' * (len(nics) > 1)}, but neither nvidia_peermem nor the open kernel"
                " modules of NVIDIA's driver",
                why="Every message of the network is copied through the host's memory.",
                change="modprobe nvidia_peermem, as root, or install the open kernel modules",
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
        yield Finding(
            subject=evidence.on(numbered("GPU", numbers), host),
            seen=f"no NIC below the same switch: the nearest one is reached {why.split(';')[0]}",
            why="RDMA through the processor is slower on most machines, and NCCL does not use it by"
            " default.",
            change="place NICs below the switches of the GPUs; measure NCCL_NET_GDR_LEVEL=PHB",
        )
