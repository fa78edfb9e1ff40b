"""Sweeps are saved without being asked, listed, and read again by number."""

import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest

from collbench.cli import cli
from collbench.compare import runs as runs_module
from collbench.compare.runs import RunFacts, SavedRun, folder_of_runs, remove, saved, saved_runs
from collbench.core.errors import UnavailableError
from collbench.core.interrupt import Interrupted
from collbench.core.record import read
from collbench.doctor.saved_checks import SavedCheck, keep
from tests.support.commands import MODEL, Says

FAILED = "20261126T163400-ab12cd"  # a run that ends early


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of state, which does not exist yet."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def sweep(says: Says) -> Says:
    """Predicts two sizes."""
    return partial(says, 0, *MODEL, "--algo", "ring", "--sizes", "1K,1M")


def test_a_sweep_is_saved_with_its_command_and_its_machine(sweep: Says) -> None:
    told = sweep("--machine", "dgx-1v").words
    (one,) = saved_runs()
    assert f"Saved as @{one.name}: collbench compare @{one.name}" in told
    given = " ".join([*MODEL, "--algo", "ring", "--sizes", "1K,1M", "--machine", "dgx-1v"])
    assert one.facts.command == f"collbench {given}"
    assert (one.facts.rows, one.facts.wrong, one.facts.exit_code) == (2, 0, 0)
    assert one.facts.title.startswith("allreduce; ")
    assert [row.size_bytes for row in read(one.rows)] == [1 << 10, 1 << 20]
    machine = json.loads((one.folder / "machine.json").read_text())
    assert machine["format"] == "collbench-recording"
    assert one.folder.stat().st_mode & 0o077 == 0


def test_a_run_with_wrong_data_says_so(sweep: Says) -> None:
    sweep()
    record = replace(read(saved_runs()[0].rows)[0], status="wrong", wrong=1)
    with click.Context(cli, obj=("sweep",)), saved("another", [], 0) as one:
        one.keep(record)
    facts = saved_runs()[-1].facts
    assert (facts.rows, facts.wrong, facts.exit_code) == (1, 1, 1)


def test_runs_are_listed_the_newest_last(says: Says, sweep: Says) -> None:
    assert "No run is saved" in says(0, "runs").out
    for op in ("allreduce", "broadcast", "allgather"):
        sweep("--op", op)
    heads, *lines = says(0, "runs").out.splitlines()
    assert heads.split() == ["name", "started", "rows", "wrong", "took", "what"]
    assert [line.split()[0] for line in lines] == ["@3", "@2", "@1"]
    assert ["allreduce" in lines[0], "broadcast" in lines[1], "allgather" in lines[2]] == [True] * 3


def test_runs_are_compared_by_number(
    says: Says, sweep: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        sweep()
    assert "allreduce" in says(0, "compare", "@1").out
    says(0, "compare", "@1", "@2")
    page = tmp_path / "page.html"
    says(0, "compare", "@1", "--html", page)
    assert "allreduce" in page.read_text()
    assert "@3: no such saved run, there are 2" in says(2, "compare", "@3").err
    (tmp_path / "@1").write_text("no results")
    says(2, "compare", "@1")


def test_old_runs_are_removed_only_when_asked(says: Says, sweep: Says) -> None:
    for _ in range(3):
        sweep()
    newest = saved_runs()[-1].folder
    assert "Removed 2 of 3" in says(0, "runs", "--keep", "1").err
    assert [one.folder for one in saved_runs()] == [newest]


def test_two_commands_may_remove_runs_at_once(tmp_path: Path) -> None:
    facts = RunFacts(command="sweep", started="2026-11-26T10:00:00", title="", points=1)
    old = [SavedRun(number=1, folder=tmp_path / str(place), facts=facts) for place in range(20)]
    for one in old:
        one.folder.mkdir()
        for name in ("run.json", "rows.csv", "machine.json"):
            (one.folder / name).touch()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(remove, [old] * 4))
    assert not list(tmp_path.iterdir())


def test_what_is_waived_or_dry_is_not_saved_as_a_run_that_ended(sweep: Says) -> None:
    sweep("--dry-run")
    assert not saved_runs()


def test_a_run_that_cannot_be_saved_goes_on(sweep: Says, state: Path) -> None:
    state.write_text("a file where the folder should be")
    assert "The run is not saved: " in sweep().err


def test_what_is_no_run_is_left_out(sweep: Says, state: Path) -> None:
    sweep()
    runs = state / "collbench" / "runs"
    (runs / "note.txt").write_text("mine")
    (runs / "empty").mkdir()
    for number, text in enumerate(("", "[]", '{"command": 1}', "{" * 100)):
        folder = runs / f"broken{number}"
        folder.mkdir()
        (folder / "run.json").write_text(text)
        (folder / "rows.csv").write_text("")
    (runs / "fifo").mkdir()
    os.mkfifo(runs / "fifo" / "run.json")  # nothing waits for who would write to it
    assert len(saved_runs()) == 1


@pytest.mark.parametrize(
    ("exit_code", "said", "why"),
    [
        (-1, "cut off: ", ": killed, or the machine stopped"),
        (130, "interrupted: ", ""),
        (4, "failed: ", ""),
        (1, "", ""),
    ],
)
def test_a_run_that_did_not_end_says_so(
    says: Says, sweep: Says, exit_code: int, said: str, why: str
) -> None:
    sweep()
    (one,) = saved_runs()
    facts = json.loads((one.folder / "run.json").read_text())
    (one.folder / "run.json").write_text(json.dumps({**facts, "exit_code": exit_code, "rows": 0}))
    line = says(0, "runs", COLUMNS="160").out.splitlines()[1]
    assert f" s  {said}allreduce; 4 ranks; model{why}" in line
    assert ("2 of 2" in line, "0 of 2" in line) == (exit_code < 0, exit_code > 1)


