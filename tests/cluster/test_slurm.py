"""Commands on a real Slurm cluster of hosts that are namespaces of this machine (see lab.py), by
srun, and by mpirun with what plays ssh.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import join, split

import pytest

from collbench.core.record import read
from collbench.doctor.saved_checks import read_nodes
from tests.cluster.faults import BEFORE, COLLBENCH, HOSTS, MEANWHILE, SRUN, tried
from tests.cluster.lab import Cluster, cluster, missing
from tests.cluster.test_mpirun import by_mpirun
from tests.support.runs import ROOT, environment, needs_mpi

pytestmark = [
    pytest.mark.exhaustive,
    needs_mpi,
    pytest.mark.skipif(bool(missing()), reason=missing() or "a cluster"),
    pytest.mark.timeout(600),
]

LAUNCHERS = ("srun", "mpirun")
SHORT = split("sweep --op allreduce --backend cpu --algo ring --sizes 1K --repeats 1 --iters 2")
# lines of Slurm, UCX and MPI that say that something is not as it should be
COMPLAINTS = re.compile(r"pmi2|UCX +(WARN|ERROR)|error stack")


@pytest.fixture(scope="module")
def lab() -> Iterator[Cluster]:
    with cluster(4) as one:
        yield one


def environment_of(folder: Path) -> dict[str, str]:
    return environment({"XDG_STATE_HOME": str(folder / "state")})


def four_ranks(folder: Path, launcher: str) -> list[str]:
    """What starts a rank on every host."""
    return SRUN if launcher == "srun" else by_mpirun(folder, [1] * HOSTS)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_sweep_starts_every_time(lab: Cluster, tmp_path: Path, launcher: str) -> None:
    words = [*four_ranks(tmp_path, launcher), *COLLBENCH, *SHORT]
    words += ["--csv", str(tmp_path / "rows.csv")]
    done = lab.run(*words, env=environment_of(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not COMPLAINTS.search(done.stderr), done.stderr
    (row,) = read(tmp_path / "rows.csv")
    assert (row.status, row.ranks, row.hosts) == ("ok", 4, 4)
    assert not lab.left()


def test_a_check_judges_what_it_can(lab: Cluster, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    words = [*SRUN, sys.executable, "-m", "tests.support.short_check", "check", "--backend", "cpu"]
    words += ["--save", "--nodes", str(nodes)]
    done = lab.run(*words, env=environment_of(tmp_path), timeout_s=300)
    assert done.returncode in (0, 1, 5), done.stderr  # other tests run beside it
    assert "of 10 lines judged" in done.stdout, done.stdout
    assert "1 rank on each of h[1-4]" in done.stdout, done.stdout
    assert set(read_nodes(nodes)) <= {"h[1-4]"}  # without numbers, where all were noise
    assert not COMPLAINTS.search(done.stderr), done.stderr
    assert not lab.left()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_slow_host_is_named(lab: Cluster, tmp_path: Path, launcher: str) -> None:
    for host in range(4):
        lab.shape(host, f"tbf rate {300 if host == 2 else 800}mbit burst 256k latency 50ms")
    try:
        words = [*four_ranks(tmp_path, launcher), *COLLBENCH, "hunt"]
        done = lab.run(*words, env=environment_of(tmp_path), timeout_s=300)
    finally:
        for host in range(4):
            lab.shape(host)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"host h3, sending", done.stdout), done.stdout
    assert not re.search(r"SLOW +host h[124]", done.stdout)


def test_hosts_that_share_cores_do_not_blame_the_network(lab: Cluster, tmp_path: Path) -> None:
    done = lab.run(*SRUN, *COLLBENCH, "hunt", env=environment_of(tmp_path), timeout_s=300)
    assert done.returncode != 1, done.stdout
    assert "h[1-4] (one machine with" in done.stderr, done.stderr


@pytest.mark.parametrize(("number", "fault"), list(enumerate((*MEANWHILE, *BEFORE))))
def test_a_fault_of_a_host_ends_in_words_or_not_at_all(
    tmp_path: Path, number: int, fault: str
) -> None:
    """It is named, rows are kept, and nothing is left on any host."""
    is_waited_for = fault in ("a stopped rank", "the link down")
    more = ("--timeout", "3") if is_waited_for else ()
    found = tried(fault, number % HOSTS, tmp_path, *more)
    assert found.code == 0 or found.is_named, found.words
    # where a command cannot start, it has no rows, and the fault is said
    assert found.rows >= (2 if fault in MEANWHILE else int(found.code == 0)), found.words
    assert found.code == 0 or fault != "a full /dev/shm" or "/dev/shm of h" in found.words
    assert not found.left


@pytest.mark.parametrize(
    ("start", "command", "says"),
    [
        (["salloc", *SRUN[2:], "srun", "--overcommit"], SHORT, "4 ranks on 4 hosts"),
        (["sbatch", "-o", "said", *SRUN[2:], "--wrap"], SHORT, "4 ranks on 4 hosts"),
        (SRUN, ["doctor"], "checks looked"),
        (SRUN, split("tune --op allreduce --backend cpu --sizes 64K --budget 8"), "1 point"),
    ],
)
def test_commands_and_ways_to_start_end_in_order(
    lab: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: list[str],
    command: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*COLLBENCH, *command]
    if start[-1] == "--wrap":
        words = [f"srun --overcommit {join(words)}"]
    env = environment_of(tmp_path)
    if start[0] == "sbatch":
        done = lab.batch(*start[1:], *words, env=env)
    else:
        done = lab.run(*start, *words, env=env, timeout_s=300)
    said = done.stdout + done.stderr
    if Path("said").exists():
        said += Path("said").read_text()
    # a busy machine leaves the tuner no time for its point, which it says
    assert done.returncode in ((0, 3) if "tune" in command else (0,)), said
    assert says in said
    assert not lab.left()


def test_hosts_of_one_name_are_several(tmp_path: Path) -> None:
    with cluster(4, has_one_name=True) as lab:
        words = [*SRUN, *COLLBENCH, *SHORT, "--csv", str(tmp_path / "rows.csv")]
        done = lab.run(*words, env=environment_of(tmp_path))
    assert done.returncode == 0, done.stderr
    (row,) = read(tmp_path / "rows.csv")
    assert (row.status, row.hosts) == ("ok", 4)


def test_nothing_outlives_a_cluster() -> None:
    """Also when who made it is killed."""
    script = (
        "import time; from tests.cluster.lab import cluster\n"
        "with cluster(2) as one: print(one.init, flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        init = int(maker.stdout.readline())
        maker.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{init}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{init}").exists()
