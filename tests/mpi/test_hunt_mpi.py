"""`hunt` and `topo --measure` on real ranks: what they find, write and read again, and what becomes
of them when a rank dies or stops, or somebody presses Ctrl-C.
"""

import os
import signal
import sys
from pathlib import Path
from shlex import split

import pytest

from collbench.core.pairwise import COLUMNS
from collbench.doctor.hunt.read import read
from tests.support.commands import result_of
from tests.support.runs import (
    STUCK_LIMIT_S,
    STUCK_TIMEOUT_S,
    Run,
    corrupt,
    library,
    needs_mpi,
    under_mpirun,
)

pytestmark = needs_mpi
HUNT = [sys.executable, "-m", "collbench", "hunt", "--backend", "cpu"]


def hunt(folder: Path, *more: str, ranks: int = 3, way: str = "mpirun") -> list[str]:
    """A hunt whose ranks mpirun starts, or which forks them."""
    command = [*HUNT, "--csv", str(folder / "rows.csv"), *more]
    return under_mpirun(ranks, command) if way == "mpirun" else [*command, "--ranks", str(ranks)]


@pytest.mark.exhaustive
def test_every_pair_is_measured_and_read_again(tmp_path: Path) -> None:
    command = hunt(tmp_path, "--size", "10001", "--json", "-", ranks=2)
    with Run(tmp_path, command) as run:
        assert run.finish() in (0, 1, 5), run.stderr  # other tests run beside it
        assert '"verdicts": [' in run.stdout
        assert "every result compared" in run.stderr
        lines = run.csv.read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    ranks, samples = read([tmp_path / "rows.csv"])
    assert ranks.n == 2
    measured = {(one.a, one.b, one.mode) for one in samples}
    assert measured == {(a, b, mode) for a, b in ((0, 1), (1, 0)) for mode in ("alone", "together")}
    assert all(one.gbs and one.size_bytes == 10001 for one in samples)


@pytest.mark.exhaustive
def test_which_pairs_are_asked_for_is_kept_and_said(tmp_path: Path) -> None:
    asked = ("--size", "1000", "--alone", "--json", "-", "--where")
    with Run(tmp_path, hunt(tmp_path, *asked, "inside", ranks=2)) as run:
        assert run.finish() in (0, 1, 5), run.stderr  # other tests run beside it
        assert result_of(run.stdout)["where"] == "inside"
        assert "Asked inside hosts: " in run.stderr
        assert {one.where for one in read([run.csv])[1]} == {"inside"}
    with Run(tmp_path, hunt(tmp_path, *asked, "network", ranks=2)) as run:
        assert run.finish() == 3
        assert "--where network needs ranks on several hosts" in run.stderr


@pytest.mark.exhaustive
def test_topo_measures_the_pairs_of_a_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collbench", "topo", "--measure"]
    with Run(tmp_path, under_mpirun(2, command)) as run:
        assert run.finish() == 0, run.stderr
        rows = [line.split() for line in run.stdout.splitlines() if line.startswith("rank")]
        assert [row[0] for row in rows] == ["rank0", "rank1"] * 3
        assert all(float(row[2 - place % 2]) > 0 for place, row in enumerate(rows))
        assert "# 4 measurements in" in run.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["alone", "mpirun"])
def test_wrong_bytes_have_no_rate(tmp_path: Path, way: str) -> None:
    short = split("--size 1000 --pairs quick --alone --budget 0.4")
    with Run(tmp_path, corrupt("byte", hunt(tmp_path, *short, way=way))) as run:
        assert run.finish() == 1
        assert "2 bytes came out wrong" in run.stderr
        _, samples = read([run.csv])
        assert {one.a for one in samples if one.gbs is None} == {1}
        assert {one.a for one in samples if one.gbs is not None} == {0, 2}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("rank", "way"), [(0, "alone"), (2, "mpirun")])
@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGSTOP, "is stopped (SIGSTOP)")],
)
def test_a_lost_rank_is_named_within_a_deadline(
    tmp_path: Path, rank: int, way: str, number: int, words: str
) -> None:
    with Run(tmp_path, hunt(tmp_path, "--timeout", str(STUCK_TIMEOUT_S), way=way)) as run:
        kept = run.wait_for_rows()
        os.kill(run.ranks(3)[rank], number)
        assert run.finish(STUCK_LIMIT_S) == 4
        named = [line for line in run.errors() if f"rank {rank}" in line]
        assert any(words in line for line in named), run.stderr
        assert run.csv.read_text().startswith(kept)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["alone", "mpirun"])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, way: str) -> None:
    with Run(tmp_path, hunt(tmp_path, way=way)) as run:
        kept = run.wait_for_rows()
        os.killpg(run.process.pid, signal.SIGINT)
        # Open MPI's mpirun kills ranks before they speak
        of_open_mpi = way == "mpirun" and library() == "Open MPI"
        assert run.finish() == (1 if of_open_mpi else 130)
        assert of_open_mpi or "Rows send, columns receive" in run.stdout
        assert run.csv.read_text().startswith(kept)
