"""Where a log says something."""

import re
from dataclasses import dataclass, field

MOST_PLACES = 4  # kept of a fact
_NUMBERS = re.compile(
    r"0x[0-9a-fA-F]+|\b[0-9a-fA-F:.]*\d[0-9a-fA-F:.<>\[\]]*|(?<=[a-z])\d+(?=[\]:\s])"
)


@dataclass(frozen=True, slots=True, order=True)
class LogPlace:
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

    def add(self, place: LogPlace, host: str = "") -> None:
        """Keep one more place."""
        self.count += 1
        if host:
            self.hosts.add(host)
        if len(self.places) < MOST_PLACES:
            self.places.append(place)


def without_numbers(text: str) -> str:
    """A text as others of its kind have it.

    >>> without_numbers("[rank3]: comm 0x7f at 10.0.0.1<44>"), without_numbers("n4: 12")
    ('[rank#]: comm # at #', 'n#: #')
    """
    return _NUMBERS.sub("#", text[:300])
