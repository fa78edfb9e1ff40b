"""nccl-tests' text, of all versions since 2019 and through any launcher, becomes rows, as its
printed rates prove: convention, ranks, lost digits. What cannot be told apart or understood is
refused with its line, and each number of a shared output is that of the text, which is read here by
other means.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.compare.join import apart, is_foreign, join
from collbench.compare.load import load
from collbench.compare.readers.launch_line import conditions_of_command, launched_ranks
from collbench.compare.readers.proof import ranks_of
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import PROGRAMS, VERSIONS, Version, factor, output
from tests.support.results import REAL, RUNS, check_form, needs_shared, written
from tests.support.runs import SHARED
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


OLD = "issue37_allgather_hash.txt"  # of before June 2020: algbw is busbw
FOREIGN = [
    file
    for file in sorted((SHARED / "foreign").glob("*"))
    # of nccl-tests before March 2019
    if file.name != OLD and not re.search(r"#\s+bytes\s+N\s", file.read_text())
]
needs_foreign = pytest.mark.skipif(not FOREIGN, reason="needs the shared outputs of other tools")


class Number(NamedTuple):
    """A measurement in a text; busbw is None where the tool prints none."""

    size: int
    placement: str
    time_us: float
    error_us: float
    busbw: float | None


def _in_text(text: str) -> Iterator[Number]:
    """The rows of nccl-tests: cells behind the element type, wherever the line begins."""
    for size, cells in re.findall(
        r"(\d+)\s+\d+\s+(?:float|bfloat16)\s+(?:sum|max|none)?([^\n]*)", text
    ):
        words = cells.split()
        words = words[1:] if re.fullmatch(r"-?\d+", words[0]) else words
        per_part = len(words) // 2
        for placement, part in (("out", words[:per_part]), ("in", words[per_part:])):
            digits = len(part[0].partition(".")[2])
            error_us = 0.5 * 10**-digits
            yield Number(int(size), placement, float(part[0]), error_us, float(part[2]))


def _in_json(text: str) -> Iterator[Number]:
    for result in json.loads(text)["results"]:
        for placement, key in (("out", "out_of_place"), ("in", "in_place")):
            part = result[key]
            yield Number(result["size"], placement, part["time"], 1e-6, part["bus_bw"])


def _in_osu(text: str) -> Iterator[Number]:
    """The rows of OSU under titles of collectives and of two ranks; sizes of blocks are times the
    ranks.
    """
    ranks = {"spack_multi_ranks.txt": 16, "jsrun.txt": 2 * 4}
    for part in re.split(r"# OSU ", text)[1:]:
        title = part.partition("\n")[0]
        if re.match(r"MPI(-CUDA)? (Allreduce|Allgather|Broadcast|Reduce_scatter) Lat", title):
            of_block = 1
            if "Allgather" in title:
                of_block = ranks["jsrun.txt" if "jsrun" in text else "spack_multi_ranks.txt"]
            for size, time in re.findall(r"(?m)^(\d+) +([\d.]+)$", part):
                yield Number(int(size) * of_block, "out", float(time), 0.005, None)
        rows = re.findall(r"(?m)^(\d+) +([\d.]+)$", part)
        if re.match(r"MPI(-CUDA)? Latency Test", title):
            yield from (Number(int(size), "out", float(time), 0.005, None) for size, time in rows)
        if re.match(r"MPI(-CUDA)? Bandwidth Test", title):
            for size, rate in rows:
                time_us = int(size) / float(rate)
                yield Number(int(size), "out", time_us, 0.0, float(rate) / 1e3)


def _numbers(text: str) -> list[Number]:
    if text.startswith("{"):
        return list(_in_json(text))
    return list(_in_osu(text) if "# OSU " in text else _in_text(text))


@needs_foreign
@pytest.mark.parametrize("file", [*FOREIGN, *REAL], ids=lambda file: file.name)
def test_every_number_is_that_of_the_text(file: Path) -> None:
    numbers = _numbers(file.read_text())
    frame = load(file).frame
    assert len(numbers) == len(frame) > 0
    for number, (_, row) in zip(numbers, frame.iterrows(), strict=True):
        assert (number.size, number.placement) == (row["size_bytes"], row["placement"])
        assert row["status"] == "ok"
        assert row["time_us"] == pytest.approx(number.time_us, rel=1e-6)
        assert row["algbw_gbs"] == pytest.approx(number.size / number.time_us / 1e3, rel=1e-6)
        if number.busbw is not None:
            error = 0.006 + number.busbw * number.error_us / number.time_us
            assert row["busbw_gbs"] == pytest.approx(number.busbw, abs=error, rel=0)
