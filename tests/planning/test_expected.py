"""Whether a rate that another tool measured is normal, by the machine of the catalogue."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.compare.load import load
from collbench.core.record import Record
from collbench.planning.expected import expected_lines
from tests.support.frames import typed
from tests.support.tables import cells_of

PUBLISHED = Path(__file__).parents[2] / "profiles" / "results" / "h200x8-published.csv"


@pytest.fixture(scope="module")
def row() -> Record:
    """Allreduce of 8 H200, published, at its largest size."""
    rows = load(PUBLISHED).records
    eight = [one for one in rows if one.op == "allreduce" and one.ranks == 8]
    return max(eight, key=lambda one: one.size_bytes)


@pytest.mark.parametrize(
    ("changes", "slower", "nic_gbits", "words"), cells_of(__file__, "expected.tsv")
)
def test_what_is_said_of_a_rate(
    row: Record, changes: str, slower: str, nic_gbits: str, words: str
) -> None:
    changed = replace(row, busbw_gbs=(row.busbw_gbs or 0.0) / float(slower))
    said = " ".join(expected_lines([replace(changed, **typed(changes))], float(nic_gbits)))
    assert all(part in said for part in words.split(" ... ")) and bool(said) == bool(words)
    assert ("is normal" in said, "is less" in said) == ("is normal" in words, "is less" in words)
