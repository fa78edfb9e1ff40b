"""Printed rates prove how a table of nccl-tests is read: convention, ranks, lost digits."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import PROGRAMS, VERSIONS, Version, factor, output
from tests.support.results import check_form, written
from tests.support.tiers import tiered

KINDS = [(version, op) for version in VERSIONS for op in version.ops]


@tiered(("version", "op"), KINDS, 3, ids=[f"{version.name}-{op}" for version, op in KINDS])
@settings(max_examples=8)
@given(data=st.data())
def test_every_version_of_every_collective(
    tmp_path: Path, version: Version, op: str, data: st.DataObject
) -> None:
    """Times and rates are those that the text was made of, whatever its convention."""
    n = data.draw(st.integers(2, 16))
    times = data.draw(st.lists(st.floats(30.0, 40_000.0), min_size=1, max_size=4))
    has_ranks = data.draw(st.booleans())
    text = f"$ ./build/{PROGRAMS[op]} -g {n}\n" + output(version, op, n, times, has_ranks=has_ranks)
    loaded = load(written(tmp_path, text))
    check_form(loaded.frame)
    out = loaded.frame[loaded.frame["placement"] == "out"]
    assert set(out["op"]) == {op}
    assert list(out["time_us"]) == pytest.approx(times, rel=0.02)
    known = has_ranks or factor(op, 2) != factor(op, 3)
    rates = [(1048576 * n << row) / time / 1e3 for row, time in enumerate(times)]
    assert list(out["algbw_gbs"]) == pytest.approx(rates, rel=0.02)
    # few digits of short times may leave more than one number of ranks open; none is wrong
    assert set(out["ranks"]) <= ({n} if has_ranks else {0, n})
    if known and n in set(out["ranks"]):
        assert list(out["busbw_gbs"]) == pytest.approx(
            [rate * factor(op, n) for rate in rates], rel=0.02
        )


@pytest.mark.parametrize(
    ("version", "op"), KINDS, ids=[f"{version.name}-{op}" for version, op in KINDS]
)
@tiered("n", [1, 2, 8], 1)
def test_a_table_whose_collective_nothing_names_is_right_or_refused(
    version: Version, op: str, n: int, tmp_path: Path
) -> None:
    text = output(version, op, n, [100.0, 3000.0])
    named = load(written(tmp_path, text, f"{op}.txt")).frame
    assert (set(named["op"]), set(named["ranks"])) == ({op}, {n})
    try:
        frame = load(written(tmp_path, text, "x.txt")).frame
    except UsageError as error:
        assert "does not name the collective" in error.message
    else:
        assert (set(frame["op"]), set(frame["ranks"])) == ({op}, {n})
