"""The tables of the page: what is best, the effects of knobs, what looks wrong, the links, and
where the numbers come from. They need no JavaScript.
"""

from pathlib import Path

from collbench.compare.best import Summary
from collbench.compare.doubt import doubt
from collbench.compare.join import versions_of
from collbench.compare.load import ResultFile
from collbench.compare.outliers import KIND_NAMES, suspects
from collbench.compare.tables.summary import (
    BEST_OF,
    best_columns,
    counts,
    facts,
    kinds_text,
    legend,
    peer_legend,
)
from collbench.core.rows import label, titles
from collbench.core.text import texts_of
from collbench.core.units import format_size
from collbench.core.web.html import Cell, HtmlCell, element, facts_list, section, table

# A page is to be read: what is more is in the terminal's tables.
SUSPECTS_ON_PAGE = 200
ROWS_ON_PAGE = 1000
WORKLOADS_ON_PAGE = 60
_FACT_NAMES = {
    "peak busbw": "peak bus bandwidth",
    "lowest latency": "lowest latency",
    "time a message": "time a message",
    "algorithm": "best algorithm",
    "protocol": "best protocol",
}
FOLLOWS = '<p class="follows" hidden></p>'  # where the script names the operation that is shown


def doubts(summary: Summary) -> str:
    """That the rows do not show what is best, why, and what to do; nothing where they do."""
    known = doubt(summary)
    if known is None:
        return ""
    return section(
        "doubt",
        "Cannot tell" if not any(best.is_certain for best in summary.every_best) else "Noise",
        element("p", known.headline, class_="note"),
        facts_list([("Why", "; ".join(known.reasons)), ("What to do", "; ".join(known.remedies))]),
    )


def glance(summary: Summary) -> str:
    """The facts of every workload, in the words of the terminal."""
    named = titles(summary.best)
    shown = list(summary.best)[:WORKLOADS_ON_PAGE]
    known = {workload: facts(summary, workload) for workload in shown}
    names = list(dict.fromkeys(name for one in known.values() for name in one))
    order = sorted(names, key=lambda name: name not in _FACT_NAMES)  # those of all workloads first
    rows = [
        [named[workload], *[one.get(name, "") for name in order]] for workload, one in known.items()
    ]
    meaning = [peer_legend(summary, peer).removesuffix(".") for peer in summary.peers]
    if "effect" in names:
        meaning.append("effect: time of the slowest value over that of the fastest, the rest fixed")
    if not rows:
        return ""
    hint = element("p", "; ".join(meaning) + ".", class_="hint") if meaning else ""
    cut = cut_hint(len(shown), len(summary.best), "workloads")
    heads = ["what", *[_FACT_NAMES.get(name, name) for name in order]]
    grid = table(heads, rows, kinds=("", "wrap"), kind="cards", label="At a glance")
    return section("glance", "At a glance", hint, cut, grid)


def cut_hint(shown: int, every: int, what: str) -> str:
    """That the page shows the first of something only; nothing where it shows all."""
    if shown >= every:
        return ""
    text = f"The first {shown} of {every} {what} are shown; collbench compare --all lists them all."
    return element("p", text, class_="hint")


def best_of_sizes(summary: Summary) -> str:
    """The best configuration of every workload and size."""
    every = summary.every_best
    if not every:
        return ""
    named = titles(summary.best)
    shown = [
        (workload, best) for workload, sizes in summary.best.items() for best in sizes.values()
    ]
    shown = shown[:ROWS_ON_PAGE]
    columns = best_columns(summary, every, is_wide=True)
    rows: list[list[Cell]] = [
        [named[workload], *[HtmlCell(one.text(best), one.value(best)) for one in columns]]
        for workload, best in shown
    ]
    return section(
        "best",
        "Best of each size",
        FOLLOWS,
        element("p", " ".join([BEST_OF, *legend(summary, summary.every_best)]), class_="hint"),
        cut_hint(len(shown), len(every), "rows"),
        table(
            ["what", *[" ".join(one.head.split()) for one in columns]],
            rows,
            kinds=["tight", *["num" if one.is_number else "name" for one in columns]],
            ops=[workload.op for workload, _ in shown],
            kind="sortable",
            label="Best of each size",
        ),
    )


def odd(summary: Summary) -> str:
    """Rows that look wrong, worst first."""
    strange = suspects(summary)
    if not strange:
        text = "None: data right, times on smooth curves, repeats agree as far as there are any."
        return section("odd", "Rows that look wrong", element("p", text))
    more = (
        f"; the first {SUSPECTS_ON_PAGE} are shown, collbench compare --all shows the others"
        if len(strange) > SUSPECTS_ON_PAGE
        else ""
    )
    rows = [
        (
            one.row.op,
            HtmlCell(format_size(one.row.size_bytes), one.row.size_bytes),
            label(one.row, summary.knobs, has_backend=True),
            KIND_NAMES[one.kind],
            one.why,
        )
        for one in strange[:SUSPECTS_ON_PAGE]
    ]
    grid = table(
        ("what", "size", "configuration", "kind", "why"),
        rows,
        kinds=("", "num", "name", "tight", "wrap"),
        kind="sortable",
        label="Rows that look wrong",
    )
    return section(
        "odd", "Rows that look wrong", element("p", f"{kinds_text(strange)}{more}."), grid
    )


def origin(loaded: ResultFile, summary: Summary) -> str:
    """Where the numbers come from, as far as the file shows."""
    frame = loaded.frame
    columns = ("device", "host", "ranks", "hosts", "group", "run", "dtype")
    one = {name: ", ".join(texts_of(frame[name])) for name in columns}
    times = texts_of(frame["timestamp"])
    known = [
        ("File", f"{Path(loaded.name).name}, {loaded.kind}"),
        ("Rows", counts(summary.rows).partition(";")[0]),
        ("Device", one["device"] or "not in the file"),
        ("Host", one["host"] or "not in the file"),
        ("Ranks", one["ranks"]),
        ("Hosts", one["hosts"]),
        ("Processes", one["group"]),
        ("Element types", one["dtype"]),
        ("Runs", one["run"]),
        ("Measured", " to ".join(dict.fromkeys((*times[:1], *times[-1:]))) or "not in the file"),
    ]
    versions = [(name, ", ".join(sorted(values))) for name, values in versions_of(frame).items()]
    remarks = [element("p", f"Note: {text}.", class_="note") for text in loaded.remarks]
    return "".join(remarks) + facts_list([*known, *versions])
