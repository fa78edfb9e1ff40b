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
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import path
from collbench.machine.topology.rates import pcie_link
from collbench.machine.topology.rings import ring_rate_gbs, rings, trees
from tests.support.topologies import OWN, REAL, count, labels, needs_real, real_files

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


@needs_real
def test_p4d_by_hand() -> None:
    """Two sockets, two switches each, two GPUs and a NIC below each switch, all of 8 GT/s x16."""
    topology = formats.read(REAL / "aws_p4d-24xl-topo.xml")
    assert len(topology.gpus) == 8
    assert len(topology.of_kind("nic")) == 4
    assert len(topology.of_kind("pci")) == 4
    assert count(topology, "pcie") == 16
    assert count(topology, "socket") == 1
    assert count(topology, "nvlink") == 0
    assert labels(topology)[0] == "X PIX PHB PHB SYS SYS SYS SYS"
    assert labels(topology)[6] == "SYS SYS SYS SYS PHB PHB X PIX"
    assert labels(topology, "nic1", "gpu0", "gpu2", "gpu7")[0] == "X PHB PIX SYS"
    assert [cpu.affinity for cpu in topology.of_kind("cpu")] == ["0-23,48-71", "24-47,72-95"]
    assert path(topology, "gpu0", "nic0").usable_gbs == pytest.approx(rates.pcie(3, 16).usable_gbs)
    across = path(topology, "gpu0", "nic2")
    assert across.usable_gbs == 10.0
    assert across.limit is not None
    assert "Skylake" in across.limit.source
    # A100-SXM4 have NVLinks, which this file leaves to NCCL.
    assert path(topology, "gpu0", "gpu1").usable_gbs is None


@needs_real
def test_ndv4_by_hand() -> None:
    """Four NUMA nodes of AMD with a switch each: two GPUs and two NICs."""
    topology = formats.read(REAL / "azure_ndv4-topo.xml")
    assert len(topology.gpus) == 8
    assert len(topology.of_kind("nic")) == 8
    assert len(topology.of_kind("cpu")) == 4
    assert count(topology, "pcie") == 20 and count(topology, "socket") == 6
    assert labels(topology)[2] == "SYS SYS X PIX SYS SYS SYS SYS"
    assert topology.by_id["gpu2"].address == "0003:00:00.0"
    assert topology.by_id["gpu2"].affinity == "0-23"
    assert path(topology, "gpu0", "gpu7").usable_gbs == 16.0


@needs_real
def test_h200_by_hand() -> None:
    """A virtual machine: flat PCIe of unknown width, 18 NVLinks of each GPU to a switch that it
    hides.
    """
    topology = formats.read(REAL / "h200x4-vm" / "nccl-topo.xml")
    assert labels(topology) == [
        "X NV18 NV18 NV18",
        "NV18 X NV18 NV18",
        "NV18 NV18 X NV18",
        "NV18 NV18 NV18 X",
    ]
    assert count(topology, "nvlink") == 4
    assert count(topology, "pcie") == 5
    assert count(topology, "socket") == 0
    assert path(topology, "gpu0", "gpu3").usable_gbs == pytest.approx(364.5)
    assert all(
        link.generation == 5 and link.raw_gbs is None
        for link in topology.links_of["gpu0"]
        if link.kind == "pcie"
    )
    assert topology.of_kind("nic")[0].name == "eth0"
    assert topology.of_kind("nic")[0].fact("speed") == "10000"
    assert (
        topology.gpus[2].fact("sm"),
        topology.gpus[2].fact("rank"),
        topology.gpus[2].fact("gdr"),
    ) == ("90", "2", "1")
    assert any("hidden" in note for note in topology.notes)
    assert any("link_width is 0" in note for note in topology.notes)


@needs_real
def test_devices_without_a_class_stay_unknown() -> None:
    topology = formats.read(REAL / "aws_g5.48xl-topo.xml")
    assert not topology.gpus
    assert len(topology.of_kind("pci")) == 9
    assert "9 PCI devices have no class" in topology.notes[0]


