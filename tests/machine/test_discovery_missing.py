"""Hosts of which something is not told: a driver, a call, a file. The rest is still told, nothing
is raised, and the reason is kept.
"""

from pathlib import Path

import pytest

from collbench.machine.discovery import dumps, links_table, loads, record, topology_of
from collbench.machine.topology.paths import path
from tests.support import fake_hosts as hosts
from tests.support.fake_hosts import asked, label, labels, said
from tests.support.fake_nvml import NOT_SUPPORTED, driver


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_no_driver(tmp_path: Path) -> None:
    hosts.pcie_box(tmp_path)
    with driver(None):
        topology = topology_of([record(tmp_path)])
    assert len(topology.notes) == 1
    assert topology.notes[0].startswith(
        "no NVIDIA driver was found, but 8 NVIDIA GPUs are on the PCI bus: 0000:19:00.0,"
    )
    assert [node.kind for node in topology.nodes] == ["cpu", "cpu", "root", "pci", "nic"]


def test_an_empty_root_is_a_host_without_anything(tmp_path: Path) -> None:
    with driver(None):
        recording = record(tmp_path)
    topology = topology_of([recording])
    assert [node.kind for node in topology.nodes] == ["cpu"]
    assert topology.notes == ("no NVIDIA driver was found",)
    assert recording.processor.has_hypervisor is None
    assert set(recording.unknown) >= {"boot_id", "gpus"}


def test_this_host_is_read() -> None:
    with driver(None):
        topology = topology_of([record()])
    assert any(node.kind == "cpu" for node in topology.nodes)


@pytest.mark.exhaustive
def test_no_library_of_a_function_raises(tmp_path: Path) -> None:
    """Each call of NVML in turn is not supported, or not there: the rest is still told."""
    nvml = hosts.hgx_h100(tmp_path)
    nvml.gpus = nvml.gpus[:2]
    with driver(nvml):
        whole = record(tmp_path)
    for call in sorted({*nvml.calls} - {"nvmlInitWithFlags"}):
        for is_missing in (False, True):
            nvml.errors, nvml.missing = (
                ({}, {call}) if is_missing else ({call: NOT_SUPPORTED}, set())
            )
            with driver(nvml):
                recording = record(tmp_path)
            topology = topology_of([recording])
            links_table(recording)
            assert loads(dumps([recording]), call) == [recording]
            assert len(topology.of_kind("nic")) == 8, call
            # which H100s do not tell either
            assert recording != whole or call == "nvmlDeviceGetNumaNodeId", call
            if call in (
                "nvmlDeviceGetNvLinkState",
                "nvmlDeviceGetFieldValues",
                "nvmlDeviceGetNvLinkVersion",
                "nvmlDeviceGetNvLinkRemotePciInfo_v2",
            ):
                assert label(topology, "gpu0", "gpu1") == "NV18", call


@pytest.mark.parametrize("field", [91, 161, 164, 165, 166])
def test_fields_that_are_not_told(tmp_path: Path, field: int) -> None:
    recording = asked(tmp_path, hosts.hgx_h100, lambda nvml: nvml.bad_fields.add(field))
    assert label(topology_of([recording]), "gpu0", "gpu1") == "NV18"
    assert links_table(recording)[0].replay == 0  # an older call tells it


def test_a_gpu_that_fell_off_the_bus(tmp_path: Path) -> None:
    topology = topology_of(
        [asked(tmp_path, hosts.hgx_h100, lambda nvml: nvml.refused.update({2: 15}))]
    )
    assert len(topology.gpus) == 7 and said(topology, "NVML's GPU 2 (address unknown): GPU is lost")


def test_every_missing_value_has_a_reason(tmp_path: Path) -> None:
    recording = asked(tmp_path, hosts.h200_vm)
    for gpu in recording.gpus:
        told = {name: getattr(gpu, name) for name in type(gpu).__dataclass_fields__}
        told.pop("condition")  # which nobody asked for
        assert {name for name, value in told.items() if value is None} <= set(gpu.unknown)
    assert recording.nics[0].unknown == {"speed_mbps": "the kernel says -1"}


@pytest.mark.parametrize(
    "name",
    [
        "class",
        "numa_node",
        "current_link_speed",
        "current_link_width",
        "max_link_speed",
        "max_link_width",
        "local_cpulist",
    ],
)
@pytest.mark.parametrize("machine", ["pcie_box", "h200_vm"])
def test_files_of_the_kernel_that_are_not_there(tmp_path: Path, machine: str, name: str) -> None:
    """Or cannot be read: a folder stands for a file that refuses."""
    nvml = getattr(hosts, machine)(tmp_path)
    for file in (tmp_path / "sys/devices").rglob(f"0000:*/{name}"):
        file.unlink()
        file.mkdir()
    with driver(nvml):
        recording = record(tmp_path)
    topology = topology_of([recording])
    assert len(topology.gpus) == len(nvml.gpus) and loads(dumps([recording]), "file") == [recording]
    if name != "numa_node":
        assert labels(topology)[0][1] == ("PIX" if machine == "pcie_box" else "NV18")
    assert all(
        "directory" in device.unknown["pci_class" if name == "class" else name]
        for device in recording.pci
    )


def test_without_kernel_files_of_gpus_nvml_tells_the_link(tmp_path: Path) -> None:
    nvml = hosts.h200_vm(tmp_path)
    for name in ("max_link_speed", "max_link_width"):
        for file in (tmp_path / "sys/devices").rglob(name):
            file.unlink()
    with driver(nvml):
        topology = topology_of([record(tmp_path)])
    assert [
        (link.generation, link.count)
        for link in topology.links
        if link.b == "gpu2" and link.kind == "pcie"
    ] == [(5, 16)]


def test_gpus_that_sysfs_does_not_show(tmp_path: Path) -> None:
    nvml = hosts.pcie_box(tmp_path)
    with driver(nvml):
        topology = topology_of([record(tmp_path / "empty")])
    assert len(topology.gpus) == 8 and said(topology, "not all GPUs are in the host's PCIe tree")
    assert path(topology, "gpu0", "gpu1").usable_gbs is None
