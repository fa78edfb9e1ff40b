"""Views of NICs: GPUDirect RDMA of every GPU with every NIC, and which NIC serves which GPU."""

from collections import Counter

from collbench.core.text import NARROW_COLUMNS, counted, table, wrapped
from collbench.machine.topology.model import Topology
from collbench.machine.topology.rdma import DEFAULT_LEVEL, bisection_gbs, nic_gbs, rails, rdma
from collbench.machine.topology.unnamed import library
from collbench.machine.views.labels import (
    MOST_DEVICES,
    UNKNOWN,
    Paint,
    by_host,
    class_label,
    label,
    left_out,
    plain,
    rate_text,
)
from collbench.machine.views.matrix import runs

_WHY = "by what, or why not"  # the heading of the last column
_HOST_FACTS = (("peermem", "nvidia_peermem"), ("open_driver", "dma-buf"), ("iommu", "IOMMU"))


def gdr(
    topology: Topology,
    level: str = DEFAULT_LEVEL,
    paint: Paint = plain,
    columns: int = NARROW_COLUMNS,
) -> list[str]:
    """Whether RDMA between each GPU and each NIC can be direct, and whether NCCL will use it."""
    unless = f"NCCL_NET_GDR_LEVEL; {DEFAULT_LEVEL} unless set"
    name = library(topology.gpus)
    lines = wrapped(f"{name} uses GPUDirect RDMA up to {level} ({unless})", columns)
    is_told = len(topology.hosts) > 1  # which hosts these are stands below an empty line
    return [
        *lines,
        *[""] * is_told,
        *by_host(topology, lambda one: _gdr_of(one, level, name, paint, columns)),
    ]


def _gdr_of(one: Topology, level: str, name: str, paint: Paint, columns: int) -> list[str]:
    nics = sorted(one.of_kind("nic"), key=lambda node: node.index)
    gpus = one.gpus[:MOST_DEVICES]
    shown = nics[: max(MOST_DEVICES - len(gpus), 1)]
    if not gpus or not shown:
        return ["There is no GPU with a NIC."]
    rows = []
    for way in (rdma(one, gpu, nic, level) for gpu in gpus for nic in shown):
        ends = label(one, way.gpu), label(one, way.nic)
        rows.append(
            (*ends, paint(class_label(one, way.way), way.way.kind), way.direct, way.used, way.why)
        )
    return [
        *wrapped(_host_line(one), columns),
        *table(("GPU", "NIC", "class", "direct", name, _WHY), rows, columns=columns),
        *left_out(len(one.gpus) + len(nics) - len(gpus) - len(shown), "device"),
    ]


def _host_line(one: Topology) -> str:
    """What is known of the host: modules, IOMMU, and ACS, which only root can read."""
    facts = []
    for key, name in _HOST_FACTS:
        values = {gpu.fact(key) for gpu in one.gpus} - {""}
        facts.append(f"{name}: {' and '.join(sorted(values)) or UNKNOWN}")
    return f"{', '.join(facts)}, ACS: {UNKNOWN}, as reading it takes root"


def rail_lines(topology: Topology, columns: int = NARROW_COLUMNS) -> list[str]:
    """The NIC of every GPU, what NICs are shared or idle; of hosts the rails and the bisection."""
    lines = by_host(topology, lambda one: _rails_of(one, columns))
    if len(topology.hosts) > 1:
        lines += ["", *_between(topology)]
    return lines


def _rails_of(one: Topology, columns: int) -> list[str]:
    served = rails(one)
    if not served:
        return ["There is no GPU with a NIC."]
    uses = Counter(rail.nic for rail in served)
    rows = []
    for rail in served[:MOST_DEVICES]:
        nic = one.by_id[rail.nic]
        gbs = nic_gbs(one, nic)
        share = gbs / uses[rail.nic] if gbs is not None else None
        equal = [label(one, name) for name in rail.near if name != rail.nic]
        name = f"{label(one, rail.nic)} {nic.name}".strip()
        also = ", ".join(runs(equal)) if equal else "-"
        rows.append((label(one, rail.gpu), name, rail.way.label, rate_text(share), also))
    heads = ("GPU", "NIC", "class", "GB/s of the NIC", "equally near")
    lines = [*table(heads, rows, (3,), columns), *left_out(len(served) - len(rows), "GPU")]
    for name, count in uses.items():
        if count > 1:
            lines.append(f"{label(one, name)} is shared by {count} GPUs")
    idle = [label(one, nic.id) for nic in one.of_kind("nic") if nic.id not in uses]
    if idle:
        lines.append(f"{', '.join(runs(idle))}: nearest to no GPU, or as near as one that serves")
    return lines


def _between(topology: Topology) -> list[str]:
    """Rails and bisection over all hosts."""
    per_host = Counter(node.host for node in topology.of_kind("nic"))
    counts = {per_host[host] for host in range(len(topology.hosts))}
    if counts == {0}:
        return ["No host has a NIC: what joins them is unknown."]
    if len(counts) == 1:
        hosts = len(topology.hosts)
        count = counts.pop()
        what = f"{counted(count, 'rail')} of {hosts} NICs{' each' * (count > 1)}"
        lines = [f"{what}, if switches join equal numbers"]
    else:
        lines = ["hosts have different numbers of NICs: there are no rails of all"]
    gbs = bisection_gbs(topology, range(len(topology.hosts)))
    half = len(topology.hosts) // 2
    lines.append(
        f"bisection, {counted(half, 'host')} to {len(topology.hosts) - half}: at most"
        f" {rate_text(gbs)} GB/s in one direction; what is between the NICs is not known"
        if gbs is not None
        else "bisection: unknown, as the rate of a NIC is"
    )
    return lines
