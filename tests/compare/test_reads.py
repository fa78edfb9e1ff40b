"""What files of results say, by hand, what is remarked on, and what is refused: reads.toml."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from collbench.compare.load import load
from collbench.core.errors import UsageError
from tests.support.nccl_tests_text import VERSIONS, output
from tests.support.results import DATA, check_form, written

CASES = tomllib.loads(Path(__file__).with_name("reads.toml").read_text())
BY_NAME = {version.name: version for version in VERSIONS}


def source_of(case: dict[str, Any]) -> str:
    """A text, one of our samples, or what a version of nccl-tests prints: of which collective, on
    how many ranks, in which times.
    """
    if "file" in case:
        return Path(DATA / case["file"]).read_text()
    if "made" in case:
        version, op, ranks, *times = case["made"].split()
        return output(BY_NAME[version], op, int(ranks), list(map(float, times)))
    return str(case["text"])


def text_of(case: dict[str, Any]) -> str:
    text = source_of(case)
    for pattern, new, *count in case.get("sub", ()):
        assert re.search(pattern, text), pattern
        text = re.sub(pattern, new, text, count=int(*count or "0"))
    if "again" in case:
        other = text
        for pattern, new in case["again"]:
            assert re.search(pattern, other), pattern
            other = re.sub(pattern, new, other)
        text += other
    text = case.get("before", "") + text + case.get("after", "")
    if "tag" in case:
        lines = text.splitlines()
        text = "".join(case["tag"].format(n) + f"{line}\n" for n, line in enumerate(lines))
    return text


def cells(frame: pd.DataFrame, names: str) -> str:
    """The cells of each row in some columns; once where all rows have the same."""
    rows = [" ".join(map(_shown, row)) for row in frame[names.split()].itertuples(index=False)]
    return rows[0] if len(set(rows)) == 1 else ", ".join(rows)


def _shown(cell: object) -> str:
    if isinstance(cell, tuple):
        return ";".join(map(_shown, cell))
    if isinstance(cell, float):
        return f"{cell:.5g}"
    return str(cell) if cell != "" else "-"


@pytest.mark.parametrize("what", CASES)
def test_what_is_read(what: str, tmp_path: Path) -> None:
    case = CASES[what]
    file = written(tmp_path, text_of(case), case.get("name", case.get("file", "results.txt")))
    if "refused" in case:
        with pytest.raises(UsageError) as caught:
            load(file)
        assert case["refused"] in caught.value.message
        assert case.get("hint", "") in caught.value.hint
        return
    loaded = load(file)
    check_form(loaded.frame)
    says = case.get("says", {})
    assert {names: cells(loaded.frame, names) for names in says} == says
    assert len(loaded.frame) == case["rows"]
    for remark in (*case.get("remarks", ()), *case.get("silent", ())):
        is_said = any(remark in said for said in loaded.remarks)
        assert is_said == (remark in case.get("remarks", ())), loaded.remarks
    if case.get("is_plain", False):  # as the text without what was done to it
        plain = load(
            written(tmp_path, case.get("head", "") + source_of(case), "plain_" + file.name)
        )
        pd.testing.assert_frame_equal(loaded.frame, plain.frame)
