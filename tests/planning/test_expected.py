"""Whether a rate that another tool measured is normal, by the machine of the catalogue."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.compare.load import load
from collbench.core.record import Record
from collbench.planning.expected import expected_lines

PUBLISHED = Path(__file__).parents[2] / "profiles" / "results" / "h200x8-published.csv"


@pytest.fixture(scope="module")
def row() -> Record:
    """Allreduce of 8 H200, published, at its largest size."""
    rows = load(PUBLISHED).records
    eight = [one for one in rows if one.op == "allreduce" and one.ranks == 8]
    return max(eight, key=lambda one: one.size_bytes)


def times(row: Record, factor: float) -> Record:
    """The same row, slower by a factor."""
    return replace(row, busbw_gbs=(row.busbw_gbs or 0.0) / factor)


def test_published_rates_are_normal_and_half_of_them_are_not(row: Record) -> None:
    assert [" is normal." in line for line in expected_lines([row], 0)] == [True]
    assert [" is less than " in line for line in expected_lines([times(row, 2)], 0)] == [True]


def test_hosts_by_the_rate_of_their_nics_which_is_asked_for(row: Record) -> None:
    two = replace(row, op="allgather", ranks=16, hosts=2, busbw_gbs=185.0)
    (asked,) = expected_lines([two], 0)
    assert "is normal" not in asked and "is less" not in asked and "--set nic=" in asked
    told = [expected_lines([two], gbits)[0] for gbits in (8 * 200, 8 * 400)]
    assert "is normal" in told[0] and "is less than" in told[1]


def test_two_of_gb10_are_judged_by_their_cable(row: Record) -> None:
    pair = replace(row, op="allgather", ranks=2, hosts=2, device="2 x NVIDIA GB10")
    said = [expected_lines([replace(pair, busbw_gbs=rate)], 0)[0] for rate in (23.0, 12.0)]
    assert "is normal" in said[0] and "is less than" in said[1] and "MTU" in said[1]


def test_gpus_that_no_machine_has_are_asked_for(row: Record) -> None:
    (asked,) = expected_lines([replace(row, device="8 x NVIDIA L4")], 0)
    assert "collbench predict --topo FILE" in asked
    small = replace(row, size_bytes=4096)
    assert expected_lines([small, replace(row, device="64 cores")], 0) == []
