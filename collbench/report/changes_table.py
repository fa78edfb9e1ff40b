"""What changed between two sweeps, for a screen: the answers first, then what was assumed and what differs around the numbers, then the rows."""

import math

import pandas as pd

from collbench.compare.changes import VERDICTS, Change, Changes
from collbench.units import format_size, format_time_us

WORST = 5  # rows among the answers
SHOWN = 20  # rows of the table, unless all are asked for
_COLORS = {"better": "\033[32m", "worse": "\033[31m", "cannot tell": "\033[33m"}
_OFF = "\033[0m"
_WORDS = {"better": "faster", "worse": "slower"}
_KNOBS = ("channels", "threads", "ctas", "buffsize", "slots", "chunk", "slices", "unroll", "transport", "direct", "p2p", "reload", "specialize")
_PROBLEM = ("ranks", "dtype", "redop", "root", "placement", "group", "conditions")
_SIZES = {"buffsize", "chunk"}


def lines(changes: Changes, titles: tuple[str, str], columns: int = 80, *, show_all: bool = False, is_colored: bool = False) -> list[str]:
    """The whole report of two files, named new and base by titles."""
    rows = changes.rows
    found = _wrapped(f"new {titles[0]}, base {titles[1]}; ratios are times, new / base: above 1 is slower", columns)
    if not len(rows):
        return [*found, "nothing to compare: no row of both files measured the same thing", *_not_compared(changes, columns), *_said(changes, columns)]
    found += _wrapped(f"{len(rows)} rows compared: " + ", ".join(f"{changes.count(verdict)} {verdict}" for verdict in VERDICTS), columns)
    found += _groups(changes, is_colored=is_colored)
    knobs = _varying(rows)
    for verdict, title in (("worse", "worst"), ("better", "best")):
        picked = _by_change(rows[rows["verdict"] == verdict]).head(WORST)
        found += [_paint(_sentence(row, title, knobs, columns), verdict, is_colored=is_colored) for _, row in picked.iterrows()]
    found += [*_not_compared(changes, columns), *_precision(changes, columns), *_said(changes, columns), *_differences(changes, columns)]
    return [*found, *_table(rows, knobs, columns, show_all=show_all, is_colored=is_colored)]


def _groups(changes: Changes, *, is_colored: bool) -> list[str]:
    """Algorithms that changed as a whole; the parts of one that did only where they differ from it."""
    told = {one.names: one for one in changes.groups if one.verdict in _WORDS}
    found = []
    for names, one in told.items():
        if not any(other is not one and set(other.names) < set(names) and other.verdict == one.verdict for other in told.values()):
            text = f"{' '.join(names)}: {_WORDS[one.verdict]} as a whole, {_percent(one.ratio)} ({_range(one)}, {one.rows} rows)"
            found.append(_paint(text, one.verdict, is_colored=is_colored))
    return found


def _range(one: Change) -> str:
    return f"{_percent(one.low)} to {_percent(one.high)}"


def _percent(ratio: float) -> str:
    """A ratio as a change.

    >>> _percent(1.052), _percent(0.5), _percent(12.0)
    ('+5.2%', '-50.0%', 'x 12')
    """
    return f"x {ratio:.3g}" if ratio >= 10 else f"{100 * (ratio - 1):+.1f}%"


def _sentence(row: "pd.Series", title: str, knobs: list[str], columns: int) -> str:
    text = f"{title}: {format_size(int(row['size_bytes']))} {row['op']} {_configuration(row, knobs)} {_percent(row['ratio'])} "
    text += f"({_percent(row['low'])} to {_percent(row['high'])})"
    return text if len(text) <= columns else text[: columns - 3] + "..."


def _configuration(row: "pd.Series", knobs: list[str]) -> str:
    """Backend, algorithm, protocol and the knobs that take several values."""
    parts = [str(row[name]) for name in ("backend", "algo", "proto") if row[name]]
    parts += [f"{name}={format_size(int(row[name])) if name in _SIZES else row[name]}" for name in knobs if str(row[name]) not in ("", "0", "auto")]
    return " ".join(parts)


