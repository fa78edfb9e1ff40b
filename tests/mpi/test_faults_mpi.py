"""Faults injected into real runs with MPI: the group of ranks under mpirun, and the peer whose
ranks mpirun starts for a run without a launcher. Signals in general: test_random_faults.
"""

import os
import signal
import time
from pathlib import Path
from shlex import split

import pytest

from collbench.core.collectives import OPS
from collbench.launch.cleaner import PROXY
from collbench.launch.processes import command_of, send
from tests.doctor.test_planted import needs_mounts, shell
from tests.support.plants import PLANTS
from tests.support.runs import (
    LONG,
    ROOT,
    STUCK_LIMIT_S,
    STUCK_TIMEOUT_S,
    Run,
    corrupt,
    library,
    needs_mpi,
    sweep,
    under_mpirun,
    without_mpi4py,
)
from tests.support.tiers import tiered

pytestmark = needs_mpi

SHORT = (*split("--algo ring --ranks 2 --repeats 1 --iters 3 --hot --sizes 1K"),)
PEER = ("--backend", "mpi")
NET = ("--transport", "net")
STUCK = ("--timeout", str(STUCK_TIMEOUT_S))


def long_sweep(folder: Path, *more: str) -> list[str]:
    return sweep("--ranks", "2", "--csv", str(folder / "rows.csv"), *LONG, *more)


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ["before-mpi", "shared-memory", "leave", "after-mpi"])
def test_a_rank_that_stops_while_all_start_or_leave(tmp_path: Path, where: str) -> None:
    """In calls of MPI that hold Python's lock, or before them: only guardians still look."""
    with Run(tmp_path, under_mpirun(2, corrupt(where, sweep(*SHORT, *STUCK)))) as run:
        assert run.finish(STUCK_LIMIT_S) == 4
        assert "rank 1 is stopped (SIGSTOP)" in run.errors()[0]


@pytest.mark.exhaustive
def test_guardians_that_are_stopped_when_their_ranks_have_ended_keep_nobody(tmp_path: Path) -> None:
    with Run(tmp_path, under_mpirun(2, corrupt("guardian", sweep(*SHORT, *PEER)))) as run:
        assert run.finish() == 0, run.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_killed", [False, True], ids=["", "below a killed mpirun"])
def test_a_stopped_proxy_keeps_nobody(tmp_path: Path, is_killed: bool) -> None:
    if library() != "MPICH":
        pytest.skip("MPICH's launcher has proxies")
    with Run(tmp_path, under_mpirun(2, long_sweep(tmp_path))) as run:
        run.wait_for_rows()
        (proxy,) = [pid for pid in run.pids() if command_of(pid) == PROXY]
        os.kill(proxy, signal.SIGSTOP)
        if is_killed:
            run.process.kill()
        assert run.finish(STUCK_LIMIT_S) == (-signal.SIGKILL if is_killed else 4)
        assert is_killed or f"{PROXY} above rank 0 is stopped (SIGSTOP)" in run.errors()[0]


@pytest.mark.exhaustive
def test_ctrl_c_while_mpi_starts(tmp_path: Path) -> None:
    """Rank 0 sits in MPI_Init, where no handler of Python's runs; rank 1 comes to it late."""
    with Run(tmp_path, under_mpirun(2, corrupt("start", long_sweep(tmp_path)))) as run:
        run.wait_until(
            lambda: (
                [command_of(pid) for pid in run.pids()].count("cb-guardian") == 2
                and any("libmpi" in Path(f"/proc/{pid}/maps").read_text() for pid in run.pids())
            )
        )
        time.sleep(0.5)
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.finish(STUCK_LIMIT_S) != 0


@needs_mounts
@pytest.mark.skipif(ROOT.is_relative_to("/tmp"), reason="this checkout is in /tmp, which is hidden")
@pytest.mark.exhaustive
def test_a_launcher_that_aborts_leaves_no_file_in_tmp(tmp_path: Path) -> None:
    command = under_mpirun(2, sweep("--csv", "rows.csv", *LONG), "-wdir", "/tmp")
    private = ["unshare", "--mount", *shell(f"mount --bind {tmp_path} /tmp")]
    with Run(tmp_path, command, prefix=private) as run:
        run.wait_for_rows()
        send(run.ranks(2)[1], signal.SIGKILL)
        assert run.finish() == 4  # which knows all files


@needs_mounts
@pytest.mark.exhaustive
def test_too_little_shared_memory(tmp_path: Path) -> None:
    """A small /dev/shm of its own: what fits runs, the rest is waived."""
    small = ["unshare", "--mount", *shell("mount -t tmpfs -o size=24M tmpfs /dev/shm")]
    command = under_mpirun(
        2, sweep(*SHORT[:-2], "--sizes", "1K,16M", "--csv", str(tmp_path / "rows.csv"))
    )
    with Run(tmp_path, command, prefix=small) as run:
        assert run.finish() == 0
        assert [(row.size_bytes, row.status) for row in run.rows()] == [
            (16 << 20, "waived"),
            (1 << 10, "ok"),
        ]
        assert "of shared memory, " in run.rows()[0].reason


