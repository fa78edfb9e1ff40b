"""Checks of nodes, kept in the user's state or in a folder that nodes share: what a node is held
against, broken files, and many writers at once.
"""

import multiprocessing
from pathlib import Path

import pytest

from collbench.core.errors import UnavailableError
from collbench.core.limits import FAIL_SHARE, LEAST_PEERS
from collbench.doctor import saved_checks
from collbench.doctor.check_verdict import Verdict
from collbench.doctor.saved_checks import (
    SavedCheck,
    forget,
    keep,
    read_nodes,
    reference_values,
    without_checks,
)
from collbench.doctor.tables.nodes import node_lines, states_of
from tests.core.test_files import full_disk

KIND = "2 x H200; 2 ranks"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "collbench" / "nodes"


def check(
    day: int, host: str = "n1", kind: str = KIND, verdict: Verdict = "PASS", **values: float
) -> SavedCheck:
    started = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T10:00:00+00:00"
    return SavedCheck(host=host, kind=kind, started=started, verdict=verdict, values=values)


def known(host: str = "n1", folder: Path | None = None) -> dict[str, list[tuple[float, str]]]:
    """What a node is held against: values and sources."""
    found = reference_values(host, KIND, folder)
    return {key: [(one.value, one.source) for one in values] for key, values in found.items()}


def test_a_node_is_held_against_its_own_past() -> None:
    assert known() == {}
    keep(check(1, link=2.0, copy=7.0), None)
    assert known()["link"] == [(2.0, "check 2026-01-02")]
    keep(check(2, link=4.0), None)
    keep(check(3, link=3.0), None)
    keep(check(4, kind="other", link=9.0), None)
    keep(check(5, verdict="FAIL", link=9.0), None)
    assert known() == {"link": [(3.0, "3 own checks")], "copy": [(7.0, "check 2026-01-02")]}


def test_a_latency_that_was_checked_once_fails_nobody() -> None:
    for day, lowest in ((1, 0.0), (2, FAIL_SHARE)):
        keep(check(day)._replace(values={"link, GB/s": 1.0, "step, us": 1.0}), None)
        found = reference_values("n1", KIND, None)
        assert [found[key][0].warns_from for key in found] == [FAIL_SHARE, lowest]


def test_a_node_that_becomes_slower_in_steps_is_held_against_its_first_checks() -> None:
    for day in range(120):
        lost = 0.82 ** (day // 30)
        keep(check(day)._replace(values={"link, GB/s": 100 * lost, "step, us": 10 / lost}), None)
    held = "20 own checks"
    assert known() == {"link, GB/s": [(100.0, held)], "step, us": [(10.0, held)]}
    for day in range(120, 140):
        keep(check(day)._replace(values={"link, GB/s": 110.0, "step, us": 9.0}), None)
    assert known() == {"link, GB/s": [(110.0, held)], "step, us": [(9.0, held)]}


def test_a_node_is_held_against_its_peers_in_a_shared_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for number in range(LEAST_PEERS):
        assert known("n9", shared) == {}
        keep(check(1, f"n{number}", link=1.0), shared)
        keep(check(2, f"n{number}", link=10.0 + number), shared)
    keep(check(2, "bad", verdict="FAIL", link=1.0), shared)
    keep(check(2, "other", "4 x H200", link=99.0), shared)
    assert known("n9", shared) == {"link": [(11.0, f"{LEAST_PEERS} peers")]}
    assert known("n9") == {}


def test_all_of_the_state_can_be_forgotten() -> None:
    keep(check(2, link=2.0), None)
    assert (forget(), forget(), known()) == (1, 0, {})


GOOD = '{"host": "n1", "kind": "k", "started": "2027-01-01", "verdict": "PASS", "values": '


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", "\x00" * 10, '{"host": "n1"}',
        f'{GOOD}{{"link": "fast"}}}}', f'{GOOD}{{"link": -1.0}}}}', f'{GOOD}{{"link": 1e999}}}}',
        f"{GOOD}[1.0]}}", f'{GOOD}{{"a": 1.0, "link": NaN}}}}', f'{GOOD}{{"link": 1{"0" * 400}}}}}',
        f"{GOOD}{{}}}}".replace("2027-01-01", "zzz"), f"{GOOD}{{}}}}".replace("n1", "n2"),
        f'{GOOD}{{}}}}'.replace('"PASS"', "7"), "[" * 100_000,
    ],
)  # fmt: skip
def test_broken_lines_count_for_nothing(folder: Path, text: str) -> None:
    keep(check(3, link=3.0), None)
    with (folder / "n1.jsonl").open("a") as file:
        file.write(text)
    keep(check(4, link=4.0), None)
    assert [one.values["link"] for one in read_nodes(None)["n1"]] == [3.0, 4.0]


