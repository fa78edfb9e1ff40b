"""GPUs that pass data by messages of MPI, one process a GPU.

Run these in order and stop at the first that fails: each relies on what the previous one shows.
After a rank hangs in a batch, the rest of the batch reports hangs too, because the communicators
keep messages that were in flight; outside of tests nothing runs after a hang.
"""

import csv
import re
from pathlib import Path
from shlex import split

import pytest

from tests.gpu._running import failures_of, failures_with_four, run, started

LIMIT_S = 120.0
SWEEP = split("-m collbench sweep --backend cuda --transport net --repeats 1 --iters 5")
RING = (*SWEEP, "--algo", "ring", "--proto")
WAIVED = {
    "ll128": (
        "ll128 needs lines of 128 bytes that arrive whole, which PCIe does not promise; use --proto"
        " simple or ll"
    ),
    "sentinel": (
        "sentinel has its slots in the memory of the GPU that clears them; use --transport p2p, or"
        " --proto simple or ll"
    ),
}


def rows_of(gpus: int, file: Path, *more: str) -> list[dict[str, str]]:
    """The rows of a sweep that ends well."""
    ended = run(started("mpi", gpus, [*SWEEP, *more, "--csv", str(file)]), LIMIT_S)
    print(
        f"\nexit code {ended.code} after {ended.seconds:.1f}"
        f" s\n{ended.stdout[-3000:]}\n{ended.stderr[-1000:]}"
    )
    assert ended.code == 0
    return list(csv.DictReader(file.read_text().splitlines()))


@pytest.mark.parametrize("proto", ["simple", "ll"])
def test_one_allreduce(gpus: int, proto: str, tmp_path: Path) -> None:
    (row,) = rows_of(
        gpus, tmp_path / "rows.csv", "--algo", "ring", "--proto", proto, "--sizes", "64K"
    )
    assert (row["status"], row["transport"], row["proto"]) == ("ok", "net", proto)


def test_plans_equal_the_reference(gpus: int) -> None:
    assert failures_with_four(gpus, "net") == []


def test_memory_inside_pretended_hosts_and_messages_between(gpus: int) -> None:
    """Two hosts of two ranks at least."""
    assert failures_of("mpi", max(4, gpus), "net-hosts") == []


def test_measured_launches_are_right(gpus: int) -> None:
    assert failures_of("mpi", gpus, "net-measured") == []


def test_every_collective_is_right(gpus: int, tmp_path: Path) -> None:
    rows = rows_of(
        gpus, tmp_path / "rows.csv", "--op", "all", "--proto", "all", "--sizes", "100,64K,1M,8M"
    )
    for row in rows:
        reason = WAIVED.get(row["proto"], "")
        assert (row["status"], row["reason"]) == ("waived" if reason else "ok", reason)
    assert {row["transport"] for row in rows if row["status"] == "ok"} == {"net"}


@pytest.mark.parametrize("memory", ["host", "device"])
def test_where_slots_are(gpus: int, memory: str, tmp_path: Path) -> None:
    """In GPU memory only if MPI reports that it supports it."""
    words = [*RING, *split(f"simple --sizes 1M --net-memory {memory} --csv -")]
    ended = run(started("mpi", gpus, words), LIMIT_S)
    print(ended.stdout, ended.stderr[-1000:])
    assert f"net-{memory}" in ended.stdout or (
        memory == "device"
        and re.search("takes no GPU memory|does not say whether it takes", ended.stdout)
    )


@pytest.mark.parametrize("launch", [("--launch", "stream"), ("--isolate",), ("--agg-iters", "80")])
def test_other_ways_to_launch(gpus: int, launch: tuple[str, ...], tmp_path: Path) -> None:
    more = split("--algo ring --proto simple --sizes 256K")
    (row,) = rows_of(gpus, tmp_path / "rows.csv", *more, *launch)
    assert row["status"] == "ok"


@pytest.mark.parametrize("proto", ["simple", "ll"])
def test_a_soak(gpus: int, proto: str) -> None:
    more = f"--op allreduce,alltoall --algo auto --proto {proto} --sizes 1K,256K --soak 5"
    ended = run(started("mpi", gpus, [*SWEEP[:-4], *split(more)]), LIMIT_S)
    assert (ended.code, "0 bursts wrong" in ended.stdout) == (0, True), (
        ended.stdout + ended.stderr[-1000:]
    )


@pytest.mark.parametrize("proto", ["simple", "ll"])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("late:1", r"rank 1 (keeps the others waiting: |does not answer; )"),
        ("drop", r"rank 0 keeps the others waiting: .*waited for data from rank 0: wanted 3,"),
    ],
)
def test_faults_are_named(gpus: int, proto: str, fault: str, message: str) -> None:
    words = [*RING, proto, *split(f"--sizes 1M --timeout 1 --inject {fault}")]
    ended = run(started("mpi", gpus, words), LIMIT_S)
    print(ended.errors)
    assert ended.code == 4
    assert re.search(message, ended.errors)


def test_one_process_for_all_gpus_sends_no_messages(gpus: int) -> None:
    ended = run(started("local", gpus, [*SWEEP, "--sizes", "64K"]), LIMIT_S)
    assert ended.code == 3
    assert "messages of MPI need a process a GPU" in ended.errors
