"""The section of the page about two files: what changed, and the rows that did."""

import pandas as pd

from collbench.analysis.changes import Changes
from collbench.analysis.groups import VERDICTS
from collbench.report.page.html import HtmlCell, element, section, table
from collbench.report.tables.changes import (
    NAME_COLUMNS,
    by_change,
    configuration,
    percent,
    summary_lines,
    varying,
)
from collbench.util.units import format_size, format_time_us

ROWS_SHOWN = 500  # rows of each verdict; a page is to be read
_VERDICT_STYLES = {"better": "good", "worse": "bad"}
_NO_WRAP = 1 << 30


def changed(changes: Changes, titles: tuple[str, str]) -> str:
    """The verdicts of two files: summary first, then the rows by verdict, those that changed most
    first; rows that are the same are counted only.
    """
    verdicts = [
        '<ul class="verdicts">',
        *[element("li", line.strip()) for line in summary_lines(changes, titles, _NO_WRAP)],
        "</ul>",
    ]
    rows = changes.rows
    if not len(rows):
        return section("changes", "What changed", *verdicts)
    knobs = varying(rows)
    heads = [HtmlCell("verdict"), HtmlCell("size", kind="num"), HtmlCell("configuration")]
    heads += [
        HtmlCell(name, kind="num") for name in ("change", "between", "and", "new us", "base us")
    ]
    # Without an operation: they stand above the filters, and are always shown.
    lines: list[tuple[str, list[HtmlCell]]] = []
    cut = []
    for verdict in sorted(set(VERDICTS) - {"same"}, key=("worse", "better", "cannot tell").index):
        part = by_change(rows[rows["verdict"] == verdict])
        if len(part) > ROWS_SHOWN:
            cut.append(
                f"{ROWS_SHOWN} of {len(part)} {verdict} rows are shown"
                if verdict in _VERDICT_STYLES
                else f"{ROWS_SHOWN} of {len(part)} that are not certain"
            )
        lines += [("", _cells(row, knobs)) for _, row in part.head(ROWS_SHOWN).iterrows()]
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
    return section("changes", "What changed", *verdicts, hint, grid)


def _cells(row: "pd.Series", knobs: list[str]) -> list[HtmlCell]:
    size = int(row["size_bytes"])
    verdict = str(row["verdict"])
    numbers = [
        HtmlCell(format_time_us(row[name]), sort=row[name], kind="num")
        for name in ("time_us", "time_us_base")
    ]
    changes = [
        HtmlCell(percent(row[name]), sort=row[name], kind="num")
        for name in ("ratio", "low", "high")
    ]
    return [
        HtmlCell(verdict, kind=_VERDICT_STYLES.get(verdict, "tight")),
        HtmlCell(format_size(size), sort=size, kind="num"),
        HtmlCell(configuration(row, [*NAME_COLUMNS, *knobs]), kind="name"),
        *changes,
        *numbers,
    ]
