"""What a log of NCCL says and what was found in it, as one page of HTML without a script."""

from collections.abc import Sequence

from collbench.core.web.html import element, facts_list, section
from collbench.core.web.parts import document, style
from collbench.core.web.svg import clean
from collbench.doctor.check import Finding, Severity
from collbench.jobs.nccl_log.model import LogReport
from collbench.jobs.tables.log import MARKS, log_lines, origin, unread_lines

_CLASSES: dict[Severity, str] = {"fault": "worse", "risk": "cannot-tell", "remark": "same"}
_COLUMNS = 100


def page(report: LogReport, findings: Sequence[Finding], lead: str, day: str) -> str:
    """The page: findings first, then what the log says. lead: how many were found. day: when the
    log was read.
    """
    parts = [_finding(number, one) for number, one in enumerate(findings, 1)]
    parts.append(
        section("log", "What the log says", element("pre", "\n".join(log_lines(report, _COLUMNS))))
    )
    if unread := unread_lines(report, _COLUMNS):
        parts.append(section("unread", "What could not be read", element("pre", "\n".join(unread))))
    look = style()
    text = document(
        "log.html",
        f"What NCCL printed in {', '.join(report.files[:4])}",
        look,
        lead=clean(lead),
        caption=clean(f"{origin(report)}; read {day}"),
        body="\n".join(parts),
    )
    return text.encode("utf-8", "replace").decode()  # a host's name may hold what is no text


def _finding(number: int, finding: Finding) -> str:
    return section(
        f"finding-{number}",
        f"{MARKS[finding.severity]}: {finding.check}, {finding.subject}",
        element("p", finding.why, class_=_CLASSES[finding.severity]),
        facts_list([("seen", finding.seen), ("change", finding.change)]),
    )
