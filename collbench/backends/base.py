"""What every backend speaks: a session runs a plan for a batch and returns samples. Nothing here
knows records, tables or files.

A backend module offers `why_not(group) -> str` and `Session(group, jobs, hot=...)`; see
CONTRIBUTING.md for the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.launch.group import WorkerGroup
from collbench.machine.host import last_level_cache_bytes
from collbench.spec.case import BUFFER_GRAIN_BYTES, Problem
from collbench.spec.pattern import Wrong, compare, fill, poison

if TYPE_CHECKING:
    from collbench.spec.dtypes import Array

# of one timed batch whose iterations are left to us; a sweep without options then takes half a
# minute
TARGET_S = 0.04
CACHES_TO_PASS = 2  # buffers rotate over this many times the last-level cache
MAX_ROTATIONS = 256  # small buffers come back after this many launches
ANSWER_S = 5.0  # beyond a rank's own deadline, until its answer must be here
# a machine that writes and compares test data slower than this is not waited for
SLOWEST_FILL_BYTES_S = 2e8
MIN_ITERATIONS, MAX_ITERATIONS = 3, 1000  # of such a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How to measure one repeat: untimed launches, timed iterations (0: as many as fill TARGET_S),
    and whether results are compared.

    An iteration is `aggregate` launches, followed by a barrier of all ranks if blocking.
    deadline_s: how long no rank may wait for another.
    """

    warmup: int = 1
    iterations: int = 0
    is_checked: bool = True
    aggregate: int = 1
    blocking: bool = False
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One repeat: each rank's mean seconds a launch, iterations timed, wrong elements by rank,
    notes on the conditions.

    busy_s: processor time of all ranks together, 0 if unknown.
    """

    seconds: tuple[float, ...]
    iterations: int = 1
    busy_s: float = 0.0
    wrong: tuple[Wrong, ...] = ()
    notes: tuple[str, ...] = ()


def auto_iterations(seconds: float) -> int:
    """Launches that fill TARGET_S if one takes that long.

    >>> auto_iterations(0.001), auto_iterations(1.0), auto_iterations(1e-9)
    (40, 3, 1000)
    """
    return max(MIN_ITERATIONS, min(MAX_ITERATIONS, round(TARGET_S / max(seconds, 1e-9))))


def stride_bytes(problem: Problem) -> int:
    """Bytes of user memory that one rank's buffers take, up to the next cache line."""
    return (
        -(
            -max(problem.buffers(rank).total_bytes for rank in range(problem.n))
            // BUFFER_GRAIN_BYTES
        )
        * BUFFER_GRAIN_BYTES
    )


def rotations(problem: Problem, *, hot: bool) -> int:
    """Sets of user buffers that launches take in turn: enough to pass the last-level cache, one if
    hot.
    """
    return (
        1
        if hot
        else max(
            1,
            min(
                MAX_ROTATIONS,
                -(
                    -CACHES_TO_PASS
                    * last_level_cache_bytes()
                    // (stride_bytes(problem) * problem.n)
                ),
            ),
        )
    )


def prepare_buffers(problem: Problem, rank: int, source: "Array", target: "Array") -> None:
    """Write the rank's input and poison its output (in place, what is input stays)."""
    poison(target, problem.op, problem.redop, problem.n, problem.root, rank)
    if len(source):
        fill(source, problem.op, problem.redop, problem.n, rank)


def compare_output(problem: Problem, rank: int, target: "Array") -> Wrong | None:
    """The wrong elements of the rank's output."""
    return compare(target, problem.op, problem.redop, problem.n, problem.root, rank)


def verify_in_process(
    problem: Problem, buffer: Callable[[int, str], "Array"], launch: Callable[[], None]
) -> tuple[Wrong, ...]:
    """Fill, poison, launch and compare all ranks of a backend that holds them in one process."""
    for rank in range(problem.n):
        prepare_buffers(problem, rank, buffer(rank, "in"), buffer(rank, "out"))
    launch()
    found = [compare_output(problem, rank, buffer(rank, "out")) for rank in range(problem.n)]
    return tuple(wrong for wrong in found if wrong is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a rank says of one call: its wrong elements, seconds a launch, processor time of the
    whole call.
    """

    wrong: Wrong | None
    seconds: float
    busy_s: float


def repeat(
    workers: WorkerGroup, key: object, problem: Problem, batch: Batch, *, hot: bool, sets: int
) -> Samples:
    """One repeat on a crew whose ranks offer prepare() and timed(): run every set of buffers once
    and compare, warm up, time, compare again.
    """
    data_bytes = sets * stride_bytes(problem) * problem.n
    data_s = data_bytes / SLOWEST_FILL_BYTES_S
    deadline_s = batch.deadline_s + data_s
    prepared = workers.call(
        "prepare",
        key,
        hot,
        batch.warmup,
        batch.is_checked,
        deadline_s,
        timeout_s=deadline_s + ANSWER_S,
    )
    iterations = batch.iterations or auto_iterations(max(answer.seconds for answer in prepared))
    timed = workers.call(
        "timed",
        key,
        hot,
        (iterations, batch.aggregate, batch.blocking),
        batch.is_checked,
        deadline_s,
        timeout_s=deadline_s + ANSWER_S,
    )
    wrong = [first.wrong or second.wrong for first, second in zip(prepared, timed, strict=True)]
    return Samples(
        seconds=tuple(answer.seconds for answer in timed),
        iterations=iterations,
        wrong=tuple(found for found in wrong if found is not None),
        busy_s=sum(answer.busy_s for answer in (*prepared, *timed)),
        notes=("hot",) if hot else (("in-cache",) if data_bytes < last_level_cache_bytes() else ()),
    )
