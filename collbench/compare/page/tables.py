"""The tables of the page: what is best, the effects of knobs, what looks wrong, the links, and
where the numbers come from. They need no JavaScript.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from collbench.compare.baselines import nvls_of
from collbench.compare.best import Best, Summary, best_label
from collbench.compare.curves import HeatMap
from collbench.compare.doubt import doubt
from collbench.compare.join import versions_of
from collbench.compare.likeness import likeness
from collbench.compare.load import ResultFile
from collbench.compare.outliers import KIND_NAMES, suspects
from collbench.compare.tables.summary import (
    auto_text,
    busbw_text,
    counts,
    facts,
    form_heading,
    has_forms,
    interval_text,
    kinds_text,
    legend,
    next_text,
    percent_text,
    rival_text,
    speedup_text,
    time_text,
)
from collbench.core.rows import label, titles
from collbench.core.text import texts_of
from collbench.core.units import format_size
from collbench.core.verdict import Interval
from collbench.core.web.html import HtmlCell, attributes, element, facts_list, section, table
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from collbench.machine.views.labels import CLASSES, ends, hop, labels, rate_text

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
        (
            "",
            [
                HtmlCell(named[workload]),
                *[HtmlCell(one.get(name, ""), kind="wrap") for name in order],
            ],
        )
        for workload, one in known.items()
    ]
    meaning = [line.removesuffix(".") for line in legend(summary) if line.startswith("vs ")]
    if "effect" in names:
        meaning.append("effect: time of the slowest value over that of the fastest, the rest fixed")
    if not rows:
        return ""
    hint = element("p", "; ".join(meaning) + ".", class_="hint") if meaning else ""
    cut = cut_hint(len(shown), len(summary.best), "workloads")
    heads = [HtmlCell("what"), *[HtmlCell(_FACT_NAMES.get(name, name)) for name in order]]
    grid = table(heads, rows, kind="cards", label="At a glance")
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
        (workload, size, best)
        for workload, sizes in summary.best.items()
        for size, best in sizes.items()
    ][:ROWS_ON_PAGE]
    columns: dict[str, Callable[[Best], HtmlCell]] = {
        "time us": lambda best: _cell(time_text(best), best.time_us),
        "busbw GB/s": lambda best: _cell(busbw_text(best), best.busbw_gbs),
    }
    if any(best.of_max is not None for best in every):
        name = "of max" if any(best.has_floor for best in every) else "of ceiling"
        columns[name] = lambda best: _cell(percent_text(best.of_max), best.of_max)
    if any(best.gain is not None for best in every):
        columns["next"] = lambda best: _cell(next_text(best), _median(best.gain))
    if any(best.excess is not None for best in every):
        columns["auto"] = lambda best: _cell(auto_text(best), _median(best.excess))
    for peer in summary.peers:
        columns[f"vs {peer}"] = partial(_speedup_cell, peer)
        if has_forms(summary, peer):
            columns[f"{form_heading(peer)} of {peer}"] = partial(_rival_cell, peer)
    heads = [HtmlCell("what"), HtmlCell("size", kind="num"), HtmlCell("best")]
    heads += [HtmlCell(name, kind="num") for name in columns]
    has_backend = len({best.row.backend for best in every}) > 1
    rows = [
        (
            workload.op,
            [
                HtmlCell(named[workload], kind="tight"),
                HtmlCell(format_size(size), sort=size, kind="num"),
                HtmlCell(
                    text=best_label(best, summary.knobs, has_backend=has_backend), kind="name"
                ),
                *[cell(best) for cell in columns.values()],
            ],
        )
        for workload, size, best in shown
    ]
    return section(
        "best",
        "Best of each size",
        FOLLOWS,
        element("p", " ".join(legend(summary)), class_="hint"),
        cut_hint(len(shown), len(every), "rows"),
        table(heads, rows, kind="sortable", label="Best of each size"),
    )


def _median(ratio: Interval | None) -> float | None:
    return None if ratio is None else ratio.median


def _cell(text: str, value: float | None) -> HtmlCell:
    """A number; what is not known sorts last."""
    return HtmlCell(text, sort=math.nan if value is None else value, kind="num")


def _speedup_cell(peer: str, best: Best) -> HtmlCell:
    known = best.peers.get(peer)
    if known is None:
        return _cell("-", None)
    parts = (speedup_text(best, peer), interval_text(best, peer).removesuffix("-"))
    return _cell(" ".join(filter(None, parts)), known.median)


def _rival_cell(peer: str, best: Best) -> HtmlCell:
    return HtmlCell(rival_text(best, peer))


def knobs(maps: Sequence[HeatMap]) -> str:
    """Heat maps as tables: how much of the best speed each value of a knob reaches."""
    figures = []
    for one in maps[:MAPS_ON_PAGE]:
        step = math.ceil(len(one.sizes) / SIZES_OF_MAP)
        heads = [HtmlCell(one.knob), *[HtmlCell(format_size(size)) for size in one.sizes[::step]]]
        rows = [
            ("", [HtmlCell(value), *map(_share, shares[::step])])
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
        return section(
            "odd",
            "Rows that look wrong",
            element(
                "p",
                "None: data right, times on smooth curves, repeats agree as far as there are any.",
            ),
        )
    more = (
        f"; the first {SUSPECTS_ON_PAGE} are shown, collbench compare --all shows the others"
        if len(strange) > SUSPECTS_ON_PAGE
        else ""
    )
    heads = [
        HtmlCell("what"),
        HtmlCell("size", kind="num"),
        HtmlCell("configuration"),
        HtmlCell("kind"),
        HtmlCell("why"),
    ]
    rows = [
        (
            "",
            [
                HtmlCell(one.row.op),
                HtmlCell(format_size(one.row.size_bytes), sort=one.row.size_bytes, kind="num"),
                HtmlCell(label(one.row, summary.knobs, has_backend=True), kind="name"),
                HtmlCell(KIND_NAMES[one.kind], kind="tight"),
                HtmlCell(one.why, kind="wrap"),
            ],
        )
        for one in strange[:SUSPECTS_ON_PAGE]
    ]
    return section(
        "odd",
        "Rows that look wrong",
        element("p", f"{kinds_text(strange)}{more}."),
        table(heads, rows, kind="sortable", label="Rows that look wrong"),
    )


def links(loaded: ResultFile) -> str:
    """The link matrix of the most similar machine, and the links that limit rows."""
    limits = Counter(row.limit for row in loaded.records if row.limit)
    named = ", ".join(f"{name} ({count} rows)" for name, count in limits.most_common(6))
    parts = (
        [element("p", f"Links that limit rows, as the file has them: {named}.")] if named else []
    )
    if loaded.topology is not None:
        return section(
            "links",
            "Links",
            element("p", "The machine that was measured, as it was found then."),
            matrix(loaded.topology),
            *[element("p", f"{note}.", class_="hint") for note in loaded.topology.notes],
            *parts,
        )
    near = likeness(loaded.frame)
    if near is None:
        unknown = (
            "The results do not describe the links of the machine, and no described machine has its"
            " GPUs."
        )
        return section("links", "Links", element("p", unknown, class_="note"), *parts)
    same = "name and number" if near.is_same else "model, though not the same machine"
    origin_text = (
        "The results do not describe the links. This is the described machine"
        f" {near.name} ({near.topology.name}), which has GPUs of that {same}."
        " collbench topo describes the real one."
    )
    notes = [
        element("p", f"Of {near.name}: {note}.", class_="hint") for note in near.topology.notes
    ]
    return section(
        "links",
        "Links",
        element("p", origin_text, class_="note"),
        matrix(near.topology),
        *notes,
        *parts,
    )


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
            kind = (
                "self"
                if text == "X" or not rate or not top
                else f"h{step(_LOW + (1 - _LOW) * 0.95 * math.sqrt(rate / top))}"
            )
            cells.append(
                HtmlCell(
                    text=text if text == "X" or rate is None else f"{text}\n{rate_text(rate)}",
                    kind=kind,
                )
            )
        rows.append(("", cells))
    heads = [HtmlCell(""), *[HtmlCell(named[node.id]) for node in nodes]]
    classes = "; ".join(f"{name}: {meaning}" for name, meaning in CLASSES.items() if name in seen)
    slow = {
        hop(topology, way)
        for line in paths
        for way in line
        if way.usable_gbs is not None and way.usable_gbs == top
    }
    hint = (
        f"Class of the path, and GB/s per direction that stores of a kernel get over it. {classes}."
        if slow
        else f"Class of the path. {classes}."
    )
    return table(heads, rows, kind="matrix", label="Link matrix") + element(
        "p", hint, class_="hint"
    )


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
