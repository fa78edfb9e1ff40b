"""The report of one file as plain text: what is best, where that changes, the effect of each knob,
what looks wrong; then the tables.

One row a workload and size, at 80 columns; wider terminals get intervals. Times are medians.
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from collbench.compare.best import (
    KNOBS_WITH_EFFECT,
    Best,
    Summary,
    best_label,
    effect_of,
    span_text,
    spans,
    summarise,
)
from collbench.compare.doubt import doubt_lines
from collbench.compare.outliers import KIND_NAMES, Suspect, suspects
from collbench.compare.tables.distribution import (
    jitter_text,
    launch_time_table,
    rows_with_launch_times,
)
from collbench.core.peers import OWN_ALGOS
from collbench.core.record import STATUSES, Record
from collbench.core.rows import (
    KNOB_NAMES,
    Workload,
    devices_of,
    gpu_pairs,
    is_noise,
    is_price,
    label,
    own_form,
    pair_of,
    row_rate_text,
    row_time_text,
    shown_us,
    times_of,
    titles,
)
from collbench.core.text import GAP, counted, paragraphs, share_text, table, titled, wrapped
from collbench.core.units import format_rate, format_size
from collbench.core.verdict import Interval, Verdict, bounds

INTERVAL_COLUMNS = 100  # of a terminal, from which on ratios have their intervals
_SUSPECTS_SHOWN = 5  # before "and more"
_WORDS: dict[Verdict, str] = {
    "better": "faster",
    "same": "level",
    "worse": "slower",
    "cannot tell": "cannot tell",
}
_UNCLEAR = "~"  # before a number, or in its place: the repeats do not separate it from 1
_TITLE_WIDTH = 16
_NCCL_VARIABLE = re.compile(r"\b(NCCL_\w+)=(\S+)")
_NCCL = re.compile(r"(?:\A|; )nccl (\d[\w.+-]*)")  # its release, in the versions of a row
_PEER_NAMES = {"gloo": "Gloo", "torch": "PyTorch"}


def summary_lines(rows: Sequence[Record], columns: int, show_all: bool) -> list[str]:
    """The whole report of the rows of one file; show_all: every row, and all that looks wrong."""
    summary = summarise(rows)
    if not summary.best:
        return [counts(summary.rows), "No row has a time: there is nothing to compare."]
    pairs = {} if show_all else gpu_pairs(summary.best)
    among_pairs = {one for group in pairs.values() for one in group}
    single = [workload for workload in summary.best if workload not in among_pairs]
    named = titles([*single, *pairs])
    lines = [*doubt_lines(summary, columns), *wrapped(counts(summary.rows), columns)]
    for what, group in pairs.items():
        lines += ["", f"{named[what]}, {len(group)} pairs of GPUs", *_pair_lines(summary, group)]
    for workload in single:
        known = facts(summary, workload)
        lines += ["", named[workload], *titled(known.items(), _TITLE_WIDTH, columns)]
    lines += _suspicious(summary, suspects(summary), columns, show_all=show_all)
    told = [BEST_OF, *legend(summary, summary.every_best)]
    lines += ["", *paragraphs(told, columns)] if single else ["", "--all shows each pair."]
    for workload in single:
        every = list(summary.best[workload].values())
        shown = best_columns(summary, every, is_wide=columns >= INTERVAL_COLUMNS)
        lines += ["", named[workload], *best_table(shown, every, columns)]
        launches = rows_with_launch_times(summary, workload)
        lines += launch_time_table(launches, summary.knobs, columns)
        if show_all:
            lines += _every_row(summary, workload, columns)
    return lines


def _pair_lines(summary: Summary, group: Sequence[Workload]) -> list[str]:
    """The slowest and the fastest pair of GPUs by what each reached at best, and the median."""
    peaks = sorted(
        (max(best.busbw_gbs or 0.0 for best in summary.best[one].values()), pair_of(one))
        for one in group
    )
    median = statistics.median(rate for rate, _ in peaks)
    (least, slowest), *_, (most, fastest) = (peaks[0], *peaks)
    parts = [
        ("slowest pair", f"{format_rate(least)} GB/s by {slowest}"),
        ("median", f"{format_rate(median)} GB/s"),
        ("fastest pair", f"{format_rate(most)} GB/s by {fastest}"),
    ]
    return titled(parts, _TITLE_WIDTH)


def counts(rows: Sequence[Record]) -> str:
    """How many rows there are, by status, and of what machine."""
    count = Counter(row.status for row in rows)
    known = [f"{count[status]} {status}" for status in STATUSES if count[status]]
    number, statuses = counted(len(rows), "row"), ", ".join(known) or "none"
    return "; ".join(filter(None, (f"{number}: {statuses}", measured_text(rows))))


def measured_text(rows: Sequence[Record]) -> str:
    """On what and when rows were measured, and of NCCL the releases, the state of NVLS, and that
    buffers were plain, if all were in a sweep of ours; of other tools' rows nobody knows.
    """
    days = sorted({row.timestamp[:10] for row in rows} - {""})
    parts = [devices_of(rows), " to ".join(dict.fromkeys((*days[:1], *days[-1:])))]
    of_nccl = {(row.versions, row.buffers) for row in rows if row.backend.startswith("nccl")}
    versions = {text for text, _ in of_nccl}
    if releases := sorted({found for text in versions for found in _NCCL.findall(text)}):
        states = ", ".join(sorted(set(map(nvls_of, versions))))
        is_plain = all(text.startswith("collbench ") and of == "plain" for text, of in of_nccl)
        buffers = " on plain buffers" * is_plain
        parts.append(f"NCCL {', '.join(releases)}{buffers} with NVLS {states}")
    return "; ".join(filter(None, parts))


def nvls_of(versions: str) -> str:
    """Whether NCCL might reduce in the switches of NVLink."""
    enabled = dict(_NCCL_VARIABLE.findall(versions)).get("NCCL_NVLS_ENABLE", "").rstrip(";")
    if enabled:
        return "off" if enabled == "0" else "allowed"
    if "NVLS allowed" in versions:
        return "allowed"
    # a sweep of ours lists all NCCL_* variables that were set
    return "NCCL's choice" if versions.startswith("collbench ") else "not known"


def best_data(rows: Sequence[Record]) -> list[dict[str, object]]:
    """The best of each size of each workload, with the numbers that its table shows."""
    summary = summarise(rows)
    return [
        {
            "workload": title,
            "size_bytes": size,
            "best": [label(row, summary.knobs) for row in best.leaders],
            "certainty": best.certainty,
            "time_us": best.time_us,
            "busbw_gbs": best.busbw_gbs,
            "percent": best.percent,
            "auto_ratio": None if best.excess is None else best.excess.median,
            "speedup": {peer: ratio.median for peer, ratio in best.peers.items()},
        }
        for workload, title in titles(summary.best).items()
        for size, best in summary.best[workload].items()
    ]


def facts(summary: Summary, workload: Workload) -> dict[str, str]:
    """What the rows of one workload show: peak bandwidth, lowest latency, peers, crossovers,
    effects of knobs; what is not known is left out.
    """
    sizes = summary.best[workload]
    known = [best for best in sizes.values() if not is_noise(best.row)] or [*sizes.values()]
    peak = max(known, key=lambda best: (best.busbw_gbs or 0.0) * best.time_us / shown_us(best.row))
    least = min(known, key=lambda best: shown_us(best.row))
    parts: dict[str, str] = {}
    if peak.busbw_gbs is not None:
        percent = ""
        if peak.percent is not None:
            _, *ends = bounds(times_of(peak.row))
            percent = f", {share_text(peak.percent, peak.time_us, *ends)} of the ceiling"
        rate = f"{busbw_text(peak)} GB/s"
        parts["peak busbw"] = f"{rate} at {_configuration(peak, summary)}{percent}"
    is_stream = any(word.startswith("window-") for word in workload.conditions)
    parts["time a message" if is_stream else "lowest latency"] = (
        f"{time_text(least)} us at {_configuration(least, summary)}"
    )
    for peer in rivals_of(sizes.values()):
        ratios = {
            size: best.peers[peer]
            for size, best in sizes.items()
            if best.is_certain and peer in best.peers
        }
        told = [best.verdict_of_peer(peer) for best in sizes.values() if peer in best.rivals]
        parts[f"vs {peer}"] = _speedup(ratios, Counter(told))
    for knob in ("proto", "algo"):
        if where := spans(sizes, knob):
            parts[KNOB_NAMES[knob]] = span_text(where)
    if jitter := jitter_text(rows_with_launch_times(summary, workload)):
        parts["jitter"] = jitter
    largest = {knob: _largest_effect(summary, workload, knob) for knob in KNOBS_WITH_EFFECT}
    if effects := [
        f"{KNOB_NAMES.get(knob, knob)} up to {found[0]:.2f}x at {format_size(found[1])}"
        for knob, found in largest.items()
        if found is not None
    ]:
        parts["effect"] = ", ".join(effects)
    return parts


def _configuration(best: Best, summary: Summary) -> str:
    """The size, and the configuration if that may be claimed."""
    by = f" by {best_label(best, summary.knobs)}" if best.is_certain else ""
    return format_size(best.row.size_bytes) + by


def _speedup(ratios: Mapping[int, Interval], told: Counter[Verdict]) -> str:
    """The speedup over a library's own choice, over all sizes. told: how many have each verdict."""
    of_sizes = f"of {told.total()} sizes"
    if not ratios:
        return f"{_WORDS['cannot tell']} at {told['cannot tell']} {of_sizes}"
    low = min(ratios, key=lambda size: ratios[size].median)
    high = max(ratios, key=lambda size: ratios[size].median)
    ends = [
        f"{ratios[size].median:.2f} ({format_size(size)})" for size in dict.fromkeys((low, high))
    ]
    parts = [f"{_WORDS[one]} at {told[one]}" for one in _WORDS if told[one] or one == "better"]
    return f"speedup {' to '.join(ends)}: {', '.join(parts)} {of_sizes}"


