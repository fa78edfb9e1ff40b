"""Hosts that do not exist, asked through the real NVML binding and real files; what their graphs
must say, and that what is not told leaves a reason and not an error.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.core.errors import UsageError
from collbench.machine.discovery import Recording, dumps, gather, links_table, loads, topology_of
from collbench.machine.discovery._gather import with_gpus_of
from collbench.machine.discovery._tree import chain
from collbench.machine.discovery.recording import GpuRecord
from collbench.machine.formats import topology_json
from collbench.machine.topology.hosts import equal_hosts
from collbench.machine.topology.paths import path
from tests.support import fake_hosts as hosts
from tests.support.fake_hosts import Host, asked, label, labels, said
from tests.support.fake_nvml import NOT_SUPPORTED, driver
from tests.support.tables import cells_of, values_of
from tests.support.tiers import tiered

MACHINES = ("dgx1v", "dgx_a100", "hgx_h100", "pcie_box", "h200_vm", "mig_box")


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@tiered("machine", MACHINES, 2)
def test_a_replayed_recording_gives_the_same_graph(tmp_path: Path, machine: str) -> None:
    recording = asked(tmp_path, getattr(hosts, machine)(tmp_path))
    (again,) = loads(dumps([recording]), "file")
    assert again == recording and dumps([again]) == dumps([recording])
    one, other = topology_of([recording]), topology_of([again])
    assert topology_json.write(one) == topology_json.write(other)


def test_what_is_at_the_address_of_a_far_end_tells_its_kind(tmp_path: Path) -> None:
    """As an older driver does not."""
    recording = asked(tmp_path, hosts.dgx_a100(tmp_path))
    older = tuple(_without_types(gpu) for gpu in recording.gpus)
    topology = topology_of([replace(recording, gpus=older)])
    assert {one for row in labels(topology) for one in row} == {"X", "NV12"}


def _without_types(gpu: GpuRecord) -> GpuRecord:
    return replace(gpu, links=tuple(replace(link, remote_type=None) for link in gpu.links))


def test_virtual_functions_are_left_out(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.pci("pci0000:00/0000:00:01.0/0000:01:00.0", hosts.NIC)
    host.pci("pci0000:00/0000:00:01.0/0000:01:00.1", hosts.NIC)
    host.net("ens1", "pci0000:00/0000:00:01.0/0000:01:00.0")
    host.net("ens1v0", "pci0000:00/0000:00:01.0/0000:01:00.1")
    (tmp_path / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.1/physfn").symlink_to(
        "../0000:01:00.0"
    )
    topology = topology_of([asked(tmp_path, None)])
    assert [node.name for node in topology.of_kind("nic")] == ["ens1"]


def test_a_made_up_root_port_limits_nothing(tmp_path: Path) -> None:
    """QEMU's older root ports say 2.5 GT/s x1 over GPUs that run at x16."""
    nvml = hosts.h200_vm(tmp_path)
    host = Host(tmp_path)
    nvml.gpus = nvml.gpus[:1]
    host.pci("pci0000:00/0000:00:1c.0", generation=1, width=1)
    nvml.gpus[0].address = host.pci("pci0000:00/0000:00:1c.0/0000:01:00.0", hosts.GPU, 5, 16)
    topology = topology_of([asked(tmp_path, nvml)])
    link = next(link for link in topology.links if link.b == "gpu0" and link.kind == "pcie")
    assert (link.generation, link.count) == (5, 16)


@pytest.mark.parametrize(("where", "bridge", "functions"), cells_of(__file__, "chains.tsv"))
def test_chains(where: str, bridge: str, functions: str) -> None:
    assert chain(where) == (bridge, functions.split())


def two_hosts(folder: Path, fabric: bytes = bytes(16)) -> list[Recording]:
    found = []
    for number in range(2):
        nvml = hosts.hgx_h100(folder / str(number), f"node{number}", 0x10 + number)
        for gpu in nvml.gpus:
            gpu.cluster = fabric
        found.append(asked(folder / str(number), nvml))
    return found


def test_hosts_that_are_equal(tmp_path: Path) -> None:
    recordings = two_hosts(tmp_path)
    topology = topology_of(recordings)
    assert topology.hosts == ("node0", "node1") and len(topology.gpus) == 16
    assert [(gpu.id, gpu.index, gpu.host) for gpu in topology.gpus][7:9] == [
        ("gpu7", 7, 0),
        ("gpu8", 0, 1),
    ]
    assert "node0, node1 are equal, apart from names and addresses" in topology.notes
    assert equal_hosts(topology) == ((0, 1),)
    assert (label(topology, "gpu8", "gpu15"), label(topology, "gpu0", "gpu8")) == ("NV18", "NET")
    assert path(topology, "gpu0", "gpu8").nodes[1:-1]
    assert path(topology, "nic0", "nic8").usable_gbs == pytest.approx(50)
    assert topology.p2p["gpu8", "gpu9", "read"] == "OK"
    assert ("gpu0", "gpu8", "read") not in topology.p2p
    other = replace(
        recordings[1], gpus=tuple(replace(gpu, links=gpu.links[:17]) for gpu in recordings[1].gpus)
    )
    assert equal_hosts(topology_of([recordings[0], other])) == ((0,), (1,))
    assert loads(dumps(recordings), "file") == recordings


def test_hosts_of_one_fabric_share_its_switch(tmp_path: Path) -> None:
    topology = topology_of(two_hosts(tmp_path, bytes(range(16))))
    assert label(topology, "gpu0", "gpu15") == "NV18"
    assert [(node.id, node.host) for node in topology.of_kind("nvswitch")] == [("fabric0", -1)]
    assert equal_hosts(topology) == ((0, 1),)


