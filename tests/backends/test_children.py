"""Ranks in processes of their own: variables reach them, the launcher's do not, and whatever
becomes of one is told and leaves nothing behind.
"""

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.backends.gpu.child import ChildWorkerGroup, Rank
from collbench.launch.group import RankContext
from collbench.launch.launcher import OPEN_MPI_VARIABLES
from collbench.launch.local import LocalGroup
from collbench.util.errors import HangError, RankLostError, RefusedError
from tests.support.runs import environment, needs_mpi, under_mpirun

ROOT = Path(__file__).resolve().parents[2]
# A stand-in backend. Children find it because their variables put its folder on Python's path.
STANDIN = """
import os, signal, time
from collbench.util.errors import RefusedError

class Rank:
    def __init__(self, context):
        self.context = context
    def tell(self, *names):
        values = [os.environ.get(name) for name in names]
        return self.context.rank, self.context.n, self.context.is_process, os.getpid(), values
    def sleep(self, seconds, who):
        if self.context.rank == who:
            time.sleep(seconds)
    def die(self, who):
        if self.context.rank == who:
            os.kill(os.getpid(), signal.SIGKILL)
    def refuse(self):
        raise RefusedError("no such thing", "ask for another")
    def say(self):
        print("talk", flush=True)
"""


@pytest.fixture
def variables(tmp_path: Path) -> tuple[tuple[str, str], ...]:
    (tmp_path / "standin.py").write_text(STANDIN)
    (tmp_path / "sitecustomize.py").write_text(
        f"import collbench.backends\ncollbench.backends.__path__.append({str(tmp_path)!r})\n"
    )
    return ("NCCL_ALGO", "Ring"), ("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")


@pytest.fixture
def workers(
    variables: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChildWorkerGroup]:
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    made = ChildWorkerGroup(LocalGroup(), "standin", 2, variables)
    yield made
    made.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(workers: ChildWorkerGroup) -> list[int]:
    return [pid for *_, pid, _ in workers.call("tell", timeout_s=30)]


def test_every_rank_is_a_process_with_the_variables_and_without_the_launchers(
    workers: ChildWorkerGroup,
) -> None:
    told = workers.call("tell", "NCCL_ALGO", "NCCL_NVLS_ENABLE", "PMI_RANK", timeout_s=30)
    assert [(rank, n, is_process) for rank, n, is_process, *_ in told] == [
        (0, 2, True),
        (1, 2, True),
    ]
    assert [values for *_, values in told] == [["Ring", "0", None]] * 2
    assert len({os.getpid(), *(pid for *_, pid, _ in told)}) == 3


def test_closing_ends_them(variables: tuple[tuple[str, str], ...]) -> None:
    workers = ChildWorkerGroup(LocalGroup(), "standin", 2, variables)
    found = pids(workers)
    workers.close()
    assert not any(map(is_alive, found))


def test_what_a_child_raises_comes_through_and_ends_nothing(workers: ChildWorkerGroup) -> None:
    with pytest.raises(RefusedError, match="no such thing") as found:
        workers.call("refuse", timeout_s=30)
    assert found.value.hint == "ask for another"
    assert len(pids(workers)) == 2


def test_a_child_that_dies_is_named(workers: ChildWorkerGroup) -> None:
    workers.call("tell", timeout_s=30)
    with pytest.raises(HangError, match=r"the process of rank 1 was killed by SIGKILL in die"):
        workers.call("die", 1, timeout_s=30)


def test_a_child_that_hangs_is_given_up_and_killed(variables: tuple[tuple[str, str], ...]) -> None:
    workers = ChildWorkerGroup(LocalGroup(), "standin", 2, variables)
    before = pids(workers)
    with pytest.raises(
        HangError, match=r"the process of rank 1 does not answer after 0 s in sleep"
    ):
        workers.call("sleep", 60.0, 1, timeout_s=0.3)
    assert not is_alive(before[1])
    workers.close()
    assert not is_alive(before[0])


def test_a_stopped_child_is_told_from_a_slow_one(workers: ChildWorkerGroup) -> None:
    before = pids(workers)
    os.kill(before[0], signal.SIGSTOP)
    with pytest.raises(HangError, match=r"the process of rank 0 is stopped \(SIGSTOP\)"):
        workers.call("tell", timeout_s=0.3)


def test_a_dead_child_stays_lost(variables: tuple[tuple[str, str], ...]) -> None:
    rank = Rank(RankContext(rank=0, n=1))
    rank.begin("standin", variables)
    with pytest.raises(RankLostError):
        rank.ask("die", (0,), 30.0)
    rank.close()
    rank.close()


def test_children_go_with_their_parent_and_leave_stdout_alone(
    variables: tuple[tuple[str, str], ...],
) -> None:
    code = (
        "import os\n"
        "from collbench.backends.gpu.child import ChildWorkerGroup\n"
        "from collbench.launch.local import LocalGroup\n"
        f"workers = ChildWorkerGroup(LocalGroup(), 'standin', 2, {variables!r})\n"
        "workers.call('say', timeout_s=30)\n"
        "print(*(pid for *_, pid, _ in workers.call('tell', timeout_s=30)), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr.count("talk")) == (-9, 2)
    children = [int(pid) for pid in done.stdout.split()]
    assert len(children) == 2
    deadline = time.monotonic() + 10
    while any(map(is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_alive, children))


UNDER_MPIRUN = """
import sys
from collbench.backends.gpu.child import ChildWorkerGroup
from collbench.launch.mpi import MpiGroup

group = MpiGroup()
if group.rank != 0:
    sys.exit(group.serve())
for algo in ("Ring", "Tree"):
    workers = ChildWorkerGroup(group, "standin", 2, (("NCCL_ALGO", algo), *{variables!r}))
    names = "NCCL_ALGO", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"
    print(*workers.call("tell", *names, timeout_s=30), sep="\\n", flush=True)
    workers.close()
group.close(0)
"""


@needs_mpi
def test_under_a_launcher_each_rank_has_a_child_that_is_no_rank_of_it(
    variables: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNDER_MPIRUN.replace("{variables!r}", repr(variables[1:])))
    done = subprocess.run(
        under_mpirun(2, [sys.executable, str(script)]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**OPEN_MPI_VARIABLES, **environment({"PYTHONPATH": str(ROOT)})},
    )
    assert done.returncode == 0, done.stderr
    told = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert [(rank, n, is_process, values) for rank, n, is_process, _, values in told] == [
        (rank, 2, True, [algo, None, None, None]) for algo in ("Ring", "Tree") for rank in (0, 1)
    ]
    pids = [pid for *_, pid, _ in told]
    assert len(set(pids)) == 4
    assert not any(map(is_alive, pids))