def _largest_effect(summary: Summary, workload: Workload, knob: str) -> tuple[float, int] | None:
    """The largest effect of a knob and its size, of those at which the repeats show one."""
    factors = (
        (effect_of(best, summary.knobs, knob), size)
        for size, best in summary.best[workload].items()
        if best.is_certain
    )
    known = [(factor, size) for factor, size in factors if factor is not None]
    return min(known, key=lambda one: (-one[0], one[1]), default=None)


def kinds_text(strange: Sequence[Suspect]) -> str:
    """How many rows look wrong in which way."""
    count = Counter(one.kind for one in strange)
    return ", ".join(f"{count[kind]} {text}" for kind, text in KIND_NAMES.items() if count[kind])


def _suspicious(
    summary: Summary, strange: Sequence[Suspect], columns: int, *, show_all: bool
) -> list[str]:
    """Rows that look wrong."""
    if not strange:
        has_repeats = any(len(times_of(row)) > 1 for row in summary.rows)
        repeats = ", repeats agree" if has_repeats else "; no repeats to compare"
        line = f"No row looks wrong: {_checks(summary.rows)}times on smooth curves{repeats}."
        return ["", *wrapped(line, columns)]
    lines = ["", f"Look wrong: {kinds_text(strange)}"]
    shown = strange if show_all else strange[:_SUSPECTS_SHOWN]
    for one in shown:
        name = label(one.row, summary.knobs, has_backend=True)
        line = f"  {one.row.op} {format_size(one.row.size_bytes)} {name}: {one.why}"
        lines += [line] if show_all else wrapped(line, columns, "    ")
    if len(strange) > len(shown):
        lines.append(f"  and {len(strange) - len(shown)} more: --all shows them")
    return lines


