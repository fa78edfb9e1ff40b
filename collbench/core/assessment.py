"""What a command judged, for those who act on it: JUnit's XML, Prometheus' text and Slurm's list of
bad hosts. Every command that judges gives its lines in one form, and all outputs follow from it.

Prometheus: gauges in base units, for the textfile collector of node_exporter (prometheus.io/docs:
exposition formats, metric naming). Hosts: the brackets of Slurm's `scontrol show hostlist`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, Literal, get_args
from xml.etree import ElementTree as ET

from collbench.core.files import write_document
from collbench.core.screen import remark, say
from collbench.core.text import printable, runs, some_of

# skipped: of a line, that nothing can be told and nothing depends on it
Grade = Literal["good", "bad", "unknown", "skipped"]
GRADES: tuple[Grade, ...] = get_args(Grade)
ASSESSMENT_FILES = ("junit", "prometheus", "bad")  # the options that write one
_ELEMENTS: Mapping[Grade, str] = {"bad": "failure", "unknown": "error", "skipped": "skipped"}
_GPUS = re.compile(r"\bGPUs? ?(\d+)")
_HOST = re.compile(r"\w[\w.:+-]*")
_NUMBER = re.compile(r"^(.*?)(\d+)$")
# the base unit of a number's unit, and how many of it that is
_BASE = {"us": ("seconds", 1e-6), "GB/s": ("bytes_per_second", 1e9)}
_HELP = {
    "collbench_verdict": "1 for the verdict of the last run, 0 for the others",
    "collbench_lines": "Lines of the last run by grade",
    "collbench_line_bad": "Whether a line is bad: 1, or 0",
    "collbench_measured_seconds": "A time that was measured",
    "collbench_measured_bytes_per_second": "A bus bandwidth that was measured",
    "collbench_expected_seconds": "What such a time was held against",
    "collbench_expected_bytes_per_second": "What such a bus bandwidth was held against",
    "collbench_duration_seconds": "How long the last run took",
    "collbench_end_timestamp_seconds": "When the last run ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessedLine:
    """One thing that was judged. kind: its part of the suite. text: what was found. host: whose it
    is, "" if of none alone. value, expected: numbers in `unit`, "us" or "GB/s". is_needed: where it
    is unknown, the suite of JUnit has an error.
    """

    name: str
    grade: Grade
    text: str = ""
    kind: str = ""
    host: str = ""
    unit: str = ""
    value: float | None = None
    expected: float | None = None
    is_needed: bool = True

    @property
    def element(self) -> str:
        """The element of its case in JUnit, "" if it passes."""
        is_skipped = self.grade == "unknown" and not self.is_needed
        return "skipped" if is_skipped else _ELEMENTS.get(self.grade, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What a command says. subject: what was judged. grade, why: of the whole. host: where it ran.
    ended_s: of the epoch.
    """

    command: str
    subject: str
    grade: Grade
    why: str = ""
    lines: Sequence[AssessedLine] = field(default=())
    host: str = ""
    seconds: float = 0.0
    ended_s: float = 0.0

    @property
    def bad_hosts(self) -> tuple[str, ...]:
        """Hosts with a line that is bad, each once; without names of somebody's file that a list
        of hosts would read as others.
        """
        hosts = {one.host for one in self.lines if one.grade == "bad"}
        return tuple(sorted(filter(_HOST.fullmatch, hosts)))


def write_assessment(assessment: Assessment, options: Mapping[str, object], out: IO[str]) -> None:
    """Name the bad hosts in a line, and write the files that the options name."""
    bad = f"bad: {hostlist(assessment.bad_hosts)}"
    if assessment.bad_hosts:
        say(bad, file=out)
    named = {one.host for one in assessment.lines if one.grade == "bad" and one.host}
    if left_out := sorted(named - {*assessment.bad_hosts}):
        remark(f"No name that a list of hosts can have, and not in it: {some_of(left_out)}.")
    texts: dict[str, Callable[[Assessment], str]] = {
        "junit": as_junit,
        "prometheus": as_prometheus,
        "bad": lambda _: f"{bad}\n",
    }
    for name in ASSESSMENT_FILES:
        if options.get(name) is not None:
            write_document(texts[name](assessment), str(options[name]), f"--{name}")


