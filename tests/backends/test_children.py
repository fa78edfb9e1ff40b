"""Ranks in processes of their own: variables reach them, the launcher's do not, and whatever
becomes of one is told and leaves nothing behind.
"""

import ast
import math
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from collbench.backends.gpu.child import ChildWorkerGroup, ParentRank
from collbench.core.errors import HangError, RankLostError, RefusedError
from collbench.core.group import RankContext
from collbench.launch.child import Child
from collbench.launch.local import LocalGroup
from collbench.launch.server import rank_name
from tests.support.child_rank import ChildRank
from tests.support.runs import ROOT, are_gone, needs_mpi, said_by, under_mpirun

# What the children find on their path, and so their parent's variables have reached them.
Workers = ChildWorkerGroup[ChildRank]
VARIABLES = ("NCCL_ALGO", "Ring"), ("PYTHONPATH", str(ROOT))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    made = ChildWorkerGroup(LocalGroup(), ChildRank, 2, VARIABLES)
    yield made
    made.close()


def pids(workers: Workers) -> list[int]:
    return [pid for *_, pid, _ in workers.call(ChildRank.tell, timeout_s=30)]


def test_every_rank_is_a_process_with_the_variables_and_without_the_launchers(
    workers: Workers,
) -> None:
    told = workers.call(ChildRank.tell, "NCCL_ALGO", "NCCL_NVLS_ENABLE", "PMI_RANK", timeout_s=30)
    assert [(rank, n, is_process) for rank, n, is_process, *_ in told] == [
        (0, 2, True),
        (1, 2, True),
    ]
    assert [values for *_, values in told] == [["Ring", "0", None]] * 2
    assert len({os.getpid(), *(pid for *_, pid, _ in told)}) == 3


def test_what_a_child_raises_comes_through_and_ends_nothing(workers: Workers) -> None:
    with pytest.raises(RefusedError, match="no such thing") as found:
        workers.call(ChildRank.refuse, timeout_s=30)
    assert found.value.hint == "ask for another"
    assert len(pids(workers)) == 2


def test_a_child_that_dies_is_named(workers: Workers) -> None:
    workers.call(ChildRank.tell, timeout_s=30)
    with pytest.raises(HangError, match=r"the process of rank 1 was killed by SIGKILL in die"):
        workers.call(ChildRank.die, 1, timeout_s=30)


def test_a_child_that_hangs_is_given_up_and_killed() -> None:
    workers = ChildWorkerGroup(LocalGroup(), ChildRank, 2, VARIABLES)
    before = pids(workers)
    with pytest.raises(
        HangError, match=r"the process of rank 1 does not answer after 0 s in sleep"
    ):
        workers.call(ChildRank.sleep, 60.0, 1, timeout_s=0.3)
    assert are_gone(before[1])
    workers.close()
    assert are_gone(before[0])


def test_a_stopped_child_is_told_from_a_slow_one_and_given_up_before() -> None:
    child = Child("it", rank_name(ChildRank), RankContext(rank=0, n=1), os.environ)
    os.kill(child._process.pid, signal.SIGSTOP)
    with pytest.raises(HangError, match=r"it is stopped \(SIGSTOP\)"):
        child.answer(math.inf, stopped_s=0.1)


def test_a_dead_child_stays_lost() -> None:
    rank = ParentRank(RankContext(rank=0, n=1))
    rank.begin(rank_name(ChildRank), VARIABLES)
    with pytest.raises(RankLostError):
        rank.forward("die", (0,), 30.0)
    rank.close()
    rank.close()


def test_children_go_with_their_parent_and_leave_stdout_alone() -> None:
    code = (
        "import os\n"
        "from collbench.backends.gpu.child import ChildWorkerGroup\n"
        "from collbench.launch.local import LocalGroup\n"
        "from tests.support.child_rank import ChildRank\n"
        f"workers = ChildWorkerGroup(LocalGroup(), ChildRank, 2, {VARIABLES!r})\n"
        "workers.call(ChildRank.say, timeout_s=30)\n"
        "print(*(pid for *_, pid, _ in workers.call(ChildRank.tell, timeout_s=30)), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = said_by([sys.executable, "-c", code])
    assert (done.returncode, done.stderr.count("talk")) == (-9, 2)
    children = [int(pid) for pid in done.stdout.split()]
    assert len(children) == 2
    assert are_gone(*children)


UNDER_MPIRUN = """
import sys
from collbench.backends.gpu.child import ChildWorkerGroup
from collbench.core.launcher import launcher
from collbench.launch.mpi import MpiGroup
from tests.support.child_rank import ChildRank

group = MpiGroup(launcher())
if group.rank != 0:
    sys.exit(group.serve())
several = [
    ChildWorkerGroup(group, ChildRank, 2, (("NCCL_ALGO", algo), *{variables!r}))
    for algo in ("Ring", "Tree")
]
for workers in several:
    names = "NCCL_ALGO", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"
    print(*workers.call(ChildRank.tell, *names, timeout_s=30), sep="\\n", flush=True)
for workers in several:
    workers.close()
group.close(0)
"""


@pytest.mark.exhaustive
@needs_mpi
def test_under_a_launcher_children_of_several_groups_are_no_ranks_of_it() -> None:
    code = UNDER_MPIRUN.replace("{variables!r}", repr(VARIABLES[1:]))
    done = said_by(under_mpirun(2, [sys.executable, "-c", code]))
    assert done.returncode == 0, done.stderr
    told = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert [(rank, n, is_process, values) for rank, n, is_process, _, values in told] == [
        (rank, 2, True, [algo, None, None, None]) for algo in ("Ring", "Tree") for rank in (0, 1)
    ]
    pids = [pid for *_, pid, _ in told]
    assert len(set(pids)) == 4
    assert are_gone(*pids)