def test_nvlinks_are_counted_once() -> None:
    """Both ends list a bundle; a card of two ports is two NICs."""
    topology = formats.read(OWN / "nvlink-pairs-nccl.xml")
    nvlinks = [
        (link.a, link.b, link.count, link.generation)
        for link in topology.links
        if link.kind == "nvlink"
    ]
    assert nvlinks == [("gpu0", "gpu1", 1, 1), ("gpu1", "gpu2", 2, 1)]
    assert labels(topology) == ["X NV1 NVB", "NV1 X NV2", "NVB NV2 X"]
    assert [gpu.address[5:7] for gpu in topology.gpus] == ["07", "06", "86"]
    assert [nic.name for nic in topology.of_kind("nic")] == ["mlx5_0", "mlx5_1"]
    assert topology.by_id["gpu1"].fact("xml:shade") == "green"


def test_hosts_of_one_nvlink_domain() -> None:
    topology = formats.read(OWN / "two-hosts-nccl.xml")
    assert topology.hosts == ("0xaa", "0xbb")
    assert [(gpu.id, gpu.index, gpu.host) for gpu in topology.gpus] == [
        ("gpu0", 0, 0),
        ("gpu1", 0, 1),
    ]
    assert topology.by_id["nvs0"].host == -1 and count(topology, "socket") == 0
    assert path(topology, "gpu0", "gpu1").label == "NV18"
    c2c = next(link for link in topology.links if link.kind == "c2c")
    assert c2c.raw_gbs == pytest.approx(223.56)
    assert path(topology, "gpu1", topology.of_kind("cpu")[1].id).kind == "C2C"


def gpu(bus: str, inner: str) -> str:
    return (
        f'<pci busid="0000:{bus}:00.0" class="0x030200" link_speed="8 GT/s" link_width="16"><gpu'
        f' sm="70">{inner}</gpu></pci>'
    )


def read(inner: str) -> Topology:
    return nccl_xml.read(
        f'<system version="1"><cpu numaid="0" arch="ppc64" vendor="IBM">{inner}</cpu></system>',
        "made.xml",
    )


def test_nvlinks_of_power_processors_join_no_gpus() -> None:
    nvlink = '<nvlink target="0000:00:00.0" count="3" tclass="0x068001"/>'
    topology = read(gpu("01", nvlink) + gpu("02", nvlink))
    assert labels(topology, "gpu0", "gpu1", "cpu0") == ["X PHB NV3", "PHB X NV3", "NV3 NV3 X"]


def test_ends_that_differ_and_ends_that_are_not_there() -> None:
    topology = read(
        gpu(
            "01",
            '<nvlink target="0000:02:00.0" count="2" tclass="0x030200"/><nvlink'
            ' target="0000:09:00.0" count="2" tclass="0x030200"/>',
        )
        + gpu("02", '<nvlink target="00000000:01:00.0" count="1" tclass="0x030200"/>')
    )
    assert path(topology, "gpu0", "gpu1").label == "NV1"
    assert any("target in line 1" in note for note in topology.notes)


def test_several_switches_are_one() -> None:
    switches = "".join(
        f'<nvlink target="0000:c{n}:00.0" count="1" tclass="0x068000"/>' for n in range(6)
    )
    topology = read(gpu("01", switches) + gpu("02", switches))
    assert [link.count for link in topology.links if link.kind == "nvlink"] == [6, 6]
    assert len(topology.of_kind("nvswitch")) == 1


