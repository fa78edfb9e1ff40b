"""The lines of `explain` on made-up rows, and the command on real ranks."""

from dataclasses import replace

import pytest

from collbench.analysis.trace_summary import summary
from collbench.cli import run
from collbench.planning.tuning import Origin
from collbench.report.tables.explain import (
    Explanation,
    Floor,
    LibraryForm,
    Neighbour,
    explain_lines,
)
from collbench.results.record import Record
from tests.report.test_trace import CHAIN_COSTS, played_trace
from tests.results.test_record import ROW


def row(low_us: float, time_us: float, high_us: float, backend: str = "cpu") -> Record:
    return replace(ROW, backend=backend, time_low_us=low_us, time_us=time_us, time_high_us=high_us)


def explanation(neighbours: dict[str, Record], why: str = "") -> Explanation:
    return Explanation(
        row=row(90.0, 100.0, 110.0),
        origin=Origin(True, (("mine", "my machine"),)),
        hops=4,
        floor=Floor("m", 1e-6, 49e-6, "3/2 S sent by the busiest rank"),
        trace=summary(played_trace(), CHAIN_COSTS),
        neighbours=tuple(Neighbour(flag, one) for flag, one in neighbours.items()),
        libraries=(LibraryForm(row(190.0, 200.0, 210.0, "mpi"), "mpi", why),),
    )


def test_the_lines() -> None:
    found = explanation(
        {
            "--algo tree": row(150.0, 160.0, 170.0),
            "--proto ll": row(70.0, 75.0, 80.0),
            "--slots 8": row(95.0, 105.0, 120.0),
        }
    )
    lines = explain_lines(found, 80)
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80
    assert "by tuning file mine, which fits this machine" in text
    assert "4 hops 1.00 us, and 3/2 S sent by the busiest rank 49.0 us: 50% of the time." in text
    assert "Faster: --proto ll -25%." in text
    assert "Slower: --algo tree +60%." in text
    assert "1 other setting cannot be told from it." in text
    assert text.endswith("mpi takes 200 us (190 to 210): 2.00 times as long.")
    assert "No knob alone makes it faster." in " ".join(explain_lines(explanation({}), 80))
    waived = explain_lines(explanation({}, "no MPI here"), 160)
    assert waived[-1] == "mpi is not measured: no MPI here."


def test_a_least_time_above_the_time_is_none() -> None:
    """Constants of another machine."""
    found = explanation({})
    text = " ".join(explain_lines(replace(found, row=row(40.0, 45.0, 50.0)), 200))
    assert "49.0 us: more than it takes. These constants do not hold here; `collbench" in text


@pytest.mark.exhaustive
def test_a_collective_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--op", "broadcast", "--size", "4K", "-n", "2"]) == 0
    out = " ".join(capfd.readouterr().out.split())
    assert out.startswith("broadcast of 4K, 2 ranks: ")
    for word in ("Chosen: ", "Least by the model of ", "A traced launch", "mpi "):
        assert word in out
