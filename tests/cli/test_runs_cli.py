"""Sweeps are saved without being asked, listed, and read again by number."""

import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from collbench.cli import cli, run
from collbench.compare import runs as runs_module
from collbench.compare.runs import RunFacts, SavedRun, folder_of_runs, remove, saved, saved_runs
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.interrupt import Interrupted
from collbench.core.record import header, line_of, read, values_of
from collbench.doctor.saved_checks import SavedCheck, keep
from tests.support.commands import MODEL, Capture


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of state, which does not exist yet."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


def sweep(*args: str) -> int:
    """Predict two sizes."""
    return run([*MODEL, "--algo", "ring", "--sizes", "1K,1M", *args])


def test_a_sweep_is_saved_with_its_command_and_its_machine(capsys: Capture) -> None:
    assert sweep("--machine", "dgx-1v") == 0
    (one,) = saved_runs()
    told = " ".join(capsys.readouterr().out.split())
    assert f"Saved as @{one.name}: collbench compare @{one.name}" in told
    given = " ".join([*MODEL, "--algo", "ring", "--sizes", "1K,1M", "--machine", "dgx-1v"])
    assert one.facts.command == f"collbench {given}"
    assert (one.facts.rows, one.facts.wrong, one.facts.exit_code) == (2, 0, 0)
    assert one.facts.title.startswith("allreduce; ")
    assert [row.size_bytes for row in read(one.rows)] == [1 << 10, 1 << 20]
    machine = json.loads((one.folder / "machine.json").read_text())
    assert machine["format"] == "collbench-recording"
    assert one.folder.stat().st_mode & 0o077 == 0


def test_a_run_with_wrong_data_says_so() -> None:
    assert sweep() == 0
    record = replace(read(saved_runs()[0].rows)[0], status="wrong", wrong=1)
    with click.Context(cli, obj=("sweep",)), saved("another", [], 0) as one:
        one.keep(record)
    facts = saved_runs()[-1].facts
    assert (facts.rows, facts.wrong, facts.exit_code) == (1, 1, 1)


def test_runs_are_listed_the_newest_last(capsys: Capture) -> None:
    assert run(["runs"]) == 0
    assert "No run is saved" in capsys.readouterr().out
    for op in ("allreduce", "broadcast", "allgather"):
        assert sweep("--op", op) == 0
    capsys.readouterr()
    assert run(["runs"]) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.split() == ["name", "started", "rows", "wrong", "took", "what"]
    assert [line.split()[0] for line in lines] == ["@3", "@2", "@1"]
    assert ["allreduce" in lines[0], "broadcast" in lines[1], "allgather" in lines[2]] == [True] * 3