def test_lines_of_other_versions_and_with_a_wrong_clock_count(folder: Path) -> None:
    keep(check(3, link=3.0), None)
    keep(check(1, link=1.0)._replace(started="2031-01-01T10:00:00+00:00"), None)
    with (folder / "n1.jsonl").open("a") as file:
        file.write(f'{GOOD}{{"link": 7}}, "more": 1}}\n')
    keep(check(2, link=2.0, verdict="FAIL"), None)
    checks = read_nodes(None)["n1"]
    assert [one.values["link"] for one in checks] == [3.0, 1.0, 7.0, 2.0]
    assert type(checks[2].values["link"]) is float
    (state,) = states_of({"n1": checks})
    assert (state.day, state.verdict) == ("2026-01-03", "FAIL")


def test_a_file_speaks_for_its_own_node_alone(folder: Path) -> None:
    keep(check(3, link=3.0), None)
    (folder / "spoof.jsonl").write_bytes((folder / "n1.jsonl").read_bytes().replace(b"3.0", b"1.0"))
    nodes = read_nodes(None)
    assert [one.values["link"] for one in nodes["n1"]] == [3.0]
    assert without_checks(None, nodes) == ["spoof.jsonl"]


def test_the_newest_checks_of_a_long_history_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_checks, "MOST_BYTES", 2000)
    for number in range(100):
        keep(check(number, link=float(number + 1)), None)
    assert (folder / "n1.jsonl").stat().st_size <= 2 * 2000
    values = [one.values["link"] for one in read_nodes(None)["n1"]]
    assert values == [float(number) for number in range(101 - len(values), 101)]
    assert len(values) >= 10


def test_a_check_that_a_full_disk_cuts_off_is_not_kept(tmp_path: Path) -> None:
    long = check(1)._replace(values={f"allreduce {part}, us": 1.0 for part in range(500)})
    with full_disk(), pytest.raises(UnavailableError, match="kept: File too large"):
        keep(long, tmp_path)
    assert not [*tmp_path.iterdir()]
    keep(check(2, link=2.0), tmp_path)
    assert [one.values for one in read_nodes(tmp_path)["n1"]] == [{"link": 2.0}]


@pytest.mark.exhaustive
def test_a_hundred_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Half of them for one node, as where a batch of jobs ends on it."""
    context = multiprocessing.get_context("fork")
    start = context.Event()
    writers = [context.Process(target=_write, args=(tmp_path, n, start)) for n in range(100)]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(60)
    nodes = read_nodes(tmp_path)
    assert len(nodes) == 51
    assert sorted(one.values["link"] for one in nodes["same"]) == list(range(1, 101, 2))


def _write(folder: Path, number: int, start: "multiprocessing.synchronize.Event") -> None:
    start.wait(60)
    host = "same" if number % 2 == 0 else f"n{number}"
    values = {f"allreduce {part}, us": 1.0 for part in range(500)}  # more than one page of memory
    values["link"] = float(number + 1)
    keep(check(1, host)._replace(values=values), folder)


def test_a_node_that_became_slower_is_named_first_with_the_day(tmp_path: Path) -> None:
    for day in range(20):
        step = 13.0 if day >= 12 else 10.0
        keep(check(day, "n2")._replace(values={"link, GB/s": 360.0, "step, us": step}), tmp_path)
        keep(check(day)._replace(values={"link, GB/s": 361.0, "step, us": 10.1}), tmp_path)
    keep(check(20, "n3", verdict="FAIL")._replace(values={"link, GB/s": 90.0}), tmp_path)
    lines = node_lines(states_of(read_nodes(tmp_path)), 80)
    assert lines[1].split() == ["n3", "1", "2026-01-21", "FAIL", "-"]
    assert lines[2].split() == ["n2", "20", "2026-01-20", "PASS", "+30.0%", "2026-01-13", "step"]
    assert lines[3].split() == ["n1", "20", "2026-01-20", "PASS", "same"]


def test_a_failing_node_is_listed_with_its_worst_number_and_first_day(tmp_path: Path) -> None:
    """Before its checks are a history, and where most numbers were noise, which are not kept."""
    good = {"link, GB/s": 360.0, "step, us": 10.0}
    for day in range(3):
        keep(check(day)._replace(values=good), tmp_path)
    keep(check(3, verdict="FAIL")._replace(values={"link, GB/s": 100.0}), tmp_path)
    keep(check(4, verdict="FAIL")._replace(values={"link, GB/s": 90.0}), tmp_path)
    (state,) = states_of(read_nodes(tmp_path))
    assert (state.what, state.since) == ("link", "2026-01-04")
    assert state.slower_by_percent == 300
    keep(check(5)._replace(values=good), tmp_path)
    (state,) = states_of(read_nodes(tmp_path))
    assert (state.slower_by_percent, state.what) == (0, "")
    keep(check(6, verdict="FAIL"), tmp_path)  # of wrong data
    (state,) = states_of(read_nodes(tmp_path))
    assert (state.verdict, state.slower_by_percent) == ("FAIL", None)
