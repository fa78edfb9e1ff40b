"""Pictures: `compare --plot` writes what a viewer opens, the same each time, and refuses before any
work what it could not write.
"""

import struct
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from collbench.compare.curves import curves
from collbench.core import record
from tests.support import frames
from tests.support.commands import Invoke, Says
from tests.support.frames import records, row, write
from tests.support.tables import cells_of
from tests.support.tiers import tiered

PNG = b"\x89PNG\r\n\x1a\n"
H200 = str(frames.H200)


def draw(*args: Any) -> bytes:
    """As collbench.compare.plots.draw, which loads matplotlib when a picture is drawn."""
    drawn: bytes = import_module("collbench.compare.plots.draw").draw(*args)
    return drawn


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    return partial(invoke, "compare")


def pixels(png: bytes) -> tuple[int, int]:
    assert png.startswith(PNG)
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_the_shipped_sweep_as_svg_is_well_formed_and_the_same_each_time() -> None:
    given = record.read(frames.H200)
    given = [row for row in given if row.op in ("allreduce", "alltoall")]
    once, again = (draw(curves(given), "h200x4.csv", "svg") for _ in range(2))
    assert once == again
    assert ElementTree.fromstring(once).tag.endswith("svg")
    assert b"<dc:date>" not in once


@pytest.mark.filterwarnings("error")
@tiered("name", ["a$\\frac$b.csv", "$x_1$.csv", "\u7ed3\u679c.csv", "a\udcff\x01\x1b--b.csv"], 1)
def test_any_file_name_is_a_heading(says: Says, name: str, tmp_path: Path) -> None:
    write(records(row((10.0, 11.0))), tmp_path / name)
    drawn = {ending: tmp_path / f"picture.{ending}" for ending in ("PNG", "svg")}
    for picture in drawn.values():
        out, err = says(0, tmp_path / name, "--plot", picture)
        assert "allreduce, 4 ranks" in out and f"# wrote {picture}\n" in err
    assert pixels(drawn["PNG"].read_bytes())[0] == 1600
    assert ElementTree.fromstring(drawn["svg"].read_bytes()) is not None


def test_settings_of_matplotlib_neither_change_a_picture_nor_are_changed() -> None:
    given = records(row((10.0, 11.0)))
    matplotlib, plain = import_module("matplotlib"), draw(curves(given), "x", "svg")
    with matplotlib.rc_context({"font.size": 30.0, "lines.linewidth": 9.0}):
        before = dict(matplotlib.rcParams)
        assert draw(curves(given), "x", "svg") == plain
        assert dict(matplotlib.rcParams) == before


@pytest.mark.filterwarnings("error")
@tiered(
    "rows",
    [
        [row((10.0,))],
        [row((10.0, 10.5), size_bytes=0), row((10.0, 10.5), size_bytes=12000)],
        [row((10.0,), size_bytes=0)],
        [row((10.0,)) | {"busbw_gbs": float("nan"), "ranks": 0}],
        [
            row((9.0, 8.0), algo=algo, channels=channels, size_bytes=8 << size)
            for algo, channels, size in product(("ring", "tree"), range(1, 40), range(27))
        ],
        [
            row((10.0,), backend="nccl"),
            row((9.0,), backend="mpi"),
            row((9.0,), backend="nccl", algo="ring", proto="ll"),
        ],
    ],
    1,
    ids=[
        "one row",
        "no bytes and odd bytes",
        "no bytes",
        "unknown ranks",
        "27 sizes of 78 configurations",
        "libraries alone",
    ],
)
def test_anything_can_be_drawn(rows: list[dict[str, object]]) -> None:
    given = records(*rows)
    assert pixels(draw(curves(given), "a heading", "png"))[0] == 1600


def test_an_axis_names_the_library_or_that_there_are_several() -> None:
    rows = [row((10.0,)), row((12.0,), backend="nccl"), row((11.0,), backend="mpi")]
    title = import_module("collbench.compare.plots.draw")._title
    assert title("peer", curves(records(*rows[:2]))) == "speed, times NCCL's best"
    assert title("peer", curves(records(*rows))) == "speed, times the best library's"


def test_more_problems_than_a_viewer_shows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.compare.plots.draw.MOST_GROUPS", 3)
    given = records(*[row((10.0,), root=root) for root in range(5)])
    some = records(*[row((10.0,), root=root) for root in range(3)])
    assert pixels(draw(curves(given), "x", "png")) == pixels(draw(curves(some), "x", "png"))


@pytest.mark.parametrize(("files", "target", "known", "why"), cells_of(__file__, "undrawn.tsv"))
def test_refusals_leave_no_picture_and_an_old_one_as_it_was(
    says: Says,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: str,
    target: str,
    known: str,
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dir.png").mkdir()
    lines = frames.H200.read_text().splitlines(keepends=True)
    Path("waived.csv").write_text(lines[0] + "".join(one for one in lines if ",waived," in one))
    given = files.replace("H200", H200).split()
    err = says(int(known), *given, "--plot", target).err
    assert why in err and ("missing.csv" in err) == (why == "missing.csv")
    assert not Path(target).is_file()
    if target == "x.png":
        Path(target).write_bytes(b"old")
        says(2, *given, "--plot", target)
        assert Path(target).read_bytes() == b"old"


def test_without_matplotlib_the_install_line_is_told(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.compare.draw_results.find_spec", lambda _: None)
    out, err = says(3, H200, "--plot", tmp_path / "x.png")
    assert out == ""
    assert "pip install 'collbench[report]'" in err
