"""What the steps of an estimate have found until now."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from collbench.analysis.tomography.contention import Bench, Contention
from collbench.analysis.tomography.groups import Component, Edge
from collbench.analysis.tomography.model import Evidence, Grouping, Kind, Undecided
from collbench.results.flows import Flow, block

# Of the rate of a shared link: flows that have no more together fall too little to tell.
FILLED = 1.35


@dataclass(slots=True, kw_only=True)
class State:
    """own: GB/s of each GPU's own PCIe link. host: of a GPU to a block. near: the place near a GPU.
    over_pcie: pairs whose copies surely pass the sender's own PCIe link. elsewhere: GPUs that are
    surely not near a place.
    """

    bench: Bench
    gpus: int
    blocks: int
    peers: frozenset[Flow]
    own: Sequence[float | None]
    groupings: list[Grouping] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    memories: list[list[int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    near: dict[int, int] = field(default_factory=dict)
    host: dict[Edge, float] = field(default_factory=dict)
    over_pcie: set[Edge] = field(default_factory=set)
    elsewhere: dict[int, set[int]] = field(default_factory=dict)

    def to_memory(self, gpu: int, memory: Sequence[int]) -> float:
        """The mean of the logarithms of the rates to the blocks of a memory."""
        return fmean(math.log(self.host[gpu, of]) for of in memory)

    def end(self, place: int) -> int:
        """The end of flows to a place that is tried."""
        return block(self.places[place])

    def best(self, gpu: int) -> int:
        """The place to which a GPU is fastest."""
        return max(range(len(self.places)), key=lambda one: self.host[gpu, self.places[one]])

    def add(
        self, kind: Kind, group: Component, one: Contention, place: int, open_: Iterable[int]
    ) -> None:
        """Add a group that contention shows."""
        self.groupings.append(
            Grouping(
                kind=kind,
                gpus=group.members,
                confidence=group.confidence,
                evidence=Evidence(
                    compares="together", flows=one.flows, before=one.alone, after=one.together
                ),
                place=place,
                open=tuple(sorted(open_)),
            )
        )

    def leave_open(self, what: str, why: str) -> None:
        """Note what cannot be decided."""
        self.undecided.append(Undecided(what=what, why=why))


def outside(members: Sequence[int], tried: Iterable[tuple[Edge, Contention]]) -> set[int]:
    """GPUs that surely do not pass the link that members share: flows of one of them and of a
    member would fill it, and did not disturb each other.
    """
    known = list(tried)
    widest = max(
        sum(one.together) for pair, one in known if one.is_shared and set(pair) <= set(members)
    )
    return {
        end
        for pair, one in known
        if one.is_clear and sum(one.alone) > FILLED * widest and set(pair) & set(members)
        for end in pair
        if end not in members
    }