@pytest.mark.parametrize(
    ("error", "ending", "why"),
    [
        (Interrupted(signal.SIGTERM), "interrupted", "by SIGTERM"),
        (KeyboardInterrupt(), "interrupted", "by SIGINT"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "interrupted", "whoever read the output"),
        (ZeroDivisionError("1/0"), "failed", "a mistake of collbench: ZeroDivisionError: 1/0"),
    ],
)
def test_whatever_ends_a_run_is_said(
    says: Says, error: BaseException, ending: str, why: str
) -> None:
    with pytest.raises(type(error)), click.Context(cli, obj=("sweep",)), saved(FAILED, [], 2):
        raise error
    (one,) = json.loads(says(0, "runs", "--json").out)["data"]
    assert (one["ending"], one["rows"], one["points"]) == (ending, 0, 2)
    assert one["problem"].startswith(why)


def test_a_run_of_another_process_that_goes_on_is_running(sweep: Says) -> None:
    sweep()
    (one,) = saved_runs()
    facts = json.loads((one.folder / "run.json").read_text())
    (one.folder / "run.json").write_text(json.dumps({**facts, "exit_code": -1}))
    writes = (
        "import sys; from pathlib import Path; from collbench.core.record import Writer;"
        f"one = Writer(Path({str(one.rows)!r})); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", writes], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"open\n"
        assert saved_runs()[0].ending == "running"
        writer.communicate()
    assert saved_runs()[0].ending == "cut off"


def test_a_sweep_that_ends_after_a_newer_one_has_another_number(sweep: Says) -> None:
    sweep()
    record = read(saved_runs()[0].rows)[0]
    with click.Context(cli, obj=("sweep",)), saved("older", [], 0) as older:
        older.keep(record)
        assert saved_runs()[-1].number == 1
        with saved("newer", [], 0) as newer:
            newer.keep(record)
        assert (newer.saved_as(), older.saved_as()) == ("@newer", "@older")
        assert {run.name: run.number for run in saved_runs()[-2:]} == {"newer": 1, "older": 2}


def test_a_run_whose_beginning_cannot_be_saved_leaves_no_folder(
    sweep: Says, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs_module, "write_whole", full)
    assert "The run is not saved: " in sweep().err
    assert list((state / "collbench" / "runs").iterdir()) == []


def test_what_could_not_be_saved_is_not_tried_again_at_the_end(
    sweep: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep()
    (known,) = saved_runs()
    row, *_ = read(known.rows)
    monkeypatch.setattr(runs_module, "folder_of_runs", lambda: Path("/dev/null"))
    with (
        pytest.raises(UnavailableError),
        click.Context(cli, obj=("sweep",)),
        saved(FAILED, [], 0) as one,
    ):
        monkeypatch.setattr(runs_module, "folder_of_runs", folder_of_runs)
        one.keep(row)
        assert one.problem
        raise UnavailableError("no room is left")
    assert [one.name for one in saved_runs()] == [known.name]


def test_a_name_stays_and_a_number_is_of_this_directory(
    says: Says, sweep: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
        monkeypatch.chdir(place)
        sweep("--machine", "dgx-1v" if place is places[0] else "dgx-a100")
    first, second = saved_runs()
    assert (first.number, second.number) == (0, 1)
    assert "model of dgx-1v" in says(0, "compare", f"@{first.name}").out
    monkeypatch.chdir(places[0])
    out, err = says(0, "compare", "@1")
    assert "model of dgx-1v" in out and f"@{first.name}" in err
    monkeypatch.chdir(tmp_path)  # nothing was started here: of all
    assert "model of dgx-a100" in says(0, "compare", "@1").out
    says(2, "compare", "@1126-ffffff0")


@pytest.mark.parametrize("has_row", [True, False])
def test_a_run_that_failed_says_why(says: Says, sweep: Says, has_row: bool) -> None:
    sweep()
    record = read(saved_runs()[0].rows)[0]
    with (
        pytest.raises(UnavailableError),
        click.Context(cli, obj=("sweep",)),
        saved(FAILED, [], 0) as one,
    ):
        if has_row:
            one.keep(record)
        raise UnavailableError("no room is left")
    out = says(0, "runs").out
    assert "@1126-ab12cd" in out and "failed: nothing: no room is left" in " ".join(out.split())
    assert [one.number for one in saved_runs()] == ([2, 1] if has_row else [1, 0])


def test_nodes_are_listed_as_json_and_broken_files_are_named(says: Says, tmp_path: Path) -> None:
    keep(SavedCheck("n1", "8 x GPU", "2026-11-27T10:00:00", "PASS", {"link, GB/s": 3.0}), tmp_path)
    (tmp_path / "n2.jsonl").write_bytes(b"\x00\x01")
    out, err = says(0, "runs", "--nodes", tmp_path, "--json", "-")
    (node,) = json.loads(out)["data"]
    assert (node["host"], node["verdict"], node["slower_by_percent"]) == ("n1", "PASS", None)
    assert "No check can be read in n2.jsonl" in err
    says(3, "runs", "--nodes", tmp_path / "none")
