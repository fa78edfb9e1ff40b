"""One decision on what is best: a winner, a tie or neither, and the same in every report."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.bench.tables.sizes import size_lines
from collbench.compare.best import Best, Certainty, Summary, best_text, spans, summarise
from collbench.compare.curves import curves, envelope
from collbench.compare.load import ResultFile, load
from collbench.compare.page import page
from collbench.core import catalog, record
from collbench.core.units import parse_size
from tests.support.frames import H200, records, row, write

NOISE = (10.0, 20.0, 13.0)


def decided(*rows: dict[str, object]) -> Best:
    """The decision on rows of one workload and size."""
    [found] = summarise(records(*rows)).every_best
    return found


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


def noisy_rows() -> Iterator[dict[str, object]]:
    for size in (1024, 4096, 16384):
        for algo, scale in (("ring", 1.0), ("tree", 1.1), ("star", 5.0)):
            times = tuple(scale * size / 1024 * time for time in NOISE)
            yield row(times, algo=algo, size_bytes=size)


def test_curves_and_pages_claim_nothing_of_noise() -> None:
    given = records(*noisy_rows())
    [best] = envelope(curves(given))
    assert best.name == "fastest of ours: cannot tell which is best"
    assert {point.note for point in best.points} == {"ring simple ?"}
    text = page(ResultFile(records=given, name="given.csv", kind="collbench"))
    assert text.index("all 9 rows are noise") < text.index("At a glance")


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
    assert len(known) == 9 * 13 - 5  # of the operations, 5 cannot do 8 bytes with 4 blocks
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
