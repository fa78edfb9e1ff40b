"""nccl-tests' text, of all versions since 2019 and through any launcher, becomes rows; what cannot
be told apart or understood is refused with its line.
"""

import re
from pathlib import Path

import pandas as pd
import pytest

from collbench.compare.join import is_foreign
from collbench.compare.load import load
from collbench.compare.readers.proof import ranks_of
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import VERSIONS, output
from tests.support.results import DATA, REAL, RUNS, check_form, needs_shared, written
from tests.support.tiers import tiered

FIRST_ROW = 9  # of no-ranks.txt


@needs_shared
@pytest.mark.parametrize("file", REAL, ids=lambda file: file.name)
def test_every_shared_output_is_read(file: Path) -> None:
    loaded = load(file)
    check_form(loaded.frame)
    assert (loaded.kind, loaded.remarks) == ("nccl-tests", ())
    assert set(loaded.frame["ranks"]) == {4}
    assert set(loaded.frame["device"]) == {"4 x NVIDIA H200"}
    assert set(loaded.frame["status"]) == {"ok"}
    assert set(loaded.frame["op"]) == {re.sub(r"_(?:debug|iters)$", "", file.stem).replace("_", "")}
    assert loaded.frame["versions"].str.contains("nccl 2.28.9").all()


@needs_shared
@pytest.mark.parametrize("stem", ["allreduce", "allreduce_iters"])
def test_text_and_json_of_one_run_say_the_same(stem: str) -> None:
    text, json_ = load(RUNS / f"{stem}.txt").frame, load(RUNS / f"{stem}.json").frame
    same = "op dtype redop root placement ranks size_bytes count iters wrong status host device"
    pd.testing.assert_frame_equal(text[same.split()], json_[same.split()])
    assert (abs(text["time_us"] / json_["time_us"] - 1) < 0.001).all()


def test_an_old_version_with_a_blank_reduction_and_errors() -> None:
    loaded = load(DATA / "all_gather-2.0.txt")
    check_form(loaded.frame)
    assert list(loaded.frame["placement"]) == ["out", "in"] * 3
    assert set(loaded.frame["op"]) == {"allgather"}  # by the file's name
    assert set(loaded.frame["redop"]) == {"sum"}  # as our own rows have it where nothing is reduced
    assert loaded.frame["wrong"].isna().all()
    assert list(loaded.frame["notes"]) == [""] * 5 + ["unchecked"]
    assert "how far results are off" in loaded.remarks[0]
    assert loaded.frame["device"][0] == "2 x Tesla V100-SXM2-16GB"


def test_a_launchers_prefix_debug_lines_wrong_data_and_a_cut_line() -> None:
    loaded = load(DATA / "mpirun-tagged.txt")
    frame = loaded.frame
    check_form(frame)
    assert list(frame["size_bytes"]) == [1 << 20, 1 << 20, 2 << 20, 2 << 20]
    assert list(frame["status"]) == ["ok", "ok", "wrong", "ok"]
    assert frame["reason"][2] == "7 wrong elements"
    assert (
        frame["op"][0],
        frame["root"][0],
        frame["ranks"][0],
        frame["hosts"][0],
        frame["host"][0],
    ) == ("reduce", 2, 4, 2, "node1,node2")
    assert frame["versions"][0] == "nccl-tests; nccl 2.18.3 with NCCL_ALGO=Tree"
    assert set(frame["dtype"]) == {"float16"}
    assert loaded.remarks == (
        "1 cut line left out (line 19)",
        "7 values out of bounds: nccl-tests calls this run failed (line 13)",
    )


def test_ranks_follow_from_the_bandwidths_where_none_is_listed() -> None:
    loaded = load(DATA / "no-ranks.txt")
    check_form(loaded.frame)
    assert set(loaded.frame["ranks"]) == {8}
    assert set(loaded.frame["notes"]) == {"unchecked"}
    assert loaded.remarks == (
        "no line names the GPUs (line 7): whether their rate is normal cannot be told"
        " without '# Rank 0 ... device 0'",
        "no result was checked (line 7: -c 0)",
        "how many ranks: 8, by busbw / algbw (line 7)",
    )


def test_rank_lines_lost_from_a_log_do_not_count(tmp_path: Path) -> None:
    line = "#  Rank  0 Group  0 Pid    1 on      node1 device  0 [0x1a] NVIDIA A100\n"
    text = (
        (DATA / "no-ranks.txt").read_text().replace("# Using devices\n", "# Using devices\n" + line)
    )
    loaded = load(written(tmp_path, text))
    assert set(loaded.frame["ranks"]) == {8}
    assert "1 rank named, but busbw / algbw is that of 8 ranks" in loaded.remarks[1]


@pytest.mark.parametrize(("algbw", "n"), [(100.0, n) for n in (2, 3, 5, 8, 13, 16, 64)])
def test_ranks_of_rounded_rates(algbw: float, n: int) -> None:
    share = (n - 1) / n
    assert ranks_of("allreduce", [(algbw, round(algbw * 2 * share, 2), 0.005)], 0) == (n, True)
    assert ranks_of("allgather", [(algbw, round(algbw * share, 2), 0.005)], 0) == (n, True)
    assert ranks_of("allreduce", [(0.01, 0.02, 0.005)], 0) == (0, True)
    assert ranks_of("broadcast", [(algbw, round(algbw * 2 * share, 2), 0.005)], n)[1] is (n == 2)


def test_two_runs_of_different_operations_are_two_groups(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    loaded = load(
        written(
            tmp_path,
            text
            + text.replace("all_reduce", "reduce_scatter")
            .replace("234.88", "117.44")
            .replace("260.98", "130.49")
            .replace("260.69", "130.35"),
        )
    )
    assert list(loaded.frame["op"]) == ["allreduce"] * 4 + ["reducescatter"] * 4
    assert is_foreign(loaded.frame)  # so that it is compared with files of ours
    assert set(loaded.frame["ranks"]) == {8}


@pytest.mark.parametrize("lines", [slice(None), slice(FIRST_ROW - 1, FIRST_ROW)])
def test_a_second_run_or_row_of_the_same_is_a_repeat(lines: slice, tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    again = "".join(text.splitlines(keepends=True)[lines])
    again = again.replace("500.00  134.22  234.88", "520.00  129.06  225.85")
    frame = load(written(tmp_path, text + again)).frame
    assert len(frame) == 4
    first = frame.iloc[0]
    assert (first["repeats"], first["repeat_times_us"], first["time_us"]) == (2, (500, 520), 510)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("$ ./build", "$ NCCL_ALGO=Tree ./build"), "the line above differs"),
        (("$ ./build", "$ ssh node2 ./build"), "the line above differs"),
        (("$ ./build/all_reduce_perf", "export NCCL_ALGO=Tree\n$ ./build/all_reduce_perf"), "set"),
        (("graph: 0", "graph: 5"), "how it ran differs: none | graph: 5"),
        (("validation: 0", "validation: 0 \n# Blocking Enabled: wait"), "blocking: wait"),
    ],
)
def test_a_run_under_other_conditions_is_no_repeat(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    with pytest.raises(UsageError, match="measured the same") as caught:
        load(written(tmp_path, text + text.replace(*change)))
    assert said in caught.value.message


def test_ranks_that_each_print_a_table_are_refused(tmp_path: Path) -> None:
    lines = (DATA / "no-ranks.txt").read_text().splitlines()[1:]
    text = "all_reduce_perf\n" + "".join(f"{rank}: {line}\n" for line in lines for rank in (0, 1))
    with pytest.raises(UsageError, match="two runs in one file"):
        load(written(tmp_path, text))


def test_programs_without_mpi_that_print_into_one_file_are_refused(tmp_path: Path) -> None:
    line = "#   Rank  0 Pid   {} on node{} device  0 [0x00] Tesla V100-SXM2-16GB"
    lines = (DATA / "no-ranks.txt").read_text().splitlines()[1:]
    lines[3:3] = [line]
    text = "all_reduce_perf\n" + "".join(
        f"{text.format(rank, rank) if 'Rank' in text else text}\n"
        for text in lines
        for rank in (1, 2)
    )
    with pytest.raises(UsageError, match="line 9: a rank is named twice"):
        load(written(tmp_path, text))


@needs_shared
@tiered("name", ["allreduce.txt", "allreduce_debug.txt", "allreduce_iters.txt"], 1)
def test_a_truncated_output_gives_rows_of_the_whole_one_and_says_so(
    name: str, tmp_path: Path
) -> None:
    whole = (RUNS / name).read_bytes()
    rows = load(RUNS / name).frame[["size_bytes", "placement", "time_us"]]
    end = whole.index(b"# Out of bounds")
    for cut in range(end - 40, 0, -1 - end // 60):
        try:
            loaded = load(written(tmp_path, whole[:cut]))
        except UsageError as error:
            assert re.search(r"line \d+|is empty|no results that we know", error.message)
            continue
        assert any("has no end" in said for said in loaded.remarks)
        found = loaded.frame[["size_bytes", "placement", "time_us"]]
        pd.testing.assert_frame_equal(found, rows.iloc[: len(found)])


def test_sizes_of_nothing_are_left_out_and_rccl_names_itself(tmp_path: Path) -> None:
    text = (
        (DATA / "no-ranks.txt")
        .read_text()
        .replace("# Using devices", "rccl-tests: Version develop:83d38d9\n# Using devices")
    )
    nothing = (
        "           0             0     float     sum      -1     5.70    0.00    0.00      0    "
        " 5.54    0.00    0.00      0\n"
    )
    loaded = load(written(tmp_path, text + nothing + nothing))
    assert len(loaded.frame) == 4
    assert "2 rows of 0 bytes left out" in loaded.remarks
    assert set(loaded.frame["versions"]) == {"rccl-tests develop:83d38d9"}


@pytest.mark.parametrize(
    ("cells", "statuses"),
    [
        ("   -nan     nan     inf     N/A", ["error", "ok", "ok", "ok"]),
        (" 500.00  134.22  234.88     inf", ["ok", "ok"]),
        (" 1e+999  134.22  234.88       0", ["ok", "ok"]),
        ("-500.00  134.22  234.88       0", ["ok", "ok"]),
        (" 500.00  134.22  234.88   5e+09", ["wrong", "ok", "ok", "ok"]),
        ("5.0e+02  134.22  234.88     N/A", ["ok"] * 4),
        ("5.0e+07  134.22  234.88     N/A", ["ok"] * 3),  # that time has another rate
    ],
)
def test_numbers_that_c_prints(cells: str, statuses: list[str], tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    assert " 500.00  134.22  234.88     N/A" in text
    frame = load(written(tmp_path, text.replace(" 500.00  134.22  234.88     N/A", cells, 1))).frame
    check_form(frame)
    assert list(frame["status"]) == statuses


def test_an_operation_that_we_have_not(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text()
    with pytest.raises(UsageError, match=r"hypercube_perf .* is no collective of ours"):
        load(written(tmp_path, text.replace("all_reduce", "hypercube"), "allreduce.txt"))
    gathered = text.replace("all_reduce_perf", "x").replace("  sum  ", " none  ")
    blocks = re.sub(r"(\d+) +(\d+)( +float)", lambda row: _with_blocks(row, 8), gathered)
    halved = re.sub(r"234.88|260.98|260.69", lambda rate: f"{float(rate[0]) / 2:.2f}", blocks)
    with pytest.raises(UsageError, match="does not name the collective"):  # one of two
        load(written(tmp_path, halved, "results.txt"))
    assert set(
        load(written(tmp_path, text.replace("all_reduce_perf", "x"), "dgx-AllReduce.log")).frame[
            "op"
        ]
    ) == {"allreduce"}


def _with_blocks(row: re.Match[str], n: int) -> str:
    return f"{row[1]} {int(row[2]) // n}{row[3]}"


def test_a_collective_that_no_name_tells_is_known_by_its_rates(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text().replace("all_reduce_perf", "x")
    loaded = load(written(tmp_path, text))
    assert set(loaded.frame["op"]) == {"allreduce"}
    assert "columns and rates are those of allreduce alone" in loaded.remarks[0]


def test_a_files_name_counts_only_where_the_rows_may_be_of_it(tmp_path: Path) -> None:
    text = "".join(
        output(VERSIONS[-1], op, 8, [100.0, 300.0]) for op in ("allreduce", "broadcast", "reduce")
    )
    frame = load(written(tmp_path, text, "allreduce.txt")).frame
    assert list(dict.fromkeys(frame["op"])) == ["allreduce", "broadcast", "reduce"]
    both = output(VERSIONS[-1], "allgather", 8, [100.0]).replace("N/A", "0")
    named = load(written(tmp_path, both, "alltoall.txt")).frame
    assert set(named["op"]) == {"alltoall"}  # before September 2022 they were checked in place


def test_times_of_the_cpu_are_refused(tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text().replace("    time ", " cputime ")
    with pytest.raises(UsageError, match="line 7: these are times of the CPU"):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[prterun-node1-77@1,0]<stdout>: ",
        "0: ",
        " 0: ",
        "node-1.cluster: ",
        "[0] ",
        "2026-01-02T03:04:05.678Z ",
        "2026-01-02T03:04:{second:02}.678Z ",
        "  ",
        "2026-01-02T03:04:05Z [1,0]<stdout>:",
    ],
)
def test_launchers_prefixes(prefix: str, tmp_path: Path) -> None:
    lines = enumerate((DATA / "no-ranks.txt").read_text().splitlines())
    text = "".join(f"{prefix.format(second=second)}{line}\n" for second, line in lines)
    frame = load(written(tmp_path, text)).frame
    pd.testing.assert_frame_equal(frame, load(DATA / "no-ranks.txt").frame)


@pytest.mark.parametrize(
    "command",
    [
        "$ NCCL_ALGO=Ring NCCL_DEBUG=INFO mpirun -np 8 ./all_reduce_perf -b 64M",
        "root@node1:/work# NCCL_ALGO=Ring NCCL_DEBUG=INFO ./all_reduce_perf_mpi -b 64M",
        "# NCCL_ALGO=Ring NCCL_DEBUG=INFO ./all_reduce_perf -b 64M",
        "mpirun -np 8 -x NCCL_ALGO=Ring \\\n  -x NCCL_DEBUG=INFO \\\n  /opt/all_reduce_perf -b 64M",
        "export NCCL_ALGO=Ring NCCL_DEBUG=INFO\n./all_reduce_perf -b 64M",
    ],
)
def test_lines_with_settings_tell_the_program(command: str, tmp_path: Path) -> None:
    text = (DATA / "no-ranks.txt").read_text().partition("\n")[2]
    frame = load(written(tmp_path, f"{command}\n{text}", "broadcast.txt")).frame
    assert set(frame["op"]) == {"allreduce"}
    assert set(frame["versions"]) == {"nccl-tests with NCCL_ALGO=Ring NCCL_DEBUG=INFO"}


def test_groups_of_ranks_have_collectives_of_their_own(tmp_path: Path) -> None:
    text = output(VERSIONS[-1], "broadcast", 8, [100.0])
    split = re.sub(r"Rank +(\d+)", lambda rank: f"{rank[0]} Group {int(rank[1]) % 4:2}", text)
    loaded = load(written(tmp_path, split, "broadcast.txt"))
    assert set(loaded.frame["ranks"]) == {2}
    assert "8 ranks named, in groups of 2 (line 12)" in loaded.remarks


def test_rows_that_a_script_keeps_as_comments(tmp_path: Path) -> None:
    text = output(VERSIONS[0], "allreduce", 2, [1000.0, 2000.0])
    commented = re.sub(r"(?m)^ +(\d)", r"#  \1", text)
    plain = load(written(tmp_path, text, "all_reduce.txt")).frame
    pd.testing.assert_frame_equal(load(written(tmp_path, commented, "all_reduce.txt")).frame, plain)


def test_a_run_that_died_before_its_table_is_not_of_the_next(tmp_path: Path) -> None:
    text = output(VERSIONS[-1], "allreduce", 4, [100.0])
    died = "".join(text.splitlines(keepends=True)[:6]) + "mpirun noticed that it was killed\n"
    loaded = load(written(tmp_path, "all_reduce_perf\n" + died + text))
    assert (len(loaded.frame), set(loaded.frame["ranks"])) == (2, {4})


def test_a_table_without_times_in_place_and_without_checks(tmp_path: Path) -> None:
    text = output(VERSIONS[-1], "allreduce", 4, [100.0, 200.0])
    halves = re.sub(r"(?m)^( +\d.*-1(?: +\S+){4}).*", r"\1", text, count=1)
    halves = re.sub(r"(?m)^( +\d.*-1(?: +\S+){4} +\S+).*", r"\1", halves)
    loaded = load(written(tmp_path, "all_reduce_perf\n" + halves))
    assert list(loaded.frame["placement"]) == ["out", "out"]
    assert any("no time in place of 2 rows" in text for text in loaded.remarks)
    unchecked = re.sub(r"(?m)^( +\d.*-1(?: +\S+){3}).*", r"\1", text)
    heading = re.sub(r"(busbw) +#wrong.*", r"\1", unchecked)
    frame = load(written(tmp_path, "all_reduce_perf\n" + heading)).frame
    assert (len(frame), set(frame["notes"])) == (2, {"unchecked"})


@pytest.mark.parametrize("place", ["-1", "300.0", "0"])
def test_a_row_that_a_warning_breaks_in_two(place: str, tmp_path: Path) -> None:
    text = "all_reduce_perf\n" + output(VERSIONS[-1], "allreduce", 4, [100.0, 300.0, 500.0])
    row = next(line for line in text.splitlines() if " 8388608 " in line)
    at = row.index(f" {place} ") + 1 + len(place)
    warning = "node1:42:43 [0] NCCL WARN slow\nnode1:42:43 [1] NCCL INFO again\n"
    for broken in (f"{row[:at]}{warning}{row[at:]}", f"{row[:at]}\n{warning}{row[at:]}"):
        loaded = load(written(tmp_path, text.replace(row, broken)))
        plain = load(written(tmp_path, text))
        pd.testing.assert_frame_equal(loaded.frame, plain.frame)
        assert loaded.remarks == plain.remarks