def test_no_recording_is_no_topology() -> None:
    with pytest.raises(UsageError, match="no recording"):
        topology_of([])


def test_gathering_alone() -> None:
    comm = SimpleNamespace(
        Get_rank=lambda: 0, allgather=lambda mine: [mine], gather=lambda mine, root: [mine]
    )
    with driver(None):
        found = gather(comm)
    assert found is not None and len(found) == 1 and not found[0].has_driver


@pytest.mark.parametrize(
    ("cuda", "merged"),
    [
        ([(0, 1), (0, 1)], (0, 1, 2, 3)),
        ([(2,), (0,), (2,)], (2, 0)),
        ([(0, 1), (2, 3)], (0, 1, 2, 3)),
        ([(1,), None], (1,)),
    ],
)
def test_ranks_that_are_shown_other_gpus(
    tmp_path: Path, cuda: list[tuple[int, ...] | None], merged: tuple[int, ...]
) -> None:
    recording = asked(tmp_path, hosts.h200_vm(tmp_path))
    assert with_gpus_of(recording, cuda).cuda == merged


def test_the_condition_of_a_gpu(tmp_path: Path) -> None:
    """Each value from its own place of NVML's answers; what the driver lacks is unknown."""
    nvml = hosts.h200_vm(tmp_path)
    expected = dict[str, int]()
    for call, asked_for, numbers, values in cells_of(__file__, "conditions.tsv"):
        key: tuple[str | int, ...] = (f"nvmlDeviceGet{call}", *map(int, asked_for.split()))
        nvml.gpus[1].answers[key] = tuple(map(int, numbers.split()))
        expected |= values_of(values)
    nvml.gpus[1].fields = {230: 4, 94: 31}  # recovery action, PCIe replays
    gpus = asked(tmp_path, nvml, is_full=True).gpus
    other, found = gpus[0].condition, gpus[1].condition
    assert found is not None and other is not None
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.recovery_action, found.counters) == (4, {"pcie_replay_counter": 31})
    assert (other.compute_mode, other.pids) == (None, None)
    assert other.unknown["compute_mode"] == "Not Supported"


@pytest.mark.parametrize(
    ("files", "channels"),
    [((), None), (("nvidiactl",), 0), (("nvidiactl", "nvidia-caps-imex-channels/channel0"), 1)],
)
def test_imex_channels(tmp_path: Path, files: tuple[str, ...], channels: int | None) -> None:
    """Where the driver has device files and none of channels, there is none."""
    host = Host(tmp_path)
    for file in files:
        host.put(f"dev/{file}", "")
    system = asked(tmp_path, None, is_full=True).system
    assert system is not None
    assert system.imex_channels == channels


def test_no_driver(tmp_path: Path) -> None:
    hosts.pcie_box(tmp_path)
    topology = topology_of([asked(tmp_path, None)])
    assert len(topology.notes) == 1
    assert topology.notes[0].startswith(
        "no NVIDIA driver was found, but 8 NVIDIA GPUs are on the PCI bus: 0000:19:00.0,"
    )
    assert [node.kind for node in topology.nodes] == ["cpu", "cpu", "root", "pci", "nic"]


def test_an_empty_root_is_a_host_without_anything(tmp_path: Path) -> None:
    recording = asked(tmp_path, None)
    topology = topology_of([recording])
    assert [node.kind for node in topology.nodes] == ["cpu"]
    assert topology.notes == ("no NVIDIA driver was found",)
    assert recording.processor.has_hypervisor is None
    assert set(recording.unknown) >= {"boot_id", "gpus"}


def test_this_host_is_read() -> None:
    topology = topology_of([asked(Path("/"), None)])
    assert any(node.kind == "cpu" for node in topology.nodes)


@pytest.mark.exhaustive
def test_no_library_of_a_function_raises(tmp_path: Path) -> None:
    """Each call of NVML in turn is not supported, or not there: the rest is still told."""
    nvml = hosts.hgx_h100(tmp_path)
    nvml.gpus = nvml.gpus[:2]
    whole = asked(tmp_path, nvml)
    for call in sorted({*nvml.calls} - {"nvmlInitWithFlags"}):
        for is_missing in (False, True):
            nvml.errors, nvml.missing = (
                ({}, {call}) if is_missing else ({call: NOT_SUPPORTED}, set())
            )
            recording = asked(tmp_path, nvml)
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
    nvml = hosts.hgx_h100(tmp_path)
    nvml.bad_fields.add(field)
    recording = asked(tmp_path, nvml)
    assert label(topology_of([recording]), "gpu0", "gpu1") == "NV18"
    assert links_table(recording)[0].replay == 0  # an older call tells it


def test_a_gpu_that_fell_off_the_bus(tmp_path: Path) -> None:
    nvml = hosts.hgx_h100(tmp_path)
    nvml.refused[2] = 15
    topology = topology_of([asked(tmp_path, nvml)])
    assert len(topology.gpus) == 7 and said(topology, "NVML's GPU 2 (address unknown): GPU is lost")


def test_every_missing_value_has_a_reason(tmp_path: Path) -> None:
    recording = asked(tmp_path, hosts.h200_vm(tmp_path))
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
    recording = asked(tmp_path, nvml)
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
    topology = topology_of([asked(tmp_path, nvml)])
    assert [
        (link.generation, link.count)
        for link in topology.links
        if link.b == "gpu2" and link.kind == "pcie"
    ] == [(5, 16)]


def test_gpus_that_sysfs_does_not_show(tmp_path: Path) -> None:
    nvml = hosts.pcie_box(tmp_path)
    topology = topology_of([asked(tmp_path / "empty", nvml)])
    assert len(topology.gpus) == 8 and said(topology, "not all GPUs are in the host's PCIe tree")
    assert path(topology, "gpu0", "gpu1").usable_gbs is None
