"""`collbench compare` as a newcomer uses it: pipes, files that say nothing, the same file twice,
and options together.
"""

import gzip
import lzma
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from collbench.compare.load import load, load_all
from collbench.core.errors import UsageError
from tests.support.commands import Invoke, Says, stdin_of
from tests.support.frames import H200, records, repeats, row, write
from tests.support.tiers import tiered

LINES = H200.read_text().splitlines(keepends=True)
OK = [line for line in LINES[1:] if ",ok," in line]
WAIVED = [line for line in LINES[1:] if ",waived," in line]


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    return partial(invoke, "compare")


def written(tmp_path: Path, lines: list[str], name: str = "results.csv") -> Path:
    file = tmp_path / name
    file.write_text("".join(lines))
    return file


def test_several_headings_are_several_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="line 4 is a heading again: several files in one"):
        load(written(tmp_path, LINES[:3] * 2))


@tiered("packed", [bytes, gzip.compress, lzma.compress], 1)
def test_stdin(tmp_path: Path, says: Says, packed: Callable[[bytes], bytes]) -> None:
    file = written(tmp_path, [LINES[0], *OK[:20]])
    file.write_bytes(packed(file.read_bytes()))
    with stdin_of(file):
        loaded = load(Path("-"))
    assert (loaded.name, len(loaded.frame)) == ("stdin", 20)
    with stdin_of(file):
        assert "new stdin, base" in says(0, "-", H200).out
    assert "20 rows" in says(0, str(file.rename(tmp_path / "day.csv.gz")), H200).out


def test_more_rows_than_memory_should_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.compare.load.MOST_ROWS", 5)
    new, base = (
        written(tmp_path, [LINES[0], *lines], name)
        for name, lines in (("new.csv", OK[:3]), ("base.csv", OK[3:6]))
    )
    assert len(load_all([new])[0].records) == 3
    with pytest.raises(UsageError, match="the files together: 6 rows, of which 5 are compared"):
        load_all([new, base])
    with pytest.raises(UsageError, match=r"new\.csv: 6 rows") as refused:
        load(written(tmp_path, [LINES[0], *OK[:6]], "new.csv"))
    assert "grep '^allreduce,'" in (refused.value.hint or "")


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(pipe.write_text, "".join(LINES[:4]).replace("waived", "fine"))
        with pytest.raises(UsageError, match="pipe, line 2: there is no status 'fine'"):
            load(pipe)


@pytest.mark.parametrize(
    "lines", [WAIVED[:5], [line.replace(",0,ok,,", ",17,wrong,17 elements,") for line in OK[:5]]]
)
def test_a_file_without_a_time_answers_nothing(
    tmp_path: Path, says: Says, lines: list[str]
) -> None:
    file = str(written(tmp_path, [LINES[0], *lines]))
    assert "No row has a time: there is nothing to compare." in says(1, file).out
    says(1, file, "--against")


def test_the_same_file_is_no_base(tmp_path: Path, says: Says) -> None:
    file = written(tmp_path, LINES[:200])
    link = tmp_path / "base.csv"
    link.symlink_to(file)
    assert "is given twice: nothing can differ" in says(2, file, link).err


def test_a_copy_is_no_base_and_no_second_run(tmp_path: Path, says: Says) -> None:
    file, copy = (written(tmp_path, LINES[:200], name) for name in ("new.csv", "copy.csv"))
    other = written(tmp_path, LINES[:199], "other.csv")
    turned = written(tmp_path, [LINES[0], *LINES[199:0:-1]], "turned.csv")
    for files in ([file, copy], [turned, file], [other, "--base", file, copy]):
        assert "holds the same rows as" in says(2, *files).err


def test_what_a_file_repeats_is_taken_together(tmp_path: Path, says: Says) -> None:
    """Two runs appended to one file: nothing is its own runner-up."""
    single, double = (
        written(tmp_path, [LINES[0], *OK[:40]], "one.csv"),
        written(tmp_path, [LINES[0], *OK[:40], *OK[:40]], "two.csv"),
    )
    told = says(0, single)
    again = says(0, double)
    assert "40 rows of what a row before measures" in again.err
    tables = [
        [line.split()[:3] for line in found.out.split("Best of each size")[1].splitlines()[4:]]
        for found in (told, again)
    ]
    assert tables[0] == tables[1]
    assert not any("~" in line for line in again.out.splitlines() if line.endswith(" -")), (
        "a clear winner stays one"
    )


@pytest.mark.exhaustive
def test_lines_fit_80_columns(says: Says) -> None:
    data = Path(__file__).parent.parent / "data" / "results" / "no-ranks.txt"
    for code, *args in (
        (0, H200),
        (0, data),
        (0, H200, "--against"),
        (1, H200, "--against", "h200x8-published"),
    ):
        assert max(map(len, says(code, *args, COLUMNS="80").out.splitlines())) <= 80, args


@pytest.mark.parametrize("option", ["--html", "--tuner"])
def test_no_document_overwrites_results(option: str, tmp_path: Path, says: Says) -> None:
    """`compare --html new.csv base.csv`, the name of the page forgotten."""
    new = written(tmp_path, LINES[:9], "new.csv")
    base = tmp_path / "base.csv"
    rows = [
        row((9.0, 9.0), backend="nccl"),
        row((5.0, 5.0), backend="nccl", algo="ring", proto="ll", channels=8),
    ]
    write(records(*rows), base)
    assert (
        f"{new} exists, and {option} of this command did not write it"
        in says(2, option, new, base).err
    )
    assert new.read_text() == "".join(LINES[:9])


