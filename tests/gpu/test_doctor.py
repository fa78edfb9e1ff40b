"""`collbench doctor` on the GPUs of this machine: it looks at all of them under load, and names who
else uses one.
"""

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.runs import ROOT, environment

HOG = (
    "import sys, time, cupy; kept = cupy.zeros(1 << 20); cupy.cuda.runtime.deviceSynchronize();"
    " print('ready', flush=True); sys.stdin.read()"
)


@pytest.fixture(scope="module", autouse=True)
def gpus(found_gpus: int) -> int:
    """The number of GPUs, of which one is enough here."""
    if found_gpus < 1:
        pytest.skip("needs an NVIDIA GPU and CuPy")
    return found_gpus


def doctor(*args: str) -> dict[str, Any]:
    """What it writes as JSON; `--json -` is given."""
    done = subprocess.run(
        [sys.executable, "-m", "collbench", "doctor", "--json", "-", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
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


def test_another_process_on_a_gpu_is_named() -> None:
    hog = subprocess.Popen(
        [sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert hog.stdout is not None
        assert hog.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until the driver lists it
        found = doctor("--quick", "--only", "busy-gpus")["findings"]
        assert [one["subject"] for one in found] == ["GPU 0"]
    finally:
        hog.communicate()
