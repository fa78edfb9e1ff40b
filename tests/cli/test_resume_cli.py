"""`sweep --resume` and `--runs`: what a file has already is not measured again."""

from pathlib import Path
from shlex import split

import pytest

from collbench.core.record import KEY, Record, Status, header, read, to_line
from tests.support.commands import MODEL, ONE_REPEAT, Invoke
from tests.support.tiers import tiered


def test_resume_measures_single_launches_that_the_file_lacks(
    invoke: Invoke, tmp_path: Path
) -> None:
    file = tmp_path / "out.csv"
    words = (*ONE_REPEAT, "--sizes", "1K", "--csv", str(file), "--resume")
    for more, known in (((), 0), (("--distribution", "2"), 0), (("--distribution",), 1), ((), 1)):
        code, _, err = invoke(*words, *more)
        assert code == 0
        assert not file.exists() or f"{known} of 1 points" in err or not known
    assert [bool(row.histogram) for row in read(file)] == [False, True]
    frame = invoke("compare", str(file))[1]
    assert "launches one by one" in frame


def test_resume_measures_only_what_is_missing(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    invoke(*MODEL, "--sizes", "64K", "--csv", str(file))
    before = read(file)
    code, _, err = invoke(*MODEL, "--sizes", "64K,128K", "--csv", str(file), "--resume")
    after = read(file)
    assert code == 0
    assert f"{len(before)} of {2 * len(before)} points" in err
    assert after[: len(before)] == before
    assert len(after) == 2 * len(before)
    assert len({row.key for row in after}) == len(after)


@pytest.mark.exhaustive
def test_several_runs_have_rows_of_their_own(invoke: Invoke, tmp_path: Path) -> None:
    """And one row together on the screen; --resume completes the runs."""
    file = tmp_path / "out.csv"
    words = ["sweep", "--backend", "cpu", "--ranks", "2", "--sizes", "64,128", "--algo", "oneshot"]
    words += ["--repeats", "2", "-n", "1", "--csv", str(file), "--runs"]
    code, out, err = invoke(*words, "2")
    rows = read(file)
    assert (code, len(rows), len({row.run for row in rows})) == (0, 4, 2)
    assert "2 runs of 2 repeats" in " ".join(out.split())
    assert "2 rows of 2 runs, every element compared, 0 wrong" in out
    assert "# Run 2 of 2." in err
    code, _, err = invoke(*words, "3", "--resume")
    rows = read(file)
    assert (code, len(rows), len({row.run for row in rows})) == (0, 6, 3)
    assert f"4 of 6 points of 3 runs are in {file} already" in err
    assert invoke(*words, "3", "--resume")[0] == 0
    assert len(read(file)) == 6
    assert "2 rows: 2 ok" in invoke("compare", str(file))[1]


def test_resume_with_nothing_left_is_fine(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    for _ in range(2):
        code, _, _ = invoke(*MODEL, "--sizes", "64K", "--csv", str(file), "--resume")
        assert code == 0
    assert len(read(file)) == len({row.key for row in read(file)})


@pytest.mark.parametrize(
    "more", [["--backend", "model"], ["--backend", "cpu", "--hot", "-n", "1", "-m", "2"]]
)
@tiered("status", ["wrong", "waived", "error"], 1)
def test_resume_measures_again_what_did_not_succeed(
    invoke: Invoke, tmp_path: Path, status: Status, more: list[str]
) -> None:
    """And what can never run is asked again, but its row is not repeated."""
    file = tmp_path / "out.csv"
    words = ["sweep", *more, "--ranks", "2", "--repeats", "1", "--sizes", "1K,2K", "--algo"]
    words += ["ring,twoshot", "--op", "allreduce,alltoall", "--csv", str(file)]
    assert invoke(*words)[0] == 0
    waived, rows = read(file)[:4], read(file)[4:]
    assert [row.status for row in (*waived, *rows)] == ["waived"] * 4 + ["ok"] * 4
    failed = Record(
        **{name: getattr(rows[1], name) for name in KEY},
        status=status,
        reason="too few files",
        notes=" ".join(rows[1].point[len(KEY) :]),  # type: ignore[arg-type]
    )
    file.write_text(header() + "".join(map(to_line, [*waived, rows[0], failed, *rows[2:]])))
    before = file.read_bytes()
    code, out, err = invoke(*words, "--resume")
    assert code == 0
    assert err.startswith(f"# 3 of 8 points are in {file} already\n")
    assert "waived" in out
    (again,) = read(file)[8:]
    assert (again.point, again.status) == (rows[1].point, "ok")
    assert file.read_bytes().startswith(before)
    before = file.read_bytes()
    assert invoke(*words, "--resume")[0] == 0
    assert file.read_bytes() == before
    assert "8 rows: 4 ok, 4 waived" in invoke("compare", str(file))[1]


def test_resume_of_what_was_all_waived_says_so_again(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    words = [*MODEL, "--sizes", "1K", "--op", "alltoall", "--algo", "ring", "--csv", str(file)]
    for more in ([], ["--resume"]):
        code, _, err = invoke(*words, *more)
        assert code == 3
        assert "every point was waived" in err
    assert len(read(file)) == 1


def test_resume_prices_another_machine_again(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    for machine, said in (
        ("dgx-1v", ""),
        ("hgx-h100", "# 0 of 1 points"),
        ("dgx-1v", "# 1 of 1 points"),
    ):
        code, _, err = invoke(
            *MODEL,
            "--machine",
            machine,
            *split("--sizes 1M --algo ring --csv"),
            str(file),
            "--resume",
        )
        assert code == 0
        assert err.startswith(said)
    assert [row.host for row in read(file)] == ["model of dgx-1v", "model of hgx-h100"]