def _checks(rows: Sequence[Record]) -> str:
    """What is known of the data of rows that are not wrong: nothing without a check."""
    timed = [row for row in rows if row.status == "ok"]
    unchecked = sum("unchecked" in row.notes.split() for row in timed)
    if unchecked == len(timed):
        return "no data was checked, "
    return "data right, " + f"but unchecked in {counted(unchecked, 'row')}, " * bool(unchecked)


BOUNDS = "<, >: bounds, by the fastest repeat: the repeats disagree, or the machine was busy."
BEST_OF = "Best of each size, by the median of its repeats."


def legend(summary: Summary, every: Sequence[Best]) -> list[str]:
    """What the columns of tables of the best mean, of those that are there."""
    is_compared = any(best.gain is not None for best in every)
    has_auto = any(best.excess is not None and best.runner_up is not None for best in every)
    has_tie = any(best.certainty == "tie" for best in every)
    lines = [BOUNDS] * any(is_noise(best.row) for best in every)
    is_predicted = all(is_price(best.row) for best in every)
    by = "" if is_predicted else ", by the repeats"
    lines += [f"(1 of N): N are tied{by}; the simplest is named."] * has_tie
    if any(not best.is_certain and len(best.rows) > 1 for best in every):
        lines.append("?: cannot tell; the row that was fastest, by chance or not.")
    if is_compared:
        why = "too near to tell" if is_predicted else "the repeats do not tell"
        lines.append(f"next: how much longer the runner-up takes (~: {why}).")
    lines += ["auto: how much longer the tool's own choice takes."] * has_auto
    if any(best.of_max is not None for best in every):
        has_floor = any(best.row.floor_us is not None for best in every)
        nearer = "the floor or of the ceiling, whichever is nearer"
        lines.append(f"of max: percent of {nearer if has_floor else 'the ceiling'}.")
    lines += [peer_legend(summary, peer) for peer in summary.peers]
    texts = [speedup_text(best, peer) for best in every for peer in best.peers]
    unclear = f"{_UNCLEAR} before a speedup: the repeats do not tell which is faster."
    return lines + [unclear] * any(text.startswith(_UNCLEAR) for text in texts)