@pytest.mark.exhaustive
def test_mpi4py_absent_under_a_launcher(tmp_path: Path) -> None:
    with Run(tmp_path, under_mpirun(2, sweep(*SHORT)), without_mpi4py(tmp_path)) as run:
        assert run.finish() == 3
        assert run.errors() == ["Error: mpi4py is not installed"]
        assert "pip install 'collbench[mpi]'" in run.stderr


@tiered("is_launched", [False, True], 1, ids=["alone", "under mpirun"])
def test_a_library_of_another_vendor_than_its_launcher(tmp_path: Path, is_launched: bool) -> None:
    mpi = pytest.importorskip("mpi4py.MPI")
    if "Open MPI" in mpi.Get_library_version():
        pytest.skip("plays Open MPI's launcher: needs MPICH")
    variables = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    with Run(
        tmp_path, under_mpirun(2, sweep(*SHORT)) if is_launched else sweep(*SHORT), variables
    ) as run:
        assert run.finish() == 3
        assert "the launcher is of Open MPI, the MPI library of mpi4py is MPICH" in run.errors()[0]


@tiered(
    "variables",
    [("PMI_SIZE", "PMI_RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")],
    1,
    ids=lambda names: str(names[0]),
)
def test_a_launcher_whose_size_is_not_the_worlds(
    tmp_path: Path, variables: tuple[str, str]
) -> None:
    if variables[0] == "PMI_SIZE" and library() == "Open MPI":
        pytest.skip("that is MPICH's launcher, which has a message of its own")
    with Run(tmp_path, sweep(*SHORT), dict(zip(variables, ("2", "0"), strict=True))) as run:
        assert run.finish() == 3
        assert len(run.errors()) == 1
        assert " started 2 ranks, " in run.errors()[0]
        assert run.errors()[0].endswith(" sees 1")
        assert not Path(f"/dev/shm/mpich_shm_{run.process.pid:x}_0").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "command", [under_mpirun(2, sweep(*SHORT)), sweep(*SHORT, *NET)], ids=["launched", "alone"]
)
def test_a_thread_level_that_mpi_does_not_have(tmp_path: Path, command: list[str]) -> None:
    with Run(tmp_path, command, {"MPI4PY_RC_THREAD_LEVEL": "some"}) as run:
        assert run.finish() == 3
        assert "MPI has no thread level 'some'" in run.errors()[0]
        assert "Traceback" not in run.stderr


@pytest.mark.exhaustive
def test_the_librarys_reason_for_not_starting_is_said(tmp_path: Path) -> None:
    mpi = pytest.importorskip("mpi4py.MPI")
    if "Open MPI" in mpi.Get_library_version():
        pytest.skip("gives MPICH a variable that it refuses")
    command = sweep("--sizes", "1K", "--backend", "mpi", "--ranks", "2")
    with Run(tmp_path, command, {"MPIR_CVAR_ENABLE_GPU": "abc"}) as run:
        assert run.finish() == 3
        assert "Invalid character a in MPIR_CVAR_ENABLE_GPU" in run.errors()[0]


@pytest.mark.exhaustive
def test_a_launcher_of_another_size_than_asked_for(tmp_path: Path) -> None:
    with Run(tmp_path, under_mpirun(3, sweep(*SHORT))) as run:
        assert run.finish() == 3
        assert run.errors() == [
            "Error: every point was waived: the launcher started 3 ranks, not 2: start as many, or"
            " leave --ranks out"
        ]


# head shows nothing here; the others that are left out differ in the launch that does less
PLANTED = ("head", "tail", "tenth", "half")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("defect", "more"),
    [
        ("idle", ("--backend", "cpu,mpi")),
        ("idle", (*NET, "--hot", "--agg-iters", "2")),
        ("idle-singly", ("--backend", "cpu,mpi", "--distribution", "3", "--hot")),
        ("tail", (*NET, "--hot")),
        # gather's root has its first element before, in place
        *((kind, ("--backend", "cpu,mpi", "--hot")) for kind in PLANTS if kind not in PLANTED),
    ],
)
def test_timed_launches_that_leave_out_work_are_wrong(
    tmp_path: Path, defect: str, more: tuple[str, ...]
) -> None:
    """Of every collective, although the first check has found every set of buffers right."""
    asked = "--op", "all", "--placement", "out,in", "--ranks", "2", "--algo", "auto"
    few = "--sizes", "8", "--repeats", "1", "--iters", "3", "--csv", str(tmp_path / "rows.csv")
    with Run(tmp_path, under_mpirun(2, corrupt(defect, sweep(*asked, *few, *more)))) as run:
        assert run.finish() == 1
        rows = [row for row in run.rows() if row.status != "waived"]
        assert {row.op for row in rows} == set(OPS)
        assert {row.backend for row in rows} == {"cpu"} | ({"mpi"} if "cpu,mpi" in more else set())
        assert [row for row in rows if row.status != "wrong"] == []
