"""Hosts that do not exist, asked through the real NVML binding and real files; what their graphs
must say.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.machine.discovery import (
    Recording,
    dumps,
    gather,
    links_table,
    loads,
    record,
    topology_of,
)
from collbench.machine.discovery._gather import with_gpus_of
from collbench.machine.discovery._tree import chain
from collbench.machine.discovery.recording import GpuRecord
from collbench.machine.formats import topology_json
from collbench.machine.topology.hosts import equal_hosts
from collbench.machine.topology.model import P2P_MEANINGS
from collbench.machine.topology.paths import path
from tests.support import fake_hosts as hosts
from tests.support.fake_hosts import PCIE_BOX, Host, asked, label, labels, said
from tests.support.fake_nvml import FakeNvml, driver
from tests.support.machines import CUBE_MESH
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


def test_dgx1v_is_a_cube_mesh(ask: Ask) -> None:
    topology = topology_of([ask(hosts.dgx1v)])
    table = labels(topology)
    for a in range(8):
        for b in range(8):
            count = CUBE_MESH.get((min(a, b), max(a, b)))
            assert table[a][b] == ("X" if a == b else f"NV{count}" if count else "NVB"), (a, b)
    assert path(topology, "gpu0", "gpu3").usable_gbs == pytest.approx(40)
    nics = topology.of_kind("nic")
    assert " ".join(label(topology, "gpu0", nic.id) for nic in nics) == "PIX PHB SYS SYS PHB"
    assert " ".join(nic.name for nic in nics) == "mlx5_0 mlx5_1 mlx5_2 mlx5_3 enp1s0f0"
    assert [(node.kind, node.affinity) for node in topology.of_kind("cpu")] == [
        ("cpu", "0-19,40-59"),
        ("cpu", "20-39,60-79"),
    ]
    assert len(topology.of_kind("pci")) == 4 and len(topology.of_kind("root")) == 2
    assert topology.notes == () and not topology.of_kind("nvswitch")
    assert next(link for link in topology.links if link.kind == "socket").usable_gbs == 6.0


def test_dgx_a100_hangs_on_one_switch_of_nvlinks(ask: Ask) -> None:
    recording = ask(hosts.dgx_a100)
    topology = topology_of([recording])
    assert {one for row in labels(topology) for one in row} == {"X", "NV12"}
    assert [node.id for node in topology.of_kind("nvswitch")] == ["nvswitch0"]
    assert path(topology, "gpu0", "gpu7").usable_gbs == pytest.approx(240)
    assert len(topology.of_kind("cpu")) == 8
    assert {node.fact("package") for node in topology.of_kind("cpu")} == {"0", "1"}
    near = [next(link.a for link in topology.links if link.b == f"root{k}") for k in range(4)]
    assert near == ["cpu3", "cpu1", "cpu7", "cpu5"]
    own = next(link for link in topology.links if link.b == "gpu0" and link.kind == "pcie")
    assert (own.generation, own.count, own.note) == (
        4,
        16,
        "now generation 1 x16: a GPU saves power when idle",
    )
    # An older driver does not tell the kind of the far end: what is at its address does.
    (topology,) = [
        topology_of([replace(recording, gpus=tuple(_without_types(gpu) for gpu in recording.gpus))])
    ]
    assert {one for row in labels(topology) for one in row} == {"X", "NV12"}


def _without_types(gpu: GpuRecord) -> GpuRecord:
    return replace(gpu, links=tuple(replace(link, remote_type=None) for link in gpu.links))


def test_hgx_h100(ask: Ask) -> None:
    recording = ask(hosts.hgx_h100)
    topology = topology_of([recording])
    assert {one for row in labels(topology) for one in row} == {"X", "NV18"}
    # by the table: what NVML tells counts line code
    assert path(topology, "gpu0", "gpu1").usable_gbs == pytest.approx(364.5)
    assert [label(topology, f"gpu{k}", f"nic{k}") for k in range(8)] == ["PIX"] * 8
    assert (label(topology, "gpu0", "nic1"), label(topology, "gpu0", "nic4")) == ("NODE", "SYS")
    assert path(topology, "gpu0", "nic0").usable_gbs == pytest.approx(63.02 * 0.76, rel=1e-3)
    assert topology.by_id["nic0"].fact("gbps") == "400" and topology.notes == ()
    assert set(topology.p2p.values()) == {"OK"} and len(topology.p2p) == 8 * 7 * 4


def test_a_box_of_pcie(ask: Ask) -> None:
    topology = topology_of([ask(hosts.pcie_box)])
    assert labels(topology) == [row.split() for row in PCIE_BOX]
    assert path(topology, "gpu0", "gpu7").limit.kind == "socket"  # type: ignore[union-attr]
    assert topology.p2p["gpu0", "gpu1", "read"] == "CNS"
    assert topology.p2p["gpu0", "gpu1", "nvlink"] == "NS"
    assert set(topology.p2p.values()) <= set(P2P_MEANINGS)
    nic = topology.by_id["nic0"]
    assert (nic.name, nic.fact("interfaces"), nic.fact("layer"), nic.fact("gbps")) == (
        "mlx5_0",
        "ens1np0",
        "Ethernet",
        "200",
    )
    assert (
        next(link.note for link in topology.links if link.b == "nic0")
        == "trained at generation 4 x8, could be generation 4 x16"
    )
    assert [label(topology, gpu, "nic0") for gpu in ("gpu0", "gpu2", "gpu4")] == [
        "PIX",
        "PXB",
        "SYS",
    ]
    assert topology.notes == ()


def test_a_flat_virtual_machine_is_said_to_be_one(ask: Ask) -> None:
    recording = ask(hosts.h200_vm)
    topology = topology_of([recording])
    assert {one for row in labels(topology) for one in row} == {"X", "NV18"}
    assert said(topology, "a hypervisor (Made up) shows a flat PCIe tree")
    assert said(topology, "names no NUMA node for GPUs")
    assert len(topology.notes) == 3  # and for NICs
    assert not topology.of_kind("pci") and len(topology.of_kind("nvswitch")) == 1
    link = next(link for link in topology.links if link.b == "gpu0" and link.kind == "pcie")
    assert (link.generation, link.count, link.note) == (5, 16, "")
    assert [gpu.affinity for gpu in topology.gpus] == ["0-63"] * 4
    assert {
        "class": "0x030200",
        "vendor": "0x10de",
        "sm": "90",
        "driver": "580.159.03",
    }.items() <= dict(topology.gpus[0].facts).items()
    assert dict(topology.by_id["cpu0"].facts) == {
        "arch": "x86_64",
        "vendor": "GenuineIntel",
        "familyid": "6",
        "modelid": "207",
        "package": "0",
    }
    rows = links_table(recording)
    assert len(rows) == 72
    first = rows[0]
    assert (
        first.gpu,
        first.link,
        first.is_active,
        first.version,
        first.generation,
        first.remote,
    ) == (0, 0, True, "4.0", 4, "NVSwitch")
    assert (first.speed_gbs, first.replay, first.recovery, first.crc) == (26.562, 0, 0, 0)
    without = replace(recording, gpus=tuple(replace(gpu, links=()) for gpu in recording.gpus))
    assert {one for row in labels(topology_of([without])) for one in row} == {"X", "PHB"}


def test_mig_gpus_have_no_p2p(ask: Ask) -> None:
    topology = topology_of([ask(hosts.mig_box)])
    assert [gpu.fact("mig") for gpu in topology.gpus] == ["", "on"]
    assert set(topology.p2p.values()) == {"NS"}
    assert topology.notes == ("GPU 1 is divided (MIG): no P2P from it or to it",)
    assert label(topology, "gpu0", "gpu1") == "PIX"


def test_a_dead_link_to_a_switch(ask: Ask) -> None:
    recording = ask(hosts.hgx_h100, lambda nvml: setattr(nvml.gpus[3].links[5], "is_active", False))
    topology = topology_of([recording])
    assert label(topology, "gpu3", "gpu0") == "NV17" and label(topology, "gpu1", "gpu0") == "NV18"
    assert (
        next(link.note for link in topology.links if link.kind == "nvlink" and link.a == "gpu3")
        == "NVLink 5 of GPU 3 down"
    )
    assert topology.notes == ("GPU 3: NVLink 5 down, though up on other GPUs of its kind",)
    row = next(row for row in links_table(recording) if (row.gpu, row.link) == (3, 5))
    assert (row.is_active, row.remote) == (False, None)


def test_a_dead_link_of_a_mesh(ask: Ask) -> None:
    def cut(nvml: FakeNvml) -> None:
        a, b = nvml.gpus[0], nvml.gpus[3]
        next(link for link in a.links if link.remote == b.bus_id).is_active = False
        next(link for link in b.links if link.remote == a.bus_id).is_active = False

    topology = topology_of([ask(hosts.dgx1v, cut)])
    assert label(topology, "gpu0", "gpu3") == "NV1"
    assert len(said(topology, "down, though up on other GPUs of its kind")) == 2


def test_links_that_no_gpu_has_are_not_dead(ask: Ask) -> None:
    def cut(nvml: FakeNvml) -> None:
        for gpu in nvml.gpus:
            for link in gpu.links[12:]:
                link.is_active = False

    topology = topology_of([ask(hosts.hgx_h100, cut)])
    assert label(topology, "gpu0", "gpu1") == "NV12" and topology.notes == ()


def test_ends_that_count_differently(ask: Ask) -> None:
    def cut(nvml: FakeNvml) -> None:
        next(
            link for link in nvml.gpus[3].links if link.remote == nvml.gpus[0].bus_id
        ).is_active = False

    topology = topology_of([ask(hosts.dgx1v, cut)])
    assert label(topology, "gpu0", "gpu3") == "NV1"
    assert said(topology, "GPU 0 and GPU 3 count their NVLinks as 2 and 1")


def test_slower_links_than_their_generation(ask: Ask) -> None:
    """An A40's bridge: generation 3 by its compute capability, 14 GB/s a link by NVML."""

    def slow(nvml: FakeNvml) -> None:
        for gpu in nvml.gpus:
            gpu.link_mbps = 14062

    topology = topology_of([ask(hosts.hgx_h100, slow)])
    assert path(topology, "gpu0", "gpu1").limit.raw_gbs == pytest.approx(14.062 * 18)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("devices", "shown"), [("2,0", [2, 0]), ("7,6,5,4", [7, 6, 5, 4]), ("", []), ("1", [1])]
)
def test_cuda_numbers_the_gpus(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, devices: str, shown: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    recording = ask(hosts.dgx1v)
    topology = topology_of([recording])
    assert [(gpu.id, gpu.index, int(gpu.fact("nvml"))) for gpu in topology.gpus] == [
        (f"gpu{k}", k, nvml) for k, nvml in enumerate(shown)
    ]
    (left_out,) = said(topology, "left out, as CUDA does not show it: NVML's GPU ")
    assert left_out.count("0000:") == 8 - len(shown)
    assert left_out.endswith(f"): CUDA_VISIBLE_DEVICES is '{devices}'")
    for a, first in enumerate(shown):
        for b, second in enumerate(shown[:a]):
            count = CUBE_MESH.get((min(first, second), max(first, second)))
            assert label(topology, f"gpu{a}", f"gpu{b}") in (
                (f"NV{count}",) if count else ("NVB", "SYS", "PHB", "PIX")
            )
    assert len(links_table(recording)) == 6 * len(shown)
    if devices == "2,0":
        assert said(topology, "GPU 0: NVLinks 1-5 lead to GPUs that are left out")


def test_c2c(ask: Ask) -> None:
    topology = topology_of(
        [ask(hosts.h200_vm, lambda nvml: [gpu.c2c_mbps.extend([44712] * 10) for gpu in nvml.gpus])]
    )
    link = next(link for link in topology.links if link.kind == "c2c")
    assert (link.a, link.b, link.count) == ("cpu0", "gpu0", 10)
    assert link.raw_gbs == pytest.approx(447.12)
    assert path(topology, "gpu0", "cpu0").kind == "C2C"


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


@pytest.mark.parametrize(
    ("path_", "bridge", "functions"),
    [
        ("devices/pci0000:00/0000:00:06.0", "pci0000:00", ["0000:00:06.0"]),
        (
            "devices/LNXSYSTM:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0",
            "pci0001:00",
            ["0001:00:00.0"],
        ),
        (
            "devices/pci0000:e0/0000:e0:00.5/pci10001:00/10001:00:01.0/10001:01:00.0",
            "pci10001:00",
            ["10001:00:01.0", "10001:01:00.0"],
        ),
        ("devices/virtual/net/lo", "", []),
    ],
)
def test_chains(path_: str, bridge: str, functions: list[str]) -> None:
    assert chain(path_) == (bridge, functions)


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
    nvml.gpus[1].answers = {
        ("nvmlDeviceGetPersistenceMode",): (1,),
        ("nvmlDeviceGetComputeMode",): (3,),
        ("nvmlDeviceGetCurrentClocksEventReasons",): (0x44,),
        ("nvmlDeviceGetClockInfo", 1): (345,),
        ("nvmlDeviceGetMaxClockInfo", 1): (1980,),
        ("nvmlDeviceGetApplicationsClock", 1): (1200,),
        ("nvmlDeviceGetDefaultApplicationsClock", 1): (1830,),
        ("nvmlDeviceGetEnforcedPowerLimit",): (500_000,),
        ("nvmlDeviceGetPowerManagementDefaultLimit",): (700_000,),
        ("nvmlDeviceGetTemperatureThreshold", 1): (89,),
        ("nvmlDeviceGetEccMode",): (1, 0),
        ("nvmlDeviceGetTotalEccErrors", 0, 0): (7,),
        ("nvmlDeviceGetTotalEccErrors", 1, 0): (2,),
        ("nvmlDeviceGetRemappedRows",): (9, 8, 1, 0),
    }
    nvml.gpus[1].fields = {230: 4, 94: 31}  # recovery action, PCIe replays
    with driver(nvml):
        conditions = [gpu.condition for gpu in record(tmp_path, is_full=True).gpus]
    found, other = conditions[1], conditions[0]
    assert found is not None
    assert other is not None
    assert (found.persistence, found.compute_mode, found.throttle_bits) == (1, 3, 0x44)
    assert (found.sm_mhz, found.sm_max_mhz) == (345, 1980)
    assert (found.app_sm_mhz, found.app_default_sm_mhz) == (1200, 1830)
    assert (found.power_limit_mw, found.power_default_mw, found.slowdown_c) == (
        500_000,
        700_000,
        89,
    )
    assert (found.ecc, found.ecc_pending, found.ecc_corrected, found.ecc_uncorrected) == (
        1,
        0,
        7,
        2,
    )
    assert (found.remap_pending, found.remap_failed, found.recovery_action) == (1, 0, 4)
    assert found.counters == {"pcie_replay_counter": 31}
    assert (other.compute_mode, other.pids, other.unknown["compute_mode"]) == (
        None,
        None,
        "Not Supported",
    )


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
