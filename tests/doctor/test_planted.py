"""Real faults around real runs of the command: limits, cores, variables, namespaces, busy processes
and signals. What is found is read from its JSON.
"""

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.processes import parent_of, send
from tests.support.commands import result_of
from tests.support.runs import Run, library, needs_mpi, read_of, said_by, under_mpirun

DOCTOR = (sys.executable, "-m", "collbench", "doctor")
CORES = sorted(os.sched_getaffinity(0))
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
needs_taskset = pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset")
needs_mounts = pytest.mark.skipif(
    said_by(["sh", "-c", "unshare --mount --ipc true"]).returncode != 0,
    reason="needs namespaces of its own, as root has",
)


def doctor(
    folder: Path,
    *args: str,
    each: Sequence[str] = (),
    prefix: Sequence[str] = (),
    ranks: int = 0,
    extra: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of a run, started as so many ranks where there are some, which
    leaves nothing behind and shows no traceback. each: before the command of each rank.
    """
    command: Sequence[str] = [*each, *DOCTOR, *args, "--json", "-"]
    if ranks:
        command, prefix = [*prefix, *under_mpirun(ranks, list(command))], ()
    with Run(folder, list(command), extra, prefix) as run:
        code = run.finish()
        return code, result_of(run.stdout)


def named(document: Mapping[str, Any], check: str) -> dict[str, Any]:
    """The first finding of a check."""
    findings = [one for one in document["findings"] if one["check"] == check]
    assert findings, document["findings"]
    first: dict[str, Any] = findings[0]
    return first


def shell(script: str) -> list[str]:
    """A prefix: a shell that changes something of its own, and becomes the command."""
    return ["bash", "-c", f'{script} && exec "$@"', "-"]


def assert_costs(code: int, document: Mapping[str, Any], finding: Mapping[str, Any]) -> None:
    """That a cost was measured and decides; or that others had the cores, which it must say."""
    if "the machine is busy" in finding["unmeasured"]:
        return
    assert len(finding["costs"]) == 3, finding["unmeasured"]
    if any(one["is_noisy"] for one in finding["costs"]):
        assert finding["mark"] == "RISK"
        return
    assert any(one["is_real"] and one["low"] > 1.03 for one in finding["costs"]), finding["costs"]
    assert (code, document["verdict"], finding["mark"]) == (1, "FAIL", "COST")


CASES = tomllib.loads(Path(__file__).with_name("planted.toml").read_text())
PLACES = {"core": CORES[0], "cores": os.cpu_count() or 1, "more": (os.cpu_count() or 1) + 1}


def lacks(need: str) -> bool:
    """Whether the machine has not what a case needs."""
    if need == "MPICH":
        return library() != "MPICH"
    marks = {"two cores": needs_two_cores, "taskset": needs_taskset, "mounts": needs_mounts}
    return bool({**marks, "mpi": needs_mpi}[need].args[0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", CASES)
def test_what_is_planted_is_found(what: str, tmp_path: Path) -> None:
    case = CASES[what]
    for need in case["needs"]:
        if lacks(need):
            pytest.skip(f"needs {need}")
    code, document = doctor(
        tmp_path,
        *case["args"].split(),
        each=case.get("each", ()),
        prefix=[word.format(**PLACES) for word in case.get("around", ())],
        ranks=int(case.get("ranks", "0").format(**PLACES)),
        extra=case.get("variables"),
    )
    assert code == case.get("code", code)
    if "finds" not in case:
        assert document["findings"] == []
        return
    finding = named(document, case["finds"])
    assert finding["seen"].startswith(case["seen"].format(**PLACES))
    assert {key: finding[key] for key in ("subject", "severity", "mark") if key in case} == {
        key: case[key] for key in ("subject", "severity", "mark") if key in case
    }
    assert finding["unmeasured"].startswith(case.get("unmeasured", ""))
    if "notes" in case:
        note = next(one for one in document["findings"] if case["notes"] in one["seen"])
        assert (note["mark"], note["costs"]) == ("NOTE", [])
    if case.get("costs", False):
        assert_costs(code, document, finding)


@contextmanager
def busy(cores: Sequence[int]) -> Iterator[None]:
    """A process on each core that never rests."""
    spin = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    started = [subprocess.Popen([sys.executable, "-c", spin, str(core)]) for core in cores]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.mark.exhaustive
@needs_two_cores
@needs_taskset
def test_limits_cores_and_an_interface_of_one_run(tmp_path: Path) -> None:
    """Four faults at once; only what proves itself decides the exit code."""
    prefix = [
        *shell("ulimit -S -n 100 && ulimit -S -s unlimited"), "taskset", "-c", str(CORES[0]),
    ]  # fmt: skip
    extra = {"GLOO_SOCKET_IFNAME": "nosuch0", "MPIR_CVAR_NOLOCAL": "1"}
    code, document = doctor(tmp_path, "--quick", prefix=prefix, extra=extra)
    seen = {(one["check"], one["subject"], one["seen"][:24]) for one in document["findings"]}
    assert seen >= {
        ("limits", "this process", "may open 100 files; 1 ra"),
        ("limits", "this process", "the stack is unlimited, "),
        ("binding", "this process", f"is bound to one core ({CORES[0]}) of 0"[:24]),
        ("interfaces", "this process", "GLOO_SOCKET_IFNAME=nosuc"),
        ("mpi-transport", "this process", "MPIR_CVAR_NOLOCAL=1 swit"),
    }
    assert (code, document["verdict"]) == (1, "FAIL")
    assert named(document, "interfaces")["mark"] == "COST"
    assert named(document, "binding")["mark"] == "RISK"
    assert named(document, "binding")["unmeasured"] == "--quick measures nothing"
    assert document["findings"][0]["check"] == "interfaces", "the worst comes first"


@pytest.mark.exhaustive
def test_busy_processes_on_all_cores(tmp_path: Path) -> None:
    with busy(CORES):
        code, document = doctor(tmp_path, "--only", "busy-cores", "--fail-on", "risk")
    finding = named(document, "busy-cores")
    assert finding["seen"].startswith("other processes use ")
    assert (code, finding["mark"]) == (1, "RISK")


@pytest.mark.exhaustive
@needs_mpi
def test_copies_between_processes_switched_off(tmp_path: Path) -> None:
    """Measured with and without it; what comes out depends on the machine."""
    _, document = doctor(
        tmp_path,
        "--only",
        "cross-memory-attach",
        ranks=2,
        extra={"MPIR_CVAR_CH4_CMA_ENABLE": "0", "OMPI_MCA_smsc": "^cma"},  # one for each library
    )
    finding = named(document, "cross-memory-attach")
    assert finding["subject"] == "ranks 0-1"
    assert len(finding["costs"]) == 3 or "rounds took" in finding["unmeasured"]


@pytest.mark.exhaustive
@needs_two_cores
@needs_taskset
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_experiment_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    command = [*DOCTOR, "--only", "binding"]
    with Run(tmp_path, command, prefix=["taskset", "-c", str(CORES[0])]) as run:
        run.wait_until(lambda: len(run.pids()) > 4)  # two arms, and ranks of one at least
        run.process.send_signal(number)
        assert run.finish() != 0
        assert "COST" not in run.stdout


@pytest.mark.exhaustive
@needs_two_cores
@needs_taskset
def test_a_killed_arm_is_a_reason(tmp_path: Path) -> None:
    command = [*DOCTOR, "--only", "binding", "--json", "-"]
    with Run(tmp_path, command, prefix=["taskset", "-c", str(CORES[0])]) as run:
        run.wait_until(lambda: len(run.pids()) > 4)
        arms = [pid for pid in run.pids() if _is_arm(pid) and parent_of(pid) == run.process.pid]
        assert len(arms) == 2
        send(arms[0], signal.SIGKILL)
        code = run.finish()
        finding = named(result_of(run.stdout), "binding")
    assert finding["unmeasured"].endswith("the process of an experiment was killed by SIGKILL")
    assert (code, finding["mark"], finding["costs"]) == (0, "RISK", [])


def _is_arm(pid: int) -> bool:
    return "collbench.bench.arm" in read_of(pid, "cmdline")
