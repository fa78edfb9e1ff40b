"""What mscclpp-test prints and writes, and mscclpp's Python benchmarks, become rows."""

from pathlib import Path

import pytest

from collbench.analysis.load import load
from collbench.util.errors import UsageError
from tests.support.results import DATA, check_form, written

MIB = 1 << 20
TEST = (DATA / "mscclpp_test.txt").read_text()
LINES = (DATA / "mscclpp_test.jsonl").read_text()
BENCH = (DATA / "mscclpp_bench.txt").read_text()


def test_the_text_of_mscclpp_test_behind_tags() -> None:
    loaded = load(DATA / "mscclpp_test.txt")
    check_form(loaded.frame)
    frame = loaded.frame
    assert loaded.kind == "mscclpp-test"
    assert list(frame["op"]) == ["allreduce"] * 3 + ["alltoall"]
    assert list(frame["placement"]) == ["in"] * 3 + ["out"]
    assert list(frame["status"]) == ["ok", "ok", "wrong", "ok"]
    assert list(frame["time_us"])[:2] == [20.0, 30.0]
    assert list(frame["algo"]) == ["kernel6"] * 3 + ["kernel0"]
    assert frame["busbw_gbs"].iloc[3] == pytest.approx(MIB / 25e3 * 7 / 8)
    assert frame["count"].iloc[3] == MIB // 32
    row = frame.iloc[0]
    assert (row["ranks"], row["hosts"], row["dtype"], row["backend"], row["iters"]) == (
        *(8, 1, "int32", "mscclpp", 100),
    )
    assert loaded.remarks == ("times are rank 0's, not the slowest rank's (line 2, 27)",)


def test_mscclpp_test_without_ranks_and_without_its_command(tmp_path: Path) -> None:
    plain = "\n".join(
        line.removeprefix("[1,0]<stdout>:")
        for line in TEST.splitlines()[1:26]
        if "Rank" not in line
    )
    with pytest.raises(UsageError, match="line 1: mscclpp-test does not name the collective"):
        load(written(tmp_path, plain))
    loaded = load(written(tmp_path, plain, "allreduce.txt"))
    assert set(loaded.frame["ranks"]) == {8}
    assert any("how many ranks: 8, by busbw / algbw" in text for text in loaded.remarks)


def test_the_lines_that_mscclpp_test_writes(tmp_path: Path) -> None:
    loaded = load(DATA / "mscclpp_test.jsonl")
    check_form(loaded.frame)
    rows = loaded.frame[["op", "algo", "size_bytes", "time_us", "ranks", "hosts"]]
    assert rows.to_numpy().tolist() == [
        ["allreduce", "kernel6", MIB, 20.0, 8, 1],
        ["allreduce", "kernel2", MIB, 25.0, 8, 1],
        ["allgather", "kernel1", 8 * MIB, 40.0, 8, 1],
        ["sendrecv", "kernel0", MIB, 10.0, 8, 1],
    ]
    other = load(written(tmp_path, LINES.replace('"ranks":8', '"ranks":4')))
    assert any("names 4 ranks, but busbw / algbw is that of 8" in text for text in other.remarks)


def test_the_tables_of_the_python_benchmarks() -> None:
    loaded = load(DATA / "mscclpp_bench.txt")
    check_form(loaded.frame)
    rows = loaded.frame[["op", "backend", "algo", "size_bytes", "time_us", "ranks", "placement"]]
    assert rows.to_numpy().tolist()[:2] == [
        ["allreduce", "mscclpp", "library", 2048, 5.0, 8, "in"],
        ["allreduce", "nccl", "library", 2048, 10.0, 8, "in"],
    ]
    assert rows.to_numpy().tolist()[6:] == [
        ["allgather", "mscclpp", "allgather_fullmesh", 80 << 10, 5.0, 8, "out"],
        ["allgather", "mscclpp", "allgather_fullmesh2", 10 * MIB, 50.0, 8, "out"],
    ]
    frame = loaded.frame
    assert list(frame["status"]) == ["ok"] * 4 + ["wrong", "ok", "ok", "ok"]
    assert list(frame["notes"]) == [""] * 7 + ["unchecked"]
    assert set(frame["dtype"]) == {"float16"}


def test_ranks_of_the_python_benchmarks(tmp_path: Path) -> None:
    bare = BENCH.replace("mpirun -np 8 ", "")
    loaded = load(written(tmp_path, bare))
    # bus bandwidth shows them, where it is printed
    assert list(loaded.frame["ranks"]) == [0] * 6 + [8] * 2
    assert loaded.frame["busbw_gbs"].isna().tolist() == [True] * 6 + [False] * 2
    assert any("'# ranks: 8'" in text for text in loaded.remarks)
    assert set(load(written(tmp_path, "# ranks: 8\n" + bare)).frame["ranks"]) == {8}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BENCH.replace("52.43", " 5.43", 1), ""),
        (BENCH.replace("10.0 MiB", "11.0 MiB"), ""),
        (LINES[:-30], "line 4: not JSON"),
        (LINES.replace('"size":8388608', '"size":"x"'), "line 3: size is missing or no number"),
        (LINES.replace("allgather", "hypercube"), ""),
        ("# Initializing MSCCL++\n", "the output ends before its table"),
        (BENCH[: BENCH.index("|   2.0")], "the output ends before its table"),
        ("batch | msg | total | time_us\n", "line 1: the text does not name the collective"),
    ],
)
def test_what_is_cut_or_changed(text: str, said: str, tmp_path: Path) -> None:
    if said:
        with pytest.raises(UsageError, match=said):
            load(written(tmp_path, text))
        return
    told = " | ".join(load(written(tmp_path, text)).remarks)
    assert "1 times left out whose rates" in told or "1 lines left out" in told
