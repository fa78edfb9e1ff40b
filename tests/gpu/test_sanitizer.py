"""Compute Sanitizer's memcheck over the kernels of every protocol: no access out of bounds or
misaligned, on sizes that fit badly.
"""

import shutil
import sys
from shlex import split

import pytest

from tests.gpu._running import run
from tests.support.runs import environment

LIMIT_S = 240.0  # the tool slows start and kernels down many times
FOUND = 9
MEMCHECK = split(f"--tool memcheck --report-api-errors no --error-exitcode {FOUND}")
SWEEP = split(
    "-m collbench sweep --proto simple,ll,ll128 --sizes 4,1000,9004 --backend cuda -c 1"
    " --timeout 60 --repeats 1 --iters 2 --hot --launch stream"
)


@pytest.mark.parametrize(
    "problems",
    [
        ("--op", "allreduce,alltoall", "--algo", "ring,oneshot,direct"),
        (
            *("--op", "allgatherv,reducescatterv,alltoallv", "--skew", "zipf:1.1,hot:1"),
            *("--algo", "ring,direct"),
        ),
    ],
    ids=["equal blocks", "unequal blocks"],
)
def test_memcheck_finds_nothing(gpus: int, problems: tuple[str, ...]) -> None:
    tool = shutil.which(
        "compute-sanitizer", path=f"{environment().get('PATH', '')}:/usr/local/cuda/bin"
    )
    if tool is None:
        pytest.skip("needs compute-sanitizer")
    done = run([tool, *MEMCHECK, sys.executable, *SWEEP, *problems], LIMIT_S)
    print(
        "\n".join([line for line in done.stdout.splitlines() if "=====" in line][-40:]),
        done.stdout[-1500:],
        done.stderr[-1500:],
    )
    if "Device not supported" in done.stdout + done.stderr:
        pytest.skip("compute-sanitizer does not support this GPU here")
    assert done.code == 0
    assert "ERROR SUMMARY: 0 errors" in done.stdout + done.stderr
