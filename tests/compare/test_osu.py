"""OSU micro-benchmarks' text becomes rows; what S is must be known."""

from pathlib import Path

import pytest

from collbench.compare.join import apart, join
from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.results import DATA, check_form, written


def test_osu_allreduce_without_ranks(tmp_path: Path) -> None:
    loaded = load(DATA / "osu_allreduce.txt")
    check_form(loaded.frame)
    assert loaded.kind == "the OSU micro-benchmarks"
    row = loaded.frame.iloc[2]
    known = ["op", "backend", "dtype", "ranks", "count", "iters", "notes", "device"]
    assert [*row[known]] == ["allreduce", "mpi", "float32", 0, 262144, 100, "unchecked", "CUDA"]
    assert [*row[["time_us", "time_low_us", "time_high_us"]]] == [100, 99, 104]
    assert row["algbw_gbs"] == pytest.approx(10.48576)
    assert loaded.frame["busbw_gbs"].isna().all()
    assert "number of ranks" in loaded.remarks[1]
    damaged = (DATA / "osu_allreduce.txt").read_text().replace("100.00", "100")
    loaded = load(written(tmp_path, damaged))
    assert len(loaded.records) == 2 and "(line 8): left out, as a point" in loaded.remarks[1]


def test_words_above_tell_runs_apart_and_counts_do_not(tmp_path: Path) -> None:
    table = "== {} ==\n# OSU MPI Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n4 9.50\n8 {}\n"
    again = table.format("run 1/2 10:11:12", "2.00") + table.format("run 2/2 10:11:13", "2.00")
    loaded = load(written(tmp_path, again))
    assert loaded.records[0].repeats == 2
    assert any("falls from 9.5 MB/s at 4 bytes to 2 at 8" in said for said in loaded.remarks)
    with pytest.raises(UsageError, match=r"line above differs: == pair 0,1 == \|"):
        load(written(tmp_path, table.format("pair 0,1", 2) + table.format("pair 0,2", 2)))


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


def test_a_second_heading_in_a_table_is_no_heading(tmp_path: Path) -> None:
    text = (
        "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n4  2.50\n# Size  Avg"
        " Latency(us)  Min Latency(us)\n8  2.60\n"
    )
    loaded = load(written(tmp_path, text))
    assert loaded.frame["size_bytes"].tolist() == [4, 8]


def test_types_of_one_title_are_tables_of_their_own(tmp_path: Path) -> None:
    text = "# ranks: 4\n# OSU MPI Allreduce Latency Test v7.3\n"
    for number, name in enumerate(("MPI_CHAR", "MPI_INT", "MPI_FLOAT")):
        text += f"# Datatype: {name}.\n# Size       Avg Latency(us)\n1024     3.{number}0\n"
    frame = load(written(tmp_path, text)).frame
    assert list(frame["dtype"]) == ["int8", "int32", "float32"]
    assert list(frame["time_us"]) == [3.0, 3.1, 3.2]
    assert list(frame["count"]) == [1024, 256, 256]


@pytest.mark.parametrize(
    "title",
    [
        "MPI_Accumulate latency Test v5.6.3",
        "MPI Non-blocking Allreduce Latency Test v7.4",
        "OpenSHMEM Broadcast Latency Test v7.4",
        "UPC++ Reduce Latency Test",
        "MPI-CUDA Multi-process Latency Test v7.4",
        "MPI Something New Test v9",
        "MPI Multi-threaded Latency Test v7.4",
        "MPI Barrier Latency Test v7.4",
        "MPI Allgatherv Latency Test v7.4",
    ],
)
def test_a_title_that_is_not_known_ends_the_table(title: str, tmp_path: Path) -> None:
    text = "# ranks: 2\n# OSU MPI Reduce Latency Test v5.6\n# Size       Avg Latency(us)\n4  2.50\n"
    unknown = f"# OSU {title}\n# Size          Latency (us)\n8   9.00\n"
    with pytest.raises(UsageError, match="is no collective of ours"):
        load(written(tmp_path, unknown))
    loaded = load(written(tmp_path, text + unknown))
    assert loaded.frame["size_bytes"].tolist() == [4]
    assert any("is no collective of ours: 1 line left out" in text for text in loaded.remarks)


def test_percentiles_and_a_full_table(tmp_path: Path) -> None:
    text = (
        "mpirun -np 4 osu_bcast -f -z -c\n# OSU MPI-ROCM Broadcast Latency Test v7.5\n"
        "# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
        "          Validation     P50 Tail Lat(us)     P90 Tail Lat(us)     P99 Tail Lat(us)\n"
        "1024     3.50   3.00    4.25   1000    Pass   3.40  4.00   9.00\n"
        "2048     4.50   4.00    5.25   1000    Fail   4.40  5.00   9.00\n"
    )
    frame = load(written(tmp_path, text)).frame
    row = frame.iloc[0]
    assert [*row[["time_us", "time_low_us", "time_high_us", "iters"]]] == [3.5, 3.0, 4.25, 1000]
    assert (row["wrong"], row["notes"], row["device"], row["ranks"]) == (0, "", "ROCM", 4)
    assert list(frame["status"]) == ["ok", "wrong"]


def test_nccl_through_osu_is_nccl(tmp_path: Path) -> None:
    text = "# OSU NCCL-CUDA Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4  25.0\n"
    assert set(load(written(tmp_path, text)).frame["backend"]) == {"nccl"}


