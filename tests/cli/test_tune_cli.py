"""`collbench tune`: what it refuses, shows, keeps and forgets, that sweeps take what it found, and
a search on real ranks.
"""

import errno
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.backends.cpu import interpreter
from collbench.core.host import cpu_name
from collbench.planning.tuning import Machine
from collbench.tune import search
from collbench.tune.store import Store, TunedPoint, stored
from tests.support.commands import Says, forget_tuning, keep_tuned
from tests.support.corrupt import element
from tests.support.runs import needs_mpi, said_by, under_mpirun

SWEEP = ("sweep", "--backend", "cpu", "--ranks", "2", "--op", "broadcast", "--algo", "auto")
TUNE = ("tune", "--backend", "cpu", "--ranks", "2", "--op", "broadcast")
HERE = Machine("cpu", cpu_name(), "memory")
POINT = TunedPoint(
    op="broadcast", size=4096, ranks=2, hosts=1, asked="auto", carrier="shm",
    values={"algo": "ring", "proto": "simple", "direct": "off", "slots": 16},
    choice="ring simple, direct off, slots 16", former="direct simple", gain=1.25, gain_low=1.2,
    gain_high=1.31, pairs=8, tried=30, day="2026-11-23", source="`collbench tune`, vm",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("home")


def test_a_budget_must_allow_one_point(says: Says) -> None:
    assert "allreduce 1K takes about" in says(2, "tune", "--backend", "cpu", "--budget", "0.1").err


def test_a_sweep_takes_what_was_found(says: Says) -> None:
    dry = (*SWEEP, "--sizes", "4K,1M", "--dry-run")
    before = says(0, *dry).out
    store = keep_tuned(HERE, POINT)
    after = says(0, *dry).out
    lines, former = after.splitlines(), before.splitlines()
    assert lines[3].split()[:2] == ["4K", "ring"]
    assert "direct off, 1 ch, 16 slots" in lines[3]
    assert lines[4] == former[4]
    out = says(0, *SWEEP, "--sizes", "4K", "--repeats", "1", "--hot").out
    told = f"#auto:bytuningfile{store.tuning_file}(tunedonthismachine:{cpu_name()})"
    joined = re.sub(r"\n#  |\s", "", out)
    assert told.replace(" ", "") in joined
    assert "ring" in out


def test_what_is_known_is_not_measured_again_and_shown_and_forgotten(
    says: Says, home: Path
) -> None:
    store = keep_tuned(HERE, POINT, replace(POINT, size=8192, values={}, gain=1.01))
    file = home / "mine.toml"
    out, err = says(0, *TUNE, "--sizes", "4K,8K", "--out", file)
    assert err == ""
    assert "0 points to measure, 2 known already" in out
    assert "1 of 2 points gains: 1.25 x." in out
    assert file.read_text() == store.tuning_file.read_text()
    told = says(0, *TUNE, "--sizes", "4K", "--json")
    assert [one["size"] for one in told.result[0]["points"]] == [4096]
    assert "0 points to measure" in told.err
    out, err = says(0, "tune", "--show", COLUMNS="110")
    rows = [re.split(r"  +", line) for line in out.splitlines() if line.startswith("broadcast")]
    assert rows == [
        ["broadcast", "4K", "2", POINT.choice, POINT.former, "1.25 x", "1.20 to 1.31"],
        ["broadcast", "8K", "2", POINT.former, "stays"],
    ]
    assert err == f"# {store.tuning_file} is used.\n"
    out = says(0, "tune", "--forget").out
    assert out.splitlines() == [
        f"Removed {file} (2 points)." for file in (store.tuning_file, store.state_file)
    ]
    assert says(0, "tune", "--forget").out.startswith("Nothing is tuned")
    assert says(0, "tune", "--show").out.startswith("Nothing is tuned")


def test_a_second_run_goes_on_with_what_noise_decided_and_keeps_a_broken_state(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_point = replace(POINT, values={}, gain=1.02, gain_low=0.9, gain_high=1.2)
    store = keep_tuned(
        HERE, open_point, replace(POINT, size=8192, values={}, gain_low=0.8, gain_high=0.9)
    )
    out = says(0, "tune", "--show").out
    assert re.search(r"4K +2 +direct simple +not told apart +0.90 to 1.20\n", out)
    assert re.search(r"8K +2 +direct simple +stays\n", out)
    assert "2 points: the choice before stays everywhere. 1 not told apart: tune goes on" in out
    args = (*TUNE, "--sizes", "4K,8K")
    monkeypatch.setattr(search.ConfigurationSearch, "run", lambda *_: None)
    out, err = says(3, *args)
    assert "1 point to measure, 1 of them not told apart so far, 1 known already" in out
    assert "Error: nothing was tuned: the time did not suffice for a single point" in err
    store.state_file.write_text("{")
    monkeypatch.setattr(search.ConfigurationSearch, "run", outcome_of)
    assert "line 1, column 2: not JSON" in says(0, "tune", "--show").err
    out, err = says(0, *args)
    assert f"{store.state_file}, line 1, column 2: not JSON" in err
    assert f"It is {store.state_file.name}.broken now, and tuning starts anew." in err
    assert store.state_file.with_name(f"{store.state_file.name}.broken").read_text() == "{"
    assert (len(stored(HERE).points), "2 points to measure;" in out) == (2, True)


def outcome_of(self: search.ConfigurationSearch, *args: object) -> search.Outcome:
    """Today's choice, without measuring."""
    return self._outcome(self.former, [])


def test_a_full_disk_and_an_end_by_the_user_keep_what_was_known(
    says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = keep_tuned(HERE, POINT)
    text, saved = store.tuning_file.read_text(), Store.save
    monkeypatch.setattr(search.ConfigurationSearch, "run", outcome_of)
    saves = 0

    def save(self: Store, out: Path | None) -> None:
        nonlocal saves
        saves += 1
        if saves > 1:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.state_file))
        saved(self, out)

    monkeypatch.setattr(Store, "save", save)
    out, err = says(3, *TUNE, "--sizes", "64")
    assert f"not saved: {store.state_file}: No space left on device" in out
    assert f"Error: what was found is not saved: {store.state_file}: No space left" in err
    assert store.tuning_file.read_text() == text
    monkeypatch.setattr(Store, "save", saved)

    def interrupted(self: search.ConfigurationSearch, *args: object) -> search.Outcome:
        if self.former.point.case.size_bytes > 64:
            raise KeyboardInterrupt
        return outcome_of(self)

    monkeypatch.setattr(search.ConfigurationSearch, "run", interrupted)
    err = says(130, *TUNE, "--sizes", "64,128").err
    assert "# 1 point is kept: the same command goes on from there." in err
    assert [point.size for point in stored(HERE).points] == [64, 4096]


def test_wrong_data_is_out_and_is_told(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results of all messages without flags are spoilt, today's choice too: nothing is kept."""
    monkeypatch.setattr(interpreter, "arithmetic", element)
    out, err = says(1, *TUNE, "--sizes", "64", "--budget", "9s")
    assert "wrong: broadcast 64: direct simple: wrong: rank" in out
    assert "broadcast 64 cannot be tuned" in err
    assert stored(HERE).points == ()


SLOW = """
title = "slow"
[machine]
kind = "cpu"
models = []
joined = "memory"
ranks = [2]
[slow]
source = "nobody measured this"
rows = [{ chunk = 64, direct = "off", slots = 3 }]
"""


@needs_mpi
@pytest.mark.exhaustive
def test_a_choice_that_is_slow_is_found_and_replaced(says: Says, home: Path) -> None:
    slow = home / "collbench/tuning/zzz.toml"
    slow.parent.mkdir(parents=True)
    slow.write_text(SLOW)
    command = [sys.executable, "-m", "tests.support.planted_tune", "--backend", "cpu"]
    command += ["--op", "broadcast", "--sizes", "8K", "--budget", "10s"]
    done = said_by(under_mpirun(2, command), 290)
    assert done.returncode == 0, done.stderr
    (point,) = stored(HERE).points
    assert point.gain_low == pytest.approx(10), done.stdout
    assert point.values
    assert f"{point.choice}, " in done.stdout
    forget_tuning()
    after = says(0, *SWEEP, "--sizes", "8K", "--dry-run").out
    assert f"8K  {point.choice.split()[0]} " in after
    assert "chunks of 64\n" not in after
