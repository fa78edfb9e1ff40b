"""What can be tried for a collective and a size: rows of a tuning file.

A candidate is the values of a row, planned as the planner will do it where the row stands in the
user's file. So what is measured is what a sweep runs later. Nothing here names an algorithm, a
protocol or a transport: all are asked for, and what cannot run is left out with its reason.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from collbench.backends.base import Backend
from collbench.bench.points import SweepPoint
from collbench.core.case import Case
from collbench.core.errors import RefusedError, ScheduleError
from collbench.core.group import Group
from collbench.core.knobs import KNOB, KNOBS, Knob
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.planner import machine_of, resolve
from collbench.planning.price.constants import CpuCosts
from collbench.planning.price.work import cpu_price
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.planning.tuning import VALUE_STAGE, Value, Values, tuning_without

# What a row needs beside a knob so that the planner takes exactly this number.
_BESIDE: dict[str, dict[str, Value]] = {
    "channels": {"channel_bytes": 1},
    "threads": {"thread_bytes": 1},
    "cluster": {"gpcs": 1},
}
_HELPERS = {name for beside in _BESIDE.values() for name in beside}
_WAY = ("transport", "algo", "proto")
_NAMED = {*_WAY, *(knob.name for knob in KNOBS if knob.choices)}
_UNSAFE = "reload"  # off, a link that reorders a line may give wrong data, but seldom: unseen here
_FACTORS = (2, 0.5, 4, 0.25)  # of numbers, from the one that is in use
_CLUSTERS = (1, 2, 4, 8)
_LEAST_BYTES = 1024  # of a chunk that is tried


@dataclass(slots=True, eq=False)
class Candidate:
    """Values of a row, and the point that they lead to. times: seconds of its repeats; reason: why
    it is out, wrong data or a refusal.
    """

    values: Values
    point: SweepPoint
    times: list[float] = field(default_factory=list)
    reason: str = ""
    is_wrong: bool = False

    @property
    def knobs(self) -> int:
        """How many knobs it sets: the fewer, the simpler."""
        return len(self.values.keys() - _HELPERS)

    @property
    def text(self) -> str:
        """The way of the point, and the other knobs that the row sets."""
        return text_of(self.point.case, self.values)


def text_of(case: Case, values: Values) -> str:
    """A choice in words: algorithm and protocol, the transport where there are several, and knobs.

    >>> from collbench.planning.planner import resolve
    >>> case = Case(
    ...     op="allreduce", backend="cpu", algo="ring", ranks=2, size_bytes=8, chunk=1 << 17
    ... )
    >>> text_of(resolve(case).case, {"algo": "ring", "chunk": 1 << 17})
    'ring simple, chunk 128K'
    """
    words = [case.algo, case.proto]
    if "transport" in values:
        words.append(case.transport)
    knobs = [
        f"{KNOB[name].label} {KNOB[name].text(getattr(case, name))}"
        for name in values
        if name in KNOB and name not in _WAY
    ]
    return ", ".join([" ".join(words), *knobs])


class Field:
    """The candidates of a case that leaves everything open, each plan once. left_out: the user's
    file that is not asked, because it is about to be written. way: what the model chooses, where no
    other file does. today: what the tool chooses without that file, None if nothing can run.
    waived: what cannot run, and how often why.
    """

    def __init__(
        self,
        case: Case,
        backend: Backend,
        group: Group,
        limits: Limits,
        left_out: str,
        way: Values | None = None,
    ) -> None:
        self.case, self.limits = case, limits
        self.waived: dict[str, int] = {}
        self._backend, self._group, self._left_out = backend, group, left_out
        self._known: set[str] = set()
        self.today = self.add(way or {})

    def add(self, values: Values) -> Candidate | None:
        """The candidate of those values; None where it cannot run, or is there already."""
        machine = machine_of(self.case.backend, self.limits)
        tuning = tuning_without(machine, self.case.ranks, self._left_out, values)
        try:
            case, plan = resolve(self.case, self.limits, tuning)
        except ScheduleError as error:
            self.waived[error.message] = self.waived.get(error.message, 0) + 1
            return None
        others = [name for name in values if name in _NAMED and getattr(case, name) != values[name]]
        if plan.digest in self._known or others:  # what was asked for is not what would run
            return None
        self._known.add(plan.digest)
        if why := self._backend.why_waived(plan, self._group):
            self.waived[why] = self.waived.get(why, 0) + 1
            return None
        return Candidate(values, SweepPoint(case, plan))

    def ways(self, known: Sequence[Values] = ()) -> list[Candidate]:
        """Rows that were best elsewhere, then every algorithm by every protocol and transport, each
        with its messages in place and through FIFOs.
        """
        rows = [*known, *self._ways()]
        return [one for values in rows if (one := self.add(values)) is not None]

    def _ways(self) -> Iterator[Values]:
        has_hosts = bool(self.limits.hosts)
        transports: tuple[str, ...] = ("",)
        if self._backend.is_gpu and self.case.transport == "auto" and not has_hosts:
            transports = tuple(name for name in TRANSPORTS if TRANSPORTS.load(name).IN_DOMAIN)
        for algo, proto, transport in product(
            algorithms_of(self.case.op, has_hosts=has_hosts), PROTOCOLS, transports
        ):
            way: dict[str, Value] = {"transport": transport} if transport else {}
            way |= {"algo": algo, "proto": proto}
            yield way
            for direct in KNOB["direct"].choices[1:]:
                yield {**way, "direct": direct}

    def neighbours(self, candidate: Candidate) -> list[Candidate]:
        """The candidates that differ from this one in one knob, the nearest values first."""
        case = candidate.point.case
        near = [
            [{**candidate.values, **values} for values in _steps(knob, case)]
            for knob in KNOBS
            if knob.name in VALUE_STAGE and knob.name not in (*_WAY, _UNSAFE) and _heeds(knob, case)
        ]
        longest = max(map(len, near), default=0)
        rows = [values[k] for k in range(longest) for values in near if k < len(values)]
        return [one for values in rows if (one := self.add(values)) is not None]


def _heeds(knob: Knob, case: Case) -> bool:
    """Whether the backend and the protocol of a case heed a knob."""
    return (not knob.backends or case.backend in knob.backends) and (
        not knob.protocols or case.proto in knob.protocols
    )


def _steps(knob: Knob, case: Case) -> Iterator[Values]:
    """Other values of a knob than that of the case, from the nearest on."""
    now = getattr(case, knob.name)
    if knob.choices:
        yield from ({knob.name: value} for value in knob.choices if value not in ("auto", now))
    elif knob.name == "cluster":
        yield from ({"cluster": (size,), **_BESIDE["cluster"]} for size in _CLUSTERS if size != now)
    else:
        least = _LEAST_BYTES if knob.unit == "bytes" else 1
        for value in (int(factor * now) for factor in _FACTORS):
            if value >= least:
                yield {knob.name: value, **_BESIDE.get(knob.name, {})}


def priced(on: CpuCosts, links: RankLinks | None) -> Callable[[SweepPoint], float]:
    """What a point should cost in seconds: on GPUs by their links, where they are known, else by
    the profile of the CPUs; the same of all where nothing is known.
    """

    def cost(point: SweepPoint) -> float:
        assert point.plan is not None
        if point.plan.kernel is None:
            return cpu_price(point.plan, on)
        if links is None:
            return 0.0
        try:
            return links.price(point.plan)
        except RefusedError:
            return 0.0

    return cost
