"""The counters of links: from files under a root, from a driver that is data, and of sockets."""

import socket
from pathlib import Path

import pytest

from collbench.machine.discovery import _nvml, counters
from collbench.machine.discovery.counters import CountedLink, Passed, read
from tests.support.fake_hosts import h200_vm
from tests.support.fake_nvml import FakeNvml, driver


def interface(root: Path, name: str, kind: int, sent: object, came: object) -> Path:
    folder = root / "sys/class/net" / name
    (folder / "statistics").mkdir(parents=True)
    (folder / "type").write_text(f"{kind}\n")
    (folder / "mtu").write_text("1500\n")
    (folder / "statistics/tx_bytes").write_text(f"{sent}\n")
    (folder / "statistics/rx_bytes").write_text(f"{came}\n")
    return folder


def test_files_of_the_kernel_are_read_and_what_is_none_says_why(tmp_path: Path) -> None:
    interface(tmp_path, "lo", 772, 100, 100)
    (interface(tmp_path, "eth0", 1, 7, 8) / "device").mkdir()
    (interface(tmp_path, "eth1", 1, "broken", 8) / "device").mkdir()
    (interface(tmp_path, "ib0", 32, 9, 9) / "device").mkdir()  # its port counts the same bytes
    interface(tmp_path, "bridge", 1, 15, 16)  # what it carries is counted where it leaves
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters"
    port.mkdir(parents=True)
    (port / "port_xmit_data").write_text("10")
    (port / "port_rcv_data").write_text("11")
    (tmp_path / "sys/class/infiniband/mlx5_1/ports/1").mkdir(parents=True)
    with driver(None):
        reading = read(tmp_path)
    assert reading.passed == {
        CountedLink("lo", "lo"): Passed(100, 100),
        CountedLink("nic", "eth0"): Passed(7, 8),
        CountedLink("infiniband", "mlx5_0/1"): Passed(40, 44),
    }
    assert reading.mtus["lo"] == 1500
    assert reading.unread["mlx5_1/1"] == "No such file or directory"
    assert "broken" in reading.unread["eth1"]
    assert set(reading.unread) == {"nvlink", "nvlink-raw", "pcie", "mlx5_1/1", "eth1"}


def counted(library: FakeNvml, kib: int) -> None:
    """Let so much leave by every NVLink, half as much come in, and as much again of headers."""
    for gpu in library.gpus:
        for link in gpu.links:
            link.data, link.raw = (kib, kib // 2), (2 * kib, kib)


def test_nvlinks_are_read_link_by_link_in_kibibytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = h200_vm(tmp_path)
    counted(library, 64)
    library.gpus[1].fields |= {197: 5, 198: 6}
    monkeypatch.setattr(counters, "has_nvidia_gpus", lambda: True)
    with driver(library):
        reading = read(tmp_path)
    first, second = library.gpus[0].uuid, library.gpus[1].uuid
    assert reading.labels[second] == "GPU 1"
    assert reading.passed[CountedLink("nvlink", first, 17)] == Passed(64 << 10, 32 << 10)
    assert reading.passed[CountedLink("nvlink-raw", first, 0)] == Passed(128 << 10, 64 << 10)
    assert sum(link.source == "nvlink" for link in reading.passed) == 4 * 18
    assert reading.passed[CountedLink("pcie", second)] == Passed(5, 6)
    assert "Not Supported" in reading.unread["pcie"]  # of the others


def test_a_driver_that_refuses_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = h200_vm(tmp_path)
    library.refused = {2: 4}  # no permission
    monkeypatch.setattr(counters, "has_nvidia_gpus", lambda: True)
    with driver(library):
        reading = read(tmp_path)
    assert "Permission" in reading.unread["GPU 2"]
    assert "Not Supported" in reading.unread["nvlink"]


def test_sockets_of_the_process_are_counted_and_left_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        before = read()
        one.sendall(bytes(100_000))
        left = 100_000
        while left:
            left -= len(other.recv(left))
        after = read()
        assert 100_000 <= after.acked - before.acked < 101_000
        lo = CountedLink("lo", "lo")
        assert after.passed[lo].since(before.passed[lo]).out >= 100_000
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_a_link_that_is_refused_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = h200_vm(tmp_path)
    counted(library, 64)
    monkeypatch.setattr(counters, "has_nvidia_gpus", lambda: True)
    fields_of, asked = _nvml.fields_of, 0

    def refuses_every_other(handle: object, requests: object) -> list[int | str]:
        nonlocal asked
        asked += 1
        values: list[int | str] = fields_of(handle, requests)  # type: ignore[arg-type]
        return ["Not Supported"] * len(values) if asked % 2 else values

    monkeypatch.setattr(_nvml, "fields_of", refuses_every_other)
    monkeypatch.setattr(_nvml, "link_count", lambda handle: 18)
    with driver(library):
        reading = read(tmp_path)
    assert sum(link.source == "nvlink" for link in reading.passed) == 4 * 18
    assert "nvlink" not in reading.unread


def test_only_one_rank_of_a_host_asks_for_links(tmp_path: Path) -> None:
    reading = read(tmp_path, has_links=False)
    assert reading.passed == {}
    assert reading.unread == {}
