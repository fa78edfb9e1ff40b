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


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("op", "algo", "proto", "n"),
    [
        ("allreduce", "ring", "simple", 3),
        ("allreduce", "oneshot", "ll", 2),
        ("alltoall", "direct", "simple", 2),
        ("broadcast", "chain", "ll", 3),
    ],
)
def test_every_launch_is_right(op: str, algo: str, proto: str, n: int) -> None:
    """Two repeats: each set once, then four times 72 launches in two bursts each."""
    code, said = ranks(n, op, algo, proto, "graph", "none")
    assert said == [f"rank {rank}: right, {2 * (2 + 4 * 72)} launches" for rank in range(n)]
    assert code == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("op", "chunk_bytes", "threads", "n"),
    [("allreduce", TAKEN_FROM, 0, 3), ("alltoall", RECEIVED_FROM, 2, 2)],
)
def test_large_messages_are_taken_or_received_by_threads(
    op: str, chunk_bytes: int, threads: int, n: int
) -> None:
    code, said = ranks(
        n,
        op,
        "ring" if op == "allreduce" else "direct",
        "simple",
        "isolated",
        "none",
        str(chunk_bytes),
        str(threads),
    )
    assert said == [f"rank {rank}: right, {2 * (2 + 9)} launches" for rank in range(n)]
    assert code == 0


@pytest.mark.exhaustive
def test_launches_that_are_timed_alone() -> None:
    code, said = ranks(2, "allreduce", "ring", "ll", "isolated", "none")
    assert said == [f"rank {rank}: right, {2 * (2 + 9)} launches" for rank in range(2)]
    assert code == 0


@pytest.mark.exhaustive
def test_all_go_on_after_a_plan_was_refused() -> None:
    code, said = ranks(3, "allreduce", "ring", "simple", "isolated", "refused")
    assert said == [f"rank {rank}: right, {2 * (2 + 9)} launches" for rank in range(3)]
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
