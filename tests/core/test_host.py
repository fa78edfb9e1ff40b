"""What control groups allow, in files of our own."""

import re
import tomllib
from pathlib import Path

import pytest

from collbench.core import host

CASES = tomllib.loads(Path(__file__).with_name("cgroups.toml").read_text())
MIB = 1 << 20


@pytest.mark.parametrize("what", CASES)
def test_what_control_groups_allow(tmp_path: Path, what: str) -> None:
    """In the files as in what is left, M are MiB."""
    case = CASES[what]
    for name, text in case["files"].items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"(\d+)M", lambda found: str(int(found[1]) * MIB), text))
    (own := tmp_path / "own").write_text(case["own"])
    left = host.group_memory_left_bytes(tmp_path / "cgroup", own)
    assert left == case["left_mib"] * MIB if "left_mib" in case else left > 1 << 50
    assert host.group_cpus(tmp_path / "cgroup", own) == case.get("cpus")


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
