"""NVLinks and xGMI that a source leaves out. NCCL and RCCL add them from the hardware, so files of
vendors have none, and hwloc has none where it was built without NVML.

A GPU of which that is known (the product has always such links, or there is an NVSwitch) has the
fact `unnamed_links` = always; one that may have some, `maybe`.
"""

from collections.abc import Iterable
from dataclasses import replace

from collbench.machine.topology.gpu_models import AMD, NVIDIA, NVSWITCH_CLASS, gpu_model, has_links
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.rates import gfx_name

FACT = "unnamed_links"


def is_amd(gpu: Node) -> bool:
    """Whether a GPU is AMD's, by its vendor or by what RCCL writes of it."""
    return gpu.fact("vendor").lower() == AMD or bool(gpu.fact("gcn"))


def library(gpus: Iterable[Node]) -> str:
    """Whose these GPUs are, by the library for them."""
    return "RCCL" if any(is_amd(gpu) for gpu in gpus) else "NCCL"


def is_unnamed(topology: Topology, a: str, b: str) -> bool:
    """Whether two GPUs of one host are joined by links that the source does not name."""
    one, other = topology.by_id[a], topology.by_id[b]
    return one.host == other.host and "always" in (
        one.fact(FACT) if other.kind == "gpu" else "",
        other.fact(FACT) if one.kind == "gpu" else "",
    )


def marked(topology: Topology, *, is_switched: bool = False) -> Topology:
    """The topology with the fact at its GPUs, and with a remark about it. Nothing changes where a
    GPU has no peer on its host. is_switched: the source names an NVSwitch that is no node here.
    """
    switched = {
        node.host
        for node in topology.nodes
        if node.fact("class").startswith(NVSWITCH_CLASS) and node.fact("vendor") == NVIDIA
    }
    switched |= {node.host for node in topology.of_kind("nvswitch")}
    switched |= {0} if is_switched else set()
    hosts = [node.host for node in topology.gpus]
    named = {node.host for node in topology.gpus if topology.bundles(node.id)}
    nodes: list[Node] = []
    for node in topology.nodes:
        if node.kind == "gpu" and not topology.bundles(node.id) and hosts.count(node.host) > 1:
            product = gpu_model(node.fact("vendor"), node.fact("device"))
            arch = gfx_name(node.fact("gcn")) if is_amd(node) else node.fact("sm")
            links = has_links(node.name, arch, product)
            if links == "maybe" and node.host in switched:
                links = "always"
            if links == "always" or (links == "maybe" and node.host not in named):
                node = replace(node, facts=(*node.facts, (FACT, links)))
        nodes.append(node)
    changed = replace(topology, nodes=tuple(nodes))
    text = remark(changed)
    return replace(changed, notes=(*topology.notes, text)) if text else topology


def remark(topology: Topology) -> str:
    """What a reader of rates must know of links that the source leaves out; else nothing."""
    facts = {gpu.id: gpu.fact(FACT) for gpu in topology.gpus if gpu.fact(FACT)}
    sure = [f"GPU{topology.by_id[id_].index}" for id_, links in facts.items() if links == "always"]
    if not facts:
        return ""
    what = "xGMI links" if all(is_amd(topology.by_id[id_]) for id_ in facts) else "NVLinks"
    if not sure:
        return f"this file names no {what}; if the GPUs have some, rates are of PCIe alone"
    whom = "these GPUs" if len(sure) == len(topology.gpus) else ", ".join(sure[:8])
    verb = "have" if len(sure) > 1 else "has"
    return (
        f"this file names no {what} of {whom}, which {verb} some by device, architecture or switch:"
        " the classes are those of PCIe, the rates between GPUs are unknown"
    )
