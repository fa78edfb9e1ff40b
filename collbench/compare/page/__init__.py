"""One page of HTML with everything that one or two files of results show. It carries its style,
script and data, and requests nothing.

A policy in the page forbids every request; style and script are named by their hashes, so that
nothing else can run. Texts of a file stand in it as text only: escaped in the tables, and in the
data as JSON without any character that could end its element.
"""

from collections.abc import Sequence
from pathlib import Path

from collbench import __version__
from collbench.compare.best import configurations, summarise
from collbench.compare.changes import compare
from collbench.compare.curves import curves_of
from collbench.compare.load import ResultFile
from collbench.compare.page import tables
from collbench.compare.page.answers import Places, answers
from collbench.compare.page.changes import changed, changed_rows, opening
from collbench.compare.page.data import Entry, Opening, data_element, page_data
from collbench.compare.tables.summary import counts, measured_text
from collbench.core.text import counted, texts_of
from collbench.core.web.html import element, section
from collbench.core.web.parts import document, part, style
from collbench.core.web.svg import clean

_NO_POINT: Opening = {"axis": "", "curve": -1, "size": 0}


def page(loaded: ResultFile, base: "ResultFile | None" = None, *, is_forced: bool = False) -> str:
    """The page of one file, or of one and its base. Raises UsageError as compare does."""
    frame, summary = loaded.frame, summarise(loaded.records)
    # where the curves of the first file are: in the order of its configurations
    places = Places(summary, {key: place for place, key in enumerate(configurations(summary))})
    answered, first = answers(summary, places)
    before: list[str] = []
    opened, rows = first or _NO_POINT, ""
    parts = [tables.origin(loaded, summary)]
    files = {"new": curves_of(summary)}
    name = Path(loaded.name).name
    lead = f"{name}: {counts(summary.rows).partition(';')[0]}"
    if base is not None:
        base_name = Path(base.name).name
        changes = compare(frame, base.frame, is_forced=is_forced)
        base_summary = summarise(base.records)
        before.append(changed(changes, (name, base_name), places))
        rows = changed_rows(changes, places)
        opened = opening(changes, places) or opened
        parts = [element("h3", "new"), *parts, element("h3", "base")]
        parts.append(tables.origin(base, base_summary))
        files["base"] = curves_of(base_summary)
        lead += f"; against {base_name}, {counted(len(base.records), 'row')}."
        lead += " The tables are of the former."
    after = [
        answered,
        tables.doubts(summary),
        rows,
        tables.glance(summary),
        tables.best_of_sizes(summary),
        tables.odd(summary),
        section("origin", "Where the numbers come from", *parts),
    ]
    rival = summary.peers[0] if summary.peers else ""
    data, caption = page_data(files, rival, opened), measured_text(loaded.records)
    if base is not None:
        caption = f"new: {caption}. base: {measured_text(base.records)}"
    return _filled(_title(loaded), lead, caption, before, after, data)


def _title(loaded: ResultFile) -> str:
    """What was measured on what."""
    devices = texts_of(loaded.frame["device"])
    ops = list(dict.fromkeys(row.op for row in loaded.records))
    title = ops[0] if len(ops) == 1 else f"{len(ops)} collectives"
    return f"{title} on {', '.join(devices)}" if devices else title


def _filled(
    title: str, lead: str, caption: str, before: Sequence[str], after: Sequence[str], data: Entry
) -> str:
    look = style()
    script = part("page.js")
    without = (
        "The curves need JavaScript, which is off here. Everything else is on this page as tables."
    )
    fallback = (
        f"<noscript>{element('p', without, class_='note')}</noscript>"
        if data["curves"]
        else element("p", "None: no row has a time.")
    )
    text = document(
        "page.html",
        title,
        look,
        script,
        lead=clean(lead),
        caption=clean(caption),
        before="\n".join(filter(None, before)),
        curves=fallback,
        after="\n".join(filter(None, after)),
        footer=element(
            "span",
            f"Made by collbench {__version__}. Bandwidths are decimal GB/s, sizes powers of 1024"
            " where they have a suffix.",
        ),
        data=data_element(data),
    )
    return text.encode("utf-8", "replace").decode()  # a file's name may hold what is no text
