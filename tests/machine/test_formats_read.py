"""What files of other tools and machine profiles say of a machine, by hand, and what is remarked
on: reads.toml.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from collbench.machine import formats
from collbench.machine.topology.machines import machine_topology
from tests.support.topologies import OWN, REAL, fact, matrix

CASES = tomllib.loads(Path(__file__).with_name("reads.toml").read_text())
SYSTEM = '<system version="1"><cpu numaid="0" arch="ppc64" vendor="IBM">{}</cpu></system>'


def text_of(case: dict[str, Any]) -> str:
    """The text of a file, of nvidia-smi's matrix of such cells, or of NCCL's dump of one CPU."""
    if "file" in case:
        found = [file for file in (OWN / case["file"], REAL / case["file"]) if file.is_file()]
        text = found[0].read_text() if found else pytest.skip("the real dumps are not at hand")
    elif "matrix" in case:
        text = matrix(case["matrix"], case.get("behind", "")) + case.get("below", "")
    else:
        text = case["text"] if "text" in case else SYSTEM.format(case["nccl"])
    for old, new in case.get("change", ()):
        assert old in text
        text = text.replace(old, new)
    if "wrap" in case:
        text = wrapped(text, case["wrap"])
    text = "\n".join(case.get("tag", "") + line for line in text.split("\n"))
    return str(case.get("before", "") + text + case.get("after", ""))


def wrapped(text: str, columns: int) -> str:
    """Lines broken where a terminal of that width ends, without escapes, their tabs expanded."""
    lines = [line.expandtabs() for line in re.sub(r"\x1b\[\d*m", "", text).splitlines()]
    return "\n".join(
        line[first : first + columns]
        for line in lines
        for first in range(0, max(len(line), 1), columns)
    )


@pytest.mark.parametrize("what", CASES)
def test_what_is_read(what: str, tmp_path: Path) -> None:
    case = CASES[what]
    if "machine" in case:
        topology = machine_topology(case["machine"])
    else:
        file = tmp_path / case.get("name", Path(case.get("file", "x.txt")).name)
        file.write_bytes(text_of(case).encode())
        topology = formats.read(file)
    says = case.get("says", {})
    assert {words: fact(topology, words) for words in says} == says
    for remark in (*case.get("remarks", ()), *case.get("silent", ())):
        assert any(remark in note for note in topology.notes) == (remark in case.get("remarks", ()))
