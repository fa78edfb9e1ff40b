"""Screen, JSON, JUnit, exit code and page say the same of one comparison, and of one file."""

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from collbench.compare.bands import peer_gaps
from collbench.compare.best import summarise
from collbench.compare.load import load
from collbench.core import catalog
from collbench.core.collectives import OPS
from collbench.core.verdict import VERDICTS
from tests.benchmarks.gate import slower
from tests.support.commands import Says, result_of
from tests.support.frames import write
from tests.support.tiers import tiered

EVERY_FILE = tiered("name", ["h200x4", "h200x2", "h100x2"], 1)
FASTER = {"h100x2": 1.2, "h200x2": 1.003, "h200x4": 0.7}  # times of alltoall against the file


def slower_copy(name: str, folder: Path) -> Path:
    """The file with other times of alltoall."""
    frame = load(catalog.results()[name]).frame
    file = folder / f"{name}-new.csv"
    write(slower(frame, np.where(frame["op"] == "alltoall", FASTER[name], 1.0)), file)
    return file


def counted(text: str) -> dict[str, int]:
    """How many rows have each verdict, in words."""
    return {
        verdict: int(found[1])
        for verdict in VERDICTS
        if (found := re.search(rf"(\d+) {verdict}\b", text)) is not None
    }


@pytest.mark.exhaustive
@EVERY_FILE
def test_all_forms_of_a_comparison_agree(says: Says, name: str, tmp_path: Path) -> None:
    new, base = str(slower_copy(name, tmp_path)), str(catalog.results()[name])
    told = {kind: str(tmp_path / f"told.{kind}") for kind in ("json", "xml", "html")}
    written = ["--json", told["json"], "--junit", told["xml"]]
    is_slower = FASTER[name] > 1.05
    screen = says(int(is_slower), "compare", new, base, "--fail-below", "5%", *written).words
    says(0, "compare", new, base, "--html", told["html"])
    page = unescape(re.sub(r"<[^>]*>", "", Path(told["html"]).read_text()))
    known = result_of(Path(told["json"]).read_text())
    counts = known["counts"]
    assert counted(screen.partition("rows compared: ")[2][:80]) == counts
    assert counted(page.partition("What changed")[2]) == counts
    assert {v: sum(row["verdict"] == v for row in known["rows"]) for v in VERDICTS} == counts
    for group in known["groups"]:
        assert f"{group['name']}: " in screen
        assert group["name"] in page
    suite = ElementTree.parse(told["xml"]).getroot()
    failures = suite.findall("testcase/failure")
    of_rows = [
        case
        for case in suite.findall("testcase")
        if case.get("classname", "").rpartition(".")[2] in OPS and case.find("failure") is not None
    ]
    assert len(of_rows) >= counts["worse"]
    assert is_slower == known["gate"]["exit_code"] == bool(failures)


@pytest.mark.exhaustive
@EVERY_FILE
def test_summary_and_page_count_the_same(name: str, tmp_path: Path, says: Says) -> None:
    file = str(catalog.results()[name])
    target = tmp_path / "page.html"
    says(0, "compare", file, "--html", target)
    screen = says(0, "compare", file).words
    lines = re.findall(r"vs nccl +speedup [^:]*: ([^:]*?) of (\d+) sizes", screen)
    seen = dict.fromkeys(("faster", "level", "slower", "cannot tell"), 0)
    for words, _ in lines:
        for word, count in re.findall(r"([a-z ]+?) at (\d+)", words):
            seen[word.strip(" ,")] += int(count)
    html = target.read_text()
    page = unescape(re.sub(r"<[^>]*>", "", html))
    told = re.search(
        r"faster or level at (\d+), slower at (\d+), cannot tell at (\d+) of (\d+)", page
    )
    assert told is not None
    assert [int(one) for one in told.groups()] == [
        seen["faster"] + seen["level"],
        seen["slower"],
        seen["cannot tell"],
        sum(int(count) for _, count in lines),
    ]
    gaps = peer_gaps(summarise(load(catalog.results()[name]).records), "nccl")
    cells = [gap.verdict for here in gaps.values() for gap in here.values()]
    grid = html.partition("From NCCL's best")[2].partition("<h3>")[0]
    for verdict in VERDICTS:
        kind = verdict.replace(" ", "-")
        assert len(re.findall(rf'class="num {kind}"', grid)) == cells.count(verdict)
