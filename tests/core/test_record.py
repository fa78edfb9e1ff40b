"""The row and its file: what is written is read back, by the same module, whatever happened to the
file.
"""

import errno
import fcntl
import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.core.errors import UnavailableError, UsageError
from collbench.core.record import (
    COLUMNS,
    KEY,
    SCHEMA,
    Record,
    Writer,
    columns_of,
    header,
    parse,
    read,
    to_line,
)
from tests.core.test_files import full_disk
from tests.support.commands import Capture
from tests.support.frames import records, row
from tests.support.tables import cells_of

(ROW,) = records(
    row(
        (12.0, 12.5, 13.0),
        backend="cpu", transport="shm", direct="on", p2p="pull", channels=1, threads=1,
        buffsize=1024, slots=4, chunk=256, slices=2, group="local", ranks=2, size_bytes=4096,
        count=1024, iters=20, p50_us=12.5, p99_us=20.0, max_us=31.5,
        histogram=((29, 150), (34, 2), (39, 1)), ceiling_gbs=12.0, percent=2.7,
        limit="GPU0 -> GPU1, PCIe 3.0 x16", notes="in-cache", device='a "quoted", name',
        versions="v", timestamp="2026-11-20T00:00:00Z",
    )
)  # fmt: skip
WAIVED = Record(
    **{name: getattr(ROW, name) for name in KEY}, status="waived", reason="two\nlines, and a comma"
)


def append(file: Path, rows: list[Record]) -> None:
    """Write rows behind those that a file has."""
    writer = Writer(file)
    writer.write(rows)
    writer.close()


def test_columns_are_the_documented_ones() -> None:
    wanted = (
        "op backend algo proto transport direct p2p channels threads ctas buffsize slots chunk"
        " slices unroll cluster reload specialize dtype redop root placement group ranks hosts"
        " size_bytes count time_us time_low_us time_high_us repeats repeat_times_us iters algbw_gbs"
        " busbw_gbs ceiling_gbs percent limit wrong status reason notes run host device versions"
        " timestamp schema"
    )
    assert " ".join(columns_of(4)) == wanted
    more = "iters p50_us p99_us p999_us max_us histogram"
    wanted = wanted.replace("dtype", "buffers pdl dtype").replace("iters", more)
    wanted = wanted.replace("group", "skew groups mix group")
    wanted = wanted.replace("algbw", "imbalance alone_us over_alone algbw")
    assert " ".join(columns_of(8)) == wanted
    wanted = wanted.replace("limit", "limit wire_bytes wire_expected wire_foreign")
    assert " ".join(columns_of(9)) == wanted
    wanted = wanted.replace("reason", "reason chosen")
    assert " ".join(columns_of(10)) == wanted
    wanted = wanted.replace("limit", "limit floor_us of_floor")
    assert " ".join(COLUMNS) == wanted


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
    append(file, [WAIVED])
    assert read(file) == [ROW, WAIVED]


def test_bytes_that_are_no_text_do_not_end_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    append(file, [replace(ROW, versions=f"MPICH 5.0.2 with FI_X={os.fsdecode(bytes([255]))}")])
    assert read(file)[0].versions == "MPICH 5.0.2 with FI_X=\\udcff"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n", "columns of schema"),
        (
            header().replace("busbw_gbs", "bus_gbs") + to_line(ROW),
            "it lacks busbw_gbs, has bus_gbs",
        ),
        (header() + to_line(replace(ROW, schema=SCHEMA + 1)), f"schema {SCHEMA + 1}"),
        (header() + to_line(ROW).replace("1024", "many", 1), "buffsize 'many' is no whole"),
        (header() + to_line(ROW).replace(",ok,", ",fine,"), "status 'fine'"),
        (header() + "1,2\n", "line 2"),
        (header() + to_line(replace(ROW, wrong=5)), "line 2: 5 wrong elements in a row that is ok"),
        (header() + to_line(replace(ROW, ranks=-4)), "line 2: -4 ranks"),
        (header() + to_line(ROW).replace("34:2", "34:0"), "line 2: '34:0' is not a bin"),
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


@pytest.mark.parametrize(("column", "cell"), cells_of(__file__, "broken-cells.tsv"))
def test_a_broken_cell_is_refused_with_its_line(column: str, cell: str) -> None:
    plain = to_line(replace(ROW, device="4 x GPU", limit="a link")).rstrip("\n")
    cells = plain.split(",")
    cells[COLUMNS.index(column)] = cell
    with pytest.raises(UsageError, match=r"a\.csv, line 3"):
        parse("a.csv", "\n".join([header().rstrip("\n"), plain, ",".join(cells), plain, ""]))


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


@pytest.mark.parametrize(
    "data",
    [
        b'{"precious":1}',
        b"op,backend,mine",
        header().encode()[:-1] + b",more",
        b"\xef\xbb\xbf" + header().encode() + to_line(ROW).encode(),
        b"\xef\xbb\xbf" + header().encode()[:20],
        b"\0" * 4096,
        b"\xff\xfe\x00",
        b"notes\nwithout an end",
        header().encode() + to_line(ROW).encode().replace(b"in-cache", b"\xff") + b"cut",
        header().replace("\n", "\r").encode(),
        b"\n",
    ],
    ids=lambda data: repr(data[:12]),
)
@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
def test_a_file_of_another_is_left_byte_for_byte(
    tmp_path: Path, data: bytes, *, is_link: bool
) -> None:
    file = name = tmp_path / "notes"
    file.write_bytes(data)
    if is_link:
        (name := tmp_path / "link").symlink_to(file)
    before = file.stat()
    with pytest.raises(UsageError):
        Writer(name)
    assert file.read_bytes() == data
    assert file.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("taken", [1, 2, 30])
