"""The verdicts of `compare --against` in words: what the reference is, what differs beside the
rates, one line a curve with the size ranges of each verdict, and what could not be compared.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from collbench.compare.baselines import RATE_VERDICTS, CurveVerdict, Judgement, RateSpan
from collbench.compare.load import ResultFile
from collbench.compare.rate_curves import CurveKey, rate_curves
from collbench.core.knobs import KNOB, UNASKED
from collbench.core.limits import BEHIND_SHARE
from collbench.core.record import Record
from collbench.core.text import NARROW_COLUMNS, paragraphs, texts_of, wrapped
from collbench.core.units import span_of_sizes

if TYPE_CHECKING:
    import pandas as pd

_PHRASES = {
    "behind": "falls behind",
    "faster": "faster than the reference",
    "cannot tell": "cannot tell",
    "normal": "normal",
}
_USUAL_TRANSPORTS = (("cpu", "shm"),)
_WHY_FASTER = ": other hardware or other settings?"


def verdict_lines(
    judgement: Judgement, rows: Sequence[Record], against: ResultFile, behind: float
) -> list[str]:
    """What is normal, what is behind or faster than the reference, what differs beside the rates,
    and what was not compared.
    """
    lines = wrapped(f"against {against.name}: {_origin(against.frame)}", NARROW_COLUMNS)
    if not judgement.verdicts:
        texts = [*_nothing(rows, against.records), *_apart(judgement)]
        return [*lines, *paragraphs(texts, NARROW_COLUMNS)]
    if judgement.differences:
        lines.append("differs (file | reference; - is not set or not known):")
        texts = [f"  {name}: {ours} | {theirs}" for name, ours, theirs in judgement.differences]
        lines += paragraphs(texts, NARROW_COLUMNS, "    ")
    lines += wrapped(
        f"behind is surely below {100 * behind:.3g}% of its bus bandwidth, faster surely above"
        f" {100 / BEHIND_SHARE:.0f}%; in brackets 95% intervals",
        NARROW_COLUMNS,
    )
    lines += paragraphs(map(_curve, judgement.verdicts), NARROW_COLUMNS, "    ")
    return [*lines, *paragraphs(_apart(judgement), NARROW_COLUMNS)]


def _curve(verdict: CurveVerdict) -> str:
    """A curve and its size ranges, the gravest first."""
    key = verdict.key
    title = f"  {key.op}, {_how(key)}, {key.ranks} ranks{_workload(key)}"
    parts = []
    for kind in RATE_VERDICTS:
        spans = [span for span in verdict.spans if span.verdict == kind]
        if not spans:
            continue
        if kind == "normal":
            least = _percent(min(span.least for span in spans))
            where = (
                f"at {span_of_sizes(spans[0].first, spans[-1].last)}"
                if len(verdict.spans) == 1
                else "elsewhere"
            )
            parts.append(f"{_PHRASES[kind]} {where} (at least {least})")
        else:
            where = "; ".join(
                f"{span_of_sizes(span.first, span.last)} at {_share(span)}" for span in spans
            )
            parts.append(f"{_PHRASES[kind]} at {where}{_WHY_FASTER * (kind == 'faster')}")
    return f"{title}: {'; '.join(parts)}"


def _nothing(rows: Sequence[Record], against: Sequence[Record]) -> list[str]:
    """What both files have, where nothing is comparable."""
    theirs, ours = rate_curves(against), _listed(rate_curves(rows)) or "no row with a rate"
    sizes = sorted({size for curve in theirs.values() for size in curve.rates})
    known = (
        f"{_listed(theirs)} at {span_of_sizes(sizes[0], sizes[-1])}"
        if sizes
        else "no row with a rate"
    )
    devices = texts_of(row.device for row in rows)
    is_other = devices and not set(devices) & set(texts_of(row.device for row in against))
    texts = [f"the file is of {', '.join(devices)}"] if is_other else []
    return [*texts, f"nothing is comparable: it has {known}; the file has {ours}"]


def _apart(judgement: Judgement) -> Iterator[str]:
    """What was not compared, and how it still can be."""
    for apart in judgement.apart:
        listed = _listed(apart.keys)
        if apart.fields:
            fields = ", ".join(
                f"{KNOB[name].label if name in KNOB else name} {ours} | {theirs}"
                for name, ours, theirs in apart.fields
            )
            yield f"not compared: {listed}; differs (file | reference) in {fields}"
            if apart.remedy:
                yield f"  to compare them still: {apart.remedy}"
        else:
            yield f"not in it, or only at other sizes: {listed}"
    outside: dict[str, list[CurveKey]] = {}
    for verdict in judgement.verdicts:
        if verdict.outside:
            outside.setdefault(_outside(verdict), []).append(verdict.key)
    for sizes, keys in outside.items():
        yield f"not compared: {_listed(keys)} at {sizes}, where it has no size of that curve"


def _outside(verdict: CurveVerdict) -> str:
    """The sizes below and above those of the reference's curve."""
    first = verdict.spans[0].first
    sides = [
        [size for size in verdict.outside if (size < first) is is_below]
        for is_below in (True, False)
    ]
    return " and ".join(span_of_sizes(sizes[0], sizes[-1]) for sizes in sides if sizes)


def _origin(frame: "pd.DataFrame") -> str:
    """Machine, date and versions of a reference, from its rows."""
    devices = ", ".join(texts_of(frame["device"])) or "an unknown machine"
    dates = [time[:10] for time in texts_of(frame["timestamp"])]
    when = " to ".join(dict.fromkeys((*dates[:1], *dates[-1:]))) or "no date"
    # of a library itself, which are the ones that matter most
    own = frame[frame["algo"] == UNASKED["algo"]]["versions"]
    versions = (own if len(own) else frame["versions"]).mode().iloc[0]
    return f"{devices}; {when}" + (f"; {versions}" if versions else "")


def _listed(keys: Iterable[CurveKey]) -> str:
    """Operations by backend and ranks: allreduce by cuda and nccl on 4, 8 ranks."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for key in keys:
        here = ranks.setdefault((key.op, f"{_how(key)}{_workload(key)}"), [])
        if key.ranks not in here:
            here.append(key.ranks)
    ops: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (op, backend), numbers in ranks.items():
        ops.setdefault((backend, tuple(sorted(numbers))), []).append(op)
    backends: dict[tuple[str, str], list[str]] = {}
    for (backend, several), names in ops.items():
        backends.setdefault((", ".join(names), ", ".join(map(str, several))), []).append(backend)
    return "; ".join(
        f"{names} by {' and '.join(who)} on {several} ranks"
        for (names, several), who in backends.items()
    )


def _how(key: CurveKey) -> str:
    """A backend and how it was measured, in words."""
    placement = ["in place"] if key.placement == "in" else []
    kind = [text for text in (key.skew, key.groups, key.mix) if text]
    buffers = [key.buffers] if key.buffers not in (UNASKED["buffers"], "") else []
    is_usual = (key.backend, key.transport) in _USUAL_TRANSPORTS
    transport = [] if is_usual or not key.transport else [f"over {key.transport}"]
    backend = key.backend or "any backend"
    return " ".join([backend, *buffers, *transport, *placement, *kind, *key.conditions])


def _workload(key: CurveKey) -> str:
    """What else is not as it is without options."""
    parts = [key.dtype] if key.dtype != KNOB["dtype"].default else []
    parts += [key.redop] if key.redop not in (KNOB["redop"].default, "") else []
    parts += [f"root {key.root}"] if key.root else []
    parts += [f"{key.hosts} hosts"] if key.hosts > 1 else []
    return "".join(f", {part}" for part in parts)


def _share(span: RateSpan) -> str:
    least, most = _percent(span.least), _percent(span.most)
    bounds = f"({_percent(span.low)} to {_percent(span.high)})"
    return f"{least} {bounds}" if least == most else f"{least} to {most} {bounds}"


def _percent(share: float) -> str:
    """Whole percent, never rounded up: what is behind must not read as if it were not.

    >>> _percent(0.899), _percent(0.29), _percent(1.0)
    ('89%', '29%', '100%')
    """
    return f"{math.floor(100 * share + 1e-6)}%"
