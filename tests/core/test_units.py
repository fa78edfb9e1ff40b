"""Sizes as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.core.errors import UsageError
from collbench.core.units import MAX_SIZE_BYTES, exact_size, parse_size


@given(st.one_of(st.integers(1, 1 << 40), st.integers(1, 4096).map(lambda k: 512 * k)))
def test_a_size_that_is_written_is_read_back(size_bytes: int) -> None:
    assert parse_size(exact_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9" * 400, "more than 8192T"),
        ("9" * 5000 + "K", "more than 8192T"),
        (f"{MAX_SIZE_BYTES + 1}", "more than 8192T"),
        ("8192.0000000001T", "more than 8192T"),
        ("0." + "0" * 400 + "1T", "not a whole number of bytes"),
        ("0.00000000000000000000000000000000000000001T", "not a whole number of bytes"),
        ("inf", "is not a size"),
        ("1e999", "is not a size"),
        ("\u0663K", "is not a size"),
    ],
)
def test_what_is_no_size_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_size(text)


def test_sizes_are_exact() -> None:
    assert parse_size(str(MAX_SIZE_BYTES - 1)) == MAX_SIZE_BYTES - 1
    assert parse_size("0" * 400 + "8" + "." + "0" * 400) == 8
    assert parse_size("0.0009765625K") == 1
