"""What all findings of a log share: they stand in lines, and have no times."""

from dataclasses import replace

from collbench.core.text import some_of
from collbench.doctor.check import Finding, Severity
from collbench.doctor.check import told as in_words_of
from collbench.jobs.nccl_log.places import Seen

UNMEASURED = "a log has no times: collbench doctor measures on the machine"


def places(seen: Seen) -> str:
    """Where something stands.

    >>> from collbench.jobs.nccl_log.places import LogPlace
    >>> places(Seen([LogPlace("a.log", 3), LogPlace("a.log", 9), LogPlace("b.log", 1)], 12))
    'a.log line 3, 9, b.log line 1 and 9 more'
    """
    parts: list[str] = []
    last = ""
    for place in seen.places[:3]:
        parts.append(str(place.line) if place.file == last else str(place))
        last = place.file
    more = seen.count - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def shown(text: str, most: int) -> str:
    """A text; of a long one the beginning and the end, where programs put the cause.

    >>> shown("a  b", 9), shown("error: x: y: no such device", 18)
    ('a b', 'error: ... device')
    """
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 3]} ... {text[most // 3 - most :]}"


def whose(seen: Seen) -> str:
    """Of whom lines are, by their own words."""
    return some_of([*seen.owners, *sorted(seen.hosts - set(seen.owners))], 4) or "the program"


def log_finding(
    name: str,
    subject: str,
    seen: str,
    why: str,
    change: str,
    severity: Severity = "risk",
    *,
    is_general: bool = False,
) -> Finding:
    """A finding of a log."""
    return Finding(
        check=name,
        subject=subject,
        seen=seen,
        why=why,
        change=change,
        severity=severity,
        unmeasured=UNMEASURED,
        is_general=is_general,
    )


def told(
    check: str,
    subject: str,
    seen: str,
    severity: Severity | None = None,
    *,
    row: str = "",
    more: str = "",
    change: str = "",
    is_general: bool = False,
) -> Finding:
    """A finding of a log in the words of its row."""
    found = in_words_of(
        row or check, subject, seen, severity=severity, change=change, more=more, table="findings"
    )
    return replace(found, check=check, unmeasured=UNMEASURED, is_general=is_general)
