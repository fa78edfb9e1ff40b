"""Results of ours become one table; broken files of any kind become one UsageError with the place.
Each format has tests of its own.
"""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.compare.load import load, load_all
from collbench.core.errors import UsageError
from collbench.core.frame import frame_of
from collbench.core.record import COLUMNS, header, read
from tests.fuzz import mutate
from tests.support.frames import H200
from tests.support.results import DATA, SAMPLES, check_form, written
from tests.support.tables import cells_of
from tests.support.tiers import tiered

NCCL_JSON = (DATA / "all_reduce.json").read_text()

# --- our own CSV


def test_own_csv_equals_the_reader_of_records() -> None:
    loaded = load(H200)
    assert (loaded.kind, loaded.remarks, loaded.name) == ("collbench", (), str(H200))
    check_form(loaded.frame)
    pd.testing.assert_frame_equal(loaded.frame, frame_of(read(H200)))


def test_a_last_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    lines = H200.read_text().splitlines(keepends=True)[:5]
    loaded = load(written(tmp_path, "".join(lines)[:-30]))
    assert len(loaded.frame) == 3
    assert loaded.remarks == ("the last line (line 5) is cut and left out",)


def test_several_machines_in_one_file_are_named(tmp_path: Path) -> None:
    first, *rows = H200.read_text().splitlines(keepends=True)[:5]
    other = [row.replace(",4 x NVIDIA H200,", ",8 x NVIDIA H100,") for row in rows]
    assert load(written(tmp_path, "".join([first, *rows]))).remarks == ()
    [said] = load(written(tmp_path, "".join([first, *rows, *other]))).remarks
    assert (
        said == "rows of several machines stand side by side here: 4 x NVIDIA H200; 8 x NVIDIA H100"
    )


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no rows"):
        load(written(tmp_path, header()))


def test_lines_that_windows_wrote(tmp_path: Path) -> None:
    text = "".join(H200.read_text().splitlines(keepends=True)[:40])
    loaded = load(written(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()))
    assert len(loaded.frame) == 39


def test_lines_that_end_in_a_bare_cr(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(H200.read_bytes().replace(b"\n", b"\r"))
    assert load(file).frame.equals(load(H200).frame)


def test_several_files() -> None:
    other = DATA / "no-ranks.txt"
    assert [loaded.kind for loaded in load_all([H200, other])] == ["collbench", "nccl-tests"]
    with pytest.raises(UsageError, match="given twice"):
        load_all([H200, other, H200])


# --- broken files


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x7fELF\x02\x01\x01\x00", "no text: byte 0x02 at offset 4"),
        (b"hello\n", "no results that we know"),
        ("op;size\n".encode("utf-16"), "begins with: op;size"),
        (b'{"version": 3,\n "results": [', "line 2, column 14"),
        (b"{}", "no results that we know"),
        (b'{"results":' + b"[" * 100_000, "results"),
        (b'{"results": ' + b"9" * 10_000 + b"}", "results"),
        (b"# nThread 1 nGpus 8 minBytes 8\n# Using devices\n", "line 3: nccl-tests"),
        (b"# OSU MPI Allreduce Latency Test v7.4\n", "line 1: no row"),
        (b"\xff\xfe\xfd", "no results that we know"),
    ],
)
def test_broken_files(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        load(written(tmp_path, content))
    assert "results.txt" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("change", "said"), cells_of(__file__, "broken-json.tsv"))
def test_json_that_is_not_as_it_should_be(change: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        load(written(tmp_path, json.dumps(json.loads(NCCL_JSON) | json.loads(change))))


def test_directories_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        load(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="cannot read"):
        load(Path("nul\0name"))


def test_fifty_megabytes_are_refused(tmp_path: Path) -> None:
    """Unread, whatever they are."""
    file = written(tmp_path, b"# nThread 1\n" + b"1024 256 float \n" * 3_000_000)
    with pytest.raises(UsageError, match="33554432"):
        load(file)


MANY = (  # the quickest first
    b"1 ",
    b"x" * 99 + b"\n",
    b"#  \n",
    b"1024 256 float \n",
    b"# OSU MPI",
    b"OSU MPI a ",
    b"\n",
    b"1,2 [",
    b" ",
)


@tiered("line", list(MANY), 1)
def test_a_megabyte_of_one_thing_is_refused(line: bytes, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        b"# nThread 1 nGpus 8 all_reduce_perf\n# size count type time algbw busbw #wrong\n"
        + line * (1_000_000 // len(line)),
    )
    with pytest.raises(UsageError):
        load(file)


SMALL_SWEEP = "".join(H200.read_text().splitlines(keepends=True)[:8])
TEXTS = [SMALL_SWEEP, *(file.read_text() for file in SAMPLES)]


HEADS = (
    "",
    "op,",
    "{",
    "# OSU MPI Allreduce Latency Test\n",
    "# nThread 1 all_reduce_perf\n# size count type time algbw busbw #wrong\n",
)
MANGLED = st.builds(mutate.data, st.randoms(use_true_random=False), st.sampled_from(TEXTS))
BEGUN = st.builds(
    lambda head, data: head.encode() + data, st.sampled_from(HEADS), st.binary(max_size=300)
)


@settings(max_examples=120)
@given(data=st.one_of(MANGLED, BEGUN))
def test_any_bytes_give_a_table_or_a_usage_error(data: bytes, tmp_path: Path) -> None:
    """A file that was mangled among them."""
    file = written(tmp_path, data)
    try:
        loaded = load(file)
    except UsageError as error:
        assert str(file) in error.message
        return
    assert tuple(loaded.frame.columns) == COLUMNS
    assert len(loaded.frame) > 0


OTHERS = ("osu_allreduce", "no-ranks")


@pytest.mark.parametrize("names", [OTHERS, OTHERS[::-1]])
def test_a_table_ends_at_the_heading_of_another_tool(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    """Rows of another tool were read as OSU's, with the number of repetitions as the time."""
    folder = Path(__file__).parents[1] / "data" / "results"
    files = [folder / f"{name}.txt" for name in names]
    alone = [load(file).frame for file in files]
    both = tmp_path / "both.txt"
    both.write_text("".join(file.read_text() for file in files))
    frame = load(both).frame
    assert len(frame) == sum(map(len, alone))
    assert sorted(frame["time_us"]) == sorted(time for one in alone for time in one["time_us"])
