"""hwloc's matrices NVLinkBandwidth, MB/s between GPUs, ports of NVSwitches and packages, each value
a whole bundle, and XGMIBandwidth of AMD's GPUs. Source: topology-nvml.c, topology-rsmi.c.
"""

from collections import Counter
from collections.abc import Mapping

from collbench.core import xml_tree
from collbench.core.errors import UsageError
from collbench.machine.formats._build import number_of
from collbench.machine.topology import rates
from collbench.machine.topology.model import Link, Node

_XGMI = "XGMIBandwidth"
_NAMES = ("NVLinkBandwidth", _XGMI)
_MAX_OBJECTS = 1024


def nvlinks(
    root: xml_tree.Element, nodes: Mapping[str, Node], by_object: Mapping[str, str]
) -> tuple[list[Link], list[str]]:
    """Bundles, and remarks. by_object: nodes by kind and gp_index. Raises UsageError for a matrix
    that is none.
    """
    links: list[Link] = []
    unknown = 0
    for matrix in root.of("distances2", "distances2hetero"):
        if matrix.get("name") not in _NAMES:
            continue
        ends, values = _values(matrix)
        at = [by_object.get(end, "") for end in ends]
        unknown += at.count("")
        megabytes: dict[tuple[str, str], int] = {}
        for row, a in enumerate(at):
            for column, b in enumerate(at):
                value = values[row * len(at) + column]
                if value and a.startswith("gpu") and b and a != b:
                    megabytes[a, b] = megabytes.get((a, b), 0) + value
        if matrix.get("name") == _XGMI:
            links += [
                _xgmi(nodes[a], a, b)
                for a, b in megabytes
                if (b, a) not in megabytes or number_of(a) < number_of(b)
            ]
            continue
        totals: Counter[str] = Counter()
        for (a, _), mbs in megabytes.items():
            totals[a] += mbs
        for (a, b), mbs in megabytes.items():
            if (b, a) not in megabytes or a < b:
                links.append(_link(nodes[a], a, b, mbs, totals[a]))
    notes = []
    if unknown:
        notes.append(f"{unknown} ends of NVLinks are not among the file's objects: left out")
    if any(not link.count and link.kind == "nvlink" for link in links):
        notes.append("how many NVLinks a bundle has is unknown: the GPUs' names tell no generation")
    return links, notes


def _xgmi(gpu: Node, a: str, b: str) -> Link:
    """AMD's links of a pair. The matrix has one value for any number of them, so their number is
    only known where the architecture has one.
    """
    gfx = rates.gfx_name(gpu.fact("gcn"))
    if gfx in rates.ONE_XGMI:
        return rates.xgmi_link(a, b, gfx, 1)
    return Link(a=a, b=b, kind="xgmi", count=0)


def _values(matrix: xml_tree.Element) -> tuple[list[str], list[int]]:
    ends = [text for element in matrix.of("indexes") for text in element.texts]
    if matrix.get("type"):
        ends = [f"{matrix.get('type')}:{end}" for end in ends]
    texts = [text for element in matrix.of("u64values") for text in element.texts]
    if (
        len(ends) > _MAX_OBJECTS
        or matrix.number("nbobjs", -1) != len(ends)
        or len(texts) != len(ends) ** 2
    ):
        raise UsageError(
            f"{matrix.place}: {len(ends)} indexes and {len(texts)} values are no matrix of"
            f" {matrix.get('nbobjs')[:10] or '?'} objects"
        )
    if not all(text.isdecimal() and len(text) < 13 for text in texts):
        raise UsageError(f"{matrix.place}: a value of NVLinkBandwidth is no whole number of MB/s")
    return ends, [int(text) for text in texts]


def _link(gpu: Node, a: str, b: str, mbs: int, total_mbs: int) -> Link:
    """A bundle; from the GPU's generation comes how many links it has."""
    arch = int(gpu.fact("sm") or 0)
    generation = rates.nvlink_generation(arch)
    if not generation:
        return Link(
            a=a, b=b, kind="nvlink", count=0, raw_gbs=mbs / 1000, source="hwloc's NVLinkBandwidth"
        )
    one_mbs = rates.nvlink(generation, 1).raw_gbs * 1000
    # hwloc before 2.9.1 counted both directions of generations 3 and 4: more than the GPU has.
    if total_mbs > rates.most_links(arch) * one_mbs:
        mbs //= 2
    return rates.nvlink_link(a, b, generation, max(1, round(mbs / one_mbs)), arch=arch)
