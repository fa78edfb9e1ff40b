"""Tables of cases beside the tests that go through them: cells between tabs, a line each."""

from pathlib import Path


def cells_of(beside: str, name: str) -> list[list[str]]:
    """Cells of the table with that name, in which \\n and \\t are written so; # begins a remark."""
    lines = Path(beside).with_name(name).read_text().splitlines()
    return [
        [cell.replace("\\n", "\n").replace("\\t", "\t") for cell in line.split("\t")]
        for line in lines
        if not line.startswith("# ")
    ]
