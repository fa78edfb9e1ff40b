"""`collbench algos`: the list, the drawings, and what is refused."""

from pathlib import Path

import pytest

from collbench.core.collectives import OPS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from tests.support.commands import Says


def test_algos_lists_every_pair(says: Says) -> None:
    out = says(0, "algos").out
    assert max(map(len, out.splitlines())) <= 80
    pairs = {tuple(line.split()[:2]) for line in out.splitlines()[2:]}
    assert pairs == {
        (op, algo)
        for op in OPS
        for algo in ALGORITHMS.names()
        if op in ALGORITHMS.load(algo).SERVES
    }


@pytest.mark.parametrize("algo", ALGORITHMS.names())
def test_algos_draws_everything(says: Says, algo: str) -> None:
    for op in ALGORITHMS.load(algo).SERVES:
        assert "checked" in says(0, "algos", algo, "--op", op, "--ranks", "5").out


RING = ("algos", "ring", "--op", "allreduce")


def test_algos_writes_a_page(says: Says, tmp_path: Path) -> None:
    page = tmp_path / "ring.html"
    out, err = says(0, *RING, "--html", page)
    assert out == ""
    assert err.count("wrote") == 1
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert says(0, *RING, "--html", "-").out == page.read_text()


def test_algos_shows_how_messages_are_cut(says: Says) -> None:
    knobs = ("--size", "1M", "--proto", "ll128", "--channels", "2", "--slots", "4")
    out = says(0, *RING, *knobs).out
    assert "loop        3 of a channel, of 240K each, the last one of 32K" in out
    assert "64K with flags: 8 bytes" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("main")]
    assert [row[2] for row in rows] == [
        "send", "recvReduceSend", "recvReduceSend", "recvReduceCopySend", "recvCopySend",
        "recvCopySend", "recv",
    ]  # fmt: skip
    assert rows[4][-4:] == ["3", "4", "0", "5"]  # the fifth message takes the first slot again
    out = says(0, *RING, "--size", "7", *knobs[2:]).out
    assert "How a size of 4 is cut" in out
    assert "2, each with 4 of the vector, the last with 0" in out
    assert "chunk       4, 4 in a loop" in out  # of which three are empty
    out = says(0, *RING, "--size", "1T", "--proto", "ll", "--channels", "1").out
    assert "loop        8388608 of a channel, of 128K each" in out
    steps = says(0, *RING, *knobs, "--json").result["steps"]
    assert (len(steps), steps[8]["tail"]) == (28, "2")
    data = says(0, "algos", "halving", "--op", "reduce", "--ranks", "5", "--json").result
    assert "tail" not in data["steps"][0]
