"""What changed between two sweeps, as plain text: the verdicts, then what was assumed and what
differs around the numbers, then the rows.
"""

import math

import numpy as np
import pandas as pd

from collbench.compare.changes import Changes
from collbench.compare.gate import remedy
from collbench.compare.groups import Change
from collbench.compare.tables.distribution import changed_launch_times
from collbench.core.knobs import BY_STAGE, KNOB
from collbench.core.limits import MOSTLY, SAYS_NOTHING
from collbench.core.text import NARROW_COLUMNS, counted, paragraphs, table, wrapped
from collbench.core.units import format_size, format_time_us
from collbench.core.verdict import VERDICTS
from collbench.core.web.colors import painted

WORST = 5  # rows named among the verdicts
ROWS_OF_A_VERDICT = 20  # in the table, unless all are asked for
_WORDS = {"better": "faster", "worse": "slower"}
NAME_COLUMNS = ("op", "backend", "algo", "proto")
_KNOBS = (*(knob.name for knob in BY_STAGE if knob.name not in NAME_COLUMNS), "ctas")
_PROBLEM = (
    "ranks",
    "dtype",
    "redop",
    "root",
    "placement",
    "skew",
    "groups",
    "mix",
    "group",
    "conditions",
)
_SHORT = {name: knob.short for name, knob in KNOB.items()} | {"conditions": "note"}


def lines(
    changes: Changes,
    titles: tuple[str, str],
    columns: int = NARROW_COLUMNS,
    *,
    show_all: bool = False,
    is_colored: bool = False,
) -> list[str]:
    """The whole report of two files, named new and base by titles."""
    rows = changes.rows
    summary = summary_lines(changes, titles, columns, is_colored=is_colored)
    seen = wrapped(seen_line(changes), columns)
    if not len(rows):
        return [*summary, *seen]
    rows_of_table = _table(rows, varying(rows), columns, show_all=show_all, is_colored=is_colored)
    return [*summary, *rows_of_table, *seen]


def summary_lines(
    changes: Changes, titles: tuple[str, str], columns: int, *, is_colored: bool = False
) -> list[str]:
    """The verdicts, what was assumed and what differs around the numbers."""
    rows = changes.rows
    texts = [f"new {titles[0]}, base {titles[1]}; ratios are times, new / base: above 1 is slower"]
    if not len(rows):
        texts.append("nothing to compare: no row of both files measured the same thing")
        return paragraphs([*texts, *_losses(changes), *_remarks(changes)], columns)
    counts = ", ".join(f"{changes.count(verdict)} {verdict}" for verdict in VERDICTS)
    texts.append(f"{counted(len(rows), 'row')} compared: {counts}")
    texts += filter(None, [_certain(changes)])
    knobs = varying(rows)
    called: list[tuple[str, str]] = [(one.verdict, _group(one)) for one in changes.called]
    for verdict, title in (("worse", "worst"), ("better", "best")):
        picked = by_change(rows[rows["verdict"] == verdict]).head(WORST)
        called += [(verdict, _sentence(row, title, knobs)) for _, row in picked.iterrows()]
    return [
        *paragraphs(texts, columns),
        *[
            _paint(line, verdict, is_colored=is_colored)
            for verdict, text in called
            for line in wrapped(text, columns)
        ],
        *changed_launch_times(rows, columns),
        *paragraphs([*_losses(changes), _precision(changes), *_remarks(changes)], columns),
        *_differences(changes, columns),
    ]


def _group(one: Change) -> str:
    """A group that changed as a whole, or of which several rows did."""
    whole = "" if one.several else " as a whole"
    change = between(one.ratio, one.low, one.high).removesuffix(")")
    return f"{one.title}: {_WORDS[one.verdict]}{whole}, {change}, {counted(one.rows, 'row')})"


