"""The row and its file: what is written is read back, by the same module, whatever happened to the
file.
"""

import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from collbench.results.record import (
    KEY,
    SCHEMA,
    Record,
    Writer,
    columns_of,
    header,
    known_keys,
    read,
    to_line,
)
from collbench.util.errors import UnavailableError, UsageError

ROW = Record(
    op="allreduce",
    backend="cpu",
    algo="ring",
    proto="simple",
    transport="shm",
    direct="on",
    p2p="pull",
    channels=1,
    threads=1,
    ctas=0,
    buffsize=1024,
    slots=4,
    chunk=256,
    slices=2,
    unroll=0,
    cluster=0,
    reload="auto",
    specialize="auto",
    dtype="float32",
    redop="sum",
    root=0,
    placement="out",
    group="local",
    ranks=2,
    hosts=1,
    size_bytes=4096,
    count=1024,
    time_us=12.5,
    time_low_us=12.0,
    time_high_us=13.0,
    repeats=3,
    repeat_times_us=(12.0, 12.5, 13.0),
    iters=20,
    algbw_gbs=0.32768,
    busbw_gbs=0.32768,
    ceiling_gbs=12.0,
    percent=2.7,
    limit="GPU0 -> GPU1, PCIe 3.0 x16",
    wrong=0,
    status="ok",
    notes="in-cache",
    run="r",
    host="h",
    device='a "quoted", name',
    versions="v",
    timestamp="2026-11-20T00:00:00Z",
)
WAIVED = Record(
    **{name: getattr(ROW, name) for name in KEY}, status="waived", reason="two\nlines, and a comma"
)


def test_columns_are_the_documented_ones() -> None:
    wanted = (
        "op backend algo proto transport direct p2p channels threads ctas buffsize slots chunk"
        " slices unroll cluster reload specialize dtype redop root placement group ranks hosts"
        " size_bytes count time_us time_low_us time_high_us repeats repeat_times_us iters algbw_gbs"
        " busbw_gbs ceiling_gbs percent limit wrong status reason notes run host device versions"
        " timestamp schema"
    )
    assert " ".join(columns_of(4)) == wanted


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    writer = Writer(file)
    writer.write([ROW, WAIVED])
    writer.close()
    assert read(file) == [ROW, WAIVED]
    writer = Writer(file)  # appends, without a second header
    writer.write([ROW])
    writer.close()
    assert read(file) == [ROW, WAIVED, ROW]


@pytest.mark.parametrize(
    ("end", "cut"),
    [
        ("\n", to_line(ROW)[:40].encode()),
        ("\r\n", to_line(ROW)[:40].encode()),
        ("\n", "allreduce,Ä".encode()[:-1]),
    ],
)
def test_a_line_cut_by_a_crash_is_dropped(tmp_path: Path, end: str, cut: bytes) -> None:
    """Also of a file that passed through another system's editor, and in the middle of a
    character.
    """
    file = tmp_path / "out.csv"
    file.write_bytes((header() + to_line(ROW)).replace("\n", end).encode() + cut)
    assert read(file) == [ROW]
    writer = Writer(file)
    writer.write([WAIVED])
    writer.close()
    assert read(file) == [ROW, WAIVED]


def test_bytes_that_are_no_text_do_not_end_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    writer = Writer(file)
    writer.write([replace(ROW, versions=f"MPICH 5.0.2 with FI_X={os.fsdecode(bytes([255]))}")])
    writer.close()
    assert read(file)[0].versions == "MPICH 5.0.2 with FI_X=\\udcff"


def test_rows_are_in_the_file_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    writer = Writer(file)
    writer.write([ROW])
    assert read(file) == [ROW]
    writer.close()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n", "columns of schema"),
        (header() + to_line(replace(ROW, schema=SCHEMA + 1)), f"schema {SCHEMA + 1}"),
        (header() + to_line(ROW).replace("1024", "many", 1), "line 2"),
        (header() + to_line(ROW).replace(",ok,", ",fine,"), "status 'fine'"),
        (header() + "1,2\n", "line 2"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, match: str) -> None:
    file = tmp_path / "other.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=match):
        read(file)
    with pytest.raises(UsageError, match=match):
        Writer(file)
    assert file.read_text() == text


def test_unwritable_places(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot write"):
        Writer(tmp_path / "missing" / "out.csv")
    with pytest.raises(UnavailableError, match="cannot write"):
        Writer(tmp_path)
    with pytest.raises(UnavailableError, match="No space left"):
        Writer(Path("/dev/full"))


def test_a_reader_that_has_enough_ends_it_without_a_word() -> None:
    class Pipe(StringIO):
        is_read = True

        def flush(self) -> None:
            if not self.is_read:
                raise BrokenPipeError

    writer = Writer(pipe := Pipe())
    pipe.is_read = False
    with pytest.raises(BrokenPipeError):
        writer.write([ROW])
    pipe.is_read = True


def test_errors_are_measured_again_on_resume() -> None:
    assert known_keys([ROW, replace(ROW, ranks=3, status="error")]) == {ROW.key}


def test_the_shipped_results_are_read() -> None:
    """Every row of a shipped result is one of this schema, right or waived."""
    files = sorted((Path(__file__).parent.parent.parent / "profiles" / "results").glob("*.csv"))
    assert files
    for file in files:
        assert {record.status for record in read(file)} <= {"ok", "waived"}