def rivals_of(every: Iterable[Best]) -> list[str]:
    """The libraries that have rows beside the best ones."""
    return sorted({peer for best in every for peer in best.rivals})


def rival_name(summary: Summary, best: Best, peer: str) -> str:
    """A library, and the form that it is fastest in where it has several."""
    return f"{peer} {rival_text(best, peer)}" if has_forms(summary, peer) else peer


def peer_legend(summary: Summary, peer: str) -> str:
    """What the column of a library shows."""
    which = f", {fastest_text(peer)}" if has_forms(summary, peer) else ""
    return f"vs {peer}: speedup over {peer_name(peer)}'s own choice{which}."


def fastest_text(peer: str) -> str:
    """In which form a library is taken, in words."""
    return f"{'by' if peer in OWN_ALGOS else 'on'} the {form_heading(peer)} that it is fastest with"


def form_heading(peer: str) -> str:
    """What tells the own choices of a library apart, in a word."""
    return "algorithm" if peer in OWN_ALGOS else "buffers"


def peer_name(backend: str) -> str:
    """The name of a library, as its makers write it.

    >>> peer_name("nccl"), peer_name("torch")
    ('NCCL', 'PyTorch')
    """
    return _PEER_NAMES.get(backend, backend.upper())


class BestColumn(NamedTuple):
    """A column of a table of the best of each size; value: what the page sorts it by, if not by its
    text; is_number: it is set to the right; spare: how soon it gives way where the screen is too
    narrow for whole names, the highest first; 0: never.
    """

    head: str
    text: Callable[[Best], str]
    value: Callable[[Best], float | None] = lambda best: None
    is_number: bool = True
    spare: int = 0


def best_table(columns: Sequence[BestColumn], every: Sequence[Best], width: int) -> list[str]:
    """The table of the best of several sizes, at most so wide."""
    texts = [(column, [column.text(best) for best in every]) for column in columns]
    for spare in range(max(column.spare for column in columns), 0, -1):
        widths = [max(map(len, [*one.head.split("\n"), *cells])) for one, cells in texts]
        if sum(widths) + GAP * (len(widths) - 1) > width:
            texts = [(one, cells) for one, cells in texts if one.spare != spare]
    right = [place for place, (column, _) in enumerate(texts) if column.is_number]
    rows = list(zip(*(cells for _, cells in texts), strict=True))
    return table([column.head for column, _ in texts], rows, right, width)


SIZE = BestColumn(
    "  size", lambda best: format_size(best.row.size_bytes), lambda best: best.row.size_bytes
)


def peer_columns(summary: Summary, every: Sequence[Best], *, is_wide: bool) -> list[BestColumn]:
    """What libraries take, or their times where all are noise; is_wide: with the interval."""
    columns = []
    for peer in rivals_of(every):
        if not any(peer in best.peers for best in every):
            columns.append(BestColumn(f"{peer} us", partial(rival_time_text, peer=peer)))
        else:

            def ratio(best: Best, peer: str = peer) -> float:
                return _median(best.peers.get(peer))

            columns.append(BestColumn(f"vs {peer}", partial(speedup_text, peer=peer), ratio))
            columns += [BestColumn("interval", partial(interval_text, peer=peer))] * is_wide
            form = BestColumn(form_heading(peer), partial(rival_text, peer=peer), is_number=False)
            columns += [form] * has_forms(summary, peer)
    return columns


