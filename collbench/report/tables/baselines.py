"""The verdicts of `compare --against` in words: what the reference is and is not, and one line a
curve, with the size ranges that fall behind.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from collbench.analysis.baselines import CurveKey, CurveVerdict, RateSpan, best_rates
from collbench.report.tables.text import NARROW_COLUMNS, wrapped
from collbench.results.frame import texts_of
from collbench.spec.knobs import UNASKED
from collbench.util.units import format_size

if TYPE_CHECKING:
    import pandas as pd

    from collbench.analysis.load import ResultFile


def verdict_lines(
    verdicts: Sequence[CurveVerdict], frame: "pd.DataFrame", against: "ResultFile", behind: float
) -> list[str]:
    """What is normal, what falls behind the reference, and what the reference does not have."""
    lines = wrapped(
        f"against {against.name}: {_origin(against.frame)}{_unlike(frame, against.frame)}",
        NARROW_COLUMNS,
    )
    covered = {verdict.key for verdict in verdicts}
    left = [key for key in best_rates(frame) if key not in covered]
    if not verdicts:
        theirs, ours = best_rates(against.frame), _listed(left) or "no row with a rate"
        sizes = sorted({size for curve in theirs.values() for size in curve})
        known = (
            f"{_listed(theirs)} at {_range(sizes[0], sizes[-1])}" if sizes else "no row with a rate"
        )
        return [
            *lines,
            *wrapped(f"nothing is comparable: it has {known}; the file has {ours}", NARROW_COLUMNS),
        ]
    lines.append(f"behind is below {100 * behind:.3g}% of its bus bandwidth")
    for verdict in verdicts:
        key = verdict.key
        curve = f"  {key.op}, {_how(key)}, {key.ranks} ranks"
        late = [span for span in verdict.spans if span.is_behind]
        if not late:
            least = min(span.least for span in verdict.spans)
            text = (
                f"{curve}: normal at {_range(verdict.spans[0].first, verdict.spans[-1].last)} (at"
                f" least {_percent(least)})"
            )
        else:
            where = [f"{_range(span.first, span.last)} at {_share(span)}" for span in late]
            text = f"{curve}: falls behind at {'; '.join(where)}"
        lines += wrapped(text, NARROW_COLUMNS, "    ")
    if left:
        lines += wrapped(f"not in it, or only at other sizes: {_listed(left)}", NARROW_COLUMNS)
    return lines


def _origin(frame: "pd.DataFrame") -> str:
    """Machine, date and versions of a reference, from its rows."""
    devices = ", ".join(texts_of(frame, "device")) or "an unknown machine"
    dates = [time[:10] for time in texts_of(frame, "timestamp")]
    when = " to ".join(dict.fromkeys((*dates[:1], *dates[-1:]))) or "no date"
    # of a library itself, which are the ones that matter most
    own = frame[frame["algo"] == UNASKED["algo"]]["versions"]
    versions = (own if len(own) else frame["versions"]).mode().iloc[0]
    return f"{devices}; {when}" + (f"; {versions}" if versions else "")


def _unlike(frame: "pd.DataFrame", against: "pd.DataFrame") -> str:
    """The file's machine, where it is called otherwise."""
    ours, theirs = (texts_of(one, "device") for one in (frame, against))
    is_other = ours and not set(ours) & set(theirs)
    return f"; the file is of {', '.join(ours)}" if is_other else ""


def _listed(keys: Iterable[CurveKey]) -> str:
    """Operations by backend and ranks: allreduce by cuda and nccl on 4, 8 ranks."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for key in keys:
        ranks.setdefault((key.op, _how(key)), []).append(key.ranks)
    ops: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (op, backend), here in ranks.items():
        ops.setdefault((backend, tuple(sorted(here))), []).append(op)
    backends: dict[tuple[str, str], list[str]] = {}
    for (backend, numbers), names in ops.items():
        backends.setdefault((", ".join(names), ", ".join(map(str, numbers))), []).append(backend)
    return "; ".join(
        f"{names} by {' and '.join(who)} on {numbers} ranks"
        for (names, numbers), who in backends.items()
    )


def _how(key: CurveKey) -> str:
    """A backend and how it was measured, in words."""
    placement = ["in place"] if key.placement == "in" else []
    buffers = [key.buffers] if key.buffers != UNASKED["buffers"] else []
    return " ".join([key.backend, *buffers, *placement, *key.conditions])


def _range(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


def _share(span: RateSpan) -> str:
    least, most = _percent(span.least), _percent(span.most)
    return least if least == most else f"{least} to {most}"


def _percent(share: float) -> str:
    """Whole percent, never rounded up: what is behind must not read as if it were not.

    >>> _percent(0.899), _percent(0.29), _percent(1.0)
    ('89%', '29%', '100%')
    """
    return f"{math.floor(100 * share + 1e-6)}%"
