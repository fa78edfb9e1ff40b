"""The tables of the page: what is best, the effects of knobs, what looks wrong, the links, and
where the numbers come from. They need no JavaScript.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from collbench.compare.baselines import nvls_of
from collbench.compare.best import Summary
from collbench.compare.curves import HeatMap
from collbench.compare.doubt import doubt
from collbench.compare.join import versions_of
from collbench.compare.likeness import likeness
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
from collbench.core.web.html import Cell, HtmlCell, attributes, element, facts_list, section, table
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from collbench.machine.views.labels import CLASSES, ends, labels, rate_text

# A page is to be read: what is more is in the terminal's tables.
SUSPECTS_ON_PAGE = 200
ROWS_ON_PAGE = 1000
WORKLOADS_ON_PAGE = 60
MAPS_ON_PAGE = 60
SIZES_OF_MAP = 64
STEPS = 8  # of the heat maps' colours in the style
_FACT_NAMES = {
    "peak busbw": "peak bus bandwidth",
    "lowest latency": "lowest latency",
    "time a message": "time a message",
    "algorithm": "best algorithm",
    "protocol": "best protocol",
}
FOLLOWS = '<p class="follows" hidden></p>'  # where the script names the operation that is shown
_LOW = 0.3  # shares up to it are as pale as can be


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
            ["what", *[one.head.strip().replace("busbw", "busbw GB/s") for one in columns]],
            rows,
            kinds=["tight", *["num" if one.is_number else "name" for one in columns]],
            ops=[workload.op for workload, _ in shown],
            kind="sortable",
            label="Best of each size",
        ),
    )


def knobs(maps: Sequence[HeatMap]) -> str:
    """Heat maps as tables: how much of the best speed each value of a knob reaches."""
    figures = []
    for one in maps[:MAPS_ON_PAGE]:
        step = math.ceil(len(one.sizes) / SIZES_OF_MAP)
        heads = [one.knob, *[format_size(size) for size in one.sizes[::step]]]
        rows: list[list[Cell]] = [
            [value, *map(_share, shares[::step])]
            for value, shares in zip(one.values, one.share, strict=True)
        ]
        every = f", {len(heads) - 1} of {len(one.sizes)} sizes" if step > 1 else ""
        label = f"{one.group.title}: {one.knob}{every}"
        caption = element("figcaption", label)
        start = f"<figure{attributes(data_op=one.group.workload.op)}>"
        figures.append(f"{start}{caption}{table(heads, rows, kind='heat', label=label)}</figure>")
    hint = element(
        "p",
        "Percent of the fastest speed at that size that each value reaches, the rest free; 100 is"
        " the fastest as measured, certain or not.",
        class_="hint",
    )
    if figures:
        return section(
            "knobs",
            "The effect of each choice",
            FOLLOWS,
            hint,
            cut_hint(len(figures), len(maps), "maps"),
            f'<div class="maps">{"".join(figures)}</div>',
        )
    return ""


def _share(share: float) -> HtmlCell:
    if share != share:
        return HtmlCell("")
    return HtmlCell(f"{100 * share:.0f}", kind=f"h{step(share)}")


def step(share: float) -> int:
    """The class of a share's colour: 0 is pale, STEPS - 1 the best.

    >>> step(0.1), step(0.65), step(1.0)
    (0, 4, 7)
    """
    return max(0, min(STEPS - 1, math.floor(STEPS * (share - _LOW) / (1 - _LOW))))


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


def links(loaded: ResultFile) -> str:
    """The link matrix of the machine, or of the most similar one, and the links that limit rows."""
    topology, near = loaded.topology, None
    said, kind = "The machine that was measured, as it was found then.", ""
    if topology is None:
        near, kind = likeness(loaded.frame), "note"
        said = (
            "The results do not describe the links of the machine, and no described machine has its"
            " GPUs."
        )
    if near is not None:
        topology = near.topology
        same = "name and number" if near.is_same else "model, though not the same machine"
        said = (
            "The results do not describe the links. This is the described machine"
            f" {near.name} ({topology.name}), which has GPUs of that {same}."
            " collbench topo describes the real one."
        )
    parts = [element("p", said, class_=kind)]
    if topology is not None:
        of = "" if near is None else f"Of {near.name}: "
        parts.append(matrix(topology))
        parts += [element("p", f"{of}{note}.", class_="hint") for note in topology.notes]
    limits = Counter(row.limit for row in loaded.records if row.limit)
    if limits:
        named = ", ".join(f"{name} ({count} rows)" for name, count in limits.most_common(6))
        parts.append(element("p", f"Links that limit rows, as the file has them: {named}."))
    return section("links", "Links", *parts)


def matrix(topology: Topology) -> str:
    """Every pair of GPUs and NICs: the class of the path, and its rate in GB/s per direction."""
    nodes, named = ends(topology), labels(topology)
    paths = [[path(topology, row.id, column.id) for column in nodes] for row in nodes]
    top = max((way.usable_gbs or 0.0 for row in paths for way in row), default=0.0)
    rows, seen = [], set()
    for node, line in zip(nodes, paths, strict=True):
        cells = [HtmlCell(named[node.id])]
        for way in line:
            text, rate = way.label, way.usable_gbs
            seen.add("NV#" if way.kind == "NVL" else text)
            kind = "self"
            if text != "X" and rate and top:
                kind = f"h{step(_LOW + (1 - _LOW) * 0.95 * math.sqrt(rate / top))}"
            if text != "X" and rate is not None:
                text += f"\n{rate_text(rate)}"
            cells.append(HtmlCell(text, kind=kind))
        rows.append(cells)
    heads = ["", *[named[node.id] for node in nodes]]
    classes = "; ".join(f"{name}: {meaning}" for name, meaning in CLASSES.items() if name in seen)
    rates = ", and GB/s per direction that stores of a kernel get over it" if top else ""
    hint = element("p", f"Class of the path{rates}. {classes}.", class_="hint")
    return table(heads, rows, kind="matrix", label="Link matrix") + hint


def caption(loaded: ResultFile) -> str:
    """When and on what the curves were measured, and NCCL's version with the state of NVLS."""
    frame = loaded.frame
    days = sorted({text[:10] for text in texts_of(frame["timestamp"])})
    parts = [" to ".join(dict.fromkeys((*days[:1], *days[-1:]))), *texts_of(frame["device"])]
    if nccl := versions_of(frame).get("nccl"):
        texts = texts_of(frame["versions"][frame["backend"] == "nccl"])
        states = ", ".join(sorted(set(map(nvls_of, texts))))
        parts.append(f"NCCL {', '.join(sorted(nccl))}" + f" with NVLS {states}" * bool(states))
    return "; ".join(filter(None, parts))


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