def _median(ratio: Interval | None) -> float:
    return math.nan if ratio is None else ratio.median


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def best_columns(summary: Summary, every: Sequence[Best], *, is_wide: bool) -> list[BestColumn]:
    """The columns of the best of each size; is_wide: with intervals."""
    has_backend = len({best.row.backend for best in every}) > 1
    label_of = partial(best_label, knobs=summary.knobs, has_backend=has_backend)
    columns = [
        SIZE,
        BestColumn("best", label_of, is_number=False),
        BestColumn(" time us", time_text, lambda best: best.time_us),
        BestColumn("busbw\nGB/s", busbw_text, lambda best: _known(best.busbw_gbs)),
    ]
    optional = (
        BestColumn(
            "of max", lambda best: percent_text(best.of_max), lambda best: _known(best.of_max)
        ),
        BestColumn(" next", next_text, lambda best: _median(best.gain)),
        BestColumn(" auto", auto_text, lambda best: _median(best.excess)),
    )
    columns += [one for one in optional if any(one.text(best) != "-" for best in every)]
    return columns + peer_columns(summary, every, is_wide=is_wide)


def has_forms(summary: Summary, peer: str) -> bool:
    """Whether several own choices of a library were measured."""
    return len(summary.forms.get(peer, ())) > 1


def rival_text(best: Best, peer: str) -> str:
    """The form that a library is fastest in."""
    return own_form(best.rivals[peer]) if peer in best.rivals else "-"


def time_text(best: Best) -> str:
    """The time of the best row."""
    return row_time_text(best.row)


def rival_time_text(best: Best, peer: str) -> str:
    """The time of a library, in the form that it is fastest in."""
    return row_time_text(best.rivals[peer]) if peer in best.rivals else "-"


def busbw_text(best: Best) -> str:
    """The bus bandwidth of the best row."""
    return row_rate_text(best.row)


def percent_text(percent: float | None) -> str:
    """A share of what is possible."""
    if percent is None:
        return "-"
    return f"{percent:.0f}%" if percent >= 0.5 or percent <= 0 else "<1%"


def next_text(best: Best) -> str:
    """How much longer the runner-up takes."""
    return _excess_text(best.gain, is_clear=not best.is_level_with(best.runner_up))


def auto_text(best: Best) -> str:
    """How much longer the tool's own choice takes."""
    is_clear = best.choice is best.row or not best.is_level_with(best.choice)
    return _excess_text(best.excess, is_clear=is_clear)


def _excess_text(ratio: Interval | None, *, is_clear: bool) -> str:
    """How much longer, in percent; twice as long and more as a factor."""
    if ratio is None:
        return "-"
    if not is_clear:
        return _UNCLEAR
    return f"{ratio.median:.1f}x" if ratio.median >= 2 else f"{100 * (ratio.median - 1):+z.0f}%"


def speedup_text(best: Best, peer: str) -> str:
    """The speedup over a peer; ~ where it is not separated from 1, or nothing is decided."""
    if peer not in best.peers:
        return "-"
    mark = _UNCLEAR if best.verdict_of_peer(peer) == "cannot tell" else ""
    return f"{mark}{best.peers[peer].median:.2f}"


def interval_text(best: Best, peer: str) -> str:
    """Between which speedups the repeats leave it."""
    ratio = best.peers.get(peer)
    is_known = ratio is not None and ratio.low == ratio.low
    return f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio is not None and is_known else "-"


def _every_row(summary: Summary, workload: Workload, columns: int) -> list[str]:
    """All rows of a workload, the fastest of each size first."""
    rows = [row for here in summary.workloads[workload].values() for row in here]
    has_backend = len({row.backend for row in rows}) > 1
    cells = [
        (
            format_size(row.size_bytes),
            label(row, summary.knobs, has_backend=has_backend),
            row_time_text(row),
            row_rate_text(row),
            row.notes,
        )
        for row in sorted(rows, key=lambda row: (row.size_bytes, shown_us(row)))
    ]
    heads = ("  size", "configuration", " time us", "busbw\nGB/s", "notes")
    return ["", "all rows", *table(heads, cells, (0, 2, 3), columns)]
