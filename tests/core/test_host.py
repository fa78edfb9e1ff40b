"""What control groups allow, in files of our own."""

from pathlib import Path

import pytest

from collbench.core import host

MIB = 1 << 20


def group(root: Path, name: str, **files: str) -> None:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file.replace("__", ".")).write_text(f"{text}\n")


def own(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "own"
    file.write_text(text)
    return file


def test_the_tightest_group_of_version_2_counts(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, "", memory__max="max", memory__current="1")
    group(root, "job", memory__max=str(100 * MIB), memory__current=str(90 * MIB))
    (root / "job/memory.stat").write_text(f"anon 5\ninactive_file {20 * MIB}\n")
    group(root, "job/step", memory__max=str(80 * MIB), memory__current=str(10 * MIB))
    assert host.group_memory_left_bytes(root, own(tmp_path, "0::/job/step\n")) == 30 * MIB


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    files = {"memory__limit_in_bytes": str(64 * MIB), "memory__usage_in_bytes": str(4 * MIB)}
    group(root, "memory/docker/x", **files)
    group(root, "cpu,cpuacct")
    group(root, "cpu/docker/x", cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    lines = own(tmp_path, "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n")
    assert host.group_memory_left_bytes(root, lines) == 60 * MIB
    assert host.group_cpus(root, lines) == 1.5


@pytest.mark.parametrize(
    ("text", "cpus"), [("max 100000", None), ("50000 100000", 0.5), ("", None)]
)
def test_cpu_time_of_version_2(tmp_path: Path, text: str, cpus: float | None) -> None:
    root = tmp_path / "cgroup"
    group(root, "", cpu__max=text)
    assert host.group_cpus(root, own(tmp_path, "0::/\n")) == cpus


def test_a_limit_that_is_used_up_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    group(root, "", memory__max="100", memory__current="200")
    assert host.group_memory_left_bytes(root, own(tmp_path, "0::/\n")) == 0


def test_no_groups_no_limit(tmp_path: Path) -> None:
    assert host.group_memory_left_bytes(tmp_path, tmp_path / "none") > 1 << 50
    assert host.group_cpus(tmp_path, tmp_path / "none") is None


def test_no_program_is_started_for_the_name_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's platform.processor() starts uname, also in a dry run."""
    monkeypatch.setattr("platform._uname_cache", None)
    monkeypatch.setattr("subprocess.Popen", None)
    assert host.cpu_name.__wrapped__()


def test_one_core_is_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "usable_cores", lambda: 1)
    assert host.cpu_name.__wrapped__().endswith(" (1 core)")


@pytest.mark.parametrize(
    ("own", "node", "ranks", "name"),
    [
        ("h3.lab.local", "h3", "4", "h3"),
        ("h3", "h3.lab", "4", "h3.lab"),
        ("h3.lab.local", "h1", "4", "h3.lab.local"),  # by an mpirun on h1
        ("ip-10-0-0-3", "gpu-3", "", "gpu-3"),  # in a prolog
        ("h3", "", "", "h3"),
    ],
)
def test_a_host_is_called_as_slurm_calls_it(
    monkeypatch: pytest.MonkeyPatch, own: str, node: str, ranks: str, name: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: own)
    monkeypatch.setenv("SLURMD_NODENAME", node)
    monkeypatch.setenv("PMI_SIZE", ranks)
    assert host.host_name() == name
