"""Tables of cases beside the tests that go through them: cells between tabs, a line each."""

import re
from pathlib import Path
from typing import Any

from collbench.core.units import parse_size

SIZES = ("size_bytes", "chunk", "buffsize", "memory_bytes")


def cells_of(beside: str, name: str) -> list[list[str]]:
    """Cells of the table with that name, in which \\n and \\t are written so; # begins a remark."""
    lines = Path(beside).with_name(name).read_text().splitlines()
    return [
        [cell.replace("\\n", "\n").replace("\\t", "\t") for cell in line.split("\t")]
        for line in lines
        if not line.startswith("# ")
    ]


def values_of(cell: str) -> dict[str, Any]:
    """What a cell says of a case or its limits: names with values, as algo=ring hosts=0,0,1,1."""
    return {name: _value_of(name, value) for name, value in re.findall(r"(\S+?)=(\S+)", cell)}


def _value_of(name: str, text: str) -> object:
    if name == "hosts":
        return tuple(map(int, text.split(",")))
    if text in ("yes", "no"):
        return text == "yes"
    return parse_size(text) if name in SIZES else int(text) if text.isdecimal() else text