def _varying(rows: pd.DataFrame) -> list[str]:
    """The knobs that tell rows of one size, operation, algorithm and protocol apart, fewest first; more than needed are left out."""
    least = ["size_bytes", "op", "backend", "algo", "proto"]
    found = [name for name in _PROBLEM if name in rows and rows[name].nunique() > 1]
    together = int((~rows.duplicated([*least, *found])).sum())
    for name in _KNOBS:
        apart = int((~rows.duplicated([*least, *found, name])).sum())
        if apart > together:
            found, together = [*found, name], apart
    return found


def _by_change(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(_far=rows["ratio"].map(lambda ratio: -abs(math.log(ratio)))).sort_values("_far", kind="stable").drop(columns="_far")


def _not_compared(changes: Changes, columns: int) -> list[str]:
    if not changes.not_compared:
        return []
    text = "not compared: " + ", ".join(f"{count} {why}" for why, count in changes.not_compared.items())
    failed = f"; {changes.new_failures} that were right in base are wrong or failed" if changes.new_failures else ""
    return _wrapped(text + failed, columns)


def _precision(changes: Changes, columns: int) -> list[str]:
    """How fine the comparison sees, and what it assumes."""
    told = [f"same: within {100 * changes.resolution:.1f}%"]
    told.append("no repeats: spreads are those of other rows" if math.isnan(changes.repeat_spread) else f"a repeat spreads {100 * changes.repeat_spread:.1f}%")
    told.append(f"between runs {100 * changes.between_spread:.1f}% more")
    told.append(f"shared by all {100 * changes.drift:+.1f}%, put down to drift")
    return _wrapped("; ".join(told), columns)


def _said(changes: Changes, columns: int) -> list[str]:
    return [line for said in changes.said for line in _wrapped(f"note: {said}", columns)]


def _differences(changes: Changes, columns: int) -> list[str]:
    """What differs beside the numbers."""
    if not changes.differences:
        return ["same host, device, versions, environment and ceilings"]
    return ["differs (new | base):", *[line for name, new, base in changes.differences for line in _wrapped(f"  {name}: {new} | {base}", columns, "    ")]]


def _table(rows: pd.DataFrame, knobs: list[str], columns: int, *, show_all: bool, is_colored: bool) -> list[str]:
    told = rows if show_all else _by_change(rows[rows["verdict"] != "same"])
    if not show_all:
        order = {verdict: place for place, verdict in enumerate(("worse", "better", "cannot tell"))}
        told = told.assign(_place=told["verdict"].map(order)).sort_values("_place", kind="stable").head(SHOWN)
    if not len(told):
        return []
    fixed = 6 + 2 + 9 + 2 + 9 + 2 + 6 + 2 + 15 + 2 + 11
    names = [f"{row['op']} {_configuration(row, knobs)}" for _, row in told.iterrows()]
    width = max(16, min(max(map(len, names)), columns - fixed - 2))
    heading = f"{'size':>6}  {'what':<{width}}  {'new us':>9}  {'base us':>9}  {'ratio':>6}  {'interval':<15}  verdict"
    found = ["", heading]
    for name, (_, row) in zip(names, told.iterrows(), strict=True):
        interval = f"{row['low']:.3f}-{row['high']:.3f}"
        times = f"{format_time_us(row['time_us']):>9}  {format_time_us(row['time_us_base']):>9}"
        cells = f"{format_size(int(row['size_bytes'])):>6}  {_cut(name, width)}  {times}  "
        found.append(_paint(f"{cells}{row['ratio']:>6.3f}  {interval:<15}  {row['verdict']}", row["verdict"], is_colored=is_colored))
    left = len(rows) - len(told)
    return [*found, f"{left} more rows: --all" if left and not show_all else f"{len(told)} rows"]


def _cut(name: str, width: int) -> str:
    return f"{name:<{width}}" if len(name) <= width else name[: width - 2] + ".."


def _paint(text: str, verdict: str, *, is_colored: bool) -> str:
    return f"{_COLORS[verdict]}{text}{_OFF}" if is_colored and verdict in _COLORS else text


def _wrapped(text: str, columns: int, indent: str = "  ") -> list[str]:
    """Lines of at most so many columns."""
    found, line = [], ""
    for word in text.split(" "):
        if line.strip() and len(line) + 1 + len(word) > columns:
            found.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line or not word else word
    return [*found, line]
