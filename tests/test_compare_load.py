"""Results of ours and of other tools become one table, or one UsageError with the place."""

import json
import os
import random
import re
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collbench.compare._rows import FLOATS, INTEGERS, frame_of, ranks_of
from collbench.compare.load import load, load_all
from collbench.errors import UsageError
from collbench.record import COLUMNS, header, read

DATA = Path(__file__).parent / "data" / "results"
SWEEP = Path(__file__).parent.parent / "profiles" / "results" / "h200x4.csv"
SHARED = Path(os.environ.get("COLLBENCH_SHARED", Path(__file__).parent.parent.parent / "shared")) / "data" / "nccl-tests"
REAL = sorted(SHARED.glob("*.txt")) + sorted(SHARED.glob("*.json"))
needs_shared = pytest.mark.skipif(not REAL, reason="needs the shared nccl-tests outputs")
SAMPLES = [file for file in sorted(DATA.iterdir()) if file.suffix in (".txt", ".json")]
FIRST_ROW = 9  # of no-ranks.txt


def written(tmp_path: Path, text: str | bytes, name: str = "results.txt") -> Path:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def check_form(frame: pd.DataFrame) -> None:
    assert tuple(frame.columns) == COLUMNS
    assert all(str(frame[name].dtype) == "int64" for name in INTEGERS)
    assert all(str(frame[name].dtype) == "float64" for name in FLOATS)
    text = [name for name in COLUMNS if name not in INTEGERS and name not in FLOATS]
    assert all(all(isinstance(cell, str) for cell in frame[name]) for name in text)
    assert frame["status"].isin(["ok", "wrong", "waived", "error"]).all()
    ok = frame[frame["status"] == "ok"]
    assert (ok["time_us"] > 0).all()
    assert frame[frame["status"] != "ok"]["time_us"].isna().all()
    assert (frame[frame["status"] != "ok"]["reason"] != "").all()


# --- our own CSV


def test_own_csv_equals_the_reader_of_records() -> None:
    loaded = load(SWEEP)
    assert (loaded.kind, loaded.said, loaded.name) == ("collbench", (), str(SWEEP))
    check_form(loaded.frame)
    pd.testing.assert_frame_equal(loaded.frame, frame_of(read(SWEEP)))


def test_a_hundred_thousand_rows_take_about_a_second(tmp_path: Path) -> None:
    first, *rows = SWEEP.read_text().splitlines(keepends=True)
    file = written(tmp_path, first + "".join((rows * 70)[:100_000]))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert len(load(file).frame) == 100_000
        times.append(time.perf_counter() - start)
    assert min(times) < 4  # 0.6 s on a quiet core; the slow way takes 6


def test_a_last_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    lines = SWEEP.read_text().splitlines(keepends=True)[:5]
    loaded = load(written(tmp_path, "".join(lines)[:-30]))
    assert len(loaded.frame) == 3
    assert loaded.said == ("the last line (line 5) is cut and left out",)


@pytest.mark.parametrize(("column", "cell"), [
    ("size_bytes", "many"), ("time_us", "fast"), ("status", "fine"), ("schema", "2"), ("repeat_times_us", "1;2;x"), ("wrong", "0.5"), ("ranks", ""),
    ("repeat_times_us", "1.2.3"),
])
def test_a_broken_row_has_the_message_of_the_reader_of_records(column: str, cell: str, tmp_path: Path) -> None:
    lines = SWEEP.read_text().splitlines()[:5]
    cells = lines[3].split(",")
    cells[COLUMNS.index(column)] = cell
    file = written(tmp_path, "\n".join([*lines[:3], ",".join(cells), lines[4], ""]))
    with pytest.raises(UsageError) as ours:
        load(file)
    with pytest.raises(UsageError) as theirs:
        read(file)
    assert (ours.value.message, ours.value.hint) == (theirs.value.message, theirs.value.hint)
    assert "line 4" in ours.value.message


def test_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has not the columns of schema"):
        load(written(tmp_path, "op,backend,algo\nallreduce,cuda,ring\n"))


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no rows"):
        load(written(tmp_path, header()))


