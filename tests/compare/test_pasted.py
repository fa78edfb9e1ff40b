"""What people paste: tables without hashes, without headings, of other tools, and no results."""

from itertools import chain
from pathlib import Path
from textwrap import wrap

import pytest

from collbench.compare.load import load
from tests.support.nccl_tests_text import VERSIONS, output
from tests.support.results import DATA, SWEEP, written


@pytest.mark.parametrize("width", [80, 100, 110])
def test_a_terminal_broke_the_lines(tmp_path: Path, width: int) -> None:
    text = output(VERSIONS[-1], "allreduce", 4, [100.0 * 2**size for size in range(9)])
    lines = [f"[default0]:{line}" for line in text.splitlines()]
    broken = [line[at : at + width] for line in lines for at in range(0, len(line), width)]
    whole = load(written(tmp_path, "\n".join(lines), "allreduce.txt")).records
    cut = map(str.rstrip, broken)
    by_words = (wrap(line, width, replace_whitespace=False) for line in text.splitlines())
    for pasted in (broken, cut, chain(*by_words)):
        assert load(written(tmp_path, "\n".join(pasted), "allreduce.txt")).records == whole


@pytest.mark.parametrize("file", [DATA / "nvbandwidth.json", SWEEP])
def test_a_document_behind_tags(tmp_path: Path, file: Path) -> None:
    text = file.read_text()
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
    whole, behind = (load(written(tmp_path, one, file.name)).records for one in (text, tagged))
    assert (len(behind), behind) == (len(whole), whole)


def test_all_sizes_slower_in_one_way_are_no_disturbance(tmp_path: Path) -> None:
    lines = output(VERSIONS[-1], "allreduce", 4, [100.0, 3000.0, 9000.0]).splitlines()
    for at, line in enumerate(lines):
        if line.strip()[:1].isdigit():
            cells = line.split()
            rates = [f"{float(cell) / 20:.6f}" for cell in cells[10:12]]
            lines[at] = " ".join([*cells[:9], str(float(cells[9]) * 20), *rates, *cells[12:]])
    loaded = load(written(tmp_path, "\n".join(lines) + "\n", "allreduce.txt"))
    (said,) = (text for text in loaded.remarks if "times as long" in text)
    assert said.startswith("3 sizes took 15 times as long in place")
