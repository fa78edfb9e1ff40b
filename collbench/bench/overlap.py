"""What communication costs computation: launches alone, matrix multiplications (GEMMs) alone, and
both concurrently on every GPU.

Both are queued to last about as long alone. Rates are taken over the window in which both run, from
the later of the two starts to the earlier of the two ends; an interval that lies partly inside the
window counts by that part. So neither gains from having the GPU to itself at the end. A row is the
row of a sweep for the launches alone, followed by the columns of the concurrent run. The time is
that of the slowest rank, as in a sweep.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Literal, cast

from collbench.backends.base import GpuOptions, SessionOptions
from collbench.backends.gpu import copies
from collbench.backends.gpu.concurrent import ConcurrentRepeat
from collbench.backends.gpu.session import GpuRank, GpuSession
from collbench.bench.runner import (
    Job,
    SweepPoint,
    circumstances,
    ctas_of,
    describe_wrong,
    new_run,
    opener,
    plan_points,
)
from collbench.bench.sweep import Sweep, cases
from collbench.launch.group import Group
from collbench.results import record as row
from collbench.results.record import Record
from collbench.results.statistics import interval, is_noisy
from collbench.spec.case import Case
from collbench.spec.collectives import OpName, collective
from collbench.spec.knobs import Value
from collbench.spec.options import DEFAULT_MEMORY
from collbench.util.errors import CollbenchError, RefusedError, ScheduleError, UnavailableError
from collbench.util.units import rate_gbs, to_us

Priority = Literal["high", "normal"]
COPIES = "copies"  # the column backend of plain copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to measure: one collective at some sizes, with some numbers of channels, concurrent with
    GEMMs of gemm x gemm matrices.
    """

    op: OpName = "allreduce"
    sizes: tuple[int, ...]
    channels: tuple[int, ...]
    backends: tuple[str, ...]
    ranks: int
    gemm: int
    cluster: int = 0
    transports: tuple[str, ...] = ("auto",)
    priority: Priority = "high"
    gpus: tuple[int, ...] = ()
    repeats: int = 3
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A row of launches alone, and the results of the concurrent run; None where it was not
    measured.

    gemm: the rows and columns of the matrices. *_us: of one GEMM or of one launch. *slower: the
    concurrent time over the time alone. mb_per_lost_ms: megabytes (S a launch) that the launches
    move for each millisecond of computing lost, None where the loss is within the noise.
    noise_percent: by how much the repeats of the GEMMs alone differ.
    """

    record: Record
    gemm: int
    priority: Priority
    gemm_us: float | None = None
    gemm_concurrent_us: float | None = None
    gemm_slower: float | None = None
    concurrent_us: float | None = None
    concurrent_busbw_gbs: float | None = None
    slower: float | None = None
    mb_per_lost_ms: float | None = None
    noise_percent: float | None = None

    @property
    def lost_percent(self) -> float | None:
        """The share of the computing rate that is lost."""
        return None if self.gemm_slower is None else 100 * (1 - 1 / self.gemm_slower)


ADDED = tuple(field.name for field in fields(Overlap))[1:]
COLUMNS = (*row.COLUMNS, *ADDED)


def to_line(overlap: Overlap) -> str:
    """The row as a CSV line with its line end."""
    return row.line_of(
        [
            *(getattr(overlap.record, name) for name in row.COLUMNS),
            *(getattr(overlap, name) for name in ADDED),
        ]
    )


OverlapSession = GpuSession[Job, GpuRank]

# Times


def progress(marks: Sequence[float], start: float, stop: float) -> float:
    """Intervals between marks that lie in a window; an interval that lies partly inside counts by
    that part.

    >>> progress([0.0, 1.0, 2.0, 4.0], 0.5, 3.0)
    2.0
    """
    return sum(
        max(0.0, min(end, stop) - max(begin, start)) / max(end - begin, 1e-12)
        for begin, end in pairwise(marks)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one GEMM and of one launch, each alone and concurrent with the other, on the
    slowest rank.
    """

    gemm_alone: float
    gemm_concurrent: float
    launch_alone: float
    launch_concurrent: float


