"""Printed rates prove how a table of nccl-tests is read: convention, ranks, lost digits."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import PROGRAMS, VERSIONS, Version, factor, output
from tests.support.results import check_form, written
from tests.support.tiers import tiered

KINDS = [(version, op) for version in VERSIONS for op in version.ops]


@tiered(("version", "op"), KINDS, 3, ids=[f"{version.name}-{op}" for version, op in KINDS])
@settings(
    deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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


ROWS = (2000.0, 4100.0, 8300.0, 16_500.0)
LAST = VERSIONS[-1]


def _text(op: str = "allreduce", n: int = 8) -> str:
    return f"{PROGRAMS[op]}\n" + output(LAST, op, n, ROWS)


def test_rates_that_are_not_those_of_size_and_time_are_refused(tmp_path: Path) -> None:
    # what the columns are is not known
    text = re.sub(r"(float.*?-1)", r"\1 17.00", _text()).replace(" time ", " what  time ", 1)
    with pytest.raises(UsageError, match="us are 493"):
        load(written(tmp_path, text.replace("what", "root")))


def test_rates_of_another_collective_are_refused(tmp_path: Path) -> None:
    text = _text("allreduce").replace("all_reduce", "broadcast")
    with pytest.raises(UsageError, match="is that of broadcast on no number of ranks"):
        load(written(tmp_path, text))


@pytest.mark.parametrize("digits", [("2000.0", "200.0"), ("2000.0", "20000"), ("4100.0", "100.0")])
def test_a_time_that_lost_digits_is_left_out(digits: tuple[str, str], tmp_path: Path) -> None:
    loaded = load(written(tmp_path, _text().replace(f" {digits[0]} ", f" {digits[1]} ", 1)))
    assert len(loaded.frame) == 2 * len(ROWS) - 1
    assert any("rates are not those of size and time (line" in text for text in loaded.remarks)


def test_a_bus_bandwidth_with_another_digit_is_left_out(tmp_path: Path) -> None:
    text = _text()
    busbw = re.search(r"sum +-1 +\S+ +\S+ +(\S+)", text)
    assert busbw
    loaded = load(written(tmp_path, text.replace(f" {busbw[1]} ", f" 1{busbw[1]} ", 1)))
    assert len(loaded.frame) == 2 * len(ROWS) - 1
    assert set(loaded.frame["ranks"]) == {8}


def test_rates_in_another_unit(tmp_path: Path) -> None:
    text = re.sub(
        r"(\d+\.\d\d)  +(\d+\.\d\d)(  +(?:0|N/A))",
        lambda rates: f"{float(rates[1]) * 1e3:.1f} {float(rates[2]) * 1e3:.1f} {rates[3]}",
        _text(),
    ).replace("(GB/s)", "(MB/s)")
    plain = load(written(tmp_path, _text())).frame
    scaled = load(written(tmp_path, text)).frame
    assert list(scaled["busbw_gbs"]) == list(plain["busbw_gbs"])


@pytest.mark.parametrize(
    ("check", "end", "statuses", "notes"),
    [
        ("2e+00", "1 FAILED", ["wrong", "ok"], {""}),
        ("1e-07", "0 OK", ["ok", "ok"], {""}),
        ("2e+00*", "1 FAILED", ["wrong", "ok"], {""}),
        ("-1e+00", "0 OK", ["ok", "ok"], {"", "unchecked"}),
        ("0e+00", "3 FAILED", ["ok", "ok"], {"unchecked"}),
    ],
)
def test_deviations_of_old_versions(
    check: str, end: str, statuses: list[str], notes: set[str], tmp_path: Path
) -> None:
    text = "all_reduce_perf\n" + output(VERSIONS[1], "allreduce", 4, ROWS[:1], end=lambda _: end)
    loaded = load(written(tmp_path, text.replace("0e+00", check, 1)))
    assert list(loaded.frame["status"]) == statuses
    assert set(loaded.frame["notes"]) == notes
    assert any("calls this run failed" in text for text in loaded.remarks) is ("FAILED" in end)
    if statuses[0] == "wrong":
        assert loaded.frame["reason"][0] == f"off by {check.rstrip('*')}"


def test_no_check_is_said_whatever_the_column_holds(tmp_path: Path) -> None:
    text = _text("alltoall").replace("validation: 1", "validation: 0")
    loaded = load(written(tmp_path, text))
    assert set(loaded.frame["notes"]) == {"unchecked"}
    assert loaded.frame["wrong"].isna().all()
    assert any(text.startswith("no result was checked") for text in loaded.remarks)


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
