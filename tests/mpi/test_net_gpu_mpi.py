"""GPUs made of NumPy arrays, one a rank of MPI: the lane, the proxy and the meetings as on real
ones, results right and faults named.
"""

import re
import sys

import pytest

from collbench.backends.net.receivers import RECEIVED_FROM, TAKEN_FROM
from tests.support.runs import LIMIT_S, ROOT, needs_mpi, said_by, under_mpirun

pytestmark = needs_mpi


def ranks(n: int, *arguments: str) -> tuple[int, list[str]]:
    """The exit code, and what each rank said; a launcher may put two lines together."""
    command = under_mpirun(n, [sys.executable, "-m", "tests.support.net_rank", *arguments])
    done = said_by(command, LIMIT_S, cwd=ROOT)
    print(done.stdout, done.stderr[-2000:])
    return done.returncode, sorted(re.findall(r"rank \d: .+?(?=\n|rank \d: |$)", done.stdout))


IN_GRAPHS, ALONE = 4 * 24, 3  # launches of a repeat, of the former in two bursts each


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "words", "timed"),
    [
        (3, "allreduce ring simple graph none", IN_GRAPHS),
        (2, "allreduce oneshot ll graph none", IN_GRAPHS),
        (2, "alltoall direct simple graph none", IN_GRAPHS),
        (3, "broadcast chain ll graph none", IN_GRAPHS),
        (2, "allreduce ring ll isolated none", ALONE),
        # large messages, which are taken, or received by threads
        (3, f"allreduce ring simple isolated none {TAKEN_FROM} 0", ALONE),
        (2, f"alltoall direct simple isolated none {RECEIVED_FROM} 2", ALONE),
        # all go on after a plan was refused
        (3, "allreduce ring simple isolated refused", ALONE),
    ],
)
def test_every_launch_is_right(n: int, words: str, timed: int) -> None:
    """Two repeats: each set once, then what is timed."""
    code, said = ranks(n, *words.split())
    assert said == [f"rank {rank}: right, {2 * (2 + timed)} launches" for rank in range(n)]
    assert code == 0


@pytest.mark.exhaustive
def test_a_rank_that_is_late_is_named() -> None:
    code, said = ranks(3, "allreduce", "ring", "simple", "graph", "late:1")
    assert code != 0
    assert any(f"rank {rank}: rank {rank} waited for rank 1 to begin" in said for rank in (0, 2))


@pytest.mark.exhaustive
@pytest.mark.parametrize("proto", ["simple", "ll"])
def test_a_kernel_that_gives_up_ends_the_others(proto: str) -> None:
    """Its rank is told by the others' messages; who waited for whom is what real kernels report."""
    code, said = ranks(3, "allreduce", "ring", proto, "graph", "drop:0")
    assert code != 0
    assert {f"rank {rank}: rank {rank} was told to stop" for rank in range(3)} <= set(said)
