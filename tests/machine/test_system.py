"""What is read of the kernel's settings and of the calling process, from a root of our own."""

import itertools
import time
from pathlib import Path

import pytest

from collbench.doctor.check import Evidence, why_not_run
from collbench.machine.discovery import Recording, _record, _system


def test_cores_that_are_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Core 1 is used throughout, core 2 for a tenth of the time, core 0 waits for a disk."""
    before = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 0 0 0 5 5 0 0 0 0 0\n"
    before += "cpu1 10 0 2 5 0 0 0 0 0 0\ncpu2 3 0 0 40 0 0 0 0 0 0\nintr 7\n"
    after = "cpu0 0 0 0 8 12 0 0 0 0 0\ncpu1 16 0 6 5 0 0 0 0 0 0\ncpu2 4 0 0 49 0 0 0 0 0 0\n"
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(before)
    monkeypatch.setattr(time, "sleep", lambda _: (tmp_path / "proc/stat").write_text(after))
    times = itertools.count(step=0.1)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    found = _record.system(tmp_path)
    assert found.busy_cpus == pytest.approx(1.1)
    assert found.busy_cpulist == "1"
    (tmp_path / "proc/stat").write_text("")
    blind = Evidence(hosts=(Recording(system=_record.system(tmp_path)),))
    assert why_not_run("busy-cores", blind).startswith("/proc/stat")


@pytest.mark.parametrize(
    ("lines", "user", "expected"),
    [
        (None, 1000, True),
        ("[Login]\n#RemoveIPC=no\n", 1000, True),
        ("[Login]\nRemoveIPC=no\n", 1000, False),
        (None, 999, False),
        (None, 0, False),
    ],
)
def test_who_loses_shared_memory_at_log_out(
    tmp_path: Path, lines: str | None, user: int, expected: bool
) -> None:
    assert _system.removes_ipc(tmp_path, user) is None
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd").mkdir(parents=True)
    if lines is not None:
        (tmp_path / "etc/systemd/logind.conf").write_text(lines)
    assert _system.removes_ipc(tmp_path, user) is expected


def test_linger_and_a_drop_in_keep_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_system, "_user_name", lambda _: "ann")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    drop_in = tmp_path / "etc/systemd/logind.conf.d/50-ipc.conf"
    linger = tmp_path / "var/lib/systemd/linger/ann"
    for file, text in ((drop_in, "[Login]\nRemoveIPC=no\n"), (linger, "")):
        file.parent.mkdir(parents=True)
        assert _system.removes_ipc(tmp_path, 1000) is True
        file.write_text(text)
        assert _system.removes_ipc(tmp_path, 1000) is False
        file.unlink()


def test_this_process_is_read() -> None:
    found = _record.process(Path("/"), {"NCCL_DEBUG": "INFO", "SECRET": "x"})
    assert found.environment == {"NCCL_DEBUG": "INFO"}
    assert found.can_lock is not None
    assert found.can_copy is not None
    assert set(found.namespaces) == {"ipc", "net", "pid", "user"}
