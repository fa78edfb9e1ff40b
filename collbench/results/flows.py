"""Copies at the same time: which flows, and what each reached in some repeats. Who measures them is
a `FlowSource`: GPUs, or a described machine that invents them.

A flow is (from, to), and an end is a number: that of a GPU, or -1 - block for a block of the host's
memory. Blocks are spread over the host's cores; in which NUMA node one lies need not be known.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

Flow = tuple[int, int]
FlowSet = tuple[Flow, ...]  # flows at once, in order
Repeats = Mapping[FlowSet, Sequence[Sequence[float]]]  # GB/s of every flow, for each repeat


def block(number: int) -> int:
    """The end of a flow that is a block of the host's memory.

    >>> block(0), block(3)
    (-1, -4)
    """
    return -1 - number


def flow_set(*flows: Flow) -> FlowSet:
    """Flows at once: the same ones are the same set, in whatever order they are named."""
    return tuple(sorted(flows))


class FlowSource(Protocol):
    """What can be measured.

    gpus, blocks: how many there are. peers: pairs of GPUs whose memories reach each other without
    the host's. own: GB/s after its line code of each GPU's own PCIe link, None if unknown.
    """

    @property
    def gpus(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def peers(self) -> frozenset[Flow]: ...
    @property
    def own(self) -> Sequence[float | None]: ...
    def rates(self, flows: FlowSet) -> list[float]:
        """GB/s of each flow while all of them run, once. Raises UnavailableError or HangError."""
        ...
