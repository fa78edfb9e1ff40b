"""Several hosts under mpirun with what plays ssh, and MPI over TCP between them: every collective
is right, a slow link names its host, and a cut one is named.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from collbench.core.collectives import OPS
from tests.cluster.faults import COLLBENCH, HOSTS, unplug
from tests.cluster.lab import NETWORK, Cluster, cluster, missing
from tests.support.commands import result_of
from tests.support.runs import (
    LONG,
    STUCK_LIMIT_S,
    STUCK_TIMEOUT_S,
    Run,
    library,
    mpirun,
    needs_mpi,
    sweep,
)

pytestmark = [
    pytest.mark.exhaustive,
    needs_mpi,
    pytest.mark.skipif(library() == "Open MPI", reason="needs MPICH and its launcher"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "a cluster"),
]

HUNT = [*COLLBENCH, "hunt", "--json", "-", "--size"]
STUCK = ("--timeout", str(STUCK_TIMEOUT_S))
LINK = "tbf rate {} burst 32k latency 50ms"
BUSY = 2.0  # times as slow as the others: a rank on cores that other tests have
# options of ssh, a host, and the words of a command
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec nsenter -t $(cat /run/$host.pid) --net --uts --ipc --mount --pid --wdns=$PWD sh -c "$*"
"""


@pytest.fixture
def lab() -> Iterator[Cluster]:
    with cluster(HOSTS) as one:
        yield one


def by_mpirun(folder: Path, ranks: Sequence[int]) -> list[str]:
    """What starts so many ranks on each of the first hosts, by a script there that plays ssh."""
    ssh = folder / "ssh"
    folder.mkdir(exist_ok=True)
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    is_mpich = library() == "MPICH"
    by = "-launcher ssh -launcher-exec {} -hosts" if is_mpich else "--mca plm_rsh_agent {} --host"
    hosts = ",".join(f"h{host + 1}:{count}" for host, count in enumerate(ranks))
    return [mpirun() or "mpirun", *by.format(ssh).split(), hosts, "-n", str(sum(ranks))]


def started(
    lab: Cluster, folder: Path, ranks: Sequence[int], command: Sequence[str], **variables: str
) -> Run:
    """A command as so many ranks on each of the first hosts."""
    return Run(folder, lab.command([*by_mpirun(folder / "bin", ranks), *command]), variables)


def cut(lab: Cluster, host: int) -> None:
    """Let nothing pass between a host and the others; its launcher is on the head."""
    others = f"{NETWORK}.0/25"
    for rule in (f"OUTPUT -o eth0 -d {others}", f"INPUT -i eth0 -s {others}"):
        done = lab.run("iptables-legacy", "-A", *rule.split(), "-j", "DROP", host=host)
        assert done.returncode == 0, done.stderr


def test_every_collective_between_two_hosts(lab: Cluster, tmp_path: Path) -> None:
    asked = sweep(
        *split("--op all --algo auto --backend cpu --transport auto,net,shm --sizes 100000"),
        *split("-n 3 --repeats 1 --hot --csv"),
        str(tmp_path / "rows.csv"),
    )
    with started(lab, tmp_path, (2, 1), asked) as run:
        assert run.finish() == 0, run.stderr
        found = {(row.op, row.transport, row.status) for row in run.rows()}
        assert found == {
            (op, data_comm, "waived" if data_comm == "shm" else "ok")
            for op in OPS
            for data_comm in ("shm", "net", "shm+net")
        }
        right = [row for row in run.rows() if row.status == "ok"]
        assert {(row.hosts, row.ranks, row.wrong) for row in right} == {(2, 3, 0)}
        assert "the ranks are on 2 hosts and share no memory" in run.rows()[0].reason


def test_ranks_that_only_share_a_host_by_chance(lab: Cluster, tmp_path: Path) -> None:
    """Algorithms whose neighbours are on other hosts: rank order does not keep hosts together."""
    asked = sweep(
        *split("--backend cpu,mpi --algo ring,tree --sizes 60000 -n 3 --repeats 1 --hot --csv"),
        str(tmp_path / "rows.csv"),
    )
    in_turns = ["-rankmap", "(vector,0,1,0,1)"]
    with started(lab, tmp_path, (2, 2), [*in_turns, *asked]) as run:
        assert run.finish() == 0, run.stderr
        assert {(row.backend, row.status, row.hosts) for row in run.rows()} == {
            ("cpu", "ok", 2),
            ("mpi", "ok", 2),
        }


