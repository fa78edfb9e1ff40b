"""The tables of the page: what is best, what knobs are worth, what looks wrong, the wires, where
the numbers come from. They need no JavaScript.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.analysis.best import Answers, Winner
from collbench.analysis.curves import HeatMap
from collbench.analysis.join import versions_of
from collbench.analysis.likeness import likeness
from collbench.analysis.outliers import suspects
from collbench.analysis.rows import label, titles
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from collbench.report.page.html import Cell, attributes, element, facts_list, section, table
from collbench.report.tables.best import counts, excess, facts, legend, times_as_long
from collbench.report.topology.words import CLASSES, ends, hop, labels, rate_text
from collbench.util.units import format_rate, format_size, format_time_us

if TYPE_CHECKING:
    from collbench.analysis.load import Loaded

NAN = math.nan
SHOWN = 200  # suspicious rows; a page is to be read
STEPS = 8  # of the heat maps' colours in the style
_TITLES = {
    "at most": "highest bus bandwidth",
    "at least": "lowest time",
    "algorithm": "best algorithm",
    "protocol": "best protocol",
}
FOLLOWS = '<p class="follows" hidden></p>'  # where the script tells which operation it left in
_LOW = 0.3  # shares up to it are as pale as can be


def glance(found: Answers) -> str:
    """Of every problem the highest bandwidth, the lowest time, peers and crossovers, as the
    terminal says them.
    """
    named = titles(found.winners)
    said = {problem: facts(found, problem, sizes) for problem, sizes in found.winners.items()}
    titled = list(dict.fromkeys(title for one in said.values() for title in one))
    order = sorted(titled, key=lambda title: title not in _TITLES)  # those of all problems first
    rows = [
        (
            "",
            [
                Cell(text=named[problem]),
                *[Cell(text=" ".join(one.get(name, ("",))), kind="wrap") for name in order],
            ],
        )
        for problem, one in said.items()
    ]
    meaning = [
        f"x {peer}: the time of {peer}'s own choice over that of our best" for peer in found.peers
    ]
    meaning += (
        ["worth: time of the worst value over that of the best, the rest fixed"]
        if "worth" in titled
        else []
    )
    hint = element("p", "; ".join(meaning) + ".", class_="hint") if meaning else ""
    heads = [Cell(text="what"), *[Cell(text=_TITLES.get(name, name)) for name in order]]
    return (
        section(
            "glance", "At a glance", hint, table(heads, rows, kind="cards", label="At a glance")
        )
        if rows
        else ""
    )


def best(found: Answers) -> str:
    """The best configuration of every problem and size."""
    every = [
        (problem, size, one)
        for problem, sizes in found.winners.items()
        for size, one in sizes.items()
    ]
    if not every:
        return ""
    named = titles(found.winners)
    has_percent, has_next = (
        any(one.percent is not None for *_, one in every),
        any(one.gain is not None for *_, one in every),
    )
    has_auto = any(one.excess is not None for *_, one in every)
    names = [
        "what",
        "size",
        "best",
        "time us",
        "busbw GB/s",
        *["of ceiling"] * has_percent,
        *["next"] * has_next,
        *["auto"] * has_auto,
    ]
    heads = [
        Cell(text=name, kind="" if name in ("what", "best") else "num")
        for name in [*names, *[f"x {peer}" for peer in found.peers]]
    ]
    has_backend = len({one.row.backend for *_, one in every}) > 1
    rows = []
    for problem, size, one in every:
        cells = [
            Cell(text=named[problem], kind="tight"),
            Cell(text=format_size(size), sort=size, kind="num"),
        ]
        cells += [
            Cell(text=label(one.row, found.asked, has_backend=has_backend), kind="name"),
            *_numbers(one),
        ]
        cells += [_percent(one)] * has_percent
        cells += [
            Cell(
                text=excess(one.gain, is_clear=one.is_clear).strip(),
                sort=one.gain.median if one.gain else NAN,
                kind="num",
            )
        ] * has_next
        cells += [
            Cell(
                text=excess(one.excess, is_clear=True).strip(),
                sort=one.excess.median if one.excess else NAN,
                kind="num",
            )
        ] * has_auto
        for peer in found.peers:
            told = one.peers.get(peer)
            text = " ".join(
                times_as_long(told, is_wide=told is not None and told.low == told.low).split()
            )
            cells.append(
                Cell(text=text if told else "-", sort=told.median if told else NAN, kind="num")
            )
        rows.append((problem.op, cells))
    hints = element(
        "p",
        " ".join(line if line.endswith(".") else f"{line}." for line in legend(found)),
        class_="hint",
    )
    return section(
        "best",
        "Best of each size",
        FOLLOWS,
        hints,
        table(heads, rows, kind="sortable", label="Best of each size"),
    )


def _numbers(one: Winner) -> list[Cell]:
    mark = "*" if not one.is_held_out and one.rows > 1 else ""
    rate = (
        Cell(text="-", sort=NAN, kind="num")
        if one.busbw_gbs is None
        else Cell(text=format_rate(one.busbw_gbs), sort=one.busbw_gbs, kind="num")
    )
    return [Cell(text=format_time_us(one.time_us) + mark, sort=one.time_us, kind="num"), rate]


def _percent(one: Winner) -> Cell:
    known = one.percent is not None
    return Cell(
        text=f"{one.percent:.0f}%" if known else "-", sort=one.percent if known else NAN, kind="num"
    )


def knobs(maps: Sequence[HeatMap]) -> str:
    """Heat maps as tables: how much of the best speed each value of a knob reaches."""
    figures = []
    for one in maps:
        heads = [Cell(text=one.knob), *[Cell(text=format_size(size)) for size in one.sizes]]
        rows = [
            ("", [Cell(text=value), *map(_share, shares)])
            for value, shares in zip(one.values, one.share, strict=True)
        ]
        label = f"{one.group.title}: {one.knob}"
        caption = element("figcaption", label)
        start = f"<figure{attributes(data_op=one.group.problem.op)}>"
        figures.append(f"{start}{caption}{table(heads, rows, kind='heat', label=label)}</figure>")
    hint = element(
        "p",
        "Percent of the best speed at that size that each value reaches, the rest chosen best; 100"
        " is the fastest.",
        class_="hint",
    )
    return (
        section(
            "knobs",
            "What each choice is worth",
            FOLLOWS,
            hint,
            f'<div class="maps">{"".join(figures)}</div>',
        )
        if figures
        else ""
    )


def _share(share: float) -> Cell:
    if share != share:
        return Cell(text="")
    return Cell(text=f"{100 * share:.0f}", kind=f"h{step(share)}")


def step(share: float) -> int:
    """The class of a share's colour: 0 is pale, STEPS - 1 the best.

    >>> step(0.1), step(0.65), step(1.0)
    (0, 4, 7)
    """
    return max(0, min(STEPS - 1, math.floor(STEPS * (share - _LOW) / (1 - _LOW))))


def odd(found: Answers) -> str:
    """Rows that look wrong, worst first."""
    strange = suspects(found)
    if not strange:
        return section(
            "odd",
            "Rows that look wrong",
            element(
                "p",
                "None: data right, times on smooth curves, repeats agree as far as there are any.",
            ),
        )
    names = {
        "wrong": "wrong or failed",
        "curve": "far from a smooth curve",
        "ceiling": "above the ceiling",
        "spread": "repeats spread wide",
    }
    tally = Counter(one.kind for one in strange)
    text = ", ".join(f"{tally[kind]} {name}" for kind, name in names.items() if tally[kind])
    more = (
        f"; the first {SHOWN} are shown, collbench compare --all tells the others"
        if len(strange) > SHOWN
        else ""
    )
    heads = [
        Cell(text="what"),
        Cell(text="size", kind="num"),
        Cell(text="configuration"),
        Cell(text="kind"),
        Cell(text="why"),
    ]
    rows = [
        (
            "",
            [
                Cell(text=one.row.op),
                Cell(text=format_size(one.row.size_bytes), sort=one.row.size_bytes, kind="num"),
                Cell(text=label(one.row, found.asked, has_backend=True), kind="name"),
                Cell(text=names[one.kind], kind="tight"),
                Cell(text=one.why, kind="wrap"),
            ],
        )
        for one in strange[:SHOWN]
    ]
    return section(
        "odd",
        "Rows that look wrong",
        element("p", f"{text}{more}."),
        table(heads, rows, kind="sortable", label="Rows that look wrong"),
    )


def wires(loaded: "Loaded") -> str:
    """The link matrix of the machine that the rows seem to come from, and the hops that the rows
    say limit them.
    """
    limits = Counter(limit for limit in loaded.frame["limit"].tolist() if limit)
    told = (
        "Hops that limit rows, as the file tells them:"
        f" {', '.join(f'{name} ({count} rows)' for name, count in limits.most_common(6))}."
        if limits
        else ""
    )
    parts = [element("p", told)] if told else []
    near = likeness(loaded.frame)
    if near is None:
        unknown = (
            "The results do not say how the machine is wired, and no described machine has its"
            " GPUs."
        )
        return section("wires", "Wires", element("p", unknown, class_="note"), *parts)
    same = (
        "has GPUs of that name and number"
        if near.is_same
        else "has GPUs of that model, though not the same machine"
    )
    said = (
        f"The results do not carry the wires. Shown is the described machine {near.name}"
        f" ({near.topology.name}), which {same}."
    )
    said += " collbench topo asks the real one."
    notes = [
        element("p", f"Of {near.name}: {note}.", class_="hint") for note in near.topology.notes
    ]
    return section(
        "wires", "Wires", element("p", said, class_="note"), matrix(near.topology), *notes, *parts
    )


def matrix(topology: Topology) -> str:
    """Every pair of GPUs and NICs: the class of the way, and what it can carry in GB/s per
    direction.
    """
    nodes, named = ends(topology), labels(topology)
    ways = [[path(topology, row.id, column.id) for column in nodes] for row in nodes]
    top = max((way.usable_gbs or 0.0 for row in ways for way in row), default=0.0)
    rows, seen = [], set()
    for node, line in zip(nodes, ways, strict=True):
        cells = [Cell(text=named[node.id])]
        for way in line:
            text, rate = way.label, way.usable_gbs
            seen.add("NV#" if way.kind == "NVL" else text)
            kind = (
                "self"
                if text == "X" or not rate or not top
                else f"h{step(_LOW + (1 - _LOW) * 0.95 * math.sqrt(rate / top))}"
            )
            cells.append(
                Cell(
                    text=text if text == "X" or rate is None else f"{text}\n{rate_text(rate)}",
                    kind=kind,
                )
            )
        rows.append(("", cells))
    heads = [Cell(text=""), *[Cell(text=named[node.id]) for node in nodes]]
    words = "; ".join(f"{name}: {meaning}" for name, meaning in CLASSES.items() if name in seen)
    slow = {
        hop(topology, way)
        for line in ways
        for way in line
        if way.usable_gbs is not None and way.usable_gbs == top
    }
    hint = (
        f"Class of the way, and GB/s per direction that stores of a kernel get over it. {words}."
        if slow
        else f"Class of the way. {words}."
    )
    return table(heads, rows, kind="matrix", label="Link matrix") + element(
        "p", hint, class_="hint"
    )


def origin(loaded: "Loaded", found: Answers) -> str:
    """Where the numbers come from, as far as the file tells."""
    frame = loaded.frame
    columns = ("device", "host", "ranks", "hosts", "group", "run", "dtype")
    one = {
        name: ", ".join(
            sorted({str(value) for value in frame[name].unique() if value not in ("", 0)})
        )
        for name in columns
    }
    times = sorted(text for text in frame["timestamp"].unique() if text)
    known = [
        ("File", f"{Path(loaded.name).name}, {loaded.kind}"),
        ("Rows", counts(found.rows).partition(";")[0]),
        ("Device", one["device"] or "not told"),
        ("Host", one["host"] or "not told"),
        ("Ranks", one["ranks"]),
        ("Hosts", one["hosts"]),
        ("Processes", one["group"]),
        ("Element types", one["dtype"]),
        ("Runs", one["run"]),
        ("Measured", " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "not told"),
    ]
    versions = [(name, ", ".join(sorted(values))) for name, values in versions_of(frame).items()]
    said = [element("p", f"Note: {text}.", class_="note") for text in loaded.said]
    return "".join(said) + facts_list([*known, *versions])
