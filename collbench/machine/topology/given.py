"""What a person adds to a topology whose source does not tell it: rates of NICs, generations of
links, what joins hosts. A matrix of nvidia-smi topo -m has none of them.
"""

import re
from dataclasses import replace

from collbench.core.errors import UsageError
from collbench.machine.topology import rates
from collbench.machine.topology.model import Link, Node, Topology

FABRICS = {"ib": "InfiniBand", "roce": "RoCE", "efa": "EFA", "tcp": "TCP"}  # as facts say them
_WORD = re.compile(r"(nvlink|pcie)([1-6])")
_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(?:G|Gb|Gbit|Gbit/s|Gb/s)?", re.IGNORECASE)
_LANES = 16
_SM_OF_NVLINK = {1: "60", 2: "70", 3: "80", 4: "90", 5: "100"}  # of a GPU that has it


def nic_gbits(text: str) -> float:
    """The rate of a NIC in Gbit/s. Raises UsageError.

    >>> nic_gbits("400G"), nic_gbits("200")
    (400.0, 200.0)
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= 6400:
        raise UsageError(f"'{text}' is not the rate of a NIC in Gbit/s", "for example 400G")
    return float(match[1])


def link_words(text: str) -> str:
    """One of nvlink1 to nvlink5, pcie1 to pcie6, ib, roce, efa and tcp. Raises UsageError."""
    word = text.strip().lower()
    match = _WORD.fullmatch(word)
    if word not in FABRICS and (match is None or word == "nvlink6"):
        raise UsageError(
            f"'{text}' is neither a generation of links nor what joins hosts",
            "for example nvlink4, pcie5, or one of ib, roce, efa, tcp",
        )
    return word


def completed(topology: Topology, gbits: float | None, words: tuple[str, ...]) -> Topology:
    """The topology with what was given: every NIC has that rate; links without a rate have that of
    their generation, PCIe with 16 lanes.

    >>> gpus = tuple(Node(id=f"gpu{k}", kind="gpu", index=k) for k in range(2))
    >>> bare = Topology(
    ...     name="", nodes=gpus, links=(Link(a="gpu0", b="gpu1", kind="nvlink", count=4),)
    ... )
    >>> completed(bare, None, ("nvlink3",)).links[0].raw_gbs
    100.0
    """
    matches = [match for word in words if (match := _WORD.fullmatch(word))]
    generations = {match[1]: int(match[2]) for match in matches}
    fabric = next((FABRICS[word] for word in words if word in FABRICS), None)
    links = tuple(_rated(link, generations) for link in topology.links)
    nodes = tuple(_node(node, gbits, fabric, generations.get("nvlink")) for node in topology.nodes)
    return replace(topology, nodes=nodes, links=links)


def _rated(link: Link, generations: dict[str, int]) -> Link:
    generation = generations.get(link.kind)
    if generation is None or link.usable_gbs is not None:
        return link
    if link.kind == "nvlink":
        return rates.nvlink_link(link.a, link.b, generation, link.count, link.note)
    return rates.pcie_link(link.a, link.b, generation, _LANES, link.note)


def _node(node: Node, gbits: float | None, fabric: str | None, nvlink: int | None) -> Node:
    facts = dict(node.facts)
    if node.kind == "nic":
        if gbits is not None:
            facts = {key: value for key, value in facts.items() if key != "speed"}
            facts["gbps"] = f"{gbits:g}"
        if fabric is not None:
            facts["layer"] = fabric
    if node.kind == "gpu" and nvlink is not None and "sm" not in facts:
        facts["sm"] = _SM_OF_NVLINK[nvlink]
    return replace(node, facts=tuple(facts.items()))