def between(ratio: float, low: float, high: float) -> str:
    """A change with its interval.

    >>> between(1.052, 1.04, 1.06)
    '+5.2% (+4.0% to +6.0%)'
    """
    return f"{percent(ratio)} ({percent(low)} to {percent(high)})"


def percent(ratio: float) -> str:
    """A ratio as a change.

    >>> percent(1.052), percent(0.5), percent(0.9999), percent(12.0)
    ('+5.2%', '-50.0%', '+0.0%', 'x 12')
    """
    return f"x {ratio:.3g}" if ratio >= 10 else f"{100 * (ratio - 1):+z.1f}%"


def _sentence(row: "pd.Series", title: str, knobs: list[str]) -> str:
    name = configuration(row, [*NAME_COLUMNS, *knobs])
    change = between(row["ratio"], row["low"], row["high"])
    return f"{title}: {format_size(int(row['size_bytes']))} {name} {change}"


def configuration(row: "pd.Series", knobs: list[str]) -> str:
    """A configuration as text: knobs by name and value, without those that are unknown."""
    values = [
        (name, KNOB[name].text(row[name]) if name in KNOB else str(row[name])) for name in knobs
    ]
    parts = [
        value if name in NAME_COLUMNS else f"{_SHORT.get(name, name)}={value}"
        for name, value in values
        if value not in ("", "0", "auto")
    ]
    if row.get("backend_base", row["backend"]) != row["backend"]:  # matched by the problem
        base = [row[f"{name}_base"] for name in ("algo", "proto")]
        parts += ["vs", row["backend_base"], *(one for one in base if one not in ("", "library"))]
    return " ".join(parts)


def varying(rows: pd.DataFrame) -> list[str]:
    """The fewest knobs that distinguish rows of one size, operation, algorithm and protocol."""
    least = ["size_bytes", *NAME_COLUMNS]
    names = [name for name in _PROBLEM if name in rows and rows[name].nunique() > 1]
    cells = rows.groupby([*least, *names], sort=False).ngroup().to_numpy()
    for name in (name for name in _KNOBS if rows[name].nunique() > 1):
        values, _ = pd.factorize(rows[name])
        finer, _ = pd.factorize(cells * (int(values.max()) + 1) + values)
        if finer.max() > cells.max():
            names, cells = [*names, name], finer
    return names


