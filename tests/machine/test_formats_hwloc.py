"""hwloc's XML: bridges in pairs are switches, NVLinkBandwidth becomes bundles."""

import pytest

from collbench.core.errors import UsageError
from collbench.machine import formats
from collbench.machine.formats import hwloc_xml
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from tests.support.topologies import OWN, REAL, count, labels, needs_real


def test_pcie_box_by_hand() -> None:
    """A switch with two V100 and a NIC; a NIC at another root of that socket; a V100 on the other
    socket; a server's own display adapter.
    """
    topology = formats.read(OWN / "pcie-box-hwloc.xml")
    assert topology.hosts == ("box",)
    assert [(gpu.id, gpu.address) for gpu in topology.gpus] == [
        ("gpu0", "0000:19:00.0"),
        ("gpu1", "0000:1a:00.0"),
        ("gpu2", "0000:b1:00.0"),
    ]
    assert [(cpu.id, cpu.affinity) for cpu in topology.of_kind("cpu")] == [
        ("cpu0", "0-1"),
        ("cpu1", "2-3"),
    ]
    assert len(topology.of_kind("root")) == 3
    assert [node.address for node in topology.of_kind("pci")] == ["0000:17:00.0"]
    assert labels(topology) == ["X NV2 NVB", "NV2 X NV1", "NVB NV1 X"]
    assert [(nic.name, nic.fact("netdev")) for nic in topology.of_kind("nic")] == [
        ("mlx5_0", "ib0"),
        ("eno1", ""),
    ]
    assert labels(topology, "nic0", "nic1", "gpu0", "gpu1", "gpu2")[0] == "X NODE PIX PIX SYS"
    assert topology.by_id["gpu0"].name == "Tesla V100-SXM3-32GB"
    assert topology.by_id["gpu0"].fact("uuid") == "GPU-0"
    assert count(topology, "socket") == 1 and any("0000:00:11.0" in note for note in topology.notes)


def test_speeds_are_those_of_the_slower_end() -> None:
    topology = formats.read(OWN / "pcie-box-hwloc.xml")
    raw = {
        node: next(link.raw_gbs for link in topology.links_of[node] if link.kind == "pcie")
        for node in ("gpu0", "gpu1", "nic1")
    }
    assert raw == {"gpu0": 7.876923, "gpu1": 15.753846, "nic1": 0.5}
    limit = path(topology, "nic0", "gpu0").limit
    assert limit is not None
    assert limit.usable_gbs == pytest.approx(7.876923 * 0.76)
    assert limit.source == "hwloc's pci_link_speed"
    # Nobody tells what a host bridge moves: it limits no way.
    across = path(topology, "nic0", "nic1").limit
    assert across is not None and across.raw_gbs == 0.5
    assert [link.raw_gbs for link in topology.links if "host bridge" in link.note] == [
        15.753846,
        0.5,
        15.753846,
    ]


@needs_real
def test_virtual_machine_without_gpu_by_hand() -> None:
    topology = formats.read(REAL / "hwloc-vm-no-gpu.xml")
    assert not topology.gpus and topology.hosts == ("vm",)
    (cpu,), (nic,), (root,) = (
        topology.of_kind("cpu"),
        topology.of_kind("nic"),
        topology.of_kind("root"),
    )
    assert (cpu.index, cpu.affinity, cpu.name) == (0, "0-1", "AMD EPYC")
    assert (nic.name, nic.address) == ("eth0", "0000:00:03.0")
    assert [(link.a, link.b, link.raw_gbs) for link in topology.links] == [
        (cpu.id, root.id, None),
        (root.id, nic.id, None),
    ]


def machine(model: str, matrix: str, version: str = "2.5", below: str = "") -> Topology:
    device = "ffff" if model == "Graphics Device" else "20b0"
    gpus = "".join(
        f'<object type="PCIDev" gp_index="{n}0" pci_busid="0000:0{n}:00.0" pci_type="0302'
        f' [10de:{device}] [10de:134f] a1" pci_link_speed="0.0"><object type="OSDev"'
        f' gp_index="{n}1" name="nvml{n}" osdev_type="5"><info name="GPUModel" value="{model}"/>'
        "</object></object>"
        for n in (1, 2)
    )
    switches = "".join(
        f'<object type="PCIDev" gp_index="{n}0" subtype="NVSwitch" pci_busid="0000:0{n}:00.0"'
        ' pci_type="0680 [10de:1ac2] [0000:0000] a1"/>'
        for n in (3, 4)
    )
    numa = '<object type="NUMANode" os_index="0" cpuset="0x1" gp_index="9"/>'
    bridge = (
        '<object type="Bridge" gp_index="8" bridge_type="0-1"'
        f' bridge_pci="0000:[00-04]">{gpus}{switches}{below}</object>'
    )
    inner = f'<object type="Package" os_index="0" cpuset="0x1" gp_index="7">{numa}{bridge}</object>'
    return hwloc_xml.read(
        f'<topology version="{version}"><object type="Machine" cpuset="0x1"'
        f' gp_index="1">{inner}</object>{matrix}</topology>',
        "made.xml",
    )


def hetero(names: str, values: str) -> str:
    words = names.split()
    return (
        f'<distances2hetero nbobjs="{len(words)}"'
        f' name="NVLinkBandwidth"><indexes>{names}</indexes>'
        f"<u64values>{values}</u64values></distances2hetero>"
    )


