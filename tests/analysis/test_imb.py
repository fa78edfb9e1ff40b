"""The text of the Intel MPI Benchmarks becomes rows; what its bytes and its times mean."""

from pathlib import Path

import pytest

from collbench.analysis.load import load
from collbench.util.errors import UsageError
from tests.support.results import DATA, check_form, written

MIB = 1 << 20
TEXT = (DATA / "imb.txt").read_text()


def test_every_benchmark_by_its_meaning() -> None:
    loaded = load(DATA / "imb.txt")
    check_form(loaded.frame)
    assert loaded.kind == "the Intel MPI Benchmarks"
    rows = [
        (row["op"], row["ranks"], row["size_bytes"], row["time_us"], row["notes"], row["algo"])
        for _, row in loaded.frame.iterrows()
        if row["size_bytes"] == MIB
    ]
    assert rows == [
        ("sendrecv", 2, MIB, 100.0, "unchecked one-way", "library"),
        ("sendrecv", 2, MIB, 200.0, "unchecked", "isend"),
        ("sendrecv", 2, MIB, 200.0, "unchecked", "library"),
        ("allreduce", 4, MIB, 400.0, "unchecked", "library"),
        # of 256 KiB a block on four ranks
        ("allgather", 4, MIB, 400.0, "unchecked", "library"),
        ("reducescatter", 4, MIB, 400.0, "unchecked", "library"),
        # two pairs; in both directions twice
        ("sendrecv", 4, MIB, 100.0, "unchecked one-way window-256", "library"),
        ("sendrecv", 4, MIB, 100.0, "unchecked window-256", "library"),
    ]
    allreduce = loaded.frame[loaded.frame["op"] == "allreduce"].iloc[1]
    assert (allreduce["dtype"], allreduce["count"], allreduce["iters"], allreduce["backend"]) == (
        *("float32", MIB // 4, 40, "mpi"),
    )
    assert allreduce["busbw_gbs"] == pytest.approx(MIB / 400e3 * 1.5)
    assert set(loaded.frame["versions"]) == {"intel-mpi-benchmarks 2021.3"}
    said = " | ".join(loaded.remarks)
    for text in (
        "3 rows of 0 bytes left out (line 30, 63, 95)",
        "'Exchange' (line 52) is not comparable, it is no collective of ours: 1 lines left out",
        "'Barrier' (line 84) is not comparable, it is no collective of ours: 1 lines left out",
        "1 sizes were not measured: no memory, no time, or too large (line 66)",
        "reduce_scatter's bytes are read as one rank's block",
    ):
        assert text in said


def test_behind_the_tags_of_a_launcher(tmp_path: Path) -> None:
    plain = load(DATA / "imb.txt").frame
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in TEXT.splitlines())
    stamped = "".join(
        f"2026-01-05T12:00:{n % 60:02d}.{n:06d}Z 0: {line}\n"
        for n, line in enumerate(TEXT.splitlines())
    )
    for text in (tagged, stamped):
        frame = load(written(tmp_path, text)).frame
        assert frame["time_us"].tolist() == plain["time_us"].tolist()
        assert frame["size_bytes"].tolist() == plain["size_bytes"].tolist()


@pytest.mark.parametrize(
    ("version", "size", "window"),
    [
        ("Intel (R) MPI Benchmarks 4.1 Update 1", MIB // 4, 64),
        ("Intel (R) MPI Benchmark Suite V3.2", MIB // 4, 64),
        ("Intel(R) MPI Benchmarks 2018 Update 1", MIB // 4, 64),
        ("Intel(R) MPI Benchmarks 2019 Update 6", MIB, 64),
    ],
)
def test_versions_differ_in_reduce_scatter_and_in_the_window(
    version: str, size: int, window: int, tmp_path: Path
) -> None:
    frame = load(written(tmp_path, TEXT.replace("Intel(R) MPI Benchmarks 2021.3", version))).frame
    assert frame[frame["op"] == "reducescatter"]["size_bytes"].tolist() == [size]
    assert f"unchecked window-{window}" in set(frame["notes"])
    named = load(
        written(tmp_path, TEXT.replace("-npmin 2 PingPong PingPing S", "-window_size 8 S"))
    )
    assert "unchecked window-8" in set(named.frame["notes"])


def test_a_rate_in_mib_is_of_an_old_version_and_any_other_is_a_lost_digit(tmp_path: Path) -> None:
    old = TEXT.replace("     10485.76\n", "     10000.00\n").replace(
        "      5242.88", "      5000.00"
    )
    assert len(load(written(tmp_path, old.replace("64.00\n", "61.04\n"))).frame) == 13
    loaded = load(
        written(tmp_path, TEXT.replace("          100.00     10485", "           10.00     10485"))
    )
    assert len(loaded.frame) == 13
    loaded = load(written(tmp_path, TEXT.replace("40       100.00", "40        10.00")))
    assert len(loaded.frame) == 12
    assert any("1 times left out whose Mbytes/sec" in text for text in loaded.remarks)


def test_checked_builds_say_what_is_wrong(tmp_path: Path) -> None:
    text = (
        "# Benchmarking Bcast\n# #processes = 2\n"
        "#bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]      defects\n"
        "     4   1000   1.00   2.00   1.50   0.00\n     8   1000   1.00   2.00   1.50   0.02\n"
    )
    frame = load(written(tmp_path, text)).frame
    assert list(frame["status"]) == ["ok", "wrong"]
    assert list(frame["notes"]) == ["", ""]


def test_a_second_heading_ends_a_table(tmp_path: Path) -> None:
    text = (
        "# Benchmarking Bcast\n# #processes = 2\n#bytes #repetitions t[usec]\n 8 10 1.00\n"
        "#bytes #repetitions  t_min[usec]  t_max[usec]\n 16 10 1.00 2.00\n"
    )
    assert load(written(tmp_path, text)).frame["size_bytes"].tolist() == [8]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Benchmarking Bcast\n# #processes = 2\n", "line 1: no row"),
        (
            "#bytes #repetitions t[usec] Mbytes/sec\n8 10 1.00 8.00\n",
            r"1 tables have no line 'Benchmarking ...': left out \(line 1\)",
        ),
        ("# Benchmarking Barrier\n#repetitions t_min[usec]\n 10 1.00\n", "is not comparable"),
        (
            "# Benchmarking Bcast\n#bytes #repetitions t_max[usec]\n8 10 1.00\n",
            "line 1: the number of processes is not in the text",
        ),
        (
            "# Benchmarking Bcast\n# #processes = 2\n#bytes #repetitions t_pure[usec]\n8 10 1.00\n",
            "line 1: no column '#bytes', or none of 't_max",
        ),
        (
            "# Benchmarking Multi-Bcast\n# ( 2 groups of 2 processes each running simultaneous )\n"
            "#bytes #repetitions t_max[usec]\n8 10 1.00\n",
            "'Multi-Bcast' in 2 groups at once .* 1 lines left out",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        load(written(tmp_path, text))
