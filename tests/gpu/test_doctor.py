"""`collbench doctor` on the GPUs of this machine: it looks at all of them under load, and names who
else uses one.
"""

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.commands import result_of
from tests.support.runs import ROOT, said_by

# Another process: what it has, what it does until its input ends, and how many GPUs that uses.
OTHER = """
import sys, threading, time, cupy
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
{has}
cupy.cuda.runtime.deviceSynchronize()
print("ready", flush=True)
while not over.is_set():
    {does}
    cupy.cuda.runtime.deviceSynchronize()
"""
OTHERS = {
    "a context": ("kept = cupy.zeros(1 << 20)", "time.sleep(0.05)", 1),
    "multiplications": ("a = cupy.ones((4096, 4096), 'f4')", "a @ a", 1),
    "memory traffic": ("a = cupy.zeros(1 << 28, 'u1'); b = a.copy()", "a[:] = b", 1),
    "copies between GPUs": (
        "a = cupy.zeros(1 << 28, 'u1'); cupy.cuda.Device(1).use(); b = cupy.zeros(1 << 28, 'u1')",
        "cupy.cuda.runtime.memcpyPeer(b.data.ptr, 1, a.data.ptr, 0, 1 << 28)",
        2,
    ),
}


LEAST_GPUS = 1


def doctor(*args: str) -> dict[str, Any]:
    """What it writes as JSON; `--json -` is given."""
    command = [sys.executable, "-m", "collbench", "doctor", "--json", "-", *args]
    done = said_by(command, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    # as a graph that another thread's work on the GPU had broken
    assert "are not loaded" not in done.stderr
    document: dict[str, Any] = result_of(done.stdout)
    return document


def test_every_check_of_gpus_looks(gpus: int) -> None:
    looked = {one["id"]: one["looked"] for one in doctor()["checks"]}
    alone = {"busy-gpus", "error-counters", "gpu-clocks", "gpu-memory-errors", "gpu-modes"}
    several = {"mixed-gpus", "nvlinks", "peer-access", "redirected-peers", "slow-pair"}
    assert all(looked[name] for name in alone | {"host-copies", "pcie-link"})
    assert all(looked[name] == (gpus > 1) for name in several)
    assert looked["slow-gpu"] == (gpus > 2)


def test_gpus_at_rest_have_no_faults() -> None:
    faults = [
        (one["check"], one["subject"], one["seen"])
        for one in doctor()["findings"]
        if one["severity"] == "fault"
    ]
    assert not faults


@pytest.mark.parametrize("name", OTHERS)
def test_another_process_on_a_gpu_is_named(name: str, gpus: int) -> None:
    """Also by the whole doctor, beside what that measures, where it fills a link."""
    has, does, used = OTHERS[name]
    if gpus < used:
        pytest.skip("needs two GPUs")
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER.format(has=has, does=does)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until the driver lists it
        findings = doctor(*(("--quick",) if used == 1 else ()))["findings"]
        print(name, [(one["check"], one["subject"], one["seen"]) for one in findings])
        busy = [one for one in findings if one["check"] == "busy-gpus"]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")
        assert [one["subject"] for one in busy] == [f"GPU {number}" for number in visible[:used]]
    finally:
        other.communicate()