def test_ports_of_nvswitches_are_one() -> None:
    row = "0 0 150000 150000"
    topology = machine(
        "NVIDIA A100-SXM4-40GB",
        hetero(
            "OSDev:11 OSDev:21 PCIDev:30 PCIDev:40",
            f"{row} {row} 150000 150000 0 0 150000 150000 0 0",
        ),
    )
    assert labels(topology) == ["X NV12", "NV12 X"]
    assert [link.b for link in topology.links if link.kind == "nvlink"] == ["nvs0", "nvs0"]


def test_both_directions_that_old_versions_counted_are_halved() -> None:
    assert labels(
        machine("NVIDIA A100-SXM4-40GB", hetero("OSDev:11 OSDev:21", "0 600000 600000 0"))
    ) == ["X NV12", "NV12 X"]
    assert labels(
        machine("NVIDIA A100-SXM4-40GB", hetero("OSDev:11 OSDev:21", "0 300000 300000 0"))
    ) == ["X NV12", "NV12 X"]


def test_nvlinks_of_processors_and_of_unknown_gpus() -> None:
    topology = machine("Tesla P100-SXM2-16GB", hetero("OSDev:11 Package:7", "0 40000 40000 0"))
    assert [
        (link.a, link.b, link.count, link.generation)
        for link in topology.links
        if link.kind == "nvlink"
    ] == [("gpu1", "cpu0", 2, 1)]
    unknown = machine("Graphics Device", hetero("OSDev:11 OSDev:21", "0 100000 100000 0"))
    assert [
        (link.count, link.raw_gbs, link.usable_gbs)
        for link in unknown.links
        if link.kind == "nvlink"
    ] == [(0, 100.0, None)]
    assert any("no generation" in note for note in unknown.notes)


@pytest.mark.parametrize(
    "matrix",
    [
        hetero("OSDev:11 OSDev:21", "0 1 2"),
        hetero("OSDev:11 OSDev:21", "0 x x 0"),
        hetero("OSDev:11", "0").replace('nbobjs="1"', 'nbobjs="7"'),
    ],
)
def test_matrices_that_are_none(matrix: str) -> None:
    with pytest.raises(UsageError, match=r"made\.xml, line 1: "):
        machine("NVIDIA A100", matrix)


def test_memory_without_cpus_of_its_own_is_no_processor() -> None:
    memory = (
        f'<object type="NUMANode" os_index="{n}" cpuset="0x1" gp_index="{60 + n}"/>' for n in (1, 2)
    )
    topology = machine("NVIDIA A100", "", below="".join(memory))
    assert [cpu.index for cpu in topology.of_kind("cpu")] == [0]


@pytest.mark.parametrize("speed", ["nan", "inf", "-1.0", "fast", "99999"])
def test_impossible_speeds_are_unknown(speed: str) -> None:
    text = (OWN / "pcie-box-hwloc.xml").read_text().replace('"15.753846"', f'"{speed}"')
    topology = hwloc_xml.read(text, "x.xml")
    assert any("bear it out: pci_link_speed in line" in note for note in topology.notes)


def test_an_nvswitch_without_a_matrix_leaves_rates_unknown() -> None:
    """hwloc without NVML; an NVSwitch is one by its subtype too, whatever its class."""
    assert path(machine("Graphics Device", ""), "gpu1", "gpu2").is_sure is False


def test_xgmi_of_amd() -> None:
    """One link between every two MI300X; of MI250X the matrix does not tell how many."""
    text = (
        '<topology version="2.9"><object type="Machine" cpuset="0x1" gp_index="1">'
        '<object type="NUMANode" os_index="0" cpuset="0x1" gp_index="9"/>'
        + "".join(
            f'<object type="PCIDev" gp_index="{n}0" pci_busid="0000:0{n}:00.0" pci_type="1200'
            f' [1002:74a1] [1002:74a1] 00" pci_link_speed="63.0"><object type="OSDev"'
            f' gp_index="{n}1" name="rsmi{n}" osdev_type="5"/></object>'
            for n in (1, 2)
        )
        + '</object><distances2 type="OSDev" nbobjs="2" name="XGMIBandwidth"><indexes>11 21'
        "</indexes><u64values>0 100000 100000 0</u64values></distances2></topology>"
    )
    topology = hwloc_xml.read(text, "amd.xml")
    assert labels(topology) == ["X XGMI", "XGMI X"]
    assert path(topology, "gpu1", "gpu2").usable_gbs == pytest.approx(48.0)
    older = hwloc_xml.read(text.replace("1002:74a1", "1002:740c"), "amd.xml")
    assert labels(older) == ["X XGMI", "XGMI X"]
    assert path(older, "gpu1", "gpu2").usable_gbs is None


def test_kinds_of_devices_depend_on_the_version() -> None:
    """The number 2 is a network in hwloc 2 and memory in hwloc 3."""
    system = '<object type="OSDev" name="dax0" osdev_type="2"/>'
    memory = (
        '<object type="PCIDev" gp_index="80" pci_busid="0000:05:00.0" pci_type="0502 [8086:0001]'
        f' [8086:0001] 00">{system}</object>'
    )
    assert len(machine("NVIDIA A100", "", "2.9", memory).of_kind("nic")) == 1
    assert len(machine("NVIDIA A100", "", "3.0", memory).of_kind("nic")) == 0
