"""Faults injected into sweeps on GPUs: each sweep ends soon, with the required exit code, and names
the rank that caused the fault.
"""

import re
from shlex import split

import pytest

from tests.gpu._running import MODELS, Ended, run, started

LIMIT_S = 30.0
SWEEP = split(
    "-m collbench sweep --op allreduce --algo ring --sizes 1M --backend cuda --repeats 1 --iters 5"
)
PROTOS = ("simple", "ll", "ll128", "sentinel")


def sweep(model: str, gpus: int, *more: str) -> Ended:
    """Run a sweep to its end and print its error messages."""
    ended = run(started(model, gpus, [*SWEEP, *more]), LIMIT_S)
    print(
        f"\n{model} {' '.join(more)}: exit code {ended.code} after {ended.seconds:.1f}"
        f" s\n{ended.errors or ended.stderr[-1000:]}"
    )
    assert ended.code != -1, f"not over in {LIMIT_S:.0f} s"
    assert "Traceback" not in ended.stderr
    return ended


@pytest.mark.parametrize("proto", PROTOS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("late:1", r"rank 1 (keeps the others waiting: |does not answer; ).*rank [02-9]\d* waited"
         " for rank 1 to begin"),
        ("drop", r"rank 0 keeps the others waiting: .*rank 1 \(channel 0, track main, round \d+\)"
         " waited for data from rank 0: wanted 3,"),
    ],
)  # fmt: skip
def test_a_rank_that_is_late_or_silent_is_named(
    gpus: int, model: str, proto: str, fault: str, said: str
) -> None:
    ended = sweep(model, gpus, "--proto", proto, "--timeout", "1", "--inject", fault)
    assert ended.code == 4
    assert re.search(said, ended.errors)


@pytest.mark.parametrize("proto", PROTOS)
def test_a_rank_that_dies_ends_all(gpus: int, proto: str) -> None:
    """The launcher sees it first and ends the others, which have no time to speak."""
    ended = sweep("mpi", gpus, "--proto", proto, "--timeout", "1", "--inject", "die:1")
    assert ended.code != 0
    assert re.search(
        r"rank 1\b|signal 9|SIGKILL|Killed", ended.stdout + ended.stderr, re.IGNORECASE
    )


@pytest.mark.parametrize("model", MODELS)
def test_the_gpus_work_afterwards(gpus: int, model: str) -> None:
    ended = sweep(model, gpus, "--proto", ",".join(PROTOS))
    assert ended.code == 0
