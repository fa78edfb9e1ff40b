"""OSU micro-benchmarks' text becomes rows; what S is must be known."""

from pathlib import Path

import pytest

from collbench.analysis.load import load
from collbench.util.errors import UsageError
from tests.support.results import DATA, check_form, written


def test_osu_allreduce_without_ranks() -> None:
    loaded = load(DATA / "osu_allreduce.txt")
    check_form(loaded.frame)
    assert loaded.kind == "osu"
    row = loaded.frame.iloc[2]
    assert (row["op"], row["backend"], row["dtype"], row["ranks"], row["count"], row["iters"]) == (
        "allreduce",
        "mpi",
        "float32",
        0,
        262144,
        100,
    )
    assert (
        row["time_us"],
        row["time_low_us"],
        row["time_high_us"],
        row["notes"],
        row["device"],
    ) == (100, 99, 104, "unchecked", "CUDA")
    assert row["algbw_gbs"] == pytest.approx(10.48576)
    assert loaded.frame["busbw_gbs"].isna().all()
    assert "number of ranks" in loaded.remarks[1]


def test_osu_allgather_counts_blocks_and_its_validation() -> None:
    frame = load(DATA / "osu_allgather.txt").frame
    check_form(frame)
    assert list(frame["size_bytes"]) == [8, 8 * 65536, 8 * 131072]
    assert list(frame["count"]) == [1, 65536, 131072]
    assert list(frame["status"]) == ["ok", "ok", "wrong"]
    assert frame["busbw_gbs"][1] == pytest.approx(8 * 65536 / 100e-6 / 1e9 * 7 / 8)


def test_osu_sizes_of_blocks_need_the_ranks(tmp_path: Path) -> None:
    text = (DATA / "osu_allgather.txt").read_text().partition("\n")[2]
    with pytest.raises(UsageError, match=r"line 2: allgather's size is one rank's block") as caught:
        load(written(tmp_path, text))
    assert "# ranks: 8" in caught.value.hint
    assert set(load(written(tmp_path, "# ranks: 3\n" + text)).frame["ranks"]) == {3}


@pytest.mark.parametrize(
    "title", ["Latency", "Non-blocking Allreduce Latency", "Barrier Latency", "Allgatherv Latency"]
)
def test_osu_benchmarks_that_are_no_collectives_of_ours(title: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no collective of ours"):
        load(
            written(
                tmp_path,
                f"# OSU MPI {title} Test v7.4\n# Size          Latency (us)\n1          2.0\n",
            )
        )


def test_a_second_heading_in_a_table_is_no_heading(tmp_path: Path) -> None:
    text = (
        "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n4  2.50\n# Size  Avg"
        " Latency(us)  Min Latency(us)\n8  2.60\n"
    )
    loaded = load(written(tmp_path, text))
    assert loaded.frame["size_bytes"].tolist() == [4, 8]
