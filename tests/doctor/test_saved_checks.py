"""References of machines, kept in the user's state: the newest of the same machine counts, and
broken files count for nothing.
"""

from pathlib import Path

import pytest

from collbench.doctor.saved_checks import MOST_KEPT, SavedCheck, forget, keep, reference_values


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "collbench" / "references"


def check(day: int, machine: str = "a; 2 ranks", **values: float) -> SavedCheck:
    return SavedCheck(machine=machine, started=f"2026-11-{day:02}T10:00:00+00:00", values=values)


def test_the_newest_of_the_same_machine_counts() -> None:
    assert reference_values("a; 2 ranks") == {}
    keep(check(3, link=3.0), "c")
    keep(check(2, link=2.0), "b")
    keep(check(4, "b; 2 ranks", link=4.0), "d")
    assert reference_values("a; 2 ranks") == {"link": (3.0, "2026-11-03")}


def test_what_was_noise_keeps_its_value_before() -> None:
    keep(check(2, link=2.0, copy=7.0), "b")
    keep(check(3, link=3.0), "c")
    keep(check(4), "d")
    assert reference_values("a; 2 ranks") == {
        "link": (3.0, "2026-11-03"),
        "copy": (7.0, "2026-11-02"),
    }


def test_all_can_be_forgotten() -> None:
    keep(check(2, link=2.0), "b")
    assert (forget(), forget(), reference_values("a; 2 ranks")) == (1, 0, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"machine": "a; 2 ranks"}',
        '{"machine": "a; 2 ranks", "started": "2027", "values": {"link": "fast"}}',
        '{"machine": "a; 2 ranks", "started": "2027", "values": {"link": -1.0}}',
        '{"machine": "a; 2 ranks", "started": "2027", "values": [1.0]}',
        '{"machine": "a; 2 ranks", "started": 7, "values": {}}',
        "\x00" * 10,
    ],
)
def test_broken_files_count_for_nothing(folder: Path, text: str) -> None:
    keep(check(3, link=3.0), "good")
    (folder / "broken.json").write_text(text)
    assert reference_values("a; 2 ranks") == {"link": (3.0, "2026-11-03")}


def test_old_ones_go(folder: Path) -> None:
    for number in range(MOST_KEPT + 5):
        keep(check(1, link=float(number + 1)), f"{number:03}")
    assert len(list(folder.iterdir())) == MOST_KEPT