def says_nothing(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Rows whose interval is so wide that it is no answer: a change is not shown of them."""
    wide: pd.Series[bool] = rows["high"] / rows["low"] > math.exp(2 * SAYS_NOTHING)
    return wide


def _certain(changes: Changes) -> str:
    """What is certain, and what would help where that is little."""
    rows = changes.rows
    open_rows = (rows["verdict"] == "cannot tell").to_numpy()
    if open_rows.mean() <= MOSTLY:
        return ""
    wide = int((says_nothing(rows) & open_rows).sum())
    told = [_group(one) for one in changes.called[:1]]
    facts = [
        f"certain: {'; '.join(told) or 'nothing'}",
        *([f"{counted(wide, 'interval')} say nothing and are not shown"] if wide else []),
    ]
    return f"{', '.join(facts)}; {remedy(changes, open_rows)}"


def by_change(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that changed most first."""
    change = np.abs(np.log(rows["ratio"].to_numpy(dtype=np.float64)))
    return rows.iloc[np.argsort(-change, kind="stable")]


def _losses(changes: Changes) -> list[str]:
    return [f"lost: {loss.text}" for loss in changes.losses]


def _precision(changes: Changes) -> str:
    """How fine the comparison sees, and from where it knows how far runs differ."""
    new, base = changes.runs
    if changes.is_by_curves:
        source = "as seen on machines of this kind"
    elif new == base == 1:
        source = "as seen on machines of this kind (--base A B C estimates it)"
    else:
        source = f"estimated from {new} + {base} runs"
    spread = f", repeats by {100 * changes.repeat_spread:.1f}%"
    alone = (
        "neighbouring sizes of a curve are judged together"
        if changes.is_by_curves
        else f"a row alone is called only from {percent(changes.least_row)} on, because a few rows"
        " differ far more by chance"
    )
    return (
        f"`same` means within {100 * changes.same:.3g}%; runs differ by"
        f" {100 * changes.run_spread:.1f}%{spread * math.isfinite(changes.repeat_spread)},"
        f" {source}; the median change is {percent(math.exp(changes.shift))}; {alone}"
    )


def seen_line(changes: Changes) -> str:
    """What the comparison looked at, and what it left out and why."""
    left = ", ".join(f"{count} {why}" for why, count in changes.not_compared.items())
    bands = sum(one.sizes != "" for one in changes.groups)
    return (
        f"looked at {counted(len(changes.rows), 'row')},"
        f" {counted(len(changes.groups) - bands, 'group')}, {counted(bands, 'band')};"
        f" left out: {left or 'nothing'}"
    )


def _remarks(changes: Changes) -> list[str]:
    return [f"note: {remarks}" for remarks in changes.remarks]


def _differences(changes: Changes, columns: int) -> list[str]:
    """What differs beside the numbers."""
    if not changes.differences:
        return wrapped(
            "no difference of host, device, versions, environment or ceilings in what both files"
            " record",
            columns,
        )
    texts = [f"  {name}: {new} | {base}" for name, new, base in changes.differences]
    return ["differs (new | base):", *paragraphs(texts, columns, "    ")]


def _table(
    rows: pd.DataFrame, knobs: list[str], columns: int, *, show_all: bool, is_colored: bool
) -> list[str]:
    """Rows by verdict, those that changed most first; `same` only if all are asked for."""
    shown = ("worse", "better", "cannot tell", *(["same"] if show_all else []))
    if not show_all:
        rows = rows[~((rows["verdict"] == "cannot tell") & says_nothing(rows))]
    parts = [(verdict, by_change(rows[rows["verdict"] == verdict])) for verdict in shown]
    most = None if show_all else ROWS_OF_A_VERDICT
    parts = [(verdict, part[:most]) for verdict, part in parts if len(part)]
    if not parts:
        return ["", f"{counted(len(rows), 'row')}: --all"] if len(rows) else []
    # then the algorithm shows the backend, a library's name its own choice
    has_backend = bool(rows.groupby("algo")["backend"].nunique().gt(1).any())
    if not has_backend:
        parts = [
            (
                verdict,
                part.assign(algo=part["algo"].mask(part["algo"] == "library", part["backend"])),
            )
            for verdict, part in parts
        ]
    named = [name for name in NAME_COLUMNS if name == "algo" or rows[name].nunique() > 1]
    named = [name for name in (*named, *knobs) if name != "backend" or has_backend]
    constant = " ".join(
        str(rows[name].iloc[0])
        for name in NAME_COLUMNS
        if name not in named and rows[name].nunique() == 1
    )
    cells = []
    for verdict, part in parts:
        every = int((rows["verdict"] == verdict).sum())
        cut = f", {len(part)} shown (--all)" if len(part) < every else ""
        cells.append(["", f"{verdict}: {counted(every, 'row')}{cut}", "", "", "", ""])
        for _, row in part.iterrows():
            texts = (
                format_size(int(row["size_bytes"])),
                configuration(row, named),
                format_time_us(row["time_us"]),
                format_time_us(row["time_us_base"]),
                percent(row["ratio"]),
                f"{percent(row['low'])} {percent(row['high'])}",
            )
            cells.append([_paint(text, verdict, is_colored=is_colored) for text in texts])
    heads = ("  size", constant, "  new us", " base us", " change", "interval")
    return ["", *table(heads, cells, (0, 2, 3, 4, 5), columns)]


def _paint(text: str, verdict: str, *, is_colored: bool) -> str:
    return painted(text, verdict) if is_colored else text