def test_a_row_against_another_backend_says_so(tmp_path: Path, says: Says) -> None:
    """Another tool's NCCL beside our file: its rows stand against our kernels and against our NCCL,
    and neither speaks for the other.
    """
    frame = load(H200).frame
    own = frame[
        (frame["op"] == "allreduce") & (frame["backend"] == "nccl") & (frame["status"] == "ok")
    ]
    theirs = tmp_path / "nccl.csv"
    untold = {"run": "", "group": "", "host": "", "versions": ""}
    write(own.assign(**untold, repeat_times_us=repeats([()] * len(own))), theirs)
    out = says(0, theirs, H200).out
    assert "nccl library vs cuda oneshot ll" in out
    assert "nccl: slower as a whole" not in out


def test_what_the_new_file_lacks_is_said(tmp_path: Path, says: Says) -> None:
    half = written(tmp_path, [LINES[0], *OK[:300]])
    gate = (half, H200, "--fail-below", "5%")
    assert f"{len(OK) - 300} rows of the base, missing: --allow" in says(1, *gate).err
    says(0, *gate, "--allow", "missing")


def test_rows_of_another_group_are_compared_when_asked(tmp_path: Path, says: Says) -> None:
    """Without a launcher and with one; not where one file has both."""
    files = []
    for group in ("local", "mpi"):
        files.append(tmp_path / f"{group}.csv")
        rows = [row((9.0, 9.1), algo=algo, group=group) for algo in ("ring", "tree")]
        write(records(*rows, row((5.0, 5.1), algo="star", group="local")), files[-1])
    local, mpi = map(str, files)
    assert "1 row compared" in says(0, local, mpi).out
    out = says(0, local, mpi, "--across", "Group").out
    assert "3 rows compared" in out
    assert "group: local | local, mpi" in out
    only = written(tmp_path, [*files[0].read_text().splitlines(keepends=True)[:3]], "only.csv")
    says(1, only, mpi)
    both = tmp_path / "both.csv"
    rows = [row((9.0, 9.1), algo="ring", group=group) for group in ("local", "mpi")]
    write(records(*rows), both)
    err = says(2, both, mpi, "--across", "group").err
    assert "the new file has several values of group for one point: local, mpi" in err


def test_the_option_that_compares_other_groups_is_named(tmp_path: Path, says: Says) -> None:
    files = [tmp_path / "local.csv", tmp_path / "mpi.csv"]
    for file in files:
        write(records(row((9.0, 9.1), group=file.stem, channels=len(file.stem))), file)
    assert "to compare them still: --across group,channels" in says(1, *files).words
    says(0, *files, "--across", "channels,group")


def test_the_hint_names_columns_that_do_make_rows_comparable(tmp_path: Path, says: Says) -> None:
    """No column is different in all rows, and still no row has its like."""
    new, base = (tmp_path / name for name in ("new.csv", "base.csv"))
    write(records(row((9.0, 9.1)), row((5.0, 5.1), group="local", algo="tree")), new)
    write(records(row((9.0, 9.1), group="local"), row((5.0, 5.1), algo="tree")), base)
    assert "to compare them still: --across group" in says(1, new, base).out
    says(0, new, base, "--across", "group")
    write(records(row((9.0, 9.1), group="local", dtype="int8")), base)
    assert "--across" not in says(1, new, base).out, "no option compares other types"


def test_a_file_that_holds_two_runs_or_only_what_has_no_counterpart(
    says: Says, tmp_path: Path
) -> None:
    table = "{0}\n$ mpirun -n 4 osu_bcast\n# OSU MPI Broadcast Latency Test\n# Size Avg Latency(us)"
    rows = "".join(f"\n{8 << n}  {{1:.2f}}" for n in range(6)) + "\n"
    runs = (tmp_path / "osu.txt", tmp_path / "sample.txt")
    runs[0].write_text(
        "".join((table + rows).format(*run) for run in (("before", 2), ("after", 4)))
    )
    heading = " Device to Host Bandwidth, 1 Device(s)\n Transfer Size (Bytes) Bandwidth(GB/s)\n"
    runs[1].write_text(f"{heading} 32000000 6.1\n")
    said = says(0, runs[0]).words
    assert "differs: before | after. The second against the first" in said and "6 worse" in said
    assert "as PCIe 3.0 x8, 4.0 x4 or 2.0 x16" in says(1, runs[1]).words
    for code, file in zip((2, 1), runs, strict=True):
        assert says(code, file, "--json", "-").out == ""


def test_the_second_run_begins_with_what_the_first_has_too(tmp_path: Path, says: Says) -> None:
    """Not where it is told, which the last table does; words in any letters tell it as well."""
    sizes = "".join(f"{8 << n}  {{0:.2f}}\n" for n in range(6))
    tables = [
        f"# OSU MPI {op} Latency Test\n# Size Avg Latency(us)\n" + sizes
        for op in ("Broadcast", "Allreduce")
    ]
    file = tmp_path / "osu.txt"
    for above, factors in (("", (2, 2, 2.1, 4)), ("## H\n", (2, 2, 2, 2)), ("до\n", (2, 2, 2, 2))):
        texts = [table.format(factor) for table, factor in zip(tables * 2, factors, strict=True)]
        texts[2] = above.replace("до", "после").replace("H", "P") + texts[2]
        file.write_text(above + "".join(texts))
        assert "12 rows compared" in says(0, file).out
