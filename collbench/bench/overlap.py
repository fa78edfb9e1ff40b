"""What communication costs computation: launches alone, a load alone, and both concurrently, on
GPUs or on the cores of CPUs (overlap_cpu.py).

There are two loads, which tell the cause. Matrix multiplications (GEMMs) lose only the
multiprocessors, on CPUs the cores, that are taken from them. What copies in memory lose more is
bandwidth of the memory.

A load and launches are queued to last about as long alone. Rates are taken over the window in which
both run, from the later of the two starts to the earlier of the two ends; an interval that lies
partly inside the window counts by that part. So neither gains from having the GPU to itself at the
end. A row is the row of a sweep for the launches alone, followed by the columns of the concurrent
run. The time is that of the slowest rank, as in a sweep.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Protocol, cast

from collbench.backends.base import GpuOptions, SessionFacts, SessionOptions
from collbench.backends.gpu import copies
from collbench.backends.gpu.concurrent import ConcurrentRepeat
from collbench.bench.overlap_cpu import CpuOverlapSession
from collbench.bench.points import Job, SweepPoint, ctas_of, opener, plan_points
from collbench.bench.rows import new_run, timed_row, unmeasured_row, wrong_row
from collbench.bench.sweep import Sweep, cases
from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import CollbenchError, RefusedError, ScheduleError, UnavailableError
from collbench.core.group import Group
from collbench.core.knobs import Value
from collbench.core.options import DEFAULT_MEMORY, OVERLAP_OF_CPUS, OverlapSettings, Priority
from collbench.core.pattern import Wrong
from collbench.core.record import COLUMNS, Record, line_of, values_of
from collbench.core.units import rate_gbs, to_us
from collbench.core.verdict import is_noisy

COPIES = "copies"  # the column backend of plain copies


def on_cpus(backends: Sequence[str]) -> bool:
    """Whether what communicates has no GPU."""
    return bool(set(backends) & set(OVERLAP_OF_CPUS))


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapRequest:
    """What to measure: one collective at some sizes, with some numbers of channels, concurrent with
    GEMMs.
    """

    op: OpName = "allreduce"
    sizes: tuple[int, ...]
    channels: tuple[int, ...]
    backends: tuple[str, ...]
    ranks: int
    cluster: int = 0
    transports: tuple[str, ...] = ("auto",)
    settings: OverlapSettings = field(default_factory=OverlapSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A row of launches alone, and the results of the concurrent run; None where it was not
    measured.

    gemm: the rows and columns of the matrices, 0 on CPUs. *_us: of one GEMM (on CPUs a turn of
    computing) or of one launch. *slower: the concurrent time over the time alone. mb_per_lost_ms:
    megabytes (S a launch) that the launches move for each millisecond of computing lost, None where
    the loss is within the noise. noise_percent: by how much the repeats of the GEMMs alone differ.
    memory_*: the same of copies.
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
    memory_slower: float | None = None
    memory_noise_percent: float | None = None


def lost_percent(slower: float | None) -> float:
    """The share of a rate that is lost where something takes so many times as long.

    >>> lost_percent(2.0)
    50.0
    """
    return 100 * (1 - 1 / (slower or 1.0))


ADDED = tuple(column.name for column in fields(Overlap))[1:]
OVERLAP_COLUMNS = (*COLUMNS, *ADDED)


def to_line(overlap: Overlap) -> str:
    """The row as a CSV line with its line end."""
    return line_of([*values_of(overlap.record), *(getattr(overlap, name) for name in ADDED)])


class OverlapSession(SessionFacts, Protocol):
    """A session with the jobs of one backend."""

    def run_concurrently(
        self, job: Job, size: int | None, repeats: int
    ) -> tuple[list[ConcurrentRepeat], list[Wrong]]:
        """Launches alone, multiplications of matrices of that size alone (None: copies in memory),
        and both at once.
        """

    def close(self) -> None: ...


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
    both = list(zip(one.both, windows, strict=True))
    return Times(
        gemm_alone=max(of.computing[-1] / (len(of.computing) - 1) for of in one.computing_alone)
        / one.gemms,
        launch_alone=max(of.launches[-1] / (len(of.launches) - 1) for of in one.launches_alone)
        / one.launches,
        gemm_concurrent=max(_each(of.computing, *window) for of, window in both) / one.gemms,
        launch_concurrent=max(_each(of.launches, *window) for of, window in both) / one.launches,
    )


def _each(marks: Sequence[float], start: float, stop: float) -> float:
    return (stop - start) / max(progress(marks, start, stop), 1e-12)


def _loss(times: Sequence[Times]) -> tuple[float, float]:
    """How many times as long a load takes beside launches, and by how much it differs alone."""
    alone = [one.gemm_alone for one in times]
    noise = (max(alone) - min(alone)) / median(alone)
    return median(one.gemm_concurrent / one.gemm_alone for one in times), noise


def compared(
    record: Record, settings: OverlapSettings, times: Sequence[Times], copying: Sequence[Times]
) -> Overlap:
    """The row of some repeats beside GEMMs and beside copies: the medians of the times and of the
    ratios.
    """
    gemm_slower, noise = _loss(times)
    memory_slower, memory_noise = _loss(copying)
    concurrent_s = median(one.launch_concurrent for one in times)
    algbw = rate_gbs(record.size_bytes, concurrent_s)
    return Overlap(
        record=record,
        gemm=settings.gemm,
        priority=settings.priority,
        gemm_us=to_us(median(one.gemm_alone for one in times)),
        gemm_concurrent_us=to_us(median(one.gemm_concurrent for one in times)),
        gemm_slower=gemm_slower,
        concurrent_us=to_us(concurrent_s),
        concurrent_busbw_gbs=algbw * collective(record.op).factor(record.ranks),
        slower=median(one.launch_concurrent / one.launch_alone for one in times),
        # GB/s are MB/ms
        mb_per_lost_ms=algbw / (1 - 1 / gemm_slower) if gemm_slower - 1 > noise else None,
        noise_percent=100 * noise,
        memory_slower=memory_slower,
        memory_noise_percent=100 * memory_noise,
    )


# Measuring


def points_of(request: OverlapRequest, group: Group) -> list[SweepPoint]:
    """The points: the collective on each backend if there are two ranks or more, and plain
    copies.
    """
    backends = tuple(name for name in request.backends if name != COPIES and request.ranks > 1)
    by_stores = tuple(name for name in request.transports if name != "ce")
    common = Sweep(
        op=(request.op,),
        sizes=request.sizes,
        ranks=(request.ranks,),
        backend=backends,
        knobs={"algo": ("auto",)},
    )
    ours: dict[str, tuple[Value, ...]] = {
        "transport": by_stores,
        "channels": request.channels,
        "cluster": (request.cluster,),
    }
    if on_cpus(request.backends):  # no core is given away by channels
        ours = {}
    sweeps = [replace(common, knobs={**common.knobs, **ours})] if by_stores else []
    if "ce" in request.transports and "cuda" in backends:  # its copies have no channels to choose
        by_copies = {**common.knobs, "transport": ("ce",)}
        sweeps.append(replace(common, backend=("cuda",), knobs=by_copies))
    points = [
        point
        for sweep in sweeps
        for point in plan_points(cases(sweep, {"nccl": {}, "mpi": {}}), group, DEFAULT_MEMORY)
    ]
    if COPIES in request.backends:
        why = copies.why_not(group)
        points += [SweepPoint(case, waived=why) for case in _copy_cases(request)]
    return points


def _copy_cases(request: OverlapRequest) -> Iterator[Case]:
    """Copies by a kernel with as many CTAs as channels are wanted, and by the other ways."""
    for size in request.sizes:
        for algo in copies.COPY_ALGOS:
            for channels in request.channels if algo == "kernel" else (0,):
                yield Case(
                    op="sendrecv",
                    backend=COPIES,
                    algo=algo,
                    proto="",
                    channels=channels,
                    ranks=request.ranks,
                    size_bytes=size,
                ).rounded()


def measure(request: OverlapRequest, group: Group) -> Generator[Overlap, None, None]:
    """The rows as they finish, one backend after the other. Raises the error that ends the
    measurement, after its row.
    """
    points, run, settings = points_of(request, group), new_run(), request.settings
    options = GpuOptions(
        gpus=settings.gpus,
        timeout_s=settings.timeout_s,
        is_spread=len(set(group.hosts)) > 1,
        is_urgent=settings.priority == "high",
    )
    for backend in dict.fromkeys(point.case.backend for point in points):
        own = [point for point in points if point.case.backend == backend]
        session = _opened([point for point in own if not point.waived], group, options)
        try:
            for point in own:
                row = unmeasured_row(point.case, group=group, session=session, run=run)
                yield from _measured(point, session, settings, row)
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
    try:
        if name == COPIES:
            cases = [point.case for point in points]
            session: object = copies.CopySession(group, cases, hot=False, options=options)
        else:
            jobs = [point.job for point in points]
            session = opened = opener(name).open(group, jobs, SessionOptions(gpu=options))
            if on_cpus((name,)):
                session = CpuOverlapSession(group, opened, points[0].case.ranks)
    except UnavailableError as error:
        for point in points:
            point.waived = error.text
        return None
    # all of these sessions run concurrently, and have jobs of the kind of their points
    return cast(OverlapSession, session)


def _measured(
    point: SweepPoint, session: OverlapSession | None, settings: OverlapSettings, row: Record
) -> Iterator[Overlap]:
    """The row of a point. Raises an error that must end the measurement."""
    row = replace(row, ctas=point.case.channels if point.case.backend == COPIES else ctas_of(point))
    untimed = partial(Overlap, gemm=settings.gemm, priority=settings.priority)
    if point.waived:
        yield untimed(record=replace(row, status="waived", reason=point.waived))
        return
    assert session is not None
    try:
        repeats, wrong = session.run_concurrently(point.job, settings.gemm, settings.repeats)
        if not wrong:
            copying, wrong = session.run_concurrently(point.job, None, settings.repeats)
    except (RefusedError, ScheduleError) as error:
        yield untimed(record=replace(row, status="waived", reason=error.text))
        return
    except CollbenchError as error:
        yield untimed(record=replace(row, status="error", reason=error.message))
        raise
    if wrong:
        yield untimed(record=wrong_row(row, wrong, point.plan, len(repeats)))
        return
    times = [times_of(repeat) for repeat in repeats]
    alone = [one.launch_alone for one in times]
    notes = list(dict.fromkeys(note for repeat in repeats for note in repeat.notes))
    if is_noisy(alone):
        notes.append("noisy")
    if point.is_choice:
        notes.append("auto")
    iterations = repeats[0].launches * (len(repeats[0].launches_alone[0].launches) - 1)
    row = replace(timed_row(row, alone, iterations), notes=" ".join(notes))
    yield compared(row, settings, times, list(map(times_of, copying)))