def test_a_discovered_machine_is_written() -> None:
    """Roots have no element; what a node does not tell is taken from its links, or left out."""
    topology = Topology(
        name="box",
        nodes=(
            Node(
                id="cpu0",
                kind="cpu",
                index=0,
                affinity="0-3,8",
                facts=(("arch", "x86_64"), ("driver", "580")),
            ),
            Node(id="root0", kind="root"),
            Node(id="pci0", kind="pci"),
            Node(
                id="gpu0",
                kind="gpu",
                index=0,
                address="00000000:1A:00.0",
                facts=(("uuid", "GPU-1"), ("sm", "80")),
            ),
            Node(id="gpu1", kind="gpu", index=1, address="0000:1b:00.0", facts=(("sm", "80"),)),
            Node(id="nic0", kind="nic", index=0, name="mlx5_0", address="0000:1c:00.0"),
            Node(id="nvs0", kind="nvswitch"),
        ),
        links=(
            Link(a="cpu0", b="root0", kind="pcie", count=0),
            Link(a="root0", b="pci0", kind="pcie", count=16, generation=4),
            rates.pcie_link("pci0", "gpu0", 4, 16),
            rates.pcie_link("gpu1", "pci0", 4, 8),
            rates.pcie_link("pci0", "nic0", 0, 0),
            rates.nvlink_link("gpu0", "gpu1", 3, 4),
            rates.nvlink_link("gpu0", "nvs0", 3, 8),
            Link(a="gpu1", b="cpu0", kind="c2c", count=2, raw_gbs=90.0),
        ),
    )
    assert (
        nccl_xml.write(topology)
        == """<system version="1">
  <cpu numaid="0" affinity="0000010f" arch="x86_64">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1a:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80">
          <nvlink target="0000:1b:00.0" count="4" tclass="0x030200"/>
          <nvlink target="fffffff:ff:ff.0" count="8" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:1b:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
        <gpu dev="1" sm="80">
          <nvlink target="0000:1a:00.0" count="4" tclass="0x030200"/>
          <c2c bw="45000" count="2"/>
        </gpu>
      </pci>
      <pci busid="0000:1c:00.0" class="0x020000">
        <nic>
          <net name="mlx5_0"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
    )


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


def test_numbers_that_a_file_leaves_out_are_those_of_pci_addresses() -> None:
    """Functions of a NIC are PIX below a CPU too; one NIC below two CPUs is one."""
    topology = formats.read(OWN / "vendor-nccl.xml")
    assert [gpu.address[:4] for gpu in topology.gpus] == ["0001", "0002", "0003"]
    assert any("numbers are assumed" in note for note in topology.notes)
    assert {gpu.name for gpu in topology.gpus} == {"NVIDIA A100-SXM4-40GB"}
    nics = topology.of_kind("nic")
    assert sorted((nic.index, nic.name) for nic in nics) == [(0, "eth0"), (1, ""), (2, "")]
    assert labels(topology, "nic1", "nic2", "gpu0")[0] == "X PIX PHB"
    assert labels(topology, "nic0", "gpu0", "gpu1")[0] == "X PHB PHB"


def test_no_rate_where_a_file_leaves_nvlinks_to_nccl() -> None:
    """The device id proves them; without an id they are possible. L40S have none."""
    text = (OWN / "vendor-nccl.xml").read_text()
    topology = nccl_xml.read(text, "v.xml")
    assert path(topology, "gpu0", "gpu2").label == "PIX"
    assert path(topology, "gpu0", "gpu2").usable_gbs is None
    assert path(topology, "gpu0", "nic1").usable_gbs is not None
    assert ring_rate_gbs(topology, rings(topology)) is None
    assert "this file names no NVLinks of these GPUs" in topology.notes[-1]

    for device, note in (
        ("0xffff", "if the GPUs have some, rates are of PCIe alone"),
        ("0x26b9", ""),
    ):
        other = nccl_xml.read(text.replace("0x20b0", device), "v.xml")
        assert path(other, "gpu0", "gpu2").usable_gbs == rates.pcie(4, 16).usable_gbs
        assert (note in other.notes[-1]) if note else "names no" not in " ".join(other.notes)


@pytest.mark.parametrize("proof", ['sm="103"', 'sm="70" x="switch"'])
def test_an_architecture_or_an_nvswitch_proves_nvlinks(proof: str) -> None:
    one = gpu("01", "").replace('sm="70"', proof)
    switch = '<pci busid="0000:09:00.0" class="0x068000" vendor="0x10de" device="0x1af1"/>'
    topology = read(one + one.replace(":01:", ":02:") + (switch if "switch" in proof else ""))
    assert path(topology, "gpu0", "gpu1").usable_gbs is None


def test_links_listed_once_for_each_peer_are_one_bundle() -> None:
    """A class of 0x068000 is an NVSwitch, even if the address is that of a GPU."""
    topology = formats.read(OWN / "switch-by-peers-nccl.xml")
    assert [link.count for link in topology.links if link.kind == "nvlink"] == [18] * 4
    assert [nic.name for nic in topology.of_kind("nic")] == ["mlx5_0", "mlx5_1", "mlx5_2"]
    assert ring_rate_gbs(topology, rings(topology)) == pytest.approx(720.0)


@pytest.mark.parametrize(
    "remark",
    [
        "count in line 5, target in line 5, count in line 18, link_speed in line 22, count in",
        "GPU1: 7 NVLinks, more than the 6",
        "GPU4, GPU5 and GPU6: no link to a peer",
        "unequal numbers of links to peers: 7, but GPU0 3, GPU2 2, GPU3 6",
        "GPU0 and GPU6 share a number or a PCI address",
    ],
)
def test_contradictions_are_remarked_on(remark: str) -> None:
    topology = formats.read(OWN / "contradictions.xml")
    assert [note for note in topology.notes if remark in note]
    assert path(topology, "gpu0", "gpu1").usable_gbs is None  # of the GPU with 7 of 6 links


def test_mi300x_by_hand() -> None:
    """One link of 48 usable GB/s to each of 7 peers: 7 rings."""
    topology = formats.read(OWN / "mi300x-rccl.xml")
    assert labels(topology)[0] == "X" + 7 * " XGMI"
    assert {gpu.name for gpu in topology.gpus} == {"AMD Instinct MI300X"}
    orders = rings(topology)
    assert len(orders) == 7 and ring_rate_gbs(topology, orders) == pytest.approx(336.0)
    assert len(trees(topology)) == 4


@pytest.mark.parametrize(
    ("gcn", "gbs"), [("906", 24.0), ("908", 24.0), ("910", 36.0), ("gfx950", 57.6), ("gfx9", None)]
)
def test_rates_of_xgmi_are_those_of_the_generation(gcn: str, gbs: float | None) -> None:
    text = (OWN / "mi300x-rccl.xml").read_text()
    topology = nccl_xml.read(
        text.replace('gcn="gfx942"', f'gcn="{gcn}"').replace("0x74a1", ""), "x"
    )
    assert path(topology, "gpu0", "gpu1").usable_gbs == gbs


def test_a_gpu_that_an_nvswitch_has_lost_has_no_rate() -> None:
    """Its peers have links to the switch, so it has some too: PCIe's rate would be wrong."""
    nvlink = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    topology = read("".join(gpu(f"{n}", nvlink if n < 3 else "") for n in (1, 2, 3)))
    assert any("which has some by device, architecture or switch" in n for n in topology.notes)


@pytest.mark.parametrize(
    ("inner", "remark"),
    [
        (
            '<pci busid="0000:01:00.0" class="0x030200" link_speed="x" link_width="16"/>',
            "left out, because no machine has it or the other lines do not bear it out: link_speed",
        ),
        (
            '<pci busid="0000:01:00.0" class="0x030200"><gpu dev="0"/></pci>'
            '<pci busid="0000:02:00.0" class="0x030200"><gpu dev="0"/></pci>',
            "GPU0 and GPU0 share",
        ),
    ],
)
def test_unknown_speeds_and_shared_numbers_are_said(inner: str, remark: str) -> None:
    assert any(note.startswith(remark) for note in read(inner).notes)


def test_cpus_are_limited_on_each_host() -> None:
    """512 hosts of two CPUs are one NVLink domain's dump, not too many CPUs of one host."""
    cpus = "".join(
        f'<cpu host_hash="0x{number // 2:x}" numaid="{number % 2}"/>' for number in range(1024)
    )
    topology = nccl_xml.read(f'<system version="1">{cpus}</system>', "a.xml")
    assert len(topology.hosts) == 512 and count(topology, "socket") == 512


def test_a_name_with_a_line_end_is_written_to_json_and_read() -> None:
    net = '<nic><net name="a&#10;b" dev="0"/></nic>'
    topology = read(net)
    assert topology_json.read(topology_json.write(topology), "a.json").of_kind("nic")
