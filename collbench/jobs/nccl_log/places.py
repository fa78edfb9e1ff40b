"""Where a log says something, and of whom."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_PLACES = 4  # kept of a fact
_MOST_OWNERS = 16
# whose a line is, by its prefix or by what it names first: of each row the first pattern that fits
_OWNERS = (
    (
        ("rank {}", r"\[missing ranks: (\d[\d, ]{0,60})"),
        ("local rank {}", r"(?i:\blocal[_ ]rank)\W{1,3}(\d{1,6})\b"),
        ("rank {}", r"(?i:(?:\b|_)rank)[ _]?[:=#]?\s?(\d{1,6})\b(?! of)|\[1,(\d{1,6})\]<std"),
        ("process {}", r"\bon (?:proc|process(?:or)?) (\d{1,6})\b|\A\[?default(\d{1,4})\]"),
        ("task {}", r"\btask:? ?(\d{1,6}):|\A\s{0,4}(\d{1,5}): (?=\S*[A-Za-z])"),
        ("process {}", r"\A\(\w[\w.:]{0,60} pid=(\d{1,8})\b"),
        ("process {}", r"\bKill(?:ed)? process (\d{1,8}(?: \([^)]{1,40}\))?)|,pid=(\d{1,8})"),
        ("step {}", r"\bStepId=(\d[\w.+]{0,30})|\bin step (\d[\w.]{0,30})"),
        ("pod {}", r"\A([a-z0-9][a-z0-9.-]{1,80}) +\d/\d +OOMKilled"),
    ),
    (
        ("GPU {}", r"(?:NVRM|amdgpu|GPU).{0,40}?\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b"),
        ("{}", r"\A(a device|(?:device|bridge) \S+): \W*(?:LnkSta|ACSCtl)"),
        ("device {}", r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b"),
        ("GPU {}", r"\b(?:GPU[ :#-]?|cuda:)(\d{1,2})\b(?![.:]\d)|\bGPU (node-\d{1,3})\b"),
    ),
    (
        ("host {}", r"\A\W?(?:(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +\d{1,2} [\d:]{8}(?: \d{4}\])? +|"
         r"\d{4}-\d\d-\d\dT\S{8,25} |(?=\S+ kernel: ))(?![A-Z]{4,8} )"
         r"([A-Za-z][\w.-]{0,60}) [\w.-]+(?:\[\d+\])?:"),
        ("host {}", r"\[(?![\w.-]+\.(?:py|cc?|cpp|cu|go|rs|hpp?):)([A-Za-z][\w.-]{0,60})"
         r":\d+(?::\d+)*\]"),
        ("host {}", r"\b(?:on node|(?:host|node)(?:name)?[:=]|ON(?= \S+ CANCELLED)|srun: error:"
         r"(?= \S+: task))\s{0,2}[\"']?(?!(?:No|Connection|Error|Failed|my|\d+) )(\w[\w.-]{0,60})"),
        ("host {}", r"\bip=(\d{1,3}(?:\.\d{1,3}){3})\b"),
    ),
)  # fmt: skip
_PATTERNS = tuple(tuple((name, re.compile(one)) for name, one in row) for row in _OWNERS)
_NUMBERS = re.compile(
    r"0x[0-9a-fA-F]+|\b[0-9a-fA-F:.]*\d[0-9a-fA-F:.<>\[\]]*|(?<=[a-z])\d+(?=[\]:\s])"
)


class LogPlace(NamedTuple):
    """A line of a file; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file} line {self.line}"


@dataclass(slots=True)
class Seen:
    """Where something stands: the first few places, and how often in all."""

    places: list[LogPlace] = field(default_factory=list)
    count: int = 0
    hosts: set[str] = field(default_factory=set)
    owners: list[str] = field(default_factory=list)  # ranks, GPUs, hosts that lines name

    def add(self, place: LogPlace, host: str = "", line: str = "") -> None:
        """Keep one more place."""
        self.count += 1
        if host:
            self.hosts.add(host)
        if len(self.places) < MOST_PLACES:
            self.places.append(place)
        if line and len(self.owners) < _MOST_OWNERS and self.count < 10 * _MOST_OWNERS:
            self.owners += [one for one in (owner(line),) if one and one not in self.owners]


def merged(every: Sequence[Seen]) -> Seen:
    """All places of several as one."""
    return Seen(
        sorted(place for one in every for place in one.places),
        sum(one.count for one in every),
        {host for one in every for host in one.hosts},
        list(dict.fromkeys(owner for one in every for owner in one.owners)),
    )


def owner(line: str) -> str:
    """Whose a line is, in its own words; empty if it does not say.

    >>> owner("[rank3]: [Errno 5]"), owner("ERROR on proc 617: frob"), owner("my node: n1")
    ('rank 3', 'process 617', 'host n1')
    >>> owner("Feb 20 18:59:13 n2 kernel: NVRM: GPU 0000:01:00.0: RmInitAdapter failed!")
    'GPU 0000:01:00.0, host n2'
    """
    text, names = line[:500], []
    for row in _PATTERNS:
        for name, pattern in row:
            if found := pattern.search(text):
                names.append(name.format(next(filter(None, found.groups()))))
                break
    return ", ".join(names)


def without_numbers(text: str) -> str:
    """A text as others of its kind have it.

    >>> without_numbers("[rank3]: comm 0x7f at 10.0.0.1<44>"), without_numbers("n4: 12")
    ('[rank#]: comm # at #', 'n#: #')
    """
    return _NUMBERS.sub("#", text[:300])
