"""What is said of other processes: once, first, with the names of the busiest and what to do."""

import re
from itertools import count
from typing import Any

import pytest

from collbench.bench import busy as _busy
from collbench.bench import runner
from collbench.machine.others import BusyProcess, Census, Look
from tests.support.commands import Invoke, Says
from tests.support.tiers import tiered

SWEEP = ("sweep", "--backend", "cpu", "--ranks", "2", "--algo", "ring,star", "--sizes", "1K")
OTHERS = [BusyProcess(pid=4711 + place, command=f"spin {place}", cores=0.3) for place in range(3)]


def queue(monkeypatch: pytest.MonkeyPatch, first: int, later: int) -> None:
    """Two cores, with so many other tasks queued while sessions open, and from then on."""
    counts = iter((first, first))

    moments = count()

    def seen(*of: Any) -> Look:
        when_s, queued = float(next(moments)), next(counts, later)
        return Look(when_s=when_s, busy_s=0.0, own_s=0.0, queued=queued)

    monkeypatch.setattr(runner, "look", seen)
    monkeypatch.setattr(runner, "own_cores", lambda: frozenset((0, 1)))
    monkeypatch.setattr(Census, "busiest", lambda self, own, most=3: OTHERS)


@tiered(("first", "later"), [(12, 12), (0, 12), (12, 0), (0, 0)], 1)
def test_a_sweep_says_once_that_others_were_busy(
    says: Says, monkeypatch: pytest.MonkeyPatch, first: int, later: int
) -> None:
    queue(monkeypatch, first, later)
    out, err = says(0, *SWEEP)
    rows = re.findall(r"^ +1K  (?:ring|star)  .*busy:12\.0", out, re.MULTILINE)
    assert len(rows) == (2 if later else 0)
    said = [" ".join(line.split()) for line in err.splitlines() if "Other processes" in line]
    assert len(said) == (1 if first or later else 0)
    for line in said:
        assert "4711 spin 0 (0.3), 4712 spin 1 (0.3), 4713 spin 2 (0.3)" in line
        assert _busy._WHAT_TO_DO in line


def test_who_had_next_to_nothing_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = BusyProcess(pid=1, command="idle", cores=0.03)
    monkeypatch.setattr(Census, "busiest", lambda self, own: [OTHERS[0], idle])
    assert _busy.BusyRemark().names(()) == "4711 spin 0 (0.3)"
    monkeypatch.setattr(Census, "busiest", lambda self, own: [idle])
    assert "not known" in _busy.BusyRemark().names(())


def test_nobody_is_blamed_where_nothing_is_measured(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(monkeypatch, 12, 12)
    _, _, err = invoke("sweep", "--backend", "cpu", "--sizes", "1")  # less than an element
    assert "every point was waived" in err and "Other processes" not in err


def test_a_replay_says_that_others_were_busy(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue(monkeypatch, 12, 12)
    _, _, err = invoke("replay", "--mix", "ddp:1M/2", "--backend", "cpu", "--tune", "0")
    assert err.count("Other processes disturbed") == 1