def test_lines_that_windows_wrote(tmp_path: Path) -> None:
    text = "".join(SWEEP.read_text().splitlines(keepends=True)[:40])
    loaded = load(written(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()))
    assert len(loaded.frame) == 39


def test_several_files(tmp_path: Path) -> None:
    other = DATA / "no-ranks.txt"
    assert [loaded.kind for loaded in load_all([SWEEP, other])] == ["collbench", "nccl-tests"]
    with pytest.raises(UsageError, match="given twice"):
        load_all([SWEEP, other, SWEEP])


# --- nccl-tests


@needs_shared
@pytest.mark.parametrize("file", REAL, ids=lambda file: file.name)
def test_every_shared_output_is_read(file: Path) -> None:
    loaded = load(file)
    check_form(loaded.frame)
    assert (loaded.kind, loaded.said) == ("nccl-tests", ())
    assert set(loaded.frame["ranks"]) == {4}
    assert set(loaded.frame["device"]) == {"4 x NVIDIA H200"}
    assert set(loaded.frame["status"]) == {"ok"}
    assert set(loaded.frame["op"]) == {re.sub(r"_(?:debug|iters)$", "", file.stem).replace("_", "")}
    assert loaded.frame["versions"].str.contains("nccl 2.28.9").all()


@needs_shared
@pytest.mark.parametrize("stem", ["allreduce", "allreduce_iters"])
def test_text_and_json_of_one_run_say_the_same(stem: str) -> None:
    text, json_ = load(SHARED / f"{stem}.txt").frame, load(SHARED / f"{stem}.json").frame
    same = ["op", "dtype", "redop", "root", "placement", "ranks", "size_bytes", "count", "iters", "wrong", "status", "host", "device"]
    pd.testing.assert_frame_equal(text[same], json_[same])
    assert (abs(text["time_us"] / json_["time_us"] - 1) < 0.001).all()


@needs_shared
@pytest.mark.parametrize("file", [file for file in REAL if file.suffix == ".txt"], ids=lambda file: file.name)
def test_bandwidths_are_those_printed(file: Path) -> None:
    printed = [line.split() for line in file.read_text().splitlines() if re.match(r"\s+\d+\s+\d+\s+[a-z]", line)]
    rows = load(file).frame
    out = rows[rows["placement"] == "out"]
    assert [float(words[7]) for words in printed] == pytest.approx(list(out["busbw_gbs"]), abs=0.02, rel=0.002)
    assert [float(words[6]) for words in printed] == pytest.approx(list(out["algbw_gbs"]), abs=0.02, rel=0.002)


def test_an_old_version_with_a_blank_reduction_and_errors() -> None:
    loaded = load(DATA / "all_gather-2.0.txt")
    check_form(loaded.frame)
    assert list(loaded.frame["placement"]) == ["out", "in"] * 3
    assert set(loaded.frame["op"]) == {"allgather"}  # by the file's name
    assert set(loaded.frame["redop"]) == {"sum"}  # as our own rows have it where nothing is reduced
    assert loaded.frame["wrong"].isna().all()
    assert list(loaded.frame["notes"]) == [""] * 5 + ["unchecked"]
    assert "how far results are off" in loaded.said[0]
    assert loaded.frame["device"][0] == "2 x Tesla V100-SXM2-16GB"


def test_a_launchers_prefix_debug_lines_wrong_data_and_a_cut_line() -> None:
    loaded = load(DATA / "mpirun-tagged.txt")
    frame = loaded.frame
    check_form(frame)
    assert list(frame["size_bytes"]) == [1 << 20, 1 << 20, 2 << 20, 2 << 20]
    assert list(frame["status"]) == ["ok", "ok", "wrong", "ok"]
    assert frame["reason"][2] == "7 wrong elements"
    assert (frame["op"][0], frame["root"][0], frame["ranks"][0], frame["hosts"][0], frame["host"][0]) == ("reduce", 2, 4, 2, "node1,node2")
    assert frame["versions"][0] == "nccl-tests; nccl 2.18.3 with NCCL_ALGO=Tree"
    assert set(frame["dtype"]) == {"float16"}
    assert loaded.said == ("1 cut lines left out (line 19)", "7 values out of bounds: nccl-tests calls this run failed")


