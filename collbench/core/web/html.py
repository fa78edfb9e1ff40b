"""The pieces of HTML of the page. Pure; every string of a person or a file is escaped here."""

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain, islice, repeat
from typing import NamedTuple, TypeAlias

from collbench.core.web.svg import clean


class HtmlCell(NamedTuple):
    """A cell of a table. sort: what it is sorted by, if not by its text. kind: its classes, beside
    that of its column. href: a place on the page that its text leads to.
    """

    text: str
    sort: float | None = None
    kind: str = ""
    href: str = ""


Cell: TypeAlias = str | HtmlCell


def attributes(**values: str) -> str:
    """Attributes of an element; those without a value are left out, underscores stand for hyphens.

    >>> attributes(data_op='a"b', id="")
    ' data-op="a&quot;b"'
    """
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{clean(value)}"'
        for name, value in values.items()
        if value
    )


def element(name: str, text: str, **values: str) -> str:
    """An element with a text that is not trusted.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    return f"<{name}{attributes(**values)}>{clean(text)}</{name}>"


def link(text: str, href: str) -> str:
    """A link to a place on this page.

    >>> link("a", "#at=1&op=b")
    '<a href="#at=1&amp;op=b">a</a>'
    """
    return element("a", text, href=href)


def section(name: str, title: str, *parts: str) -> str:
    """A section under its title; nothing if it has no part."""
    inner = "\n".join(part for part in parts if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2'
        f' id="{name}-title">{clean(title)}</h2>\n{inner}\n</section>'
        if inner
        else ""
    )


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    kinds: Sequence[str] = (),
    ops: Iterable[str] = (),
    kind: str = "",
    label: str = "",
) -> str:
    """A table that scrolls by itself where it is too wide; the first cell of a row is a heading.

    kinds: the class of the cells of each column, the last of all that follow; a head has it if it
    is that of numbers, num. ops: of each row the operation that filters it. kind: the class of the
    table; of one called cards each cell carries its heading, so that a phone can show rows one
    below the other.
    """
    columns = list(islice(chain(kinds, repeat(kinds[-1] if kinds else "")), len(heads)))
    head = "".join(
        _cell("th", name, column if column == "num" else "", scope="col")
        for name, column in zip(heads, columns, strict=True)
    )
    names = heads if kind == "cards" else [""] * len(heads)
    lines = [
        f"<tr{attributes(data_op=op)}>"
        + "".join(
            _cell("td", cell, column, data_label=name)
            if place
            else _cell("th", cell, column, scope="row")
            for place, (cell, column, name) in enumerate(zip(cells, columns, names, strict=True))
        )
        + "</tr>"
        for cells, op in zip(rows, chain(ops, repeat("")), strict=False)
    ]
    inner = (
        f"<table{attributes(class_=kind)}>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody>\n</table>"
    )
    return (
        '<div class="scroll" tabindex="0"'
        f' role="region"{attributes(aria_label=label)}>{inner}</div>'
    )


def _cell(name: str, given: Cell, column: str, **values: str) -> str:
    cell = HtmlCell(given) if isinstance(given, str) else given
    sort_key = ""
    if cell.sort is not None:
        sort_key = ' data-v=""' if math.isnan(cell.sort) else f' data-v="{cell.sort:.6g}"'
    text = link(cell.text, cell.href) if cell.href else clean(cell.text)
    kind = f"{column} {cell.kind}".strip()
    return f"<{name}{attributes(class_=kind, **values)}{sort_key}>{text}</{name}>"


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Names and what is known of them."""
    return (
        "<dl>"
        + "".join(f"{element('dt', name)}{element('dd', text)}" for name, text in facts if text)
        + "</dl>"
    )


def embedded(data: object) -> str:
    r"""Data as JSON that no text in it can break out of.

    >>> embedded({"a": "</script>\u2028"})
    '{"a":"\\u003c/script\\u003e\\u2028"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
