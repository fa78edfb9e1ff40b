"""The verdicts of `compare --against` in words: one line a curve, with the size ranges that fall behind."""

from collections.abc import Sequence

from collbench.compare.normal import BEHIND, Span, Verdict
from collbench.units import format_size


def normal_lines(verdicts: Sequence[Verdict], name: str) -> list[str]:
    """What is normal and what falls behind the reference of that name."""
    if not verdicts:
        return [f"nothing of {name} is comparable: no curve of one collective, backend and number of ranks is in both"]
    found = [f"against {name}: behind is below {BEHIND:.0%} of its bus bandwidth"]
    for verdict in verdicts:
        who = f"{verdict.op}, {verdict.backend}, {verdict.ranks} ranks"
        behind = [span for span in verdict.spans if span.is_behind]
        if not behind:
            least = min(span.least for span in verdict.spans)
            found.append(f"  {who}: normal at {_range(verdict.spans[0].first, verdict.spans[-1].last)} (at least {least:.0%})")
        else:
            ranges = "; ".join(f"{_range(span.first, span.last)} at {_share([span])}" for span in behind)
            found.append(f"  {who}: falls behind at {ranges}")
    return found


def _range(first: int, last: int) -> str:
    return format_size(first) if first == last else f"{format_size(first)} to {format_size(last)}"


def _share(spans: Sequence[Span]) -> str:
    low, high = min(span.least for span in spans), max(span.most for span in spans)
    return f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
