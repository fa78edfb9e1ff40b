"""A job as its communication: the calls of one rank in their order, and the distinct operations
among them.

Sizes are S as our rows count it (see core/collectives.py): the bytes of the vector, or of all n
blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from collbench.core.collectives import OpName
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.grouping import grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A collective that the rank asked for. group: the name of its communicator. start_us,
    duration_us: None where the input has no times. skew: of an uneven exchange, its largest block
    over the mean block; load: the bytes of its busiest rank over those of the mean rank, as far as
    they are known. 1 of equal blocks.
    """

    op: OpName
    size_bytes: int
    dtype: DtypeName
    ranks: int
    redop: RedopName = "sum"
    group: str = ""
    start_us: float | None = None
    duration_us: float | None = None
    skew: float = 1.0
    load: float = 1.0

    @property
    def kind(self) -> "OperationKind":
        """What it has in common with calls that are measured as one."""
        return OperationKind(self.op, self.size_bytes, self.dtype, self.redop, self.ranks)


class OperationKind(NamedTuple):
    """A distinct operation."""

    op: OpName
    size_bytes: int
    dtype: DtypeName
    redop: RedopName
    ranks: int


Span = tuple[float, float]  # of time, in microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The calls of one rank, which stands for all. source: what the input is, in words. marks:
    spans of steps that the input names. computing: spans in which the rank's GPU computed.
    step_calls: the calls of a step, 0 where the input does not say. remarks: what was assumed or
    left out.
    """

    name: str
    source: str
    calls: Sequence[Call]
    marks: Sequence[Span] = ()
    computing: Sequence[Span] = ()
    step_calls: int = 0
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOperation:
    """Calls of one kind. calls: a step. recorded_us: the median of their recorded times. groups:
    the communicators that have them.
    """

    kind: OperationKind
    calls: float
    skew: float
    load: float
    recorded_us: float | None
    groups: tuple[str, ...] = ()

    @property
    def bytes(self) -> float:
        """Bytes a step."""
        return self.calls * self.kind.size_bytes


_ALIKE = 2  # exchanges whose sizes differ by less are measured as one


def evened(calls: Sequence[Call]) -> list[Call]:
    """The calls with one size for uneven exchanges that are alike: experts get other shares in
    every step, and what they get in all stays the same.

    >>> calls = [
    ...     Call(op="alltoall", size_bytes=size, dtype="int8", ranks=2, skew=1.5)
    ...     for size in (100, 120)
    ... ]
    >>> [call.size_bytes for call in evened(calls)]
    [110, 110]
    """
    sizes = [call.size_bytes for call in calls]
    alike: dict[tuple[OpName, DtypeName, int], list[list[int]]] = {}
    for place in sorted(range(len(calls)), key=sizes.__getitem__):
        call = calls[place]
        if call.skew > 1:
            groups = alike.setdefault((call.op, call.dtype, call.ranks), [])
            if not groups or sizes[place] >= _ALIKE * sizes[groups[-1][0]]:
                groups.append([])
            groups[-1].append(place)
    for (_, element, ranks), groups in alike.items():
        grain = ranks * dtype(element).item_bytes
        for places in groups:
            mean = sum(calls[place].size_bytes for place in places) / len(places)
            for place in places:
                sizes[place] = max(1, round(mean / grain)) * grain
    return [
        call if call.size_bytes == size else replace(call, size_bytes=size)
        for call, size in zip(calls, sizes, strict=True)
    ]


def operations_of(calls: Sequence[Call], steps: int) -> list[JobOperation]:
    """The distinct operations of the calls of so many steps, those with the most bytes first.

    >>> one = Call(op="allreduce", size_bytes=1024, dtype="float32", ranks=4)
    >>> [(which.kind.op, which.calls) for which in operations_of([one] * 6, 3)]
    [('allreduce', 2.0)]
    """
    by_kind = grouped((call.kind, call) for call in evened(calls))
    operations = []
    for kind, same in by_kind.items():
        times = [call.duration_us for call in same if call.duration_us is not None]
        operations.append(
            JobOperation(
                kind=kind,
                calls=len(same) / steps,
                skew=max(call.skew for call in same),
                load=max(call.load for call in same),
                recorded_us=median(times) if times else None,
                groups=tuple(dict.fromkeys(call.group for call in same)),
            )
        )
    return sorted(operations, key=lambda one: (-one.bytes, one.kind))
