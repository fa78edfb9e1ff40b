"""What views of machines show, which can be counted on paper: views.toml."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from collbench.machine import formats
from collbench.machine.formats import nccl_xml
from collbench.machine.topology.hosts import without
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.machine.views import tables
from collbench.machine.views.drawing import svg
from collbench.machine.views.matrix import matrix
from collbench.machine.views.tree import tree
from tests.machine.test_reads import text_of
from tests.support import machines
from tests.support.topologies import OWN

CASES = tomllib.loads(Path(__file__).with_name("views.toml").read_text())


def shown(case: dict[str, Any]) -> Topology:
    """A machine of tests.support.machines, of the catalogue, of a file, or of NCCL's dump of one
    CPU, without some nodes.
    """
    if "nccl" in case:
        whole = nccl_xml.read(text_of(case), "dump.xml")
    elif "file" in case:
        whole = formats.read(OWN / case["file"])
    elif "machine" in case:
        whole = machine_topology(case["machine"])
    else:
        whole = getattr(machines, case["own"])()
    return without(whole, lambda node: node.kind in case.get("without", ()))


def lines_of(view: str, topology: Topology) -> list[str]:
    """A view as `matrix 80`, its lines with single blanks between their words."""
    name, *columns = view.split()
    if name == "svg":
        lines = [svg(topology)]
    elif name == "matrix":
        lines = matrix(topology, int(*columns))
    else:
        lines = (tree if name == "tree" else getattr(tables, name))(topology)
    return [" ".join(line.split()) for line in lines]


def legend(lines: list[str]) -> str:
    return " ".join(line.split()[0] for line in lines if " = " in line)


@pytest.mark.parametrize("what", CASES)
def test_what_is_shown(what: str) -> None:
    case = CASES[what]
    lines = lines_of(case["view"], shown(case))
    text = "\n".join(lines)
    assert legend(lines) == case.get("legend", legend(lines))
    assert len(lines) == case.get("lines", len(lines))
    assert {place: lines[int(place)] for place in case.get("line", {})} == case.get("line", {})
    assert {words: text.count(words) for words in case.get("count", {})} == case.get("count", {})
    for words in (*case.get("says", ()), *case.get("silent", ())):
        assert (words in text) == (words in case.get("says", ())), text