def test_runs_are_compared_by_number(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sweep() == sweep() == 0
    capsys.readouterr()
    assert run(["compare", "@1"]) == 0
    assert "allreduce" in capsys.readouterr().out
    assert run(["compare", "@1", "@2"]) == 0
    page = tmp_path / "page.html"
    assert run(["compare", "@1", "--html", str(page)]) == 0
    assert "allreduce" in page.read_text()
    capsys.readouterr()
    assert run(["compare", "@3"]) == 2
    assert "@3: no such saved run, there are 2" in capsys.readouterr().err
    (tmp_path / "@1").write_text("no results")
    assert run(["compare", "@1"]) == 2


def test_old_runs_are_removed_only_when_asked(capsys: Capture) -> None:
    for _ in range(3):
        assert sweep() == 0
    newest = saved_runs()[-1].folder
    assert run(["runs", "--keep", "1"]) == 0
    assert [one.folder for one in saved_runs()] == [newest]
    assert "Removed 2 of 3" in capsys.readouterr().err


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


def test_what_is_waived_or_dry_is_not_saved_as_a_run_that_ended(capsys: Capture) -> None:
    assert sweep("--dry-run") == 0
    assert not saved_runs()


def test_a_run_that_cannot_be_saved_goes_on(state: Path, capsys: Capture) -> None:
    state.write_text("a file where the folder should be")
    assert sweep() == 0
    assert "The run is not saved: " in capsys.readouterr().err


def test_what_is_no_run_is_left_out(state: Path) -> None:
    assert sweep() == 0
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
    exit_code: int, said: str, why: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep() == 0
    (one,) = saved_runs()
    facts = json.loads((one.folder / "run.json").read_text())
    (one.folder / "run.json").write_text(json.dumps({**facts, "exit_code": exit_code, "rows": 0}))
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "160")
    assert run(["runs"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
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
    error: BaseException, ending: str, why: str, capsys: Capture
) -> None:
    name = "20261126T163400-ab12cd"
    with pytest.raises(type(error)), click.Context(cli, obj=("sweep",)), saved(name, [], 2):
        raise error
    assert run(["runs", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["data"]
    assert (one["ending"], one["rows"], one["points"]) == (ending, 0, 2)
    assert one["problem"].startswith(why)


def test_a_run_of_another_process_that_goes_on_is_running() -> None:
    assert sweep() == 0
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


def test_a_sweep_that_ends_after_a_newer_one_has_another_number() -> None:
    assert sweep() == 0
    record = read(saved_runs()[0].rows)[0]
    with click.Context(cli, obj=("sweep",)), saved("older", [], 0) as older:
        older.keep(record)
        assert saved_runs()[-1].number == 1
        with saved("newer", [], 0) as newer:
            newer.keep(record)
        assert (newer.saved_as(), older.saved_as()) == ("@newer", "@older")
        assert {run.name: run.number for run in saved_runs()[-2:]} == {"newer": 1, "older": 2}


def test_a_run_whose_beginning_cannot_be_saved_leaves_no_folder(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs_module, "write_whole", full)
    assert sweep() == 0
    assert "The run is not saved: " in capsys.readouterr().err
    assert list((state / "collbench" / "runs").iterdir()) == []


def test_what_could_not_be_saved_is_not_tried_again_at_the_end(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweep() == 0
    (known,) = saved_runs()
    row, *_ = read(known.rows)
    monkeypatch.setattr(runs_module, "folder_of_runs", lambda: Path("/dev/null"))
    with (
        pytest.raises(UnavailableError),
        click.Context(cli, obj=("sweep",)),
        saved("20261126T163400-ab12cd", [], 0) as one,
    ):
        monkeypatch.setattr(runs_module, "folder_of_runs", folder_of_runs)
        one.keep(row)
        assert one.problem
        raise UnavailableError("no room is left")
    assert [one.name for one in saved_runs()] == [known.name]


def test_a_name_stays_and_a_number_is_of_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
        monkeypatch.chdir(place)
        assert sweep("--machine", "dgx-1v" if place is places[0] else "dgx-a100") == 0
    first, second = saved_runs()
    assert (first.number, second.number) == (0, 1)
    capsys.readouterr()
    assert run(["compare", f"@{first.name}"]) == 0
    assert "model of dgx-1v" in capsys.readouterr().out
    monkeypatch.chdir(places[0])
    assert run(["compare", "@1"]) == 0
    out, err = capsys.readouterr()
    assert "model of dgx-1v" in out and f"@{first.name}" in err
    monkeypatch.chdir(tmp_path)  # nothing was started here: of all
    assert run(["compare", "@1"]) == 0
    assert "model of dgx-a100" in capsys.readouterr().out
    assert run(["compare", "@1126-ffffff0"]) == 2


@pytest.mark.parametrize("has_row", [True, False])
def test_a_run_that_failed_says_why(capsys: Capture, has_row: bool) -> None:
    assert sweep() == 0
    record = read(saved_runs()[0].rows)[0]
    with (
        pytest.raises(UnavailableError),
        click.Context(cli, obj=("sweep",)),
        saved("20261126T163400-ab12cd", [], 0) as one,
    ):
        if has_row:
            one.keep(record)
        raise UnavailableError("no room is left")
    capsys.readouterr()
    assert run(["runs"]) == 0
    out = capsys.readouterr().out
    assert "@1126-ab12cd" in out and "failed: nothing: no room is left" in " ".join(out.split())
    assert [one.number for one in saved_runs()] == ([2, 1] if has_row else [1, 0])


def test_nodes_are_listed_as_json_and_broken_files_are_named(
    tmp_path: Path, capsys: Capture
) -> None:
    keep(SavedCheck("n1", "8 x GPU", "2026-11-27T10:00:00", "PASS", {"link, GB/s": 3.0}), tmp_path)
    (tmp_path / "n2.jsonl").write_bytes(b"\x00\x01")
    assert run(["runs", "--nodes", str(tmp_path), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (node,) = json.loads(out)["data"]
    assert (node["host"], node["verdict"], node["slower_by_percent"]) == ("n1", "PASS", None)
    assert "No check can be read in n2.jsonl" in err
    assert run(["runs", "--nodes", str(tmp_path / "none")]) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [({"wrong": 5}, "5 wrong elements in a row that is ok"), ({"ranks": -4}, "-4 ranks")],
)
def test_a_row_that_contradicts_itself_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "own.csv"
    assert sweep("--csv", str(file)) == 0
    row, *_ = read(file)
    file.write_text(header() + line_of(values_of(replace(row, **change))))
    with pytest.raises(UsageError, match=f"line 2: {message}"):
        read(file)


def test_what_got_slower_is_bad_for_prometheus_without_a_gate(tmp_path: Path) -> None:
    new, base, text = (tmp_path / name for name in ("new.csv", "base.csv", "verdict.prom"))
    assert sweep("--csv", str(base)) == 0
    slower = [
        replace(
            row,
            time_us=3 * (row.time_us or 0.0),
            time_low_us=3 * (row.time_low_us or 0.0),
            time_high_us=3 * (row.time_high_us or 0.0),
            repeat_times_us=tuple(3 * one for one in row.repeat_times_us),
            busbw_gbs=(row.busbw_gbs or 0.0) / 3,
        )
        for row in read(base)
    ]
    new.write_text(header() + "".join(line_of(values_of(row)) for row in slower))
    assert run(["compare", str(new), str(base), "--prometheus", str(text)]) == 0
    assert 'grade="bad"} 1' in text.read_text()
