"""The verdicts of `compare --against` in words: what the reference is and is not, and one line a
curve, with the size ranges that fall behind.
"""

import math
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from collbench.analysis.baselines import CurveKey, CurveVerdict, RateSpan, best_rates
from collbench.report.tables.text import NARROW_COLUMNS
from collbench.spec.knobs import UNASKED
from collbench.util.units import format_size

if TYPE_CHECKING:
    import pandas as pd

    from collbench.analysis.load import ResultFile


def verdict_lines(
    verdicts: Sequence[CurveVerdict], frame: "pd.DataFrame", against: "ResultFile", behind: float
) -> list[str]:
    """What is normal and what falls behind the reference, below that share of its rate; what of the
    file the reference does not have.
    """
    lines = _wrapped(
        f"against {against.name}: {_origin(against.frame)}{_unlike(frame, against.frame)}", "  "
    )
    covered = {
        (verdict.op, verdict.backend, verdict.ranks, verdict.placement, verdict.conditions)
        for verdict in verdicts
    }
    left = [key for key in best_rates(frame) if key not in covered]
    if not verdicts:
        theirs, ours = best_rates(against.frame), _listed(left) or "no row with a rate"
        sizes = sorted({size for curve in theirs.values() for size in curve})
        known = (
            f"{_listed(theirs)} at {_range(sizes[0], sizes[-1])}" if sizes else "no row with a rate"
        )
        return [
            *lines,
            *_wrapped(f"nothing is comparable: it has {known}; the file has {ours}", "  "),
        ]
    lines.append(f"behind is below {100 * behind:.3g}% of its bus bandwidth")
    for verdict in verdicts:
        who = (
            f"  {verdict.op}, {_how(verdict.backend, verdict.placement, verdict.conditions)},"
            f" {verdict.ranks} ranks"
        )
        late = [span for span in verdict.spans if span.is_behind]
        if not late:
            least = min(span.least for span in verdict.spans)
            lines += _wrapped(
                f"{who}: normal at {_range(verdict.spans[0].first, verdict.spans[-1].last)} (at"
                f" least {_percent(least)})"
            )
        else:
            where = [f"{_range(span.first, span.last)} at {_share([span])}" for span in late]
            lines += _wrapped(f"{who}: falls behind at {'; '.join(where)}")
    if left:
        lines += _wrapped(f"not in it, or only at other sizes: {_listed(left)}", "  ")
    return lines


def _origin(frame: "pd.DataFrame") -> str:
    """Machine, date and versions of a reference, from its rows."""
    devices = (
        ", ".join(sorted({str(device) for device in frame["device"].unique() if device}))
        or "an unknown machine"
    )
    dates = sorted({str(time)[:10] for time in frame["timestamp"].unique() if time})
    when = (dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}") if dates else "no date"
    # of a library itself, which are the ones that matter most
    own = frame[frame["algo"] == UNASKED["algo"]]["versions"]
    versions = (own if len(own) else frame["versions"]).mode().iloc[0]
    return f"{devices}; {when}" + (f"; {versions}" if versions else "")


def _unlike(frame: "pd.DataFrame", against: "pd.DataFrame") -> str:
    """The file's machine, where it is called otherwise."""
    ours, theirs = (
        {str(device) for device in one["device"].unique() if device} for one in (frame, against)
    )
    return f"; the file is of {', '.join(sorted(ours))}" if ours and not ours & theirs else ""


def _listed(keys: Iterable[CurveKey]) -> str:
    """Operations by backend and ranks: allreduce by cuda and nccl on 4, 8 ranks."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for op, backend, number, placement, conditions in keys:
        ranks.setdefault((op, _how(backend, placement, conditions)), []).append(number)
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


def _how(backend: str, placement: str, conditions: Sequence[str]) -> str:
    """A backend and how it was measured, in words."""
    return " ".join([backend, *(["in place"] if placement == "in" else []), *conditions])


def _wrapped(text: str, indent: str = "    ") -> list[str]:
    return wrap(
        text,
        NARROW_COLUMNS,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _range(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


def _share(spans: Sequence[RateSpan]) -> str:
    low, high = min(span.least for span in spans), max(span.most for span in spans)
    return (
        _percent(low) if _percent(low) == _percent(high) else f"{_percent(low)} to {_percent(high)}"
    )


def _percent(share: float) -> str:
    """Whole percent, never rounded up: what is behind must not read as if it were not.

    >>> _percent(0.899), _percent(0.29), _percent(1.0)
    ('89%', '29%', '100%')
    """
    return f"{math.floor(100 * share + 1e-6)}%"
