"""RankLinks of recorded and published rows: nothing that was measured is above them."""

import csv
from pathlib import Path

import pytest

from collbench.compare.best import summarise
from collbench.compare.load import load
from collbench.core import catalog
from collbench.core.case import Case
from collbench.core.collectives import collective
from tests.benchmarks.predict_published import MACHINES
from tests.benchmarks.recorded_ceilings import RECORDED, links_of, rewritten
from tests.support.tiers import tiered

MOST_PERCENT = 101.0  # a hundredth more than the best that was ever measured of a link


def test_every_file_with_ceilings_is_held_to_them() -> None:
    with_ceilings = {
        file
        for folder in {file.parent for file in RECORDED}
        for file in folder.glob("*.csv")
        if any(row.get("ceiling_gbs") for row in csv.DictReader(file.read_text().splitlines()))
    }
    assert with_ceilings == {*RECORDED}


@tiered("file", RECORDED, 2, ids=lambda file: file.stem)
def test_recorded_ceilings_are_those_of_today_and_no_row_is_above(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    text = file.read_text()
    assert rewritten(text) == text, "run python -m tests.benchmarks.recorded_ceilings"
    percents = [float(row["percent"] or 0) for row in csv.DictReader(text.splitlines())]
    assert max(percents) <= MOST_PERCENT
    best = summarise(load(file).records).every_best
    assert max(one.percent or 0.0 for one in best) <= MOST_PERCENT


@tiered(("name", "machine"), MACHINES.items(), 3)
def test_no_published_row_is_above_the_links_of_its_machine(
    name: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in csv.DictReader(catalog.results()[name].read_text().splitlines()):
        has_nvls = "NCCL_NVLS_ENABLE=0" not in row["versions"]
        monkeypatch.setenv("NCCL_NVLS_ENABLE", str(int(has_nvls)))
        ranks, size_bytes = int(row["ranks"]), int(row["size_bytes"])
        op = collective(row["op"]).name
        case = Case(op=op, backend="nccl", ranks=ranks, size_bytes=size_bytes)
        top = links_of(machine).ceiling(case, None)
        assert top is not None
        assert 100 * float(row["busbw_gbs"]) <= MOST_PERCENT * top.gbs
