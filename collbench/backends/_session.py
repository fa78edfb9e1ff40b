"""What every backend speaks: a session runs a plan for a batch and returns samples. Nothing here knows records, tables or files.

A backend module offers `why_not(group, case) -> str` and `Session(group, plans, hot)`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from collbench.collectives import collective
from collbench.pattern import Wrong, compare, fill, poison
from collbench.plan import Plan

if TYPE_CHECKING:
    from collbench.dtypes import Array

TARGET_S = 0.02  # of one timed batch whose iterations are left to us: about a hundred scheduler slices
MIN_ITERATIONS, MAX_ITERATIONS = 3, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How to measure one repeat: untimed launches, timed launches (0: as many as fill TARGET_S), and whether results are compared.

    deadline_s: how long no rank may wait for another.
    """

    warmup: int = 1
    iterations: int = 0
    is_checked: bool = True
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One repeat: each rank's mean seconds a launch, the launches timed, wrong elements by rank, and notes on the conditions."""

    seconds: tuple[float, ...]
    iterations: int = 1
    wrong: tuple[Wrong, ...] = ()
    notes: tuple[str, ...] = ()


class Session(Protocol):
    """An open backend. `device` and `version` describe what ran; run() measures one repeat; once() runs given inputs once."""

    device: str
    version: str

    def run(self, plan: Plan, batch: Batch) -> Samples: ...

    def once(self, plan: Plan, inputs: Sequence["Array"]) -> list["Array"]: ...

    def close(self) -> None: ...


def auto_iterations(seconds: float) -> int:
    """Launches that fill TARGET_S if one takes that long.

    >>> auto_iterations(0.001), auto_iterations(1.0), auto_iterations(1e-9)
    (20, 3, 500)
    """
    return max(MIN_ITERATIONS, min(MAX_ITERATIONS, round(TARGET_S / max(seconds, 1e-9))))


def prepare_buffers(plan: Plan, rank: int, source: "Array", target: "Array") -> None:
    """Write the rank's input and poison its output (in place, what is input stays)."""
    op, n, root = plan.schedule.op, plan.n, plan.schedule.root
    poison(target, op, plan.redop, n, root, rank)
    if collective(op).blocks("in", n, root, rank):
        fill(source, op, plan.redop, n, rank)


def compare_output(plan: Plan, rank: int, target: "Array") -> Wrong | None:
    """The wrong elements of the rank's output."""
    return compare(target, plan.schedule.op, plan.redop, plan.n, plan.schedule.root, rank)


def verify_in_process(plan: Plan, buffer: Callable[[int, str], "Array"], launch: Callable[[], None]) -> tuple[Wrong, ...]:
    """Fill, poison, launch and compare all ranks of a backend that holds them in one process."""
    for rank in range(plan.n):
        prepare_buffers(plan, rank, buffer(rank, "in"), buffer(rank, "out"))
    launch()
    found = [compare_output(plan, rank, buffer(rank, "out")) for rank in range(plan.n)]
    return tuple(wrong for wrong in found if wrong is not None)