def times_of(one: ConcurrentRepeat) -> Times:
    """The times of a repeat.

    >>> from collbench.backends.gpu.concurrent import EventTimes
    >>> both = EventTimes(computing=(0.0, 2.0, 4.0), launches=(0.0, 4.0, 5.0))
    >>> times_of(
    ...     ConcurrentRepeat(
    ...         gemms=1,
    ...         launches=2,
    ...         computing_alone=(EventTimes(computing=(0.0, 1.0, 2.0)),),
    ...         launches_alone=(EventTimes(launches=(0.0, 2.0, 4.0)),),
    ...         both=(both,),
    ...     )
    ... )
    Times(gemm_alone=1.0, gemm_concurrent=2.0, launch_alone=1.0, launch_concurrent=2.0)
    """
    windows = [
        (max(of.computing[0], of.launches[0]), min(of.computing[-1], of.launches[-1]))
        for of in one.both
    ]
    return Times(
        gemm_alone=max(
            of.computing[-1] / ((len(of.computing) - 1) * one.gemms) for of in one.computing_alone
        ),
        launch_alone=max(
            of.launches[-1] / ((len(of.launches) - 1) * one.launches) for of in one.launches_alone
        ),
        gemm_concurrent=max(
            _each(of.computing, *window) / one.gemms
            for of, window in zip(one.both, windows, strict=True)
        ),
        launch_concurrent=max(
            _each(of.launches, *window) / one.launches
            for of, window in zip(one.both, windows, strict=True)
        ),
    )


def _each(marks: Sequence[float], start: float, stop: float) -> float:
    return (stop - start) / max(progress(marks, start, stop), 1e-12)


def compared(record: Record, asked: Asked, times: Sequence[Times]) -> Overlap:
    """The row of some repeats: the medians of the times and of the ratios."""
    alone = [one.gemm_alone for one in times]
    noise = (max(alone) - min(alone)) / median(alone)
    gemm_slower = median(one.gemm_concurrent / one.gemm_alone for one in times)
    concurrent_s = median(one.launch_concurrent for one in times)
    algbw = rate_gbs(record.size_bytes, concurrent_s)
    return Overlap(
        record=record,
        gemm=asked.gemm,
        priority=asked.priority,
        gemm_us=to_us(median(alone)),
        gemm_concurrent_us=to_us(median(one.gemm_concurrent for one in times)),
        gemm_slower=gemm_slower,
        concurrent_us=to_us(concurrent_s),
        concurrent_busbw_gbs=algbw * collective(record.op).factor(record.ranks),
        slower=median(one.launch_concurrent / one.launch_alone for one in times),
        # GB/s are MB/ms
        mb_per_lost_ms=algbw / (1 - 1 / gemm_slower) if gemm_slower - 1 > noise else None,
        noise_percent=100 * noise,
    )


# Measuring


def points_of(asked: Asked, group: Group) -> list[SweepPoint]:
    """The points: the collective on each backend if there are two ranks or more, and plain
    copies.
    """
    backends = tuple(name for name in asked.backends if name != COPIES and asked.ranks > 1)
    by_stores = tuple(name for name in asked.transports if name != "ce")
    common = Sweep(
        op=(asked.op,),
        sizes=asked.sizes,
        ranks=(asked.ranks,),
        backend=backends,
        knobs={"algo": ("auto",)},
    )
    ours: dict[str, tuple[Value, ...]] = {
        "transport": by_stores,
        "channels": asked.channels,
        "cluster": (asked.cluster,),
    }
    sweeps = [replace(common, knobs={**common.knobs, **ours})] if by_stores else []
    if "ce" in asked.transports and "cuda" in backends:  # its copies have no channels to choose
        by_copies = {**common.knobs, "transport": ("ce",)}
        sweeps.append(replace(common, backend=("cuda",), knobs=by_copies))
    found = [
        point
        for sweep in sweeps
        for point in plan_points(cases(sweep, {"nccl": {}}), group, DEFAULT_MEMORY)
    ]
    if COPIES in asked.backends:
        why = copies.why_not(group)
        found += [SweepPoint(case, waived=why) for case in _copy_cases(asked)]
    return found