def test_ranks_are_those_of_the_last_launch(tmp_path: Path) -> None:
    table = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n{}  2.50\n"
    text = "mpirun -np 4 osu_allgather\n" + table.format(1) + "mpirun osu_allgather\n"
    with pytest.raises(UsageError, match="line 6: allgather's size is one rank's block"):
        load(written(tmp_path, text + table.format(2)))
    stated = "# ranks: 8\n" + text + "# ranks: 3\n" + table.format(2)
    assert list(load(written(tmp_path, stated)).frame["ranks"]) == [4, 3]


def test_runs_of_one_command_are_repeats_and_of_two_are_refused(tmp_path: Path) -> None:
    table = "# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4  {}\n"
    command = "$ mpirun -np 4 {} ./osu_allreduce -m 4:64\n"
    once = "With hcoll\n```\n<pre>\n" + command.format("")
    text = once + table.format(2.5) + once + table.format(3.5)
    frame = load(written(tmp_path, text)).frame
    assert list(frame["repeat_times_us"]) == [(2.5, 3.5)]
    runs = (once + table.format(us) + f"8 {us}\n16 {us}\n32 {us}\n64 {us}\n" for us in (1, 2))
    with pytest.raises(UsageError, match="not repeats: all its 5 rows"):
        load(written(tmp_path, "".join(runs)))
    for other in (command.format("--mca coll tuned"), f"export UCX_TLS=tcp\n{once}", f"No {once}"):
        with pytest.raises(UsageError, match=r"the (line|text) above differs"):
            load(written(tmp_path, text + other + table.format(4.5)))


def test_point_to_point_is_sendrecv_whose_notes_name_the_traffic() -> None:
    loaded = load(DATA / "osu_point_to_point.txt")
    check_form(loaded.frame)
    rows = [
        (row["notes"], row["ranks"], row["size_bytes"], row["time_us"], row["busbw_gbs"])
        for _, row in loaded.frame.iterrows()
        if row["size_bytes"] > 1
    ]
    mib = 1 << 20
    assert rows == [
        # of one message one way, half a round trip
        ("unchecked one-way", 2, mib, 182.64, pytest.approx(mib / 182.64e3)),
        # decimal MB/s: the time of one of 16 messages in flight
        ("unchecked one-way window-16", 2, mib, mib / 10_000, pytest.approx(10)),
        # of both directions: half of it
        ("window-64", 2, mib, pytest.approx(mib / 10_000), pytest.approx(10)),
        # of four pairs: a quarter of it
        ("unchecked one-way window-64", 8, mib, pytest.approx(mib / 10_000), pytest.approx(10)),
    ]
    assert set(loaded.frame["op"]) == {"sendrecv"}
    assert list(loaded.frame["device"].unique()) == ["", "CUDA D H"]
    said = " | ".join(loaded.remarks)
    assert "1 row of 0 bytes left out (line 5): 2.00 us" in said
    assert "messages go one way (line 2, 9, 22, 29, 32): not compared with sendrecv" in said
    assert "the bandwidth of both directions is halved (line 16)" in said
    assert loaded.frame["notes"].iloc[-1] == "unchecked one-way rma-put"


def test_a_table_of_ucc_shows_its_ranks_by_its_bandwidths(tmp_path: Path) -> None:
    head = "Collective: Alltoall\nMemory type: cuda\n  Count  Size  Time, us  Bandwidth, GB/s\n"
    rows = "64 256 2.00 1.90 2.10 0.38 0.40 0.37\n{} 400.0 390 410 7.86 8 7\n"
    loaded = load(written(tmp_path, head + rows.format("262144 1048576")))
    assert loaded.frame["ranks"].tolist() == [4, 4]
    assert loaded.frame["busbw_gbs"].iloc[1] == pytest.approx(7.86, rel=0.01)
    launched = "mpirun -np 16 ucc_perftest\n" + head + "1 4 2.0 1 3 0.00 0 0\n" + rows
    assert {*load(written(tmp_path, launched.format("262144 1048576"))).frame["ranks"]} == {4}
    damaged = head + rows.format("262144 1048576") + "512 2048 2.0 1 3 9.50 9 9\n"
    said = load(written(tmp_path, damaged)).remarks
    assert any("bandwidth is not that of size and time (line 6)" in one for one in said)
    one_telling = launched.replace("-np 16", "-np 2") + rows.partition("\n")[0] + "\n"
    assert {*load(written(tmp_path, one_telling)).frame["ranks"]} == {4}
    with pytest.raises(UsageError, match="3 rows left out"):
        load(written(tmp_path, launched.format("1 1048576").replace("0.38", "0.99")))


def test_one_way_is_not_compared_with_both_ways(tmp_path: Path) -> None:
    title = "# OSU MPI {} Test v7.4\n# Size  Bandwidth (MB/s)\n1024  {}\n"
    one_way, both = (
        load(written(tmp_path, title.format(name, rate), f"{rate}.txt")).frame
        for name, rate in (("Bandwidth", 100), ("Bi-Directional Bandwidth", 190))
    )
    assert len(join(one_way, [one_way]).compared) == 1
    assert not len(join(one_way, [both]).compared)
    ours = both.assign(run="1", notes="")  # a file of ours, whose messages go both ways
    assert not len(join(one_way, [ours]).compared)
    reasons = " ".join(apart(one_way, ours))
    assert "nothing has the same conditions: one-way window-64 | -" in reasons
