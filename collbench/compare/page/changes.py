"""The section of the page about two files: what changed, together and by rows."""

from collections.abc import Sequence

import pandas as pd

from collbench.compare.changes import Changes
from collbench.compare.page.answers import Places, address
from collbench.compare.page.data import Opening
from collbench.compare.tables.changes import (
    NAME_COLUMNS,
    by_change,
    configuration,
    percent,
    summary_lines,
    varying,
)
from collbench.core.rows import Workload, conditions_of
from collbench.core.units import format_size, format_time_us
from collbench.core.verdict import Verdict
from collbench.core.web.html import Cell, HtmlCell, element, link, section, table

ROWS_SHOWN = 500  # rows of each verdict; a page is to be read
_ORDER: Sequence[Verdict] = ("worse", "better", "cannot tell", "same")
_NO_WRAP = 1 << 30


def changed(changes: Changes, titles: tuple[str, str], places: Places) -> str:
    """The verdicts of two files: the worst change, with a link to its curve, and what was
    assumed.
    """
    lines = summary_lines(changes, titles, _NO_WRAP)
    verdicts = [
        '<ul class="verdicts">',
        *[
            element("li", line.strip())
            for line in lines
            if not line.startswith(("worst: ", "best: "))  # they are in the table of rows
        ],
        "</ul>",
    ]
    if not len(changes.rows):
        return section("changes", "What changed", *verdicts)
    head = _headline(changes, varying(changes.rows), places)
    return section("changes", "What changed", head, *verdicts)


def changed_rows(changes: Changes, places: Places) -> str:
    """The rows by verdict, those that changed most first, each with a link to its curve; rows that
    are the same are counted only.
    """
    rows = changes.rows
    if not len(rows):
        return ""
    knobs = varying(rows)
    lines: list[list[Cell]] = []
    cut = []
    for verdict in _ORDER[:3]:
        part = by_change(rows[rows["verdict"] == verdict])
        if len(part) > ROWS_SHOWN:
            cut.append(
                f"{ROWS_SHOWN} of {len(part)} {verdict} rows are shown"
                if verdict != "cannot tell"
                else f"{ROWS_SHOWN} of {len(part)} that are not certain"
            )
        lines += [_cells(row, knobs, places) for _, row in part.head(ROWS_SHOWN).iterrows()]
    if not lines:
        return ""
    words = [*cut, "the change is of the time, new against base, with its interval"]
    hint = element("p", "; ".join(words) + ".", class_="hint")
    # without an operation: they are shown whatever the filters are
    heads = ("verdict", "size", "configuration", "change", "between", "and", "new us", "base us")
    grid = table(
        heads,
        lines,
        kinds=("tight", "num", "name", "num"),
        kind="sortable",
        label="Rows that changed",
    )
    return section("rows", "Rows that changed", hint, grid)


def opening(changes: Changes, places: Places) -> Opening | None:
    """The worst change; where nothing is worse, the largest. None without rows that changed."""
    row = _worst(changes)
    place = None if row is None else _place(row, places)
    if row is None or place is None:
        return None
    return {"axis": "change", "curve": place, "size": int(row["size_bytes"])}


def _worst(changes: Changes) -> "pd.Series | None":
    for verdict in _ORDER[:2]:
        part = by_change(changes.rows[changes.rows["verdict"] == verdict])
        if len(part):
            return part.iloc[0]
    return None


def _place(row: "pd.Series", places: Places) -> int | None:
    """The place of a row's curve; None where it was not drawn, as what has no bytes."""
    values = {name: row[name] for name in Workload._fields if name != "conditions"}
    workload = Workload(**values, conditions=conditions_of(str(row["notes"])))
    knobs = places.summary.knobs.get(str(row["backend"]), ())
    names = ("backend", "algo", "proto", *knobs)
    return places.place_of.get((workload, tuple(row[name] for name in names)))


def _headline(changes: Changes, knobs: list[str], places: Places) -> str:
    """How many rows have each verdict, and the worst change."""
    counts = ", ".join(
        f'<strong class="{verdict.replace(" ", "-")}">{changes.count(verdict)} {verdict}</strong>'
        for verdict in _ORDER
    )
    row = _worst(changes)
    if row is None:
        return f"<p>{counts}.</p>"
    name = f"{format_size(int(row['size_bytes']))} {configuration(row, [*NAME_COLUMNS, *knobs])}"
    place = _place(row, places)
    where = (
        link(name, address(str(row["op"]), "change", place, int(row["size_bytes"])))
        if place is not None
        else element("span", name)
    )
    title = "worst" if row["verdict"] == "worse" else "best"
    change = element("strong", percent(float(row["ratio"])), class_=str(row["verdict"]))
    return f"<p>{counts}. {title.capitalize()}: {change} {where}.</p>"


def _cells(row: "pd.Series", knobs: list[str], places: Places) -> list[Cell]:
    size, verdict, place = int(row["size_bytes"]), str(row["verdict"]), _place(row, places)
    changes, times = (
        [HtmlCell(words(float(row[name])), float(row[name])) for name in names]
        for words, names in (
            (percent, ("ratio", "low", "high")),
            (format_time_us, ("time_us", "time_us_base")),
        )
    )
    href = "" if place is None else address(str(row["op"]), "change", place, size)
    return [
        HtmlCell(verdict, kind=verdict.replace(" ", "-")),
        HtmlCell(format_size(size), size),
        HtmlCell(configuration(row, [*NAME_COLUMNS, *knobs]), href=href),
        *changes,
        *times,
    ]
