"""`sweep --resume` and `--runs`: what a file has already is not measured again."""

from pathlib import Path
from shlex import split

import pytest

from collbench.core.record import KEY, Record, Status, header, read, to_line
from tests.support.commands import MODEL, ONE_REPEAT, Says
from tests.support.tiers import tiered


def test_resume_measures_single_launches_that_the_file_lacks(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    words = (*ONE_REPEAT, "--sizes", "1K", "--csv", str(file), "--resume")
    for more, known in (((), 0), (("--distribution", "2"), 0), (("--distribution",), 1), ((), 1)):
        err = says(0, *words, *more).err
        assert not file.exists() or f"{known} of 1 points" in err or not known
    assert [bool(row.histogram) for row in read(file)] == [False, True]
    assert "launches one by one" in says(0, "compare", file).out


def test_resume_measures_only_what_is_missing(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    says(0, *MODEL, "--sizes", "64K", "--csv", file)
    before = read(file)
    err = says(0, *MODEL, "--sizes", "64K,128K", "--csv", file, "--resume").err
    after = read(file)
    assert f"{len(before)} of {2 * len(before)} points" in err
    assert after[: len(before)] == before
    assert len(after) == 2 * len(before)
    assert len({row.key for row in after}) == len(after)


@pytest.mark.exhaustive
def test_several_runs_have_rows_of_their_own(says: Says, tmp_path: Path) -> None:
    """And one row together on the screen; --resume completes the runs."""
    file = tmp_path / "out.csv"
    words = ["sweep", "--backend", "cpu", "--ranks", "2", "--sizes", "64,128", "--algo", "oneshot"]
    words += ["--repeats", "2", "-n", "1", "--csv", str(file), "--runs"]
    out, err = says(0, *words, "2")
    rows = read(file)
    assert (len(rows), len({row.run for row in rows})) == (4, 2)
    assert "2 runs of 2 repeats" in " ".join(out.split())
    assert "2 rows of 2 runs, every element compared, 0 wrong" in out
    assert "# Run 2 of 2." in err
    err = says(0, *words, "3", "--resume").err
    rows = read(file)
    assert (len(rows), len({row.run for row in rows})) == (6, 3)
    assert f"4 of 6 points of 3 runs are in {file} already" in err
    says(0, *words, "3", "--resume")
    assert len(read(file)) == 6
    assert "2 rows: 2 ok" in says(0, "compare", file).out


@pytest.mark.parametrize(
    "more", [["--backend", "model"], ["--backend", "cpu", "--hot", "-n", "1", "-m", "2"]]
)
@tiered("status", ["wrong", "waived", "error"], 1)
def test_resume_measures_again_what_did_not_succeed(
    says: Says, tmp_path: Path, status: Status, more: list[str]
) -> None:
    """And what can never run is asked again, but its row is not repeated."""
    file = tmp_path / "out.csv"
    words = ["sweep", *more, "--ranks", "2", "--repeats", "1", "--sizes", "1K,2K", "--algo"]
    words += ["ring,twoshot", "--op", "allreduce,alltoall", "--csv", str(file)]
    says(0, *words)
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
    out, err = says(0, *words, "--resume")
    assert err.startswith(f"# 3 of 8 points are in {file} already\n")
    assert "waived" in out
    (again,) = read(file)[8:]
    assert (again.point, again.status) == (rows[1].point, "ok")
    assert file.read_bytes().startswith(before)
    before = file.read_bytes()
    says(0, *words, "--resume")
    assert file.read_bytes() == before
    assert "8 rows: 4 ok, 4 waived" in says(0, "compare", file).out


def test_resume_of_what_was_all_waived_says_so_again(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    words = [*MODEL, "--sizes", "1K", "--op", "alltoall", "--algo", "ring", "--csv", str(file)]
    for more in ([], ["--resume"]):
        assert "every point was waived" in says(3, *words, *more).err
    assert len(read(file)) == 1


def test_resume_prices_another_machine_again(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    for machine, said in (
        ("dgx-1v", ""),
        ("hgx-h100", "# 0 of 1 points"),
        ("dgx-1v", "# 1 of 1 points"),
    ):
        words = split(f"--machine {machine} --sizes 1M --algo ring --resume --csv")
        err = says(0, *MODEL, *words, file).err
        assert err.startswith(said)
    assert [row.host for row in read(file)] == ["model of dgx-1v", "model of hgx-h100"]
