"""Plans that run at once, each on ranks of its own choice, and what their order can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

from collbench.planning.plan import Plan
from collbench.spec.options import LaunchOrder
from collbench.util.errors import HangError


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A plan and the ranks that run it: rank r of the plan is ranks[r] of all. size_bytes, factor:
    S, and by what its bus bandwidth is more than S over time.
    """

    plan: Plan
    ranks: tuple[int, ...]
    size_bytes: int
    factor: float

    @property
    def name(self) -> str:
        """The part in messages."""
        return f"{self.plan.problem.op} of ranks {','.join(map(str, self.ranks))}"


class LaunchesOfRanks(NamedTuple):
    """The order in which each rank launches its parts, and whether as one launch."""

    orders: tuple[tuple[int, ...], ...]
    is_grouped: bool


@dataclass(frozen=True, kw_only=True)
class Together:
    """Parts that n ranks launch together. order: of the launches of a rank that has several."""

    n: int
    parts: tuple[Part, ...]
    order: LaunchOrder = "grouped"

    def parts_of(self, rank: int) -> tuple[int, ...]:
        """The numbers of a rank's parts, in the order of its launches."""
        mine = tuple(number for number, part in enumerate(self.parts) if rank in part.ranks)
        return mine[::-1] if self.order == "crossed" and rank % 2 else mine

    @property
    def launches(self) -> LaunchesOfRanks:
        """What the ranks have to know of the order."""
        return LaunchesOfRanks(tuple(map(self.parts_of, range(self.n))), self.order == "grouped")

    @property
    def most_parts(self) -> int:
        """Parts of the rank that has most."""
        return max(len(self.parts_of(rank)) for rank in range(self.n))

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

    def explained(self, error: HangError) -> HangError:
        """The error with what the order of launches has to do with it, if it has."""
        if why := self.why_it_can_deadlock():
            return HangError(
                f"{error.message}; {why}",
                "launch in one order on all ranks, or as a group (--launch-order grouped)",
            )
        return error
