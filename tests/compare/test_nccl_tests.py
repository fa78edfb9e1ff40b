"""nccl-tests' text, of all versions since 2019 and through any launcher, becomes rows; what cannot
be told apart or understood is refused with its line; ranks of a launch line.
"""

import re
from pathlib import Path

import pandas as pd
import pytest

from collbench.compare.join import apart, is_foreign, join
from collbench.compare.load import load
from collbench.compare.readers.launch_line import conditions_of_command, launched_ranks
from collbench.compare.readers.proof import ranks_of
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import VERSIONS, output
from tests.support.results import REAL, RUNS, check_form, needs_shared, written
from tests.support.tables import cells_of
from tests.support.tiers import tiered


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


@pytest.mark.parametrize(("algbw", "n"), [(100.0, n) for n in (2, 3, 5, 8, 13, 16, 64)])
def test_ranks_of_rounded_rates(algbw: float, n: int) -> None:
    share = (n - 1) / n
    assert ranks_of("allreduce", [(algbw, round(algbw * 2 * share, 2), 0.005)], 0) == (n, True)
    assert ranks_of("allgather", [(algbw, round(algbw * share, 2), 0.005)], 0) == (n, True)
    assert ranks_of("allreduce", [(0.01, 0.02, 0.005)], 0) == (0, True)
    assert ranks_of("broadcast", [(algbw, round(algbw * 2 * share, 2), 0.005)], n)[1] is (n == 2)


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


def test_runs_of_two_operations_are_still_another_tools(tmp_path: Path) -> None:
    """So that they are compared with files of ours."""
    text = "".join(output(VERSIONS[-1], op, 8, [100.0]) for op in ("allreduce", "broadcast"))
    assert is_foreign(load(written(tmp_path, text)).frame)


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


@pytest.mark.parametrize(("line", "ranks"), cells_of(__file__, "launch-lines.tsv"))
def test_ranks_of_a_launch_line(line: str, ranks: str) -> None:
    assert launched_ranks(line) == (int(ranks) if ranks else None)


def test_sizes_and_files_are_no_conditions() -> None:
    one = conditions_of_command("+ mpirun -np 2 /a/b/x_perf -b 8 -e 1M -n 20 | tee a.txt", "x_perf")
    other = conditions_of_command("$ mpirun -np 2 ./x_perf -b 1M -e 1G -n 5 > b.txt", "x_perf")
    assert one == other == "mpirun -np 2 x_perf"
    assert conditions_of_command("mpirun -np 2 ./x_perf -R 1", "x_perf") != one