@pytest.mark.parametrize(
    ("ranks", "cuts"),
    [((1, 1), cut), ((2, 1), cut), ((1, 1), unplug)],
    ids=["net", "shm+net", "launcher's too"],
)
def test_a_cut_link_ends_all_and_is_named(
    lab: Cluster, tmp_path: Path, ranks: tuple[int, int], cuts: Any
) -> None:
    """With its launcher's link cut, too, a rank hears nothing from anybody and ends by itself."""
    asked = sweep("--csv", str(tmp_path / "rows.csv"), *LONG, *STUCK)
    with started(lab, tmp_path, ranks, asked) as run:
        kept = run.wait_for_rows()
        cuts(lab, 1)
        assert run.finish(STUCK_LIMIT_S) == 4
        assert any(f"rank {sum(ranks) - 1} " in line for line in run.errors()), run.stderr
        assert run.csv.read_text().startswith(kept)
        assert run.rows()[-1].status == "error"


def test_signs_of_life_need_threads(lab: Cluster, tmp_path: Path) -> None:
    level = {"MPI4PY_RC_THREAD_LEVEL": "serialized"}
    with started(lab, tmp_path, (1, 1), sweep("--sizes", "1K"), **level) as run:
        assert run.finish() == 3
        assert run.errors() == [
            "Error: on several hosts the heartbeat needs MPI's thread level multiple"
        ]


def worst(verdicts: Sequence[Mapping[str, Any]]) -> float:
    """The largest factor of some verdicts."""
    effects = [effect for one in verdicts for effect in one["effects"].values()]
    return max((effect["factor"] for effect in effects), default=1.0)


@pytest.mark.parametrize(
    ("ranks", "is_sending", "more"),
    [
        ((1, 1, 1, 1), False, ()),
        ((1, 1, 1, 1), False, ("--together",)),
        ((2, 2, 2), True, ("--alone", "--rails")),
        ((1, 2, 1), True, ("--alone", "--where", "network")),
        ((1, 1, 1), True, ("--alone", "--budget", "2")),
    ],
)
def test_a_slow_link_names_its_host_and_direction(
    lab: Cluster, tmp_path: Path, ranks: tuple[int, ...], is_sending: bool, more: tuple[str, ...]
) -> None:
    for host in range(len(ranks)):
        lab.shape(host, LINK.format("60mbit" if host == 1 else "200mbit"), is_sending=is_sending)
    with started(lab, tmp_path, ranks, [*HUNT, "128K", *more]) as run:
        assert run.finish() == 1, run.stderr
        verdict, *others = result_of(run.stdout)["verdicts"]
        assert (verdict["kind"], verdict["key"]) == ("host", [1]), run.stderr
        assert verdict["flow"] == ("out" if is_sending else "in")
        assert worst(others) < BUSY, run.stderr
        assert f"SLOW  host {lab.hosts[1]}, " in run.stderr


def test_equal_hosts_are_clean(lab: Cluster, tmp_path: Path) -> None:
    for host in range(HOSTS):
        lab.shape(host, LINK.format("200mbit"))
    with started(lab, tmp_path, (1, 1, 1, 1), [*HUNT, "128K", "--alone"]) as run:
        run.finish()
        assert worst(result_of(run.stdout)["verdicts"]) < BUSY, run.stderr


def test_a_slow_path_acquits_its_ends(lab: Cluster, tmp_path: Path) -> None:
    lab.slow_path(1, 2, "40mbit", "200mbit")
    for host in (0, 2, 3):
        lab.shape(host, LINK.format("200mbit"))
    with started(lab, tmp_path, (1, 1, 1, 1), [*HUNT, "128K", "--alone"]) as run:
        assert run.finish() == 1, run.stderr
        verdict, *others = result_of(run.stdout)["verdicts"]
        named = verdict["kind"], verdict["key"], verdict["flow"]
        assert named == ("path", [1, 2], "out"), run.stderr
        assert worst(others) < BUSY, run.stderr


def test_a_host_that_is_cut_off_is_named_by_one_that_hears_others(
    lab: Cluster, tmp_path: Path
) -> None:
    command = [*HUNT, "128K", "--csv", str(tmp_path / "rows.csv"), *STUCK]
    with started(lab, tmp_path, (1, 1, 1), command) as run:
        run.wait_for_rows()
        cut(lab, 1)
        assert run.finish(STUCK_LIMIT_S) == 4
        named = f"rank 1 on host {lab.hosts[1]} sent host {lab.hosts[0]} no heartbeat"
        assert any(named in line for line in run.errors()), run.stderr