def _copy_cases(asked: Asked) -> Iterator[Case]:
    """Copies by a kernel with as many CTAs as channels are asked for, and by the other ways."""
    for size in asked.sizes:
        for way in copies.WAYS:
            for channels in asked.channels if way == "kernel" else (0,):
                yield Case(
                    op="sendrecv",
                    backend=COPIES,
                    algo=way,
                    proto="",
                    channels=channels,
                    ranks=asked.ranks,
                    size_bytes=size,
                ).rounded()


def measure(asked: Asked, group: Group) -> Generator[Overlap, None, None]:
    """The rows as they finish, one backend after the other. Raises the error that ends the
    measurement, after its row.
    """
    points, run = points_of(asked, group), new_run()
    options = GpuOptions(
        gpus=asked.gpus,
        timeout_s=asked.timeout_s,
        is_spread=len(set(group.hosts)) > 1,
        is_urgent=asked.priority == "high",
    )
    for backend in dict.fromkeys(point.case.backend for point in points):
        mine = [point for point in points if point.case.backend == backend]
        session = _opened([point for point in mine if not point.waived], group, options)
        try:
            for point in mine:
                yield from _measured(point, session, asked, group, run)
        finally:
            if session is not None:
                session.close()


def _opened(
    points: Sequence[SweepPoint], group: Group, options: GpuOptions
) -> OverlapSession | None:
    """A session for points of one backend; None, and all of them waived, if it cannot be opened."""
    if not points:
        return None
    name = points[0].case.backend
    jobs = [point.job for point in points]
    try:
        if name == COPIES:
            cases = [point.case for point in points]
            return cast(
                OverlapSession, copies.CopySession(group, cases, hot=False, options=options)
            )
        # only backends on GPUs are asked for
        return cast(OverlapSession, opener(name).open(group, jobs, SessionOptions(gpu=options)))
    except UnavailableError as error:
        for point in points:
            point.waived = error.text
    return None


def _measured(
    point: SweepPoint, session: OverlapSession | None, asked: Asked, group: Group, run: str
) -> Iterator[Overlap]:
    """The row of a point. Raises an error that must end the measurement."""
    base = circumstances(point.case, group, session, run)
    base["ctas"] = point.case.channels if point.case.backend == COPIES else ctas_of(point)
    untimed = partial(Overlap, gemm=asked.gemm, priority=asked.priority)
    if point.waived:
        yield untimed(record=Record(**base, status="waived", reason=point.waived))
        return
    assert session is not None
    try:
        found, wrong = session.run_concurrently(point.job, asked.gemm, asked.repeats)
    except (RefusedError, ScheduleError) as error:
        yield untimed(record=Record(**base, status="waived", reason=error.text))
        return
    except CollbenchError as error:
        yield untimed(record=Record(**base, status="error", reason=error.message))
        raise
    if wrong:
        reason, count = describe_wrong(wrong[0], point.plan), sum(one.count for one in wrong)
        yield untimed(
            record=Record(**base, status="wrong", wrong=count, repeats=len(found), reason=reason)
        )
        return
    times = [times_of(one) for one in found]
    yield compared(_record(point, base, found, [one.launch_alone for one in times]), asked, times)


def _record(
    point: SweepPoint,
    base: dict[str, Any],
    found: Sequence[ConcurrentRepeat],
    alone: Sequence[float],
) -> Record:
    """The row that a sweep has for the launches alone."""
    bounds, case = interval(alone), point.case
    algbw = rate_gbs(case.size_bytes, bounds.median)
    notes = dict.fromkeys(note for one in found for note in one.notes)
    return Record(
        **base,
        time_us=to_us(bounds.median),
        time_low_us=to_us(bounds.low),
        time_high_us=to_us(bounds.high),
        repeats=len(alone),
        repeat_times_us=tuple(map(to_us, alone)),
        iters=found[0].launches * (len(found[0].launches_alone[0].launches) - 1),
        algbw_gbs=algbw,
        busbw_gbs=algbw * collective(case.op).factor(case.ranks),
        wrong=0,
        status="ok",
        notes=" ".join(
            [
                *notes,
                *(["noisy"] if is_noisy(alone) else []),
                *(["auto"] if point.is_choice else []),
            ]
        ),
    )
