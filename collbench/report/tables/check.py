"""The findings of a check: a line each, a summary, and documents for programs."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict

from collbench import __version__
from collbench.analysis.verdicts import SEVERITY, Finding, Verdict
from collbench.util.units import format_rate, format_time_us

_NAME, _NUMBER = 25, 11
_JSON_VERSION = 1


def heading() -> str:
    """The line above the findings."""
    return f"{'':4}  {'what':<{_NAME}}{'measured':>{_NUMBER}}{'expected':>{_NUMBER}}  from"


def line(finding: Finding) -> str:
    """A finding in a line."""
    start = f"{finding.verdict:4}  {finding.name:<{_NAME}}"
    if finding.value is None:
        return f"{start}  {finding.detail}".rstrip()
    source = ", ".join(filter(None, (finding.source, finding.detail)))
    measured, expected = (
        f"{_number(value, finding.unit):>{_NUMBER}}" for value in (finding.value, finding.expected)
    )
    return f"{start}{measured}{expected}  {source}".rstrip()


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{format_time_us(value) if unit == 'us' else format_rate(value)} {unit}"


def summary(findings: Sequence[Finding], results: int, duration: str) -> str:
    """The line below the findings. results: how many were compared, element by element."""
    return f"{counts_text(findings)}, {duration}; every element of {results} results compared."


def counts_text(findings: Sequence[Finding]) -> str:
    """How many findings there are of each verdict.

    >>> counts_text([Finding(name="a", verdict="PASS"), Finding(name="b", verdict="FAIL")])
    '1 passed, 0 warnings, 1 failed'
    """
    count = _counts(findings)
    warnings = f"{count['WARN']} warning{'s' * (count['WARN'] != 1)}"
    texts = [f"{count['PASS']} passed", warnings, f"{count['FAIL']} failed"]
    texts += [f"{count['SKIP']} skipped"] if count["SKIP"] else []
    return ", ".join([*texts, *([f"{count['NONE']} not judged"] if count["NONE"] else [])])


def _counts(findings: Sequence[Finding]) -> dict[Verdict, int]:
    return {verdict: sum(one.verdict == verdict for one in findings) for verdict in SEVERITY}


def as_json(findings: Sequence[Finding], device: str, started: str, seconds: float) -> str:
    """The findings as a JSON object."""
    worst = "FAIL" if any(one.verdict == "FAIL" for one in findings) else "PASS"
    document = {
        "version": _JSON_VERSION,
        "collbench": __version__,
        "verdict": worst,
        "counts": _counts(findings),
        "device": device,
        "started": started,
        "seconds": round(seconds, 3),
        "checks": [asdict(one) for one in findings],
    }
    return json.dumps(document, indent=1) + "\n"


def as_junit(findings: Sequence[Finding], device: str, started: str, seconds: float) -> str:
    """The findings as JUnit's XML: a test case each; warnings pass, and say so in system-out."""
    suite = ET.Element(
        "testsuite",
        name=f"collbench check: {device}",
        tests=str(len(findings)),
        failures=str(sum(one.verdict == "FAIL" for one in findings)),
        errors="0",
        skipped=str(sum(one.verdict == "SKIP" for one in findings)),
        time=f"{seconds:.3f}",
        timestamp=started,
    )
    for one in findings:
        case = ET.SubElement(suite, "testcase", classname="collbench.check", name=one.name)
        if one.verdict == "FAIL":
            ET.SubElement(case, "failure", message=line(one))
        elif one.verdict == "SKIP":
            ET.SubElement(case, "skipped", message=one.detail)
        else:
            ET.SubElement(case, "system-out").text = line(one)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
