"""Whether ranks run on, and keep their memory at, the NUMA node of their GPU."""

from collections.abc import Iterable, Sequence

from collbench.bench.experiment import Arm, Experiment
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import named
from collbench.machine.discovery.recording import GpuRecord, NumaNode, ProcessRecord, Recording
from collbench.machine.topology.model import members, spans

_SIZES = (1 << 10, 1 << 20, 16 << 20)


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        for place, process in enumerate(host.processes):
            subject = named(evidence, host, [process])
            yield from _cores(subject, host, process, _gpus_of(host, process, place))
            yield from _memory(subject, host, process)


def _cores(
    subject: str, host: Recording, process: ProcessRecord, gpus: Sequence[GpuRecord]
) -> Iterable[Finding]:
    """A rank that is far from all of its GPUs."""
    cores = set(members(process.cpulist or ""))
    near = [_nodes_near(host, gpu) for gpu in gpus]
    if not cores or not near or not all(near):
        return
    if any(cores.intersection(members(node.cpulist)) for nodes in near for node in nodes):
        return
    own = [node for node in host.numa if cores.intersection(members(node.cpulist))]
    near_packages = {node.package for nodes in near for node in nodes}
    is_far = near_packages.isdisjoint({node.package for node in own}) or None in near_packages
    yield told(
        "numa-far",
        subject,
        f"runs on cores {spans(cores)} of node{'s' * (len(own) > 1)}"
        f" {spans(node.index for node in own)}, GPU {gpus[0].index} is at node"
        f" {spans(node.index for node in near[0])}" + ("" if is_far else " of the same socket"),
        severity="risk" if is_far else "remark",
    )


def _memory(subject: str, host: Recording, process: ProcessRecord) -> Iterable[Finding]:
    """A rank whose memory must come from nodes that none of its cores is at."""
    cores, memory = set(members(process.cpulist or "")), set(members(process.mems or ""))
    own = {node.index for node in host.numa if cores.intersection(members(node.cpulist))}
    if own and memory and own.isdisjoint(memory):
        yield told(
            "numa-memory",
            subject,
            f"runs on node {spans(own)}, and may take memory from node {spans(memory)} alone"
            " (Mems_allowed_list)",
        )


def _gpus_of(host: Recording, process: ProcessRecord, place: int) -> list[GpuRecord]:
    """The GPUs that a process uses: the one of its place, where several ranks are shown several."""
    shown = host.cuda if process.cuda is None else process.cuda
    by_index = {gpu.index: gpu for gpu in host.gpus}
    gpus = [by_index[index] for index in shown or () if index in by_index]
    return [gpus[place % len(gpus)]] if gpus and len(host.processes) > 1 else gpus


def _nodes_near(host: Recording, gpu: GpuRecord) -> list[NumaNode]:
    """The nodes that a GPU is attached to; none where the machine does not say."""
    device = next((one for one in host.pci if one.address == gpu.address), None)
    nodes = [node for node in host.numa if device is not None and node.index == device.numa_node]
    affinity = set(members(gpu.cpu_affinity or ""))
    return nodes or [node for node in host.numa if affinity.intersection(members(node.cpulist))]


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    if "memory" in finding.seen:
        return "a process cannot have memory of nodes that it may not use"
    host = evidence.hosts[0]
    for place, process in enumerate(host.processes):
        if named(evidence, host, [process]) != finding.subject:
            continue
        near = _nodes_near(host, _gpus_of(host, process, place)[0])
        gpus = [gpu for gpu in host.gpus if gpu.uuid and _nodes_near(host, gpu) == near][:2]
        if len(gpus) < 2:
            return "it takes two GPUs of one node to measure"
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu.uuid) for gpu in gpus)}
        return Experiment(
            backend="cuda",
            ranks=2,
            sizes=_SIZES,
            found=Arm(environment=visible, cpulist=process.cpulist or ""),
            changed=Arm(
                environment=visible,
                cpulist=spans(core for node in near for core in members(node.cpulist)),
            ),
        )
    return "the rank is on another host than the doctor"
