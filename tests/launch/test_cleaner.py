"""What a cleaner does for a launcher of Open MPI that hangs without ranks."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from collbench.launch import cleaner
from collbench.launch.processes import command_of, descendants


@pytest.mark.parametrize(("name", "ended_by"), [("prterun", signal.SIGTERM), ("python", None)])
def test_a_launcher_without_processes_is_ended_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ended_by: int | None
) -> None:
    monkeypatch.setattr(cleaner, "_HUNG_S", 0.2)
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            while command_of(process.pid) != name:  # until the program is loaded
                pass
            monkeypatch.setattr(cleaner, "_GIVEN_UP_S", 0.5)
            cleaner._end_without_ranks(process.pid)
            ended = process.wait(timeout=5) if ended_by is not None else process.poll()
            assert ended == (None if ended_by is None else -ended_by)
        finally:
            process.kill()


def test_a_launcher_with_processes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner, "_HUNG_S", 0.1)
    monkeypatch.setattr(cleaner, "_GIVEN_UP_S", 0.5)
    program = tmp_path / "mpirun"
    shutil.copy(shutil.which("bash") or "/bin/bash", program)
    with subprocess.Popen([program, "-c", "sleep 60 & echo; wait"], stdout=-1) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()  # the sleep is there
            cleaner._end_without_ranks(process.pid)
            assert process.poll() is None
        finally:
            for pid in list(descendants(process.pid)):
                subprocess.run(["kill", str(pid)], check=False)
            process.kill()
