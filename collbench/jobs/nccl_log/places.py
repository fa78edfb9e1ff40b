"""Where a log says something, and of whom."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from collbench.core import catalog

MOST_PLACES = 4  # kept of a fact
_MOST_OWNERS = 16
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
    >>> owner("[1,0]<stderr>:[rank5]: x"), owner("[1,0]<stderr>: x")  # a launcher's tag comes last
    ('rank 5', 'rank 0')
    """
    text, names = line[:500], []
    for rows in _owners():
        for name, pattern in rows:
            if found := pattern.search(text):
                names.append(name.format(next(filter(None, found.groups()))))
                break
    return ", ".join(names)


@cache
def _owners() -> list[list[tuple[str, re.Pattern[str]]]]:
    """What owners are called and by which patterns, of each kind."""
    table = catalog.load("logs", "owners")
    return [
        [(row["of"], re.compile("".join(row["pattern"]))) for row in table[kind]]
        for kind in ("processes", "devices", "hosts")
    ]


def without_numbers(text: str) -> str:
    """A text as others of its kind have it.

    >>> without_numbers("[rank3]: comm 0x7f at 10.0.0.1<44>"), without_numbers("n4: 12")
    ('[rank#]: comm # at #', 'n#: #')
    """
    return _NUMBERS.sub("#", text[:300])
