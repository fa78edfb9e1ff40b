"""NCCL's topology XML, read and written: what the dumps of real machines and our own samples must
come to.
"""

from pathlib import Path

import pytest

from collbench.core import xml_tree
from collbench.core.errors import UsageError
from collbench.machine import formats
from collbench.machine.formats import nccl_xml, topology_json
from collbench.machine.topology import rates
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.rates import pcie_link
from tests.support.topologies import OWN, count, real_files

DUMPS = [
    file
    for file in (*sorted(OWN.glob("*[nr]ccl.xml")), *real_files())
    if file.name.endswith("ccl.xml") or "-topo.xml" in file.name or file.parent.name == "rccl"
]


def plain(element: xml_tree.Element) -> tuple[object, ...]:
    """An element without links of GPUs, which are written one for each neighbour."""
    inner = [plain(child) for child in element.children if child.tag not in ("nvlink", "xgmi")]
    return element.tag, dict(element.attributes), inner


@pytest.mark.parametrize("file", DUMPS, ids=lambda file: file.name)
def test_what_was_read_is_written_again(file: Path) -> None:
    """Every element and attribute, in their order, and all links."""
    text = file.read_text()
    topology = nccl_xml.read(text, str(file))
    again = nccl_xml.write(topology)
    assert plain(xml_tree.parse(again, "again")) == plain(xml_tree.parse(text, "file"))
    second = nccl_xml.read(again, str(file))
    assert (second.nodes, second.links) == (topology.nodes, topology.links)


def test_a_discovered_machine_is_written() -> None:
    """Roots have no element; what a node does not tell is taken from its links, or left out."""
    topology = formats.read(Path(__file__).with_name("written.json"))
    assert nccl_xml.write(topology) == Path(__file__).with_name("written.xml").read_text()


def test_facts_that_are_no_attributes_are_not_written() -> None:
    facts = (("xml:a b", "1"), ("xml:kept", 'with "quotes" & <signs>'))
    nodes = (
        Node(id="cpu0", kind="cpu", index=0),
        Node(id="gpu0", kind="gpu", index=0, address="0000:01:00.0", facts=facts),
        Node(id="nvs0", kind="nvswitch"),
    )
    links = rates.pcie_link("cpu0", "gpu0", 4, 16), rates.nvlink_link("gpu0", "nvs0", 3, 4)
    again = nccl_xml.read(
        nccl_xml.write(Topology(name="x", nodes=nodes, links=links)), "again.xml"
    ).gpus[0]
    assert again.fact("xml:kept") == 'with "quotes" & <signs>'
    assert not again.fact("xml:a b")


@pytest.mark.parametrize(
    ("file", "what"),
    [("dgx1v-topo-m.txt", "no PCI address of gpu0"), ("pcie-box-p2p-r.txt", "no PCI address")],
)
def test_what_nccl_could_not_use_is_not_written(file: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        nccl_xml.write(formats.read(OWN / file))


def test_orphans_are_not_written() -> None:
    lonely = Node(id="gpu0", kind="gpu", address="0000:01:00.0")
    with pytest.raises(UsageError, match="gpu0 hang below no CPU"):
        nccl_xml.write(Topology(name="x", nodes=(lonely,), links=()))
    with pytest.raises(UsageError, match="of 2 hosts"):
        nccl_xml.write(
            Topology(
                name="x", nodes=(lonely, Node(id="cpu0", kind="cpu")), links=(), hosts=("a", "b")
            )
        )


def test_a_nic_without_a_known_link_hangs_at_the_processor() -> None:
    """As NCCL itself writes it: it refuses a PCI device whose width neither file nor kernel
    tells.
    """
    nodes = (
        Node(id="cpu0", kind="cpu", index=0),
        Node(id="gpu0", kind="gpu", index=0, address="0000:00:06.0"),
        Node(id="nic0", kind="nic", index=0, name="eth0", address="0000:00:03.0"),
    )
    links = (pcie_link("cpu0", "gpu0", 5, 16), pcie_link("cpu0", "nic0", 0, 0))
    text = nccl_xml.write(Topology(name="vm", nodes=nodes, links=links))
    assert '    <nic>\n      <net name="eth0"/>\n    </nic>\n  </cpu>' in text
    assert text.count("<pci ") == 1


def test_cpus_are_limited_on_each_host() -> None:
    """512 hosts of two CPUs are one NVLink domain's dump, not too many CPUs of one host."""
    cpus = "".join(
        f'<cpu host_hash="0x{number // 2:x}" numaid="{number % 2}"/>' for number in range(1024)
    )
    topology = nccl_xml.read(f'<system version="1">{cpus}</system>', "a.xml")
    assert len(topology.hosts) == 512 and count(topology, "socket") == 512


def test_a_name_with_a_line_end_is_written_to_json_and_read() -> None:
    net = '<cpu numaid="0"><nic><net name="a&#10;b" dev="0"/></nic></cpu>'
    topology = nccl_xml.read(f'<system version="1">{net}</system>', "a.xml")
    assert topology_json.read(topology_json.write(topology), "a.json").of_kind("nic")
