"""The findings of a check: a line each, a summary, and documents for programs."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict

from collbench.core.documents import result_json
from collbench.core.table import NARROW_COLUMNS, table
from collbench.core.text import counted
from collbench.core.units import format_rate, format_time_us
from collbench.doctor.check_verdict import SEVERITY, CheckLine, Verdict, judged_lines, whole

_LEAST = (7, 24, 10, 10)  # columns of verdict, name, measured and expected
_HEADS = ("", "what", "measured", "expected", "from")


def heading(columns: int) -> str:
    """The line above the findings."""
    return "\n".join(table(_HEADS, [], (2, 3), columns, _LEAST))


def line(finding: CheckLine, columns: int = NARROW_COLUMNS) -> str:
    """A finding in a line, or more where the screen is narrow."""
    source = ", ".join(filter(None, (finding.source, finding.detail)))
    numbers = [
        "" if finding.value is None else _number(value, finding.unit)
        for value in (finding.value, finding.expected)
    ]
    cells = (finding.verdict, finding.name, *numbers, source)
    return "\n".join(table(("",) * len(cells), [cells], (2, 3), columns, _LEAST))


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{format_time_us(value) if unit == 'us' else format_rate(value)} {unit}"


def summary(findings: Sequence[CheckLine], results: int, duration: str) -> str:
    """The line below the findings: the verdict of the whole first. results: how many were
    compared, element by element.
    """
    verdicts = [one.verdict for one in findings]
    judged = f"{judged_lines(verdicts)} of {counted(len(verdicts), 'line')} judged"
    counts = f"{judged} ({counts_text(findings)})"
    every = f"every element of {results} results compared"
    return f"{whole(verdicts)}: {counts}, {duration}; {every}."


def counts_text(findings: Sequence[CheckLine]) -> str:
    """How many findings there are of each verdict.

    >>> counts_text([CheckLine(name="a", verdict="PASS"), CheckLine(name="b", verdict="FAIL")])
    '1 passed, 0 warnings, 1 failed'
    """
    count = _counts(findings)
    texts = [f"{count['PASS']} passed", counted(count["WARN"], "warning")]
    texts.append(f"{count['FAIL']} failed")
    rest = {"skipped": count["SKIP"], "unknown": count["UNKNOWN"]}
    return ", ".join([*texts, *(f"{number} {what}" for what, number in rest.items() if number)])


def _counts(findings: Sequence[CheckLine]) -> dict[Verdict, int]:
    return {verdict: sum(one.verdict == verdict for one in findings) for verdict in SEVERITY}


def as_json(findings: Sequence[CheckLine], device: str, started: str, seconds: float) -> str:
    """The findings as a JSON object."""
    verdicts = [one.verdict for one in findings]
    document = {
        "lines": len(verdicts),
        "judged": judged_lines(verdicts),
        "counts": _counts(findings),
        "started": started,
        "seconds": round(seconds, 3),
        "checks": [asdict(one) for one in findings],
    }
    return result_json(document, machine=device, verdict=whole(verdicts))


def as_junit(findings: Sequence[CheckLine], device: str, started: str, seconds: float) -> str:
    """The findings as JUnit's XML: a test case each; warnings pass, and say so in system-out. A
    whole that is UNKNOWN is an error, in a case of its own.
    """
    verdicts = [one.verdict for one in findings]
    is_unknown = whole(verdicts) == "UNKNOWN"
    suite = ET.Element(
        "testsuite",
        name=f"collbench check: {device}",
        tests=str(len(findings) + is_unknown),
        failures=str(verdicts.count("FAIL")),
        errors=str(int(is_unknown)),
        skipped=str(verdicts.count("SKIP") + verdicts.count("UNKNOWN")),
        time=f"{seconds:.3f}",
        timestamp=started,
    )
    for one in findings:
        case = ET.SubElement(suite, "testcase", classname="collbench.check", name=one.name)
        if one.verdict == "FAIL":
            ET.SubElement(case, "failure", message=line(one))
        elif one.verdict in ("SKIP", "UNKNOWN"):
            ET.SubElement(case, "skipped", message=one.detail)
        else:
            ET.SubElement(case, "system-out").text = line(one)
    if is_unknown:
        case = ET.SubElement(suite, "testcase", classname="collbench.check", name="the whole")
        text = f"UNKNOWN: {judged_lines(verdicts)} of {len(verdicts)} lines judged"
        ET.SubElement(case, "error", message=text)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