def test_a_last_row_is_removed_only_where_something_of_it_is_missing(
    tmp_path: Path, taken: int, capsys: Capture
) -> None:
    file = tmp_path / "rows.csv"
    text = header() + 2 * to_line(ROW)
    file.write_text(text[:-taken])
    kept = 2 if taken == 1 else 1
    assert read(file) == kept * [ROW]
    append(file, [ROW])
    assert read(file) == (kept + 1) * [ROW]
    assert ("was cut short" in capsys.readouterr().err) == (kept == 1)


def test_a_crash_in_the_first_write_is_mended(tmp_path: Path) -> None:
    for cut in range(len(header()) + 1):
        file = tmp_path / "out.csv"
        file.write_text(kept := header()[:cut])
        if kept and kept.count(",") < 3:  # anybody's words: no write of a heading ends there
            with pytest.raises(UsageError):
                Writer(file)
            assert file.read_text() == kept
            continue
        append(file, [ROW])
        assert file.read_text() == header() + to_line(ROW)


def test_a_link_to_nothing_and_a_pipe_are_written(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "rows.csv")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for file in (link, pipe):
        append(file, [ROW])
    assert read(tmp_path / "rows.csv") == [ROW]
    assert os.read(reader, 1 << 16).decode() == header() + to_line(ROW)
    os.close(reader)


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    writer = Writer(file)
    writer.write([ROW])
    child = os.fork()
    if child == 0:  # another process, which does not inherit the lock
        code = 9
        try:
            Writer(file)
        except UnavailableError as error:
            code = 0 if f"process {os.getppid()} is writing it" in error.message else 8
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.write([ROW])
    assert read(file) == [ROW, ROW]  # as soon as they are written
    writer.close()


def test_a_file_system_without_locks_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    append(tmp_path / "out.csv", [ROW])
    assert read(tmp_path / "out.csv") == [ROW]


def test_a_point_is_its_key_and_its_conditions() -> None:
    assert replace(ROW, notes="noisy").point == ROW.key
    assert replace(ROW, notes="stream in-cache hot").point == (*ROW.key, "hot", "stream")


def test_a_row_waived_again_for_the_same_reason_says_nothing_new() -> None:
    assert replace(WAIVED, run="later").repeats_refusal(WAIVED)
    assert not replace(WAIVED, reason="another").repeats_refusal(WAIVED)
    assert not WAIVED.repeats_refusal(replace(WAIVED, status="wrong"))
    assert not WAIVED.repeats_refusal(None)
    assert not ROW.repeats_refusal(ROW)


def test_the_shipped_results_are_read() -> None:
    """Every row of a shipped result is one of this schema, right or waived."""
    files = sorted((Path(__file__).parent.parent.parent / "profiles" / "results").glob("*.csv"))
    assert files
    for file in files:
        assert {record.status for record in read(file)} <= {"ok", "waived"}


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_rows_of_a_device_are_not_read(device: str) -> None:
    with pytest.raises(UsageError, match="keeps no rows"):
        read(Path(device))


FREE_TEXTS = ("group", "limit", "reason", "notes", "run", "host", "device", "versions", "timestamp")


@given(
    text=st.one_of(
        st.text(st.characters(exclude_categories=())),
        st.sampled_from(["a\rb", "a\nb", "a\r\nb", "\udcff", "\0", "\x1b[31m", '"', "x" * 200_000]),
        st.sampled_from(["007", "1e3", "0.10", "inf", "nan", "NA", "True", "false"]),
    ),
    name=st.sampled_from(FREE_TEXTS),
)
def test_any_text_in_any_column_is_read_back(text: str, name: str) -> None:
    """An environment variable may hold a line end, or megabytes, and a host may be
    called like a number.
    """
    row = replace(ROW, **{name: text})  # type: ignore[arg-type]
    data = header() + to_line(row)
    assert parse("a.csv", data) == [row]
    assert data.count("\n") == 2


def test_line_ends_of_others_are_shown_as_escapes() -> None:
    data = (header() + to_line(ROW)).replace(",cpu,", ',"a\r\nb",', 1)
    (row,) = parse("a.csv", data)
    assert row.backend == r"a\r\nb"


@pytest.mark.parametrize("bad", ["pub\rlished", "\0", '"', "a\r\nb"])
def test_a_cell_that_is_none_is_refused_with_its_line(bad: str) -> None:
    cells = ["x"] * len(COLUMNS)
    text = header() + to_line(ROW) + ",".join([*cells[:-1], bad]) + "\n"
    with pytest.raises(UsageError, match=r"a\.csv, line [234]"):
        parse("a.csv", text)


def test_a_line_for_which_there_is_no_room_is_removed(tmp_path: Path) -> None:
    """Here by a limit of the size of files; the kernel writes what fits."""
    file = tmp_path / "rows.csv"
    line = len(to_line(ROW))
    limit = len(header()) + 3 * line + line // 2
    writer = Writer(file)
    with full_disk(limit), pytest.raises(UnavailableError, match="rows"):
        writer.write([ROW] * 9)
    assert file.read_text() == header() + 3 * to_line(ROW)