def test_ranks_follow_from_the_bandwidths_where_none_is_listed() -> None:
    loaded = load(DATA / "no-ranks.txt")
    check_form(loaded.frame)
    assert set(loaded.frame["ranks"]) == {8}
    assert set(loaded.frame["notes"]) == {"unchecked"}
    assert loaded.said == ("how many ranks: 8, by busbw / algbw (line 7)",)


def test_rank_lines_lost_from_a_log_do_not_count(tmp_path: Path) -> None:
    line = "#  Rank  0 Group  0 Pid    1 on      node1 device  0 [0x1a] NVIDIA A100\n"
    text = (DATA / "no-ranks.txt").read_text().replace("# Using devices\n", "# Using devices\n" + line)
    loaded = load(written(tmp_path, text))
    assert set(loaded.frame["ranks"]) == {8}
    assert "1 lines name a rank, but busbw / algbw is that of 8 ranks" in loaded.said[0]


@pytest.mark.parametrize(("algbw", "n"), [(100.0, n) for n in (2, 3, 5, 8, 13, 16, 64)])
def test_ranks_of_rounded_rates(algbw: float, n: int) -> None:
    assert ranks_of("allreduce", [(algbw, round(algbw * 2 * (n - 1) / n, 2), 0.005)], 0) == n
    assert ranks_of("allgather", [(algbw, round(algbw * (n - 1) / n, 2), 0.005)], 0) == n
    assert ranks_of("allreduce", [(0.01, 0.02, 0.005)], 0) == 0