def as_junit(assessment: Assessment) -> str:
    """A test case a line, and one of the whole, so that no suite is green where the exit code is
    not 0.
    """
    whole = AssessedLine(
        name="the whole", kind="whole", grade=assessment.grade, text=assessment.why
    )
    lines = [*assessment.lines, whole]
    suite = ET.Element(
        "testsuite",
        name=printable(f"collbench {assessment.command}: {assessment.subject}"),
        hostname=assessment.host,
        tests=str(len(lines)),
        failures=str(sum(one.element == "failure" for one in lines)),
        errors=str(sum(one.element == "error" for one in lines)),
        skipped=str(sum(one.element == "skipped" for one in lines)),
        time=f"{assessment.seconds:.3f}",
    )
    for one in lines:
        kind = ".".join(filter(None, ("collbench", assessment.command, one.kind)))
        name, text = printable(one.name), printable(one.text)
        case = ET.SubElement(suite, "testcase", classname=kind, name=name)
        if one.element:
            ET.SubElement(case, one.element, message=text)
        elif text:
            ET.SubElement(case, "system-out").text = text
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def as_prometheus(assessment: Assessment) -> str:
    """Gauges of the whole, and of the lines that are bad or have a number.

    >>> print(
    ...     as_prometheus(Assessment(command="check", subject="", grade="good", host="h1")), end=""
    ... )
    ... # doctest: +ELLIPSIS
    # HELP collbench_verdict 1 for the verdict of the last run, 0 for the others
    # TYPE collbench_verdict gauge
    collbench_verdict{command="check",host="h1",grade="good"} 1
    ...
    """
    lines = []
    for name, samples in groupby(sorted(_samples(assessment), key=_place), lambda one: one[0]):
        lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge"]
        for _, labels, value in samples:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{pairs}}} {value:.10g}")
    return "\n".join(lines) + "\n"


def _place(sample: tuple[str, dict[str, str], float]) -> int:
    return list(_HELP).index(sample[0])


def _samples(assessment: Assessment) -> Iterator[tuple[str, dict[str, str], float]]:
    """Names, labels and values. Of lines of one name the last counts, since a sample that comes
    twice makes the collector refuse the file.
    """
    labels = {"command": assessment.command, "host": assessment.host}
    for grade in GRADES[:3]:
        yield "collbench_verdict", labels | {"grade": grade}, float(assessment.grade == grade)
    for grade in GRADES:
        count = sum(one.grade == grade for one in assessment.lines)
        yield "collbench_lines", labels | {"grade": grade}, count
    yield "collbench_duration_seconds", labels, assessment.seconds
    yield "collbench_end_timestamp_seconds", labels, assessment.ended_s
    for one in {(one.host, one.kind, one.name): one for one in assessment.lines}.values():
        gpus = ",".join(dict.fromkeys(_GPUS.findall(one.name)))
        here = labels | {"host": one.host or assessment.host, "kind": one.kind}
        here |= {"line": one.name} | ({"gpu": gpus} if gpus else {})
        if one.grade == "bad" or (one.value is not None and one.grade == "good"):
            yield "collbench_line_bad", here, float(one.grade == "bad")
        base, factor = _BASE.get(one.unit, ("", 0.0))
        for what, number in (("measured", one.value), ("expected", one.expected)):
            if base and number is not None:
                yield f"collbench_{what}_{base}", here, number * factor


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def hostlist(names: Iterable[str]) -> str:
    """Hosts as Slurm writes them; leading zeros stay.

    >>> hostlist(["h003", "h017", "h004", "login", "h5"])
    'h5,h[003-004,017],login'
    """
    numbered: dict[tuple[str, int], list[int]] = {}
    texts = []
    for name in sorted(set(names)):
        found = _NUMBER.match(name)
        if found is None:
            texts.append(name)
            continue
        stem, digits = found.groups()
        numbered.setdefault((stem, len(digits)), []).append(int(digits))
    for (stem, width), numbers in numbered.items():
        parts = [
            "-".join(f"{end:0{width}d}" for end in dict.fromkeys((run[0], run[-1])))
            for run in runs(numbers)
        ]
        is_single = len(numbers) == 1
        texts.append(stem + (parts[0] if is_single else f"[{','.join(parts)}]"))
    return ",".join(sorted(texts))
