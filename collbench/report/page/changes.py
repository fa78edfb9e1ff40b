"""The page's part about two files: what changed, as the terminal says it, and the rows that did."""

import pandas as pd

from collbench.analysis.changes import VERDICTS, Changes
from collbench.report.page.html import Cell, element, section, table
from collbench.report.tables.changes import NAMES, by_change, configuration, percent, said, varying
from collbench.util.units import format_size, format_time_us

SHOWN = 500  # rows of each verdict; a page is to be read
_KINDS = {"better": "good", "worse": "bad"}
_NO_WRAP = 1 << 30


def changed(changes: Changes, titles: tuple[str, str]) -> str:
    """The verdicts of two files: answers first, then the rows by verdict, those that changed most
    first; rows that are the same are counted only.
    """
    told = [
        '<ul class="told">',
        *[element("li", line.strip()) for line in said(changes, titles, _NO_WRAP)],
        "</ul>",
    ]
    rows = changes.rows
    if not len(rows):
        return section("changes", "What changed", *told)
    knobs = varying(rows)
    heads = [Cell(text="verdict"), Cell(text="size", kind="num"), Cell(text="configuration")]
    heads += [
        Cell(text=name, kind="num") for name in ("change", "between", "and", "new us", "base us")
    ]
    # of no operation: they are above the filters, and all count
    lines: list[tuple[str, list[Cell]]] = []
    cut = []
    for verdict in sorted(set(VERDICTS) - {"same"}, key=("worse", "better", "cannot tell").index):
        part = by_change(rows[rows["verdict"] == verdict])
        if len(part) > SHOWN:
            cut.append(
                f"{SHOWN} of {len(part)} rows are shown that are {verdict}"
                if verdict in _KINDS
                else f"{SHOWN} of {len(part)} that cannot be told"
            )
        lines += [("", _cells(row, knobs)) for _, row in part.head(SHOWN).iterrows()]
    hint = (
        element(
            "p",
            "; ".join([*cut, "the change is of the time, new against base, with its interval"])
            + ".",
            class_="hint",
        )
        if lines
        else ""
    )
    grid = table(heads, lines, kind="sortable", label="What changed") if lines else ""
    return section("changes", "What changed", *told, hint, grid)


def _cells(row: "pd.Series", knobs: list[str]) -> list[Cell]:
    size = int(row["size_bytes"])
    verdict = str(row["verdict"])
    numbers = [
        Cell(text=format_time_us(row[name]), sort=row[name], kind="num")
        for name in ("time_us", "time_us_base")
    ]
    changes = [
        Cell(text=percent(row[name]), sort=row[name], kind="num")
        for name in ("ratio", "low", "high")
    ]
    return [
        Cell(text=verdict, kind=_KINDS.get(verdict, "tight")),
        Cell(text=format_size(size), sort=size, kind="num"),
        Cell(text=configuration(row, [*NAMES, *knobs]), kind="name"),
        *changes,
        *numbers,
    ]
