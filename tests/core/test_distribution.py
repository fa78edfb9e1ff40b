"""Percentiles and histograms of single launches: what they are by their definition, and that a cell
of a file is nothing else.
"""

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.core.distribution import (
    LEAST_US,
    MOST_BIN,
    PERCENTILES,
    histogram,
    histogram_text,
    parse_histogram,
    percentile,
)
from collbench.core.errors import UsageError
from collbench.core.record import header, parse, to_line
from tests.core.test_record import ROW

TIMES = st.lists(st.floats(0.0, 1e9), max_size=400)


@given(TIMES, st.sampled_from([*PERCENTILES.values()]))
def test_a_percentile_is_the_least_time_that_so_many_launches_do_not_pass(
    times: list[float], thousandths: int
) -> None:
    """And some launch is expected to pass it, or it is not known."""
    share, found = Fraction(thousandths, 1000), percentile(sorted(times), thousandths)
    if len(times) * (1 - share) < 1:
        assert found is None
        return
    enough = [time for time in times if sum(one <= time for one in times) >= share * len(times)]
    assert found == min(enough)


@given(TIMES)
def test_every_launch_is_in_the_bin_of_its_time(times: list[float]) -> None:
    bins = histogram(times)
    assert sum(dict(bins).values()) == len(times)
    assert parse_histogram(histogram_text(bins)) == bins
    for number, count in bins:
        low, high = 2 ** (number / 8), 2 ** ((number + 1) / 8) if number < MOST_BIN else inf
        known = [max(time, LEAST_US) for time in times]
        # within the rounding of a logarithm at the edges
        assert sum(low < time * (1 - 1e-9) and time * (1 + 1e-9) < high for time in known) <= count
        assert sum(low <= time * (1 + 1e-9) and time * (1 - 1e-9) < high for time in known) >= count


@pytest.mark.parametrize(
    "cell",
    [
        *("1", "1:", ":1", "1:0", "1:-1", "01:1", "-0:1", "1:1;", ";1:1", "1:1;;2:1", " 1:1"),
        *("2:1;1:1", "1:1;1:1", "401:1", "-81:1", "1:1e3", "1:1.5", "nan:1", "1:9999999999999"),
        *("\u0661:1", "x" * 99),
    ],
)
def test_what_is_no_histogram_is_refused_with_its_line(cell: str) -> None:
    with pytest.raises(ValueError, match="bin"):
        parse_histogram(cell)
    line = to_line(ROW).replace("29:150;34:2;39:1", cell)
    with pytest.raises(UsageError, match=r"a\.csv, line 2"):
        parse("a.csv", header() + line)
