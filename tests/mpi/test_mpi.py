"""Under mpirun: every process is a rank, rank 0 alone speaks; and MPI's own collectives as the
peer, with a launcher and without; and traces of messages.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from shlex import split

import pytest

from collbench.core.collectives import ALL_OPS
from collbench.core.record import read
from tests.support.algorithm_files import pairs
from tests.support.commands import result_of
from tests.support.runs import Run, needs_mpi, said_by, under_mpirun
from tests.support.tiers import tiered

pytestmark = needs_mpi


def sweep(*args: str, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "collbench", "sweep", *args]
    return said_by(under_mpirun(ranks, command) if ranks else command)


@tiered("ranks", [2, 3], [2])
def test_every_collective_of_both_backends_under_mpirun(tmp_path: Path, ranks: int) -> None:
    """Every third one of two ranks."""
    file, ops = tmp_path / "out.csv", ALL_OPS[:: 3 if ranks == 2 else 1]
    done = sweep(
        *split(f"--op {','.join(ops)} --algo auto --skew hot:1 --backend cpu,mpi --sizes 100000"),
        *split(f"--repeats 1 -n 3 --distribution 5 --hot --csv {file}"),
        ranks=ranks,
    )
    assert done.returncode == 0, done.stderr
    rows = read(file)
    assert {sum(dict(row.histogram).values()) for row in rows} == {5}
    assert {(row.op, row.backend) for row in rows} == {
        (op, backend) for op in ops for backend in ("cpu", "mpi")
    }
    for row in rows:
        assert (row.status, row.wrong) == ("ok", 0)
        assert (row.group, row.ranks, row.hosts) == ("mpi", ranks, 1)
        assert "MPICH" in row.versions or "Open MPI" in row.versions
    heads = [line for line in done.stdout.splitlines() if line.split()[:2] == ["size", "algo"]]
    assert len(heads) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["cpu", "mpi"])
def test_types_reductions_roots_and_placements(tmp_path: Path, backend: str) -> None:
    file = tmp_path / "out.csv"
    done = sweep(
        *split("--op allreduce,reduce,broadcast,gather,scatter,allgather,reducescatter"),
        *split(f"--algo auto --backend {backend} --ranks 3 --sizes 4099 --redop max,avg"),
        *split("--dtype int8,bfloat16,float64 --root 2 --placement all"),
        *split(f"--repeats 1 -n 3 --hot --csv {file}"),
    )
    assert done.returncode == 0, done.stderr
    statuses = {row.status for row in read(file)}
    assert statuses == ({"ok"} if backend == "cpu" else {"ok", "waived"})
    for row in read(file):
        assert row.status == "ok" or "MPI" in row.reason


@pytest.mark.exhaustive
def test_the_tool_starts_mpirun_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    done = sweep(
        *split(f"--algo auto --backend cpu,mpi -g 2,3 --sizes 64K --repeats 1 --hot --csv {file}")
    )
    assert done.returncode == 0, done.stderr
    assert {(row.backend, row.ranks, row.group, row.status) for row in read(file)} == {
        (backend, ranks, "local", "ok") for backend in ("cpu", "mpi") for ranks in (2, 3)
    }


@pytest.mark.exhaustive
def test_backends_of_one_process_are_waived_under_a_launcher() -> None:
    done = sweep(
        *split("--backend reference,model,cpu --algo ring --sizes 1K --repeats 1 --hot"), ranks=2
    )
    assert done.returncode == 0
    assert done.stdout.count("start it without a launcher") == 2


def test_usage_errors_are_told_once_under_a_launcher() -> None:
    done = sweep("--op", "nope", ranks=2)
    assert done.returncode == 2
    assert (done.stdout + done.stderr).count("there is no collective") == 1


@pytest.mark.exhaustive
def test_a_first_look_is_of_the_launchers_ranks() -> None:
    done = said_by(under_mpirun(2, [sys.executable, "-m", "collbench", "--json"]))
    assert done.returncode in (0, 1, 5), done.stderr
    assert {one["ranks"] for one in result_of(done.stdout)["rows"]} == {2}


@pytest.mark.exhaustive
def test_rank_0_reads_the_file_of_an_algorithm(tmp_path: Path) -> None:
    """Its folder need not be one of all hosts: the others get the schedule."""
    file, csv = tmp_path / "mine.xml", tmp_path / "out.csv"
    file.write_text(pairs())
    done = sweep(
        "--algo", str(file), "--backend", "cpu", "--sizes", "1K", "--csv", str(csv), ranks=2
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = read(csv)
    assert (row.algo[:5], row.ranks, row.group, row.status) == ("mine@", 2, "mpi", "ok")
    file.write_text("<algo/>")
    done = sweep("--algo", str(file), "--backend", "cpu", "--sizes", "1K", ranks=2)
    assert done.returncode == 2
    assert done.stderr.count("Error: ") == 1


@pytest.mark.exhaustive
def test_every_session_of_a_long_run_has_its_shared_memory() -> None:
    """MPICH 5 waits for ever for the tenth window of shared memory that is not given back."""
    done = sweep("--backend", "cpu", "--algo", "direct", "--op", "broadcast", "--sizes", "1K",
                 "--runs", "12", "--repeats", "1", "-n", "3", "--hot", ranks=2)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 row of 12 runs" in done.stdout


TRACE = [sys.executable, "-m", "collbench", "trace", "--size", "4K", "--algo", "ring"]


@pytest.mark.exhaustive
def test_messages_of_proxies_are_traced(tmp_path: Path) -> None:
    file = tmp_path / "ours" / "t.json"  # a run must leave no file of its own
    file.parent.mkdir()
    command = [*TRACE, "--transport", "net", "--launches", "2", "--out", str(file)]
    with Run(tmp_path, under_mpirun(3, command)) as run:
        assert run.finish() == 0, run.stderr
    events = json.loads(file.read_text())["traceEvents"]
    # each of three ranks sends and receives four messages in a launch of a ring
    begun = Counter(one["name"].split(" rank")[0] for one in events if one["ph"] == "b")
    assert begun == {"proxy: send to": 24, "proxy: receive from": 24}
