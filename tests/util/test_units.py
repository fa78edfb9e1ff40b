"""Sizes as text."""

from hypothesis import given
from hypothesis import strategies as st

from collbench.util.units import format_size, parse_size


@given(st.one_of(st.integers(1, 1 << 40), st.integers(1, 4096).map(lambda k: 512 * k)))
def test_a_size_that_is_written_is_read_back(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes
