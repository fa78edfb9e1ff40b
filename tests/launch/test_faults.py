"""Faults injected into real runs: what the tool promises when ranks die or stop, the user
interrupts, memory, disk or a library is missing, or a result is wrong. Most run in every way to
start. Signals in general: test_random_faults; what only MPI has: tests/mpi/test_faults_mpi.
"""

import os
import signal
from multiprocessing import Pipe
from pathlib import Path
from shlex import split
from typing import Any

import pytest

from collbench.core.errors import RankLostError
from collbench.core.record import COLUMNS, SCHEMA, header, read
from collbench.launch import driver as launch_driver
from collbench.launch.processes import send
from tests.support.commands import ONE_REPEAT, Invoke
from tests.support.faults import processes
from tests.support.runs import (
    LONG,
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

SHORT = ("--algo", "ring", "--repeats", "1", "--iters", "3", "--hot")
SIZES = ("--sizes", "1K,2K,3K,4K")
STUCK = ("--timeout", str(STUCK_TIMEOUT_S))
CSV = ("--csv", "rows.csv")
ENOENT, ENOSPC = "No such file or directory", "No space left on device"
PEERS = {"mpi": ("--backend", "mpi"), "net": ("--transport", "net")}


def start(way: str, *asked: str) -> list[str]:
    """A sweep of two ranks: alone, where they are forked; own, where an mpirun of ours starts them;
    or under mpirun. Of the backend cpu, or with the peer that the way ends with.
    """
    launch, _, peer = way.partition(" ")
    command = sweep("--ranks", "2", *PEERS.get(peer, ()), *asked)
    return under_mpirun(2, command) if launch == "mpirun" else command


def ways(names: str, *cases: Any, quick: int = 0) -> pytest.MarkDecorator:
    """As tiered, of ways to start and more."""
    rows = [
        pytest.param(*case, marks=() if case[0] == "alone" else needs_mpi)
        for case in (case if isinstance(case, tuple) else (case,) for case in cases)
    ]
    return tiered(names.split(), rows, quick)


@ways(
    "way more rank",
    ("alone", ("--proto", "ll128"), 1),
    ("alone", ("--proto", "simple"), 0),
    ("own mpi", (), 0),
    ("own net", (), 1),
    ("mpirun", (), 0),
    ("mpirun net", (), 1),
    quick=1,
)
def test_a_killed_rank_is_named_and_ends_the_run(
    tmp_path: Path, way: str, more: tuple[str, ...], rank: int
) -> None:
    # it is seen at once, not when a deadline passes
    with Run(tmp_path, start(way, *CSV, *LONG, "--timeout", "600", *more)) as run:
        kept = run.wait_for_rows()
        send(run.ranks(2)[rank], signal.SIGKILL)
        assert run.finish() == 4
        said = f"rank {rank} was killed by SIGKILL"
        assert any(said in line for line in run.errors())
        assert run.csv.read_text().startswith(kept)
        if not way.startswith("mpirun"):
            assert len(run.errors()) == 1
            assert "--resume" in run.stderr
            assert [row.status for row in run.rows() if row.status != "ok"] == ["error"]
            assert said in run.rows()[-1].reason


def test_what_has_no_resume_does_not_advise_it() -> None:
    assert launch_driver.rank_lost(["rank 1 is gone"]).hint == "run it again"
    assert "df -h /dev/shm" in launch_driver.rank_lost(["rank 1 was killed by SIGBUS"]).hint


@ways(
    "way more rank",
    ("alone", ("--proto", "ll"), 0),
    ("alone", ("--proto", "simple"), 1),
    ("own mpi", (), 0),
    ("own net", (), 1),
    ("mpirun", (), 0),
    ("mpirun mpi", (), 1),
)
def test_a_stopped_rank_ends_the_run_within_its_deadline(
    tmp_path: Path, way: str, more: tuple[str, ...], rank: int
) -> None:
    with Run(tmp_path, start(way, *CSV, *LONG, *STUCK, *more)) as run:
        kept = run.wait_for_rows()
        os.kill(run.ranks(2)[rank], signal.SIGSTOP)
        assert run.finish(STUCK_LIMIT_S) == 4
        named = [line for line in run.errors() if f"rank {rank}" in line]
        assert any("is stopped (SIGSTOP)" in line for line in named), run.stderr
        assert run.csv.read_text().startswith(kept)
        assert way.startswith("mpirun") or run.rows()[-1].status == "error"


@ways(
    "way phase story",
    ("alone", "load", ""),
    ("alone", "timed", "; rank 0 waited at a barrier for rank 1"),
    ("mpirun", "load", ""),
    ("mpirun net", "load", ""),
)
def test_a_rank_that_stops_in_any_phase(tmp_path: Path, way: str, phase: str, story: str) -> None:
    with Run(tmp_path, corrupt(phase, start(way, *SHORT, *SIZES, *CSV, *STUCK))) as run:
        assert run.finish(STUCK_LIMIT_S) == 4
        assert run.errors() == [f"Error: rank 1 is stopped (SIGSTOP){story}"]
        assert [row.status for row in run.rows()] == ["ok", "ok", "error"]


@ways("way", "alone", "own mpi", "own net", "mpirun", "mpirun mpi", "mpirun net", quick=1)
def test_ctrl_c_ends_all_and_keeps_rows(tmp_path: Path, way: str) -> None:
    with Run(tmp_path, start(way, *CSV, *LONG)) as run:
        kept = run.wait_for_rows()
        if way == "alone":  # the terminal tells all, in any order: ranks leave it to the driver
            for pid in run.ranks(2):
                os.kill(pid, signal.SIGINT)
            kept = run.wait_for_rows(10)
        os.killpg(run.process.pid, signal.SIGINT)
        # Open MPI's mpirun kills ranks before they speak
        is_silent = way.startswith("mpirun") and library() == "Open MPI"
        assert run.finish() == (1 if is_silent else 130)
        assert run.stderr.count("Interrupted.") == 1 or is_silent
        assert run.csv.read_text().startswith(kept)
        if not way.startswith("mpirun"):
            assert run.stderr.splitlines()[-3:] == [
                "# The rows that were measured are in rows.csv: --resume goes on from there.",
                "",
                "Interrupted.",
            ]
            assert {row.status for row in run.rows()} == {"ok"}


@ways(
    "way stopped",
    ("alone", "nothing"),
    ("alone", "rank"),
    ("own mpi", "nothing"),
    ("own mpi", "worker"),
    ("own mpi", "mpirun"),
    ("mpirun", "nothing"),
)
def test_nothing_is_left_of_a_killed_driver_or_launcher(
    tmp_path: Path, way: str, stopped: str
) -> None:
    with Run(tmp_path, start(way, *CSV, *LONG, *STUCK)) as run:
        run.wait_for_rows()
        for pid in processes(run).get(stopped, [])[-1:]:
            os.kill(pid, signal.SIGSTOP)
        send(run.process.pid, signal.SIGKILL)
        assert run.finish(STUCK_LIMIT_S) == -signal.SIGKILL


@tiered("stuck", ["send", "receive"], ["receive"])
def test_a_message_to_or_from_a_stopped_rank_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    monkeypatch.setattr(launch_driver, "MESSAGE_S", 1.0)
    mine, theirs = Pipe()
    driver = launch_driver.Driver([mine], [os.getpid()], lambda rank: None, lambda: None)
    if stuck == "receive":
        os.write(theirs.fileno(), b"\0\0\1\0half of a message")
    with pytest.raises(RankLostError, match="rank 0 does not answer"):
        driver.call("load", (bytes(1 << 24) if stuck == "send" else b"",), timeout_s=5.0)


def test_points_beyond_the_memory_are_waived_and_the_others_run(
    tmp_path: Path, invoke: Invoke
) -> None:
    sizes = split("--ranks 2 --backend cpu,reference --sizes 1K,1024G --chunk 64G --csv")
    assert invoke("sweep", *SHORT, *sizes, str(tmp_path / "rows.csv"))[0] == 0
    rows = read(tmp_path / "rows.csv")
    assert [(row.backend, row.size_bytes, row.status) for row in rows] == [
        ("cpu", 1 << 40, "waived"),
        ("reference", 1 << 40, "waived"),
        ("cpu", 1 << 10, "ok"),
        ("reference", 1 << 10, "ok"),
    ]
    assert "of shared memory, " in rows[0].reason
    assert "of memory, " in rows[1].reason


def test_too_little_shared_memory_for_every_point(invoke: Invoke) -> None:
    sizes = split("--ranks 2 --backend cpu --sizes 1024G --chunk 64G")
    code, _, err = invoke("sweep", *SHORT, *sizes)
    assert (code, "Error: every point was waived: needs " in err) == (3, True)


def test_memory_that_the_kernel_refuses(tmp_path: Path) -> None:
    with Run(
        tmp_path, start("alone", *SHORT, "--sizes", "1G"), prefix=["prlimit", f"--as={4 << 30}"]
    ) as run:
        assert run.finish() == 3
        assert "every point was waived: " in run.errors()[0]
        assert "of shared memory" in run.errors()[0]


@ways(
    "way csv why",
    ("alone", "missing/rows.csv", ENOENT),
    ("alone", "/dev/full", ENOSPC),
    ("mpirun", "missing/rows.csv", ENOENT),
    ("mpirun", "/dev/full", ENOSPC),
    quick=1,
)
def test_an_unwritable_csv_ends_all_ranks(tmp_path: Path, way: str, csv: str, why: str) -> None:
    with Run(tmp_path, start(way, *SHORT, "--sizes", "1K", "--csv", csv)) as run:
        assert run.finish() == 3
        assert run.errors() == [f"Error: cannot write {csv}: {why}"]


def test_an_unwritable_standard_output(tmp_path: Path) -> None:
    with Run(
        tmp_path,
        start("alone", *SHORT, "--sizes", "1K"),
        prefix=["sh", "-c", 'exec "$@" >/dev/full', "sh"],
    ) as run:
        assert run.finish() == 3
        assert "No space left on device" in run.errors()[0]


@pytest.mark.exhaustive
def test_a_disk_that_fills_up_keeps_whole_rows_and_resume_goes_on(tmp_path: Path) -> None:
    command = start("alone", *SHORT, "--sizes", "1K,2K,3K,4K,5K,6K,7K,8K", *CSV)
    with Run(tmp_path, command, prefix=["prlimit", "--fsize=2000"]) as run:
        assert run.finish() == 3
        assert run.errors() == ["Error: cannot write rows.csv: File too large"]
        kept = run.rows()
        assert 0 < len(kept) < 8
        assert run.csv.read_text().endswith("\n")
    with Run(tmp_path, [*command, "--resume"]) as run:
        assert run.finish() == 0
        of_noise = ("# Other proc", "# 1 row measured again")
        told = [line for line in run.stderr.splitlines() if not line.startswith(of_noise)]
        assert told == [f"# {len(kept)} of 8 points are in rows.csv already"]
        assert run.rows()[: len(kept)] == kept
        assert [row.size_bytes for row in run.rows()] == [size << 10 for size in range(1, 9)]


@pytest.mark.exhaustive
def test_resume_after_a_line_cut_by_a_crash(tmp_path: Path) -> None:
    command = start("alone", *SHORT, "--sizes", "1K,2K", *CSV)
    with Run(tmp_path, command) as run:
        assert run.finish() == 0
        text = run.csv.read_text()
    for cut in (1, 40, len(text) - 20):  # its end, a part, all but the header's start
        run.csv.write_text(text[:-cut])
        with Run(tmp_path, [*command, "--resume"]) as run:
            assert run.finish() == 0
            assert [row.size_bytes for row in run.rows() if row.status == "ok"] == [1024, 2048]
            assert run.csv.read_text().count("\n") == 3


@tiered(
    "text",
    [
        "size,time\n8,1\n",
        header().replace(",schema", ",other"),
        header() + "," * (len(COLUMNS) - 1) + f"{SCHEMA + 1}\n",
    ],
    1,
    ids=["other columns", "a column renamed", "another number"],
)
@tiered("more", [("--resume",), ()], 1, ids=["resume", "append"])
def test_a_csv_of_another_schema_is_refused_and_left_alone(
    tmp_path: Path, invoke: Invoke, text: str, more: tuple[str, ...]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    code, _, err = invoke(*ONE_REPEAT, "--sizes", "1K", "--csv", str(file), *more)
    assert (code, "schema" in err) == (2, True)
    assert file.read_text() == text


def test_a_peer_without_mpi4py_is_waived_with_the_way_to_install_it(tmp_path: Path) -> None:
    with Run(
        tmp_path,
        start("alone", *SHORT, "--sizes", "1K", "--backend", "mpi"),
        without_mpi4py(tmp_path),
    ) as run:
        assert run.finish() == 3
        assert "every point was waived: mpi4py is not installed" in run.errors()[0]
        assert "pip install 'collbench[mpi]'" in run.stderr


@ways(
    "way defect placement begins",
    ("alone", "element", "out", "rank 1 element 5: got "),
    ("alone", "element", "in", "rank 1 element 5: got "),
    ("alone", "skip", "out", "rank 1 element "),
    ("alone", "late", "out", "rank 0 element "),
    ("mpirun", "element", "out", "rank 1 element 5: got "),
    ("mpirun net", "element", "out", "rank 1 element 5: got "),
    ("mpirun mpi", "skip", "in", "rank 0 element 0: got "),
    quick=1,
)
def test_wrong_data_is_caught_and_explained(
    tmp_path: Path, way: str, defect: str, placement: str, begins: str
) -> None:
    asked = (*SHORT, "--sizes", "1K", "--placement", placement, *CSV)
    with Run(tmp_path, corrupt(defect, start(way, *asked))) as run:
        assert run.finish() == 1
        (row,) = run.rows()
        assert (row.status, row.time_us, row.busbw_gbs) == ("wrong", None, None)
        assert row.wrong is not None
        assert row.wrong > 0
        assert row.reason.startswith(begins)
        assert ", expected " in row.reason
        if way != "mpirun mpi":  # whose steps are the library's
            assert "; written by channel 0, track " in row.reason
            assert ", round " in row.reason
        assert "wrong: " in run.stdout
