"""Several hosts, played by network namespaces with MPI over TCP between them: every collective is
right, and a cut link is named.
"""

from pathlib import Path
from shlex import split

import pytest

from collbench.core.collectives import OPS
from tests.support.runs import LONG, STUCK_LIMIT_S, STUCK_TIMEOUT_S, Run, sweep
from tests.support.two_hosts import CABLES, two_hosts


@pytest.mark.exhaustive
def test_every_collective_between_two_hosts(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts:
        asked = sweep(
            *split("--op all --algo auto --backend cpu --transport auto,net,shm --sizes 100000"),
            *split("-n 3 --repeats 1 --hot --csv"),
            str(tmp_path / "rows.csv"),
        )
        with Run(tmp_path, hosts.command((2, 1), asked)) as run:
            assert run.finish() == 0, run.stderr
            found = {(row.op, row.transport, row.status) for row in run.rows()}
            assert found == {
                (op, data_comm, "waived" if data_comm == "shm" else "ok")
                for op in OPS
                for data_comm in ("shm", "net", "shm+net")
            }
            assert {
                (row.hosts, row.ranks, row.wrong) for row in run.rows() if row.status == "ok"
            } == {(2, 3, 0)}
            assert "the ranks are on 2 hosts and share no memory" in run.rows()[0].reason


@pytest.mark.exhaustive
def test_ranks_that_only_share_a_host_by_chance(tmp_path: Path) -> None:
    """Algorithms whose neighbours are on other hosts: rank order does not keep hosts together."""
    with two_hosts(tmp_path) as hosts:
        asked = sweep(
            *split("--backend cpu,mpi --algo ring,tree --sizes 60000 -n 3 --repeats 1 --hot --csv"),
            str(tmp_path / "rows.csv"),
        )
        command = hosts.command((2, 2), asked)
        at = command.index("-n")
        with Run(tmp_path, [*command[:at], "-rankmap", "(vector,0,1,0,1)", *command[at:]]) as run:
            assert run.finish() == 0, run.stderr
            assert {(row.backend, row.status, row.hosts) for row in run.rows()} == {
                ("cpu", "ok", 2),
                ("mpi", "ok", 2),
            }


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("ranks", "cables"),
    [((1, 1), ("data0",)), ((2, 1), ("data0",)), ((1, 1), CABLES)],
    ids=["net", "shm+net", "launcher's too"],
)
def test_a_cut_link_ends_all_and_is_named(
    tmp_path: Path, ranks: tuple[int, int], cables: tuple[str, ...]
) -> None:
    """With its launcher's link cut, too, a rank hears nothing from anybody and ends by itself."""
    with two_hosts(tmp_path) as hosts:
        asked = sweep("--csv", str(tmp_path / "rows.csv"), *LONG, "--timeout", str(STUCK_TIMEOUT_S))
        with Run(tmp_path, hosts.command(ranks, asked)) as run:
            kept = run.wait_for_rows()
            hosts.cut(1, cables)
            assert run.finish(STUCK_LIMIT_S) == 4
            assert any(f"rank {sum(ranks) - 1} " in line for line in run.errors()), run.stderr
            assert run.csv.read_text().startswith(kept)
            assert run.rows()[-1].status == "error"


@pytest.mark.exhaustive
def test_signs_of_life_need_threads(tmp_path: Path) -> None:
    with (
        two_hosts(tmp_path) as hosts,
        Run(
            tmp_path,
            hosts.command((1, 1), sweep("--sizes", "1K")),
            {"MPI4PY_RC_THREAD_LEVEL": "serialized"},
        ) as run,
    ):
        assert run.finish() == 3
        assert run.errors() == [
            "Error: on several hosts the heartbeat needs MPI's thread level multiple"
        ]
