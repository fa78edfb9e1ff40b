"""The lines of `explain` on made-up rows, and the command on real ranks."""

from dataclasses import replace

import pytest

from collbench.analysis.trace_summary import summary
from collbench.bench.points import plan_points
from collbench.cli import run
from collbench.cli._run_explain import _work
from collbench.launch.local import LocalGroup
from collbench.planning.tuning import Origin
from collbench.report.tables.explain import (
    Explanation,
    Floor,
    LibraryForm,
    Neighbour,
    explain_lines,
)
from collbench.results.record import Record
from collbench.spec.case import Case
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
    by_model = replace(explanation({}), origin=Origin(True, (), "h200x4-vm"))
    assert "by the model (constants of h200x4-vm)" in " ".join(explain_lines(by_model, 160))
    waived = explain_lines(explanation({}, "no MPI here"), 160)
    assert waived[-1] == "mpi is not measured: no MPI here."


def test_noise_claims_no_knob_and_no_ratio() -> None:
    found = explanation({"--algo star": row(50.0, 60.0, 70.0)})
    noisy = replace(found.row, repeat_times_us=(90.0, 125.0, 170.0, 400.0, 900.0))
    for one in (noisy, replace(found.row, notes="noisy")):
        lines = explain_lines(replace(found, row=one), 80)
        text = " ".join(" ".join(lines).split())
        assert max(map(len, lines)) <= 80
        assert "The time is noise: it is not certain, and which knob would change it" in text
        assert "what to do end other processes" in text
        assert "Faster" not in text
        assert "No knob" not in text
        assert "--repeats" not in text
        assert text.endswith("mpi takes 200 us (190 to 210).")
    assert "repeats of one row differ by" in " ".join(explain_lines(replace(found, row=noisy), 200))


def test_a_neighbour_that_is_noise_is_neither_faster_nor_slower() -> None:
    found = explanation({"--algo star": replace(row(50.0, 60.0, 70.0), notes="noisy")})
    text = " ".join(explain_lines(found, 200))
    assert "No knob alone makes it faster. 1 other setting cannot be told from it." in text


def test_time_that_is_not_in_the_trace_is_told() -> None:
    found = explanation({})
    assert found.trace is not None
    traced_us = found.trace.launch.total_s * 1e6
    long, near = (
        " ".join(explain_lines(replace(found, row=row(time_us, time_us, time_us)), 300))
        for time_us in (4 * traced_us, 1.4 * traced_us)
    )
    assert " us are not in the trace: they are between launches, or noise." in long
    assert "not in the trace" not in near


def test_knobs_that_change_nothing_are_not_tried() -> None:
    case = Case(op="allreduce", backend="cpu", ranks=2, size_bytes=65536, algo="twoshot")
    knobs = (
        {"chunk": 65536},
        {"chunk": 1 << 20},
        {"chunk": 65536, "slots": 8},
        {"chunk": 8192},
        {"chunk": 65536, "channels": 2},
    )
    points = plan_points([replace(case, **knob) for knob in knobs], LocalGroup(10.0))  # type: ignore[arg-type]  # are numbers
    same, longer, roomier, *others = [_work(point.plan) for point in points if point.plan]
    assert same == longer == roomier
    assert len({same, *others}) == 3


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
