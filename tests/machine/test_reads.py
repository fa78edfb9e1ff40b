"""What files of other tools, machine profiles and made-up hosts say of a machine, by hand, and what
is remarked on: reads.toml.
"""

import re
import tomllib
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from collbench.machine import formats
from collbench.machine.discovery import links_table, topology_of
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from tests.support import fake_hosts
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


def put_into(thing: Any, words: list[str], value: object) -> None:
    """Set an attribute, as `gpus 3 links 5 is_active`; * is all of a list, 12- is 12 and above."""
    first, *rest = words
    if isinstance(thing, list):
        start = 0 if first == "*" else int(first.rstrip("-"))
        for one in thing[start:] if first[-1] in "*-" else [thing[start]]:
            put_into(one, rest, value)
    elif rest:
        put_into(getattr(thing, first), rest, value)
    else:
        setattr(thing, first, value)


def found_at(case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    """The topology of a made-up host, whose table of NVLinks is as the case says."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", case.get("devices", ""))
    if "devices" not in case:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    nvml = getattr(fake_hosts, case["host"])(folder)
    for words, value in case.get("set", {}).items():
        put_into(nvml, words.split(), value)
    recording = fake_hosts.asked(folder, nvml)
    rows = [" ".join(map(str, astuple(row))) for row in links_table(recording)]
    assert set(case.get("rows", ())) <= set(rows)
    assert len(rows) == case.get("row_count", len(rows))
    return topology_of([recording])


@pytest.mark.parametrize("what", CASES)
def test_what_is_read(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[what]
    if "machine" in case:
        topology = machine_topology(case["machine"])
    elif "host" in case:
        topology = found_at(case, tmp_path, monkeypatch)
    else:
        file = tmp_path / case.get("name", Path(case.get("file", "x.txt")).name)
        file.write_bytes(text_of(case).encode())
        topology = formats.read(file)
    says = case.get("says", {})
    assert {words: fact(topology, words) for words in says} == says
    for remark in (*case.get("remarks", ()), *case.get("silent", ())):
        assert any(remark in note for note in topology.notes) == (remark in case.get("remarks", ()))
