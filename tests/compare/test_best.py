"""One decision on what is best: a winner, a tie or neither, and the same in every report."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from collbench.bench.tables.sizes import size_lines
from collbench.compare.best import Best, Certainty, Summary, best_text, spans, summarise
from collbench.compare.curves import curves, envelope
from collbench.compare.doubt import doubt
from collbench.compare.load import ResultFile, load
from collbench.compare.page import page
from collbench.compare.tables.summary import summary_lines
from collbench.core import catalog, record
from collbench.core.record import Record
from collbench.core.units import parse_size
from tests.support.frames import H200, records, row, write

NOISE = (10.0, 20.0, 13.0)


def decided(*rows: dict[str, object]) -> Best:
    """The decision on rows of one workload and size."""
    [found] = summarise(records(*rows)).every_best
    return found


def leaders(best: Best) -> list[str]:
    return [one.algo for one in best.leaders]


def text_of(given: Sequence[Record], columns: int = 80) -> str:
    return "\n".join(summary_lines(given, columns, False))


def test_a_clear_winner() -> None:
    found = decided(row((10.0, 10.2, 10.1)), row((12.0, 12.2, 12.1), algo="direct"))
    assert (found.certainty, leaders(found), found.is_certain) == ("winner", ["ring"], True)
    assert found.runner_up is not None and found.gain is not None
    assert found.runner_up.algo == "direct" and found.gain.median == pytest.approx(12.1 / 10.1)
    assert not found.is_level_with(found.runner_up)


def test_of_noise_the_row_leads_that_shows_the_least_time() -> None:
    slower = row((20.0, 20.0, 21.0), notes="noisy")
    found = decided(slower, row((9.0, 30.0, 30.0), algo="tree", notes="noisy"))
    assert (found.certainty, leaders(found)) == ("cannot tell", ["tree"])


def test_of_two_that_are_tied_the_simpler_leads() -> None:
    rows = row((10.0, 10.2, 10.1)), row((10.1, 10.3, 10.2), algo="direct")
    found = decided(*rows)
    assert (found.certainty, leaders(found)) == ("tie", ["direct", "ring"])
    # The fastest is ring; time and ratio are those of the leader.
    assert found.gain is not None
    assert found.time_us == 10.2 and found.gain.median == pytest.approx(10.1 / 10.2)
    said = text_of(records(*rows))
    assert "direct simple (1 of 2)" in said and "tied" in said


def test_of_three_that_are_tied_all_are_named_and_what_is_slower_is_not() -> None:
    given = records(
        row((10.0, 10.2, 10.1), algo="tree"),
        row((10.1, 10.3, 10.2), algo="ring"),
        row((9.9, 10.4, 10.2), algo="chain"),
        row((19.0, 19.1, 19.2), algo="direct"),
    )
    [found] = summarise(given).every_best
    assert (found.certainty, leaders(found)) == ("tie", ["chain", "ring", "tree"])
    assert "chain simple (1 of 3)" in text_of(given)


def test_less_than_two_percent_is_a_tie_however_close_the_repeats() -> None:
    found = decided(row((10.0, 10.0, 10.0)), row((10.1, 10.1, 10.1), algo="direct"))
    assert (found.certainty, leaders(found)) == ("tie", ["direct", "ring"])
    found = decided(row((10.0, 10.0, 10.0)), row((10.3, 10.3, 10.3), algo="direct"))
    assert (found.certainty, leaders(found)) == ("winner", ["ring"])


def test_what_another_row_beats_is_not_tied_with_a_wide_one() -> None:
    found = decided(
        row((6.0, 20.0, 9.0), algo="tree"),  # noise, whose repeats reach over all others
        row((10.0, 10.1, 10.0), algo="ring"),
        row((15.0, 15.1, 15.0), algo="direct"),
    )
    # Noise does not lead, whatever is simpler.
    assert (found.certainty, leaders(found)) == ("tie", ["ring", "tree"])


def test_fewer_knobs_and_smaller_values_are_simpler() -> None:
    tied = [
        row((10.0, 10.1, 10.2), channels=8, p2p="pull"),
        row((10.0, 10.1, 10.2), channels=4, p2p="pull"),
        row((10.0, 10.1, 10.2), channels=8),
        row((10.0, 10.1, 10.2), channels=4),
    ]
    found = decided(*tied)
    assert [(one.channels, one.p2p) for one in found.leaders] == [
        (4, "auto"),
        (8, "auto"),
        (4, "pull"),
        (8, "pull"),
    ]
    found = decided(*[row((10.0, 10.1), proto=proto) for proto in ("ll128", "ll", "simple")])
    assert [one.proto for one in found.leaders] == ["simple", "ll", "ll128"]
    found = decided(row((10.0, 10.1), algo="unlisted"), row((10.0, 10.1), algo="tree"))
    assert leaders(found) == ["tree", "unlisted"]


def test_the_best_of_many_is_not_flattered() -> None:
    """Of a tie the simplest leads, which is not the luckiest."""
    rng = random.Random(2)
    flattered = honest = 0.0
    for _ in range(50):
        rows = [
            row(tuple(round(rng.gauss(10, 1), 3) for _ in range(6)), channels=channels)
            for channels in range(1, 21)
        ]
        honest += decided(*rows).time_us
        flattered += min(one["time_us"] for one in rows)
    assert abs(honest / 50 - 10) < 0.25
    assert flattered / 50 < 9.5


def test_one_repeat_decides_nothing() -> None:
    given = records(
        *[
            row((time * size,), algo=algo, proto=proto, size_bytes=1024 * size)
            for size in (1, 4)
            for algo, proto, time in (("ring", "ll", 10.0), ("tree", "simple", 30.0))
        ]
    )
    found = summarise(given)
    assert {(best.certainty, best.row.algo) for best in found.every_best} == {
        ("cannot tell", "ring")
    }
    said = text_of(given)
    assert said.startswith("Cannot tell which configuration is best: there is one repeat")
    assert "--repeats 9" in said
    assert "algorithm" not in said and "protocol" not in said and " by ring" not in said
    assert "ring ll ?" in said
    # A price has no noise, and what nothing competes with needs no decision.
    priced = [
        row((time,), algo=algo, notes="modelled") for algo, time in (("ring", 1), ("tree", 2))
    ]
    assert (decided(*priced).certainty, leaders(decided(*priced))) == ("winner", ["ring"])
    assert decided(row((10.0,))).certainty == "only"
    assert doubt(summarise(records(row((10.0,))))) is None


def noisy_rows(**named: object) -> Iterator[dict[str, object]]:
    for size in (1024, 4096, 16384):
        for algo, scale in (("ring", 1.0), ("tree", 1.1), ("star", 5.0)):
            times = tuple(scale * size / 1024 * time for time in NOISE)
            yield row(times, algo=algo, size_bytes=size, **named)


@pytest.mark.parametrize(
    ("named", "reasons", "remedies"),
    [
        (
            {"device": "AMD EPYC (4 cores)", "notes": "in-cache noisy"},
            ["4 ranks ran on 4 cores"],
            ["--ranks 3", "--repeats 9"],
        ),
        (
            {"device": "AMD EPYC (4 cores)", "ranks": 2},
            ["load of other processes"],
            ["--repeats 9"],
        ),
        (
            {"device": "AMD EPYC (2 cores)", "ranks": 2},
            ["2 ranks ran on 2 cores"],
            ["a host with more than 2 cores"],
        ),
        (
            {"notes": "noisy other-processes throttled:power"},
            ["clocks were throttled in 9 rows", "other processes were busy in 9 rows"],
            ["end other processes"],
        ),
    ],
)
def test_where_all_rows_are_noise_nothing_is_claimed(
    named: dict[str, object], reasons: list[str], remedies: list[str]
) -> None:
    given = records(*noisy_rows(**named))
    assert {best.certainty for best in summarise(given).every_best} == {"cannot tell"}
    said = text_of(given)
    plain = " ".join(said.split())
    assert plain.startswith(
        "Cannot tell which configuration is best: all 9 rows are noise. No winner and no crossover"
        " is claimed. why "
    )
    assert "repeats of one row differ by 77% of its time in the median" in plain
    for words in reasons + remedies:
        assert words in plain
    assert re.search(r"\n  (algorithm|protocol|effect) ", said) is None
    assert " by ring" not in said and "at all sizes" not in said
    [best] = envelope(curves(given))
    assert best.name == "fastest of ours: cannot tell which is best"
    assert {point.note for point in best.points} == {"ring simple ?"}
    text = page(ResultFile(records=given, name="given.csv", kind="collbench"))
    assert text.index("all 9 rows are noise") < text.index("At a glance")


def test_mostly_noise_is_said_first_and_the_rest_is_answered() -> None:
    given = records(
        *noisy_rows(), row((1.0, 1.0), size_bytes=8), row((2.0, 2.0), algo="tree", size_bytes=8)
    )
    said = text_of(given)
    assert said.startswith("Most rows are noise (9 of 11)")
    assert [best.certainty for best in summarise(given).every_best] == ["winner"] + 3 * [
        "cannot tell"
    ]
    assert "algorithm       ring to 8, cannot tell from 1K" in said


def test_noise_has_the_median_of_all_repeats_and_no_ratio() -> None:
    best = decided(row(NOISE, notes="auto"), row(NOISE, algo="tree"))
    assert best.time_us == median(NOISE)
    assert best.gain is best.excess is None and best.peers == {}


def test_of_noise_the_row_with_the_least_median_is_named() -> None:
    """The other one has the fastest even repeats, and a longer time in the rows above."""
    lucky, fast = (1.0, 9.0, 1.2, 9.5, 8.5), (5.0, 2.0, 5.5, 2.1, 5.2)
    best = decided(row(lucky, algo="tree"), row(fast))
    assert (best.row.algo, best.time_us) == ("ring", 5.0)


def test_a_single_row_that_is_noise_is_one() -> None:
    said = text_of(records(row((9.0,), notes="noisy")))
    assert said.startswith("The time is noise: it is not certain.")
    assert "other processes were busy in 1 row\n" in said
    assert "other processes were busy, one repeat of 9 us" in said


def test_one_configuration_of_each_size_can_be_noise_too() -> None:
    given = records(*[row(NOISE, size_bytes=size) for size in (1024, 4096)])
    assert text_of(given).startswith("The times are noise (all 2 rows): none of them is certain.")


def test_repeats_that_agree_beside_other_processes_name_these() -> None:
    """More repeats do not help there, nor where there are many already."""
    given = records(*[row((10.0,) * 9, algo=algo, notes="noisy") for algo in ("ring", "tree")])
    found = doubt(summarise(given))
    assert found is not None
    assert found.reasons == ("other processes were busy in 2 rows",)
    assert found.remedies == ("end other processes (top shows them)",)


def test_some_noise_is_not_said_first() -> None:
    given = records(row(NOISE), row((9.0, 9.1, 9.2), algo="tree"), row((20.0, 20.1), algo="star"))
    assert doubt(summarise(given)) is None
    assert text_of(given).startswith("3 rows")


@pytest.mark.parametrize("name", catalog.results())
def test_crossovers_and_best_of_a_shipped_file_agree(name: str) -> None:
    found = summarise(load(catalog.results()[name]).records)
    crossovers = 0
    for sizes in found.best.values():
        for knob in ("algo", "proto"):
            told = spans(sizes, knob)
            crossovers += len(told) > 1
            led = {
                size: getattr(best.row, knob) or "auto" if best.is_certain else None
                for size, best in sizes.items()
            }
            for span in told:
                here = {led[size] for size in sizes if span.first_bytes <= size <= span.last_bytes}
                assert here == {span.value}
            assert not told or (told[0].first_bytes, told[-1].last_bytes) == (
                min(sizes),
                max(sizes),
            )
    assert crossovers >= 9 or name != "h200x4"  # the others have one algorithm a row


def plain(found: Summary) -> dict[tuple[str, int], tuple[Certainty, list[tuple[str, str]]]]:
    return {
        (workload.op, size): (best.certainty, [(one.algo, one.proto) for one in best.leaders])
        for workload, sizes in found.best.items()
        for size, best in sizes.items()
    }


def test_all_reports_of_one_file_show_the_same_answer() -> None:
    given = load(H200).records
    known = plain(summarise(given))
    # Curves, which plots and the page draw.
    led = {
        (curve.group.workload.op, size): dict(curve.knobs)
        for curve in curves(given)
        for size in curve.best
    }
    assert {key: (one["algorithm"], one["protocol"]) for key, one in led.items()} == {
        key: names[0] for key, (_, names) in known.items()
    }
    # The closing table of the sweep that wrote the file, which has no pandas frame but records.
    shown, op = {}, ""
    for line in size_lines(list(record.read(H200)), 140):
        op = line.partition(",")[0] if line.endswith(", 4 ranks") else op
        if (cells := re.split(r" {2,}", line.strip()))[0][:1].isdigit():
            shown[op, parse_size(cells[0])] = cells[1]
    assert shown == {
        key: best_text([f"{algo} {proto}" for algo, proto in names], certainty)
        for key, (certainty, names) in known.items()
    }


def test_the_closing_table_of_a_sweep_has_its_doubts_first(tmp_path: Path) -> None:
    file = tmp_path / "noise.csv"
    write(records(*noisy_rows()), file)
    lines = size_lines(list(record.read(file)), least_rows=2)
    assert lines[0].startswith("Cannot tell which configuration is best: all 9 rows are noise.")
    best = [line.split()[:4] for line in lines if re.search(r"\? +<", line)]
    assert best == [[size, "ring", "simple", "?"] for size in ("1K", "4K", "16K")]


def test_crossovers_of_a_knob_with_one_value_are_none() -> None:
    found = summarise(records(row((1.0, 1.1)), row((2.0, 2.1), channels=4)))
    [sizes] = found.best.values()
    assert spans(sizes, "algo") == []


def test_the_speedup_of_what_is_not_decided_is_marked() -> None:
    peer = row((50.0, 50.0, 50.0), backend="nccl")
    noise = [row(NOISE), row(NOISE, algo="tree")]
    text = text_of(records(*noise, peer))
    assert "vs nccl         cannot tell at 1 of 1 sizes" in text and "speedup" not in text
    alone = [row((20.0,)), row((21.0,), algo="tree"), row((50.0,), backend="nccl")]
    assert "vs nccl" in text_of(records(*alone)) and "~2.50" in text_of(records(*alone))
    clear = [row((20.0, 90.0, 20.0), algo="tree"), row((30.0, 30.0, 30.0))]
    assert "~2.50" not in text_of(records(*clear, peer)) and " 2.50" in text_of(
        records(*clear, peer)
    )
