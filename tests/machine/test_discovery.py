"""Hosts that do not exist, asked through the real NVML binding and real files; what their graphs
must say.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.machine.discovery import Recording, dumps, gather, loads, record, topology_of
from collbench.machine.discovery._gather import with_gpus_of
from collbench.machine.discovery._tree import chain
from collbench.machine.discovery.recording import GpuRecord
from collbench.machine.formats import topology_json
from collbench.machine.topology.hosts import equal_hosts
from collbench.machine.topology.paths import path
from tests.support import fake_hosts as hosts
from tests.support.fake_hosts import Host, asked, label, labels
from tests.support.fake_nvml import driver
from tests.support.tables import cells_of, values_of
from tests.support.tiers import tiered

MACHINES = {
    made.__name__: made
    for made in (
        hosts.dgx1v,
        hosts.dgx_a100,
        hosts.hgx_h100,
        hosts.pcie_box,
        hosts.h200_vm,
        hosts.mig_box,
    )
}


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def ask(tmp_path: Path) -> "Ask":
    """Record a machine; what is done to its driver before may follow."""
    return partial(asked, tmp_path)


Ask = Callable[..., Recording]


@tiered("machine", MACHINES, 2)
def test_a_replayed_recording_gives_the_same_graph(ask: Ask, machine: str) -> None:
    recording = ask(MACHINES[machine])
    (again,) = loads(dumps([recording]), "file")
    assert again == recording and dumps([again]) == dumps([recording])
    one, other = topology_of([recording]), topology_of([again])
    assert topology_json.write(one) == topology_json.write(other)


def test_what_is_at_the_address_of_a_far_end_tells_its_kind(ask: Ask) -> None:
    """As an older driver does not."""
    recording = ask(hosts.dgx_a100)
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
    with driver(None):
        topology = topology_of([record(tmp_path)])
    assert [node.name for node in topology.of_kind("nic")] == ["ens1"]


def test_a_made_up_root_port_limits_nothing(tmp_path: Path) -> None:
    """QEMU's older root ports say 2.5 GT/s x1 over GPUs that run at x16."""
    nvml = hosts.h200_vm(tmp_path)
    host = Host(tmp_path)
    nvml.gpus = nvml.gpus[:1]
    host.pci("pci0000:00/0000:00:1c.0", generation=1, width=1)
    nvml.gpus[0].address = host.pci("pci0000:00/0000:00:1c.0/0000:01:00.0", hosts.GPU, 5, 16)
    with driver(nvml):
        topology = topology_of([record(tmp_path)])
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
        with driver(nvml):
            found.append(record(folder / str(number)))
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


class OneRank:
    """An mpi4py communicator of one rank, for what it says and gathers."""

    def Get_rank(self) -> int:
        return 0

    def allgather(self, mine: object) -> list[object]:
        return [mine]

    def gather(self, mine: object, root: int) -> list[object]:
        return [mine]


def test_gathering_alone() -> None:
    with driver(None):
        found = gather(OneRank())
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
    ask: Ask, cuda: list[tuple[int, ...] | None], merged: tuple[int, ...]
) -> None:
    recording = ask(hosts.h200_vm)
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
    with driver(nvml):
        other, found, *_ = [gpu.condition for gpu in record(tmp_path, is_full=True).gpus]
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
    with driver(None):
        system = record(tmp_path, is_full=True).system
    assert system is not None
    assert system.imex_channels == channels
