"""Collectives that run at once, each on ranks of its own choice, and what their order can do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from collbench.core.case import Case, Problem
from collbench.core.errors import HangError
from collbench.core.options import LaunchOrder
from collbench.planning.plan import Plan

# What a part runs: a plan, or, by a library, a case.
PartJob_co = TypeVar("PartJob_co", bound=Plan | Case, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[PartJob_co]):
    """A collective and the ranks that run it: its rank r is ranks[r] of all. size_bytes, factor: S,
    and by what its bus bandwidth is more than S over time. group: the number of its group of ranks,
    which the operations of a mix have in common.
    """

    job: PartJob_co
    ranks: tuple[int, ...]
    size_bytes: int
    factor: float
    group: int

    @property
    def problem(self) -> Problem:
        """What the part computes."""
        return self.job.problem() if isinstance(self.job, Case) else self.job.problem

    @property
    def name(self) -> str:
        """The part in messages."""
        return f"{self.problem.op} of ranks {','.join(map(str, self.ranks))}"


class LaunchesOfRanks(NamedTuple):
    """The order in which each rank launches its parts, and whether as one launch."""

    orders: tuple[tuple[int, ...], ...]
    is_grouped: bool


@dataclass(frozen=True, kw_only=True)
class Together(Generic[PartJob_co]):
    """Parts that n ranks launch together. order: of the launches of a rank that has several."""

    n: int
    parts: tuple[Part[PartJob_co], ...]
    order: LaunchOrder = "grouped"

    def parts_of(self, rank: int) -> tuple[int, ...]:
        """The numbers of a rank's parts, in the order of its launches."""
        mine = tuple(number for number, part in enumerate(self.parts) if rank in part.ranks)
        return mine[::-1] if self.order == "crossed" and rank % 2 else mine

    @property
    def launches(self) -> LaunchesOfRanks:
        """What the ranks have to know of the order."""
        return LaunchesOfRanks(tuple(map(self.parts_of, range(self.n))), self.order == "grouped")

    @cached_property
    def algorithm_bytes(self) -> float:
        """S of all parts of the rank that has most."""
        return self._most([part.size_bytes for part in self.parts])

    @cached_property
    def bus_bytes(self) -> float:
        """The same, each part times the factor of its bus bandwidth."""
        return self._most([part.size_bytes * part.factor for part in self.parts])

    def alone_s(self, seconds: Sequence[float]) -> float:
        """What the slowest rank would take for all its parts one after the other, if the launch of
        each part takes so many seconds alone.
        """
        return self._most(seconds)

    def _most(self, values: Sequence[float]) -> float:
        return max(sum(values[part] for part in self.parts_of(rank)) for rank in range(self.n))

    def why_it_can_deadlock(self) -> str:
        """How ranks can wait for each other for ever because they launch parts in different orders,
        or an empty text. In a grouped launch no part waits for another.
        """
        if self.order == "grouped":
            return ""
        first: dict[tuple[int, int], int] = {}  # which rank launches one part before another
        for rank in range(self.n):
            for one, other in pairwise(self.parts_of(rank)):
                first.setdefault((one, other), rank)
        graph: dict[int, set[int]] = {}
        for one, other in first:
            graph.setdefault(other, set()).add(one)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle = error.args[1]
            orders = [
                f"rank {first[one, other]} launches {self.parts[one].name} before"
                f" {self.parts[other].name}"
                for one, other in pairwise(cycle)
            ]
            return f"{', and '.join(orders)}: each may wait for another's first launch for ever"
        return ""

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Errors of hangs get what the order of launches has to do with them, if it has."""
        try:
            yield
        except HangError as error:
            if not (why := self.why_it_can_deadlock()):
                raise
            raise HangError(
                f"{error.message}; {why}",
                "launch in one order on all ranks, or as a group (--launch-order grouped)",
            ) from None
