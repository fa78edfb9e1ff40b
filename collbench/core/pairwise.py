"""What pairs of ranks reached: one value of one transfer, who the ranks are, and the CSV of both.

Rates are GB/s in one direction. A pair's two directions are two samples unless both were measured
at once.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Mode = Literal["alone", "together"]
MODES: tuple[Mode, ...] = ("alone", "together")
Where = Literal["both", "network", "inside"]
WHERES: tuple[Where, ...] = ("both", "network", "inside")
COLUMNS = (
    *("host_a", "rank_a", "local_a", "host_b", "rank_b", "local_b", "direction", "mode"),
    *("sharing", "size_bytes", "gbs", "status", "reason", "where", "waits"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSample:
    """One measurement from rank a to rank b, or of both directions at once.

    mode: the pair alone, or all pairs of its round together. sharing: the pairs between hosts that
    the busier of its two hosts had in that round. gbs: None if it has no value, for the reason.
    where: which pairs were asked for, between hosts (network), inside hosts or both.
    waits: why its ranks may have waited for cores, empty if they need not.
    """

    a: int
    b: int
    gbs: float | None
    is_both: bool = False
    mode: Mode = "alone"
    sharing: int = 1
    size_bytes: int = 0
    reason: str = ""
    where: Where = "both"
    waits: str = ""


@dataclass(frozen=True, slots=True)
class PairWorld:
    """Who the ranks are: the host of each, and its number on it, which is its rail.

    >>> world = PairWorld(("a", "a", "b"), (0, 1, 0))
    >>> world.n, world.host_names, world.host_numbers
    (3, ('a', 'b'), (0, 0, 1))
    """

    hosts: tuple[str, ...]
    local: tuple[int, ...]

    @property
    def n(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    @property
    def host_names(self) -> tuple[str, ...]:
        """Every host once, in the order of its first rank."""
        return tuple(dict.fromkeys(self.hosts))

    @property
    def host_numbers(self) -> tuple[int, ...]:
        """The number of the host of every rank."""
        number = {name: place for place, name in enumerate(self.host_names)}
        return tuple(number[name] for name in self.hosts)

    @property
    def is_one_rank_a_host(self) -> bool:
        """Whether host and rank are the same thing."""
        return len(self.host_names) == self.n


def world_of(hosts: Sequence[str]) -> PairWorld:
    """The world of ranks on those hosts, numbered on each in rank order.

    >>> world_of(["a", "b", "a"]).local
    (0, 0, 1)
    """
    return PairWorld(
        tuple(hosts), tuple(hosts[:rank].count(host) for rank, host in enumerate(hosts))
    )


def csv_line(fields: Iterable[object]) -> str:
    """A line of the file, for example the header of COLUMNS."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(fields)
    return line.getvalue()


def sample_line(sample: PairSample, world: PairWorld) -> str:
    r"""The line of a sample, in the order of COLUMNS.

    >>> sample_line(PairSample(a=0, b=1, gbs=1.5), PairWorld(("a", "b"), (0, 0)))
    'a,0,0,b,1,0,a->b,alone,1,0,1.5,ok,,both,\n'
    """
    a, b = sample.a, sample.b
    return csv_line(
        (
            *(world.hosts[a], a, world.local[a], world.hosts[b], b, world.local[b]),
            "both" if sample.is_both else "a->b",
            *(sample.mode, sample.sharing, sample.size_bytes),
            "" if sample.gbs is None else f"{sample.gbs:.6g}",
            *(
                "ok" if sample.gbs is not None else "error",
                sample.reason,
                sample.where,
                sample.waits,
            ),
        )
    )