def test_two_runs_of_different_operations_are_two_groups(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    loaded = load(written(tmp_path, text + text.replace("all_reduce", "reduce_scatter").replace("234.88", "117.44").replace("260.98", "130.49")
                          .replace("260.69", "130.35")))
    assert list(loaded.frame["op"]) == ["allreduce"] * 4 + ["reducescatter"] * 4
    assert list(loaded.frame["run"]) == ["1"] * 4 + ["2"] * 4
    assert set(loaded.frame["ranks"]) == {8}


def test_two_runs_of_the_same_are_refused(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    with pytest.raises(UsageError, match="lines 9 and 21: two runs in one file measured the same"):
        load(written(tmp_path, text + text))


def test_ranks_that_each_print_a_table_are_refused(tmp_path: Path) -> None:
    lines = (DATA / "no-ranks.txt").read_text().splitlines()[1:]
    text = "all_reduce_perf\n" + "".join(f"{rank}: {line}\n" for line in lines for rank in (0, 1))
    with pytest.raises(UsageError, match="two runs in one file"):
        load(written(tmp_path, text))


def test_programs_without_mpi_that_print_into_one_file_are_refused(tmp_path: Path) -> None:
    line = "#   Rank  0 Pid   {} on node{} device  0 [0x00] Tesla V100-SXM2-16GB"
    lines = (DATA / "no-ranks.txt").read_text().splitlines()[1:]
    lines[3:3] = [line]
    text = "all_reduce_perf\n" + "".join(f"{text.format(rank, rank) if 'Rank' in text else text}\n" for text in lines for rank in (1, 2))
    with pytest.raises(UsageError, match="line 9: a rank is named twice"):
        load(written(tmp_path, text))


@needs_shared
@pytest.mark.parametrize("name", ["allreduce.txt", "allreduce_debug.txt", "allreduce_iters.txt"])
def test_a_truncated_output_gives_rows_of_the_whole_one_and_says_so(name: str, tmp_path: Path) -> None:
    whole = (SHARED / name).read_bytes()
    rows = load(SHARED / name).frame[["size_bytes", "placement", "time_us"]]
    end = whole.index(b"# Out of bounds")
    for cut in range(end - 40, 0, -1 - end // 60):
        try:
            loaded = load(written(tmp_path, whole[:cut]))
        except UsageError as error:
            assert re.search(r"line \d+|is empty|no results that we know", error.message)
            continue
        assert any("has no end" in said for said in loaded.said)
        found = loaded.frame[["size_bytes", "placement", "time_us"]]
        pd.testing.assert_frame_equal(found, rows.iloc[: len(found)])


def test_sizes_of_nothing_are_left_out_and_rccl_names_itself(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text().replace("# Using devices", "rccl-tests: Version develop:83d38d9\n# Using devices")
    nothing = "           0             0     float     sum      -1     5.70    0.00    0.00      0     5.54    0.00    0.00      0\n"
    loaded = load(written(tmp_path, text + nothing + nothing))
    assert len(loaded.frame) == 4
    assert "2 rows of 0 bytes left out" in loaded.said
    assert set(loaded.frame["versions"]) == {"rccl-tests develop:83d38d9"}


@pytest.mark.parametrize(("cells", "statuses"), [
    ("   -nan     nan     inf     N/A", ["error", "ok", "ok", "ok"]), (" 500.00  134.22  234.88     inf", ["ok", "ok"]),
    (" 1e+999  134.22  234.88       0", ["ok", "ok"]), ("-500.00  134.22  234.88       0", ["ok", "ok"]),
    (" 500.00  134.22  234.88   5e+09", ["wrong", "ok", "ok", "ok"]), ("5.0e+07  134.22  234.88     N/A", ["ok"] * 4),
])
def test_numbers_that_c_prints(cells: str, statuses: list[str], tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    assert " 500.00  134.22  234.88     N/A" in text
    frame = load(written(tmp_path, text.replace(" 500.00  134.22  234.88     N/A", cells, 1))).frame
    check_form(frame)
    assert list(frame["status"]) == statuses


def test_a_size_measured_again_in_one_table_is_a_repeat(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    row = text.splitlines()[FIRST_ROW - 1]
    loaded = load(written(tmp_path, text + row.replace("500.00", "520.00") + "\n"))
    first = loaded.frame.iloc[0]
    assert (first["repeats"], first["repeat_times_us"], first["time_us"]) == (2, "500;520", 510)
    assert len(loaded.frame) == 4


def test_an_operation_that_we_have_not(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    with pytest.raises(UsageError, match=r"hypercube_perf .* is no collective of ours"):
        load(written(tmp_path, text.replace("all_reduce", "hypercube"), "allreduce.txt"))
    with pytest.raises(UsageError, match="which collective this is"):
        load(written(tmp_path, text.replace("all_reduce_perf", "x"), "results.txt"))
    assert set(load(written(tmp_path, text.replace("all_reduce_perf", "x"), "dgx-AllReduce.log")).frame["op"]) == {"allreduce"}


def test_times_of_the_cpu_are_refused(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text().replace("    time ", " cputime ")
    with pytest.raises(UsageError, match="line 7: these are times of the CPU"):
        load(written(tmp_path, text))


@pytest.mark.parametrize("prefix", [
    "[1,0]<stdout>:", "[prterun-node1-77@1,0]<stdout>: ", "0: ", " 0: ", "node-1.cluster: ", "[0] ", "2026-01-02T03:04:05.678Z ", "  ",
    "2026-01-02T03:04:05Z [1,0]<stdout>:",
])
def test_launchers_prefixes(prefix: str, tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    loaded = load(written(tmp_path, "".join(f"{prefix}{line}\n" for line in text.splitlines())))
    pd.testing.assert_frame_equal(loaded.frame, load(DATA / "no-ranks.txt").frame)


def test_stamps_of_a_container_log(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text().splitlines()
    loaded = load(written(tmp_path, "".join(f"2026-01-02T03:04:{number:02}.678Z {line}\n" for number, line in enumerate(text))))
    pd.testing.assert_frame_equal(loaded.frame, load(DATA / "no-ranks.txt").frame)


def sample_json() -> dict[str, object]:
    part = {"time": 100.0, "alg_bw": 41.94304, "bus_bw": 73.40032, "nwrong": 0.0}
    return {
        "version": 2, "start_time": "2026-01-02 03:04:05", "args": ["./build/all_reduce_perf"], "env": ["SECRET=1", "NCCL_ALGO=Ring"], "nccl_version": 22304,
        "config": {"nthreads": 1, "ngpus": 8, "iterations": 20, "devices": [{"rank": 0, "hostname": "node1", "device_info": "NVIDIA A100"}]},
        "results": [{"size": 4194304, "count": 1048576, "type": "float", "redop": "sum", "root": "    -1", "out_of_place": part, "in_place": None}],
    }


def test_json_keeps_no_secret_and_counts_ranks_by_the_rates(tmp_path: Path) -> None:
    whole = sample_json()
    row = load(written(tmp_path, json.dumps(whole))).frame.iloc[0]
    assert (row["ranks"], row["device"], row["versions"]) == (8, "8 x NVIDIA A100", "nccl-tests; nccl 2.23.4 with NCCL_ALGO=Ring")
    assert not any("SECRET" in str(value) for value in row)


def test_json_of_several_processes_counts_ranks(tmp_path: Path) -> None:
    device = {"rank": 0, "hostname": "node1", "device_info": "NVIDIA A100"}
    config = {"nthreads": 1, "ngpus": 4, "devices": [device, device | {"rank": 4, "hostname": "node2"}]}
    row = load(written(tmp_path, json.dumps(sample_json() | {"config": config, "args": ["broadcast_perf"]}))).frame.iloc[0]
    assert (row["op"], row["ranks"], row["hosts"]) == ("broadcast", 8, 2)


def test_json_without_check_with_nan_and_wrong(tmp_path: Path) -> None:
    part = {"time": 100.0, "alg_bw": 41.94304, "bus_bw": 73.40032, "nwrong": None}
    rows = [
        {"size": size, "count": 1, "type": "float", "redop": "sum", "root": "-1", "out_of_place": part | change}
        for size, change in ((1 << 20, {}), (2 << 20, {"time": "nan", "alg_bw": "nan", "bus_bw": "nan"}), (4 << 20, {"nwrong": 3.0}))
    ]
    frame = load(written(tmp_path, json.dumps(sample_json() | {"results": rows}))).frame
    check_form(frame)
    assert list(frame["status"]) == ["ok", "error", "wrong"]
    assert list(frame["notes"]) == ["unchecked", "unchecked", ""]


@pytest.mark.parametrize(("change", "said"), [
    ({"results": []}, "'results' is empty"), ({"results": 3}, "has no list 'results'"), ({"args": ["./hypercube_perf"]}, "names no collective"),
    ({"results": [{"size": "8"}]}, "result 1: size, count or type"), ({"results": [None]}, "result 1"),
    ({"results": [{"size": 8, "count": 2, "type": "float", "out_of_place": {"cpu_time": 1.0}}]}, "times of the CPU"),
    ({"results": [{"size": 8, "count": 2, "type": "float", "out_of_place": {"time": "x"}}]}, "time is missing"),
    ({"results": [{"size": 8, "count": 2, "type": "float"}]}, "no result has a time"),
])
def test_json_that_is_not_as_it_should_be(change: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        load(written(tmp_path, json.dumps(sample_json() | change)))


# --- OSU


def test_osu_allreduce_without_ranks() -> None:
    loaded = load(DATA / "osu_allreduce.txt")
    check_form(loaded.frame)
    assert loaded.kind == "osu"
    row = loaded.frame.iloc[2]
    assert (row["op"], row["backend"], row["dtype"], row["ranks"], row["count"], row["iters"]) == ("allreduce", "mpi", "float32", 0, 262144, 100)
    assert (row["time_us"], row["time_low_us"], row["time_high_us"], row["notes"], row["device"]) == (100, 99, 104, "unchecked", "CUDA")
    assert row["algbw_gbs"] == pytest.approx(10.48576)
    assert loaded.frame["busbw_gbs"].isna().all()
    assert "how many ranks" in loaded.said[1]


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


@pytest.mark.parametrize("title", ["Latency", "Non-blocking Allreduce Latency", "Barrier Latency", "Allgatherv Latency"])
def test_osu_benchmarks_that_are_no_collectives_of_ours(title: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no collective of ours"):
        load(written(tmp_path, f"# OSU MPI {title} Test v7.4\n# Size          Latency (us)\n1          2.0\n"))


# --- broken files


@pytest.mark.parametrize(("content", "said"), [
    (b"", "is empty"), (b" \n\n", "is empty"), (b"\x7fELF\x02\x01\x01\x00", "no text: byte 0x02 at offset 4"), (b"hello\n", "no results that we know"),
    ("op;size\n".encode("utf-16"), "is no text"), (b'{"version": 3,\n "results": [', "line 2, column 14"),
    (b"{}", "not nccl-tests'"),
    (b'{"results":' + b"[" * 100_000, "results"), (b'{"results": ' + b"9" * 10_000 + b"}", "results"),
    (b"# nThread 1 nGpus 8 minBytes 8\n# Using devices\n", "line 3: nccl-tests"),
    (b"# OSU MPI Allreduce Latency Test v7.4\n", "line 1: no row"), (b"\xff\xfe\xfd", "no results that we know"),
])
def test_broken_files(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        load(written(tmp_path, content))
    assert "results.txt" in caught.value.message
    assert caught.value.hint


def test_directories_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        load(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="cannot read"):
        load(Path("nul\0name"))


@pytest.mark.parametrize("line", [b"x" * 99 + b"\n", b"1 ", b"#  \n", b"       1024           256 float \n", b"# OSU MPI"], ids=repr)
@pytest.mark.parametrize("head", [b"", b"# nThread 1\n", b"{"], ids=repr)
def test_fifty_megabytes_are_refused_soon(line: bytes, head: bytes, tmp_path: Path) -> None:
    file = written(tmp_path, head + line * (50_000_000 // len(line)))
    start = time.perf_counter()
    with pytest.raises(UsageError, match="33554432"):
        load(file)
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("line", [b"x" * 99 + b"\n", b"1 ", b"#  \n", b"1024 256 float \n", b"# OSU MPI", b"OSU MPI a ", b"\n", b"1,2 [", b" "], ids=repr)
def test_two_megabytes_of_one_thing_take_no_time(line: bytes, tmp_path: Path) -> None:
    file = written(tmp_path, b"# nThread 1 nGpus 8 all_reduce_perf\n# size count type time algbw busbw #wrong\n" + line * (2_000_000 // len(line)))
    start = time.perf_counter()
    with pytest.raises(UsageError):
        load(file)
    assert time.perf_counter() - start < 20


def mangled(text: str, seed: int) -> str:
    """The text with some of its pieces cut, doubled, swapped and replaced."""
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((1, 1, 3, 20, 200)))
        other = chance.randrange(len(text) + 1)
        text = text[:start] + chance.choice((
            "", text[start:end] * 2, text[other : other + 40], "-1", "nan", "1e999", "9" * 30, "N/A", "\n", "#", ",", '"', ";", " ", "\u00e9", "0", "time", "[",
        )) + text[end:]
    return text


def test_a_second_heading_in_a_table_is_no_heading(tmp_path: Path) -> None:
    text = "# OSU MPI Allreduce Latency Test v7.4\n# Size  Avg Latency(us)\n4  2.50\n# Size  Avg Latency(us)  Min Latency(us)\n8  2.60\n"
    loaded = load(written(tmp_path, text))
    assert loaded.frame["size_bytes"].tolist() == [4, 8]


SMALL_SWEEP = "".join(SWEEP.read_text().splitlines(keepends=True)[:8])
TEXTS = [SMALL_SWEEP, json.dumps(sample_json()), *(file.read_text() for file in SAMPLES)]


@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.sampled_from(TEXTS), seed=st.integers(min_value=0, max_value=2**32))
def test_mangled_files_give_a_table_or_a_usage_error(text: str, seed: int, tmp_path: Path) -> None:
    file = written(tmp_path, mangled(text, seed))
    try:
        loaded = load(file)
    except UsageError as error:
        assert str(file) in error.message
        return
    assert tuple(loaded.frame.columns) == COLUMNS
    assert len(loaded.frame) > 0


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=st.sampled_from(["", "op,", "{", "# OSU MPI Allreduce Latency Test\n", "# nThread 1 all_reduce_perf\n# size count type time algbw busbw #wrong\n"]),
       data=st.binary(max_size=300))
def test_any_bytes_give_a_table_or_a_usage_error(head: str, data: bytes, tmp_path: Path) -> None:
    file = written(tmp_path, head.encode() + data)
    try:
        assert len(load(file).frame) > 0
    except UsageError as error:
        assert str(file) in error.message
