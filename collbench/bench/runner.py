"""From cases to records: plans every point, measures its repeats spread over the sweep, verifies
them, and turns samples into rows.

Points are measured in a sliding order: repeat k of a point follows some points after repeat k - 1.
So drift shows in the spread of the repeats, and rows still finish all along. Backends are reached
only through their sessions.
"""

import hashlib
import math
import os
import platform
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import reduce
from statistics import median
from typing import cast

from collbench import __version__
from collbench.backends import FAMILY, together_names, together_of
from collbench.backends.base import (
    DISTRIBUTION_LAUNCHES,
    DISTRIBUTION_S,
    Backend,
    Batch,
    GpuOptions,
    Peer,
    Samples,
    Session,
    SessionFacts,
    SessionOpener,
    SessionOptions,
)
from collbench.backends.net.receivers import may_take_threads
from collbench.bench.ceilings import Ceilings, is_far_below
from collbench.bench.estimate import is_gpu, repeat_s, start_s
from collbench.bench.wire import Ledger, ledger_of
from collbench.device.program import ctas
from collbench.launch.group import Group
from collbench.machine.discovery.counters import Moved
from collbench.machine.host import busy_seconds, cpu_name, memory_left_bytes, usable_cores
from collbench.planning.limits import Limits
from collbench.planning.lowering import writer_of
from collbench.planning.plan import Plan
from collbench.planning.planner import chosen, problem_of, resolve, tuning_for
from collbench.planning.together import Part, Together
from collbench.planning.tuning import Origin
from collbench.pricing.constants import CpuCosts, costs_here, cpu_costs
from collbench.results.distribution import LEAST_US, PERCENTILES, histogram, percentile
from collbench.results.record import Record
from collbench.results.statistics import interval, is_noisy
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.spec.knobs import KNOBS
from collbench.spec.options import DEFAULT_MEMORY, Settings
from collbench.spec.pattern import Wrong
from collbench.spec.peers import forced_by
from collbench.spec.world import host_numbers
from collbench.util.errors import CollbenchError, RefusedError, ScheduleError, UnavailableError
from collbench.util.units import rate_gbs, to_us

STRIDE = 24  # points between two repeats of one point, in a sweep long enough
# The seconds between them that suffice to see drift: slow points need fewer others in between, and
# their rows come sooner.
SPREAD_S = 5.0
SHARING = 8  # ranks that may share a core without more patience
# The share of a core that other processes took, above which the row of a point is noisy.
FOREIGN_SHARE = 0.25
FOREIGN_MIN_S = 0.05  # and at least this much, because the kernel counts in steps of 0.01 s


# backend, ranks, and the variables that its processes are started with
SessionKey = tuple[str | int | tuple[str, str], ...]
# what a session runs: a peer's a case, any other's a plan, or several together
Job = Plan | Case | Together[Plan | Case]


@dataclass(slots=True)
class SweepPoint:
    """A case on its way to a record: resolved and planned, or waived with a reason. is_choice: the
    tool itself would choose this case for its problem. origin: of what it was left to choose.
    together: all collectives of a case that has several at once; plan is then of the first.
    """

    case: Case
    plan: Plan | None = None
    waived: str = ""
    is_choice: bool = False
    origin: Origin | None = None
    together: Together[Plan | Case] | None = None
    repeats: list[Samples] = field(default_factory=list)
    elapsed_s: float = 0.0
    foreign_s: float = 0.0

    def anew(self) -> "SweepPoint":
        """The same point, not yet measured."""
        return SweepPoint(
            self.case, self.plan, self.waived, self.is_choice, self.origin, self.together
        )

    @property
    def job(self) -> Job:
        if self.together is not None:
            return self.together
        return self.plan if self.plan is not None else self.case

    @property
    def session(self) -> "SessionKey":
        return self.case.backend, self.case.ranks, *forced_by(self.case)


def opener(name: str, *, is_together: bool = False) -> SessionOpener[Job]:
    """The backend or peer of that name, for jobs of its points: Point.job is of the kind that it
    takes, which types cannot say.
    """
    found = together_of(name) if is_together else FAMILY.load(name)
    return cast("SessionOpener[Job]", found)


class CaseLinks:
    """What is known of the links between the ranks of cases: nothing, unless a subclass does."""

    def pricing(self, case: Case, limits: Limits) -> str:
        """The machine by whose constants the model decides what the case leaves open; empty where
        tuning files decide alone.
        """
        return ""

    def priced(self, case: Case, limits: Limits) -> Case:
        """The case with what it leaves open where the model decides that."""
        return case

    def best(self, case: Case, limits: Limits) -> Case | None:
        """What the tool takes for the case's problem; None where nobody needs to know."""
        return problem_of(case)

    def limits(self, case: Case, limits: Limits) -> Limits:
        """The limits with the hosts of the ranks, what joins them, and the orders for the case's
        algorithm.
        """
        return limits


def plan_points(
    cases: Sequence[Case],
    group: Group,
    max_memory: int = DEFAULT_MEMORY,
    links: CaseLinks | None = None,
    progress: Callable[[int], None] = lambda begun: None,
) -> list[SweepPoint]:
    """Resolve and lay out every case. A case that cannot run is waived with its reason; cases that
    resolve to the same are measured once.

    links: what is known of those between the ranks. progress(number): called before each case with
    how many were planned.
    """
    refused: dict[str, str] = {}
    limits: dict[str, Limits] = {}
    points: dict[tuple[Case, str], SweepPoint] = {}
    here, links = host_numbers(group.hosts), links or CaseLinks()
    for number, case in enumerate(cases):
        progress(number)
        backend = FAMILY.load(case.backend)
        if case.backend not in refused:
            refused[case.backend] = backend.why_not(group)
            limits[case.backend] = (
                Limits(memory_bytes=max_memory)
                if backend.is_peer or refused[case.backend]
                else backend.limits(max_memory)
            )
        why = refused[case.backend] or case.why_senseless()
        if not why and group.ranks and case.ranks != group.ranks:
            why = (
                f"the launcher started {group.ranks} ranks, not {case.ranks}: start as many, or"
                " leave --ranks out"
            )
        if not why and case.is_together:
            why = _why_not_together(backend, group)
        plan = _planned_together if case.is_together else _planned
        point = (
            SweepPoint(case, waived=why)
            if why
            else plan(case, backend, replace(limits[case.backend], hosts=here), links)
        )
        if point.together is not None:
            found = together_of(case.backend)
            point.waived = found.why_waived(point.together) if found is not None else ""
        elif point.plan is not None and not backend.is_peer and not point.waived:
            point.waived = backend.why_waived(point.plan, group)
        points.setdefault((point.case, point.waived), point)
    return list(points.values())


def _planned(case: Case, backend: Backend | Peer, limits: Limits, links: CaseLinks) -> SweepPoint:
    if backend.is_peer:
        return SweepPoint(case, waived=backend.why_waived(case, collective(case.op).is_reduction))
    is_open = case.proto == "auto"
    best, case = links.best(case, limits), links.priced(case, limits)
    limits = links.limits(case, limits)
    try:
        choice = resolve(case, limits)
    except ScheduleError as error:
        return SweepPoint(case, waived=error.text)
    return SweepPoint(
        choice.case,
        choice.plan,
        is_choice=best is not None and choice.case == chosen(best, limits),
        origin=tuning_for(case, limits).origin._replace(
            priced_by=links.pricing(case, limits),
            refused=_refused(limits, choice.plan.transport) if is_open else (),
        ),
    )


def _refused(limits: Limits, transport: str) -> tuple[str, ...]:
    """The protocols that were left out on a transport, each with what showed why."""
    names = limits.refused(transport)
    return tuple(f"{one.name} ({one.why})" for one in limits.broken if one.name in names)


def _why_not_together(backend: Backend | Peer, group: Group) -> str:
    """Why a backend cannot run several collectives at once on that group, or an empty text."""
    found = together_of(backend.name)
    if found is None:
        *others, last = together_names()
        return (
            f"{backend.name} is measured with one collective at a time; use --backend"
            f" {', '.join(others)} or {last}"
        )
    return found.why_not(group)


def _planned_together(
    case: Case, backend: Backend | Peer, limits: Limits, links: CaseLinks
) -> SweepPoint:
    """As _planned(), of several collectives at once. The point has the knobs of the first one, and
    the algorithms of all.
    """
    points: dict[Case, SweepPoint] = {}
    parts: list[Part[Plan | Case]] = []
    if backend.is_gpu:  # the CTAs of all parts of a rank are on its GPU at once
        most = max(Counter(rank for part in case.parts() for rank in part.ranks).values())
        limits = replace(limits, ctas=limits.ctas // most)
    for single, ranks, group in case.parts():
        if single not in points:
            point = _planned(single, backend, limits, links)
            if point.plan is not None and point.plan.transport == "ce" != single.transport:
                point = _planned(replace(single, transport="p2p"), backend, limits, links)
            points[single] = point
        if points[single].waived:
            return SweepPoint(case, waived=points[single].waived)
        plan = points[single].plan
        parts.append(
            Part(
                job=single if plan is None else plan,
                ranks=ranks,
                size_bytes=single.size_bytes,
                factor=collective(single.op).factor(single.ranks) * (single.imbalance or 1),
                group=group,
            )
        )
    first, *_ = known = list(points.values())
    chosen_knobs = {knob.name: getattr(first.case, knob.name) for knob in KNOBS}
    chosen_knobs["algo"] = "+".join(dict.fromkeys(point.case.algo for point in known))
    return SweepPoint(
        replace(case, **chosen_knobs),
        first.plan,
        is_choice=all(point.is_choice for point in known),
        origin=first.origin,
        together=Together(n=case.ranks, parts=tuple(parts)),
    )


def estimate_s(point: SweepPoint, settings: Settings, on: CpuCosts) -> float:
    """Seconds that one repeat of a point should take, with the preparation of its data."""
    if point.waived:
        return 0.0
    if point.together is not None:  # each part alone, and all of them
        jobs = [part.job for part in point.together.parts]
        singles = [part.case for part in point.case.parts()]
        return 2 * sum(
            repeat_s(single, job if isinstance(job, Plan) else None, on, settings)
            for single, job in zip(singles, jobs, strict=True)
        )
    return repeat_s(point.case, point.plan, on, settings)


def order(points: int, repeats: int, stride: int = STRIDE) -> Iterator[tuple[int, int]]:
    """(point, repeat) in the order of measurement: each repeat of a point follows `stride` points
    after the one before.

    >>> list(order(3, 2))
    [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    """
    stride = max(1, min(stride, points))
    for turn in range(points + stride * (repeats - 1)):
        for repeat in range(repeats):
            point = turn - repeat * stride
            if 0 <= point < points:
                yield point, repeat


class Measurement:
    """Measures points and yields records in the order in which they finish.

    A library that is forced to something needs processes of its own, started with environment
    variables, and some need them anyway. Its points come after all others, one set of processes at
    a time, so that no more than one set waits on the GPUs.

    progress is called after every repeat with the estimated seconds of work that are done.
    """

    def __init__(self, points: Sequence[SweepPoint], group: Group, settings: Settings) -> None:
        self.points, self.group, self.settings = points, group, settings
        self.progress: Callable[[float], None] = lambda done_s: None
        self.machine = replace(cpu_costs(costs_here("cpu", cpu_name())), cores=cores_of(group))
        self.ceilings: Callable[[Case], Ceilings | None] = lambda case: None
        self.sessions: dict[SessionKey, Session[Job]] = {}
        self.run_id = new_run()
        self.ledgers: list[tuple[Case, Ledger]] = []  # of the rows so far, if they are asked for

    def has_launch_times(self, point: SweepPoint) -> bool:
        """Whether launches of a point are timed one by one."""
        is_asked = self.settings.distribution is not None
        return is_asked and FAMILY.load(point.case.backend).has_launch_times

    def has_wire(self, point: SweepPoint) -> bool:
        """Whether the counters of links are read around the launches of a point."""
        return self.settings.wire and FAMILY.load(point.case.backend).has_launch_times

    def is_measured_by(self, point: SweepPoint, row: Record | None) -> bool:
        """Whether a row, the last one of the point, has what would be measured."""
        if row is None or row.status != "ok":
            return False
        is_counted = row.wire_bytes is not None or not self.has_wire(point)
        return is_counted and (bool(row.histogram) or not self.has_launch_times(point))

    def key_of(self, point: SweepPoint) -> tuple[object, ...]:
        """Record.point of the row that the point will have."""
        return self._record(point, error=CollbenchError("")).point

    def _conditions(self, point: SweepPoint) -> list[str]:
        """Notes that distinguish rows of one key that measured different things: the settings that
        the backend of the point heeds.
        """
        settings, on_gpus = self.settings, is_gpu(point.case)
        if FAMILY.load(point.case.backend).wants_machine:  # it measures nothing
            return []
        conditions = ["hot"] if settings.hot else []
        if not settings.is_checked:
            conditions.append("unchecked")
        if settings.blocking and not on_gpus:
            conditions.append("blocking")
        if settings.isolated and on_gpus:
            conditions.append("isolated")
        if point.together is not None and settings.launch_order != "grouped":
            conditions.append(f"order-{settings.launch_order}")
        if settings.launch == "stream" and on_gpus:
            conditions.append("stream")
        if on_gpus and point.plan is not None and point.plan.domains:
            threads = (
                settings.net_threads if may_take_threads(point.plan, self.group.hosts) else None
            )
            if settings.net_memory != "auto":
                conditions.append(f"net-{settings.net_memory}")
            if threads is not None:
                conditions.append(f"net-threads-{threads}")
        return conditions + ([f"aggregate-{settings.aggregate}"] if settings.aggregate > 1 else [])

    def open(self) -> None:
        """Open a session for each backend and number of ranks; points whose session cannot be
        opened are waived.
        """
        for key, points in self._by_session().items():
            if not is_apart(key, points):
                self._open(key, points)

    def estimate_s(self) -> float:
        """Seconds that all repeats of all points should take, and the start of their ranks."""
        starts_s = [
            max(start_s(point.case, point.plan) for point in points)
            for points in self._by_session().values()
        ]
        return sum(starts_s) + self.settings.repeats * sum(map(self._repeat_s, self.points))

    def _repeat_s(self, point: SweepPoint) -> float:
        return estimate_s(point, self.settings, self.machine)

    def _by_session(self) -> dict[SessionKey, list[SweepPoint]]:
        points: dict[SessionKey, list[SweepPoint]] = {}
        for point in self.points:
            if not point.waived:
                points.setdefault(point.session, []).append(point)
        return points

    def _open(self, key: SessionKey, points: Sequence[SweepPoint]) -> None:
        backend = opener(str(key[0]), is_together=points[0].together is not None)
        try:
            self._waive_too_large(backend, points)
            jobs = [point.job for point in points if not point.waived]
            if jobs:
                self.sessions[key] = backend.open(
                    self.group, jobs, session_options(self.settings, self.group)
                )
        except UnavailableError as error:
            for point in points:
                point.waived = error.text

    def _waive_too_large(self, backend: SessionOpener[Job], points: Sequence[SweepPoint]) -> None:
        """Waive the points whose memory the ranks cannot have, so that the others still run."""
        hot = self.settings.hot
        for point in points:
            shared = backend.shared_bytes(point.job, hot=hot)
            private = backend.private_bytes(point.job, hot=hot) * self._ranks_here(point.case)
            for needed, left, what in (
                (shared + private, memory_left_bytes(), "memory"),
                (shared, self.group.shared_bytes_left(), "shared memory"),
            ):
                if needed > left:
                    point.waived = (
                        f"needs {-(-needed >> 20)}M of {what}, {left >> 20}M are left: use smaller"
                        " --sizes, --slots or --chunk, or fewer --ranks"
                    )

    def _ranks_here(self, case: Case) -> int:
        return self.group.hosts.count(self.group.hosts[0]) if self.group.ranks else case.ranks

    def records(self) -> Iterator[Record]:
        """All rows: waived ones first, the others as they finish. Raises the error that ends the
        sweep, after its row.
        """
        for point in self.points:
            if point.waived:
                yield self._record(point)
        later = {key: points for key, points in self._by_session().items() if is_apart(key, points)}
        yield from self._measured(
            [point for point in self.points if not point.waived and point.session not in later]
        )
        for key, points in later.items():
            self._open(key, points)
            yield from (self._record(point) for point in points if point.waived)
            yield from self._measured([point for point in points if not point.waived])
            if key in self.sessions:
                self.sessions.pop(key).close()

    def _measured(self, live: Sequence[SweepPoint]) -> Iterator[Record]:
        """The rows of points whose sessions are open."""
        total_s = sum(map(self._repeat_s, live))
        stride = round(SPREAD_S * len(live) / total_s) if total_s else STRIDE
        for index, repeat in order(len(live), self.settings.repeats, min(stride, STRIDE)):
            point = live[index]
            if point.waived:
                continue
            try:
                self._repeat(point)
            except (RefusedError, ScheduleError) as error:
                point.waived = error.text
                yield self._record(point)
                continue
            except CollbenchError as error:
                yield self._record(point, error=error)
                raise
            self.progress(self._repeat_s(point))
            if repeat == self.settings.repeats - 1:
                yield self._record(point)
                point.plan = point.together = None  # its lowered actions take much memory

    def records_within(self, end_s: float) -> Iterator[Record]:
        """As records(), for as many repeats as end before that time of the monotonic clock: of the
        first point one anyway. A point that was not reached has no row.
        """
        yield from (self._record(point) for point in self.points if point.waived)
        groups = self._by_session()
        together = [one for key, of in groups.items() if not is_apart(key, of) for one in of]
        yield from self._rounds(together, end_s)
        is_first = not together
        for key, points in groups.items():
            if is_apart(key, points) and (is_first or time.monotonic() < end_s):
                is_first = False
                self._open(key, points)
                yield from (self._record(point) for point in points if point.waived)
                yield from self._rounds([one for one in points if not one.waived], end_s)
                if key in self.sessions:
                    self.sessions.pop(key).close()

    def records_so_far(self) -> list[Record]:
        """The rows of points that were measured at all, where records_within() was ended."""
        return [self._record(point) for point in self.points if point.repeats]

    def _rounds(self, live: Sequence[SweepPoint], end_s: float) -> Iterator[Record]:
        """The rows of points whose sessions are open, one repeat of all after the other."""
        for _ in range(self.settings.repeats):
            for number, point in enumerate(live):
                is_due = not number and not point.repeats
                left_s = end_s - time.monotonic()
                if point.waived or (self._repeat_s(point) > left_s and not is_due):
                    continue
                try:
                    self._repeat(point)
                except (RefusedError, ScheduleError) as error:
                    point.waived = error.text
        yield from (self._record(point) for point in live if point.repeats or point.waived)

    def once(self, points: Sequence[SweepPoint] | None = None) -> list[float]:
        """One more repeat of every point, or of some: seconds of the slowest rank's launch, in the
        order of the points. Raises UnavailableError for one that is waived or comes out wrong.
        """
        for key, its_points in self._by_session().items():
            if key not in self.sessions:
                self._open(key, its_points)
        return [self.repeat(point) for point in (self.points if points is None else points)]

    def repeat(self, point: SweepPoint) -> float:
        """One more repeat of a point, whose session is open: seconds of the slowest rank's launch.
        Raises UnavailableError for a point that is waived or comes out wrong.
        """
        if not point.waived:
            self._repeat(point)
        row = self._record(point)
        if row.status != "ok":
            raise UnavailableError(f"{row.status}: {row.reason}")
        return max(point.repeats[-1].seconds)

    @property
    def foreign_share(self) -> float:
        """Cores' worth of time that other processes took while points were measured."""
        elapsed_s = sum(point.elapsed_s for point in self.points)
        return sum(point.foreign_s for point in self.points) / elapsed_s if elapsed_s else 0.0

    def _repeat(self, point: SweepPoint) -> None:
        settings, session = self.settings, self.sessions[point.session]
        iterations = point.repeats[0].iterations if point.repeats else settings.iterations
        expected_s = estimate_s(point, replace(settings, distribution=None), self.machine)
        batch = Batch(
            warmup=settings.warmup,
            iterations=iterations,
            is_checked=settings.is_checked,
            aggregate=settings.aggregate,
            blocking=settings.blocking,
            has_wire=self.has_wire(point),
            deadline_s=self._patience(point.case) * settings.timeout_s + expected_s,
        )
        if self.has_launch_times(point):
            batch = with_single_launches(batch, settings, len(point.repeats))
        start, busy, own = time.monotonic(), busy_seconds(), time.process_time()
        if point.together is not None:
            point.together = replace(point.together, order=settings.launch_order)
        samples = session.run(point.job, batch)
        elapsed = time.monotonic() - start
        point.repeats.append(samples)
        point.elapsed_s += elapsed
        if samples.busy_s:
            point.foreign_s += max(
                0.0, busy_seconds() - busy - (time.process_time() - own) - samples.busy_s
            )

    def _patience(self, case: Case) -> float:
        """How many timeouts a rank waits for another: more than one where many ranks share a core,
        because each also waits for the turns of all others.
        """
        return 1.0 if is_gpu(case) else max(1.0, self.machine.crowd(case.ranks) / SHARING)

    def _record(self, point: SweepPoint, error: CollbenchError | None = None) -> Record:
        case = point.case
        session = self.sessions.get(point.session)
        row = unmeasured_row(case, group=self.group, session=session, run=self.run_id)
        row = replace(row, ctas=ctas_of(point), notes=" ".join(self._conditions(point)))
        if point.waived:
            return replace(row, status="waived", reason=point.waived)
        if error is not None:
            return replace(row, status="error", reason=error.message)
        iterations = point.repeats[0].iterations
        if wrong := [one for samples in point.repeats for one in samples.wrong]:
            plan = point.plan if point.together is None else None
            row = wrong_row(row, wrong, plan, len(point.repeats))
            return replace(row, iters=iterations)
        times = [max(samples.seconds) for samples in point.repeats]
        row = timed_row(row, times, iterations)
        if point.together is not None:
            row = with_alone(row, point.together, [one.alone_s for one in point.repeats])
        row = with_distribution(row, [time for one in point.repeats for time in one.launch_times_s])
        if not self.settings.is_checked or is_modelled(point):
            row = replace(row, wrong=None)
        row = self._with_wire(row, point)
        notes = self._notes(point, times)
        ceilings = self.ceilings(case)
        # nobody knows what several collectives at once could reach on the links that they share
        is_known = point.together is None
        top = ceilings.of(case, point.plan) if ceilings is not None and is_known else None
        if top is not None and (busbw := row.busbw_gbs) is not None:
            percent = 100 * busbw / top.gbs
            row = replace(row, ceiling_gbs=top.gbs, percent=percent, limit=top.limit)
            if is_far_below(busbw, interval(times).median, top.gbs):
                notes.append("far-below-ceiling")
        return replace(row, notes=" ".join(notes))

    def _with_wire(self, row: Record, point: SweepPoint) -> Record:
        """The row with what passed the links in all repeats, if that was read."""
        moved = [samples.wire for samples in point.repeats if samples.wire is not None]
        if not moved:
            return row
        most = max(len(one.passed) for one in moved)  # links whose counters were answered
        whole = [one for one in moved if len(one.passed) == most]
        ledger = ledger_of(reduce(Moved.and_then, whole), point.plan, is_gpu=is_gpu(point.case))
        self.ledgers.append((point.case, ledger))
        return replace(
            row,
            wire_bytes=ledger.wire_bytes,
            wire_expected=ledger.wire_expected,
            wire_foreign=ledger.wire_foreign,
        )

    def _notes(self, point: SweepPoint, times: Sequence[float]) -> list[str]:
        notes = list(dict.fromkeys(note for samples in point.repeats for note in samples.notes))
        notes += [condition for condition in self._conditions(point) if condition not in notes]
        is_busy = point.foreign_s > max(FOREIGN_MIN_S, FOREIGN_SHARE * point.elapsed_s)
        if (len(times) > 1 and is_noisy(times)) or is_busy:
            notes.append("noisy")
        if point.is_choice:
            notes.append("auto")
        return notes

    def close(self) -> None:
        """Close every session."""
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()


def cores_of(group: Group) -> int:
    """The cores that all ranks have together; a launcher may have pinned this one to some."""
    if group.kind == "local":
        return usable_cores()
    return (os.cpu_count() or 1) * len(set(group.hosts))


def new_run() -> str:
    """The name of a run, which its rows have in common."""
    started = datetime.now(UTC)
    return (
        started.strftime("%Y%m%dT%H%M%S")
        + "-"
        + hashlib.sha256(f"{started}{socket.gethostname()}{os.getpid()}".encode()).hexdigest()[:6]
    )


def unmeasured_row(case: Case, *, group: Group, session: SessionFacts | None, run: str) -> Record:
    """The row of a case before it has any result: the knobs, and who measured it, where and when.
    session: None if there is none.
    """
    versions = [f"collbench {__version__}", f"python {platform.python_version()}"]
    versions += [session.version] if session else []
    versions += [group.library] if group.library not in "; ".join(versions) else []
    return Record(
        **{of.name: getattr(case, of.name) for of in fields(Case) if of.name != "counts_file"},
        ctas=0,
        group=group.kind,
        hosts=len(set(group.hosts)),
        count=case.block_count,
        imbalance=None if case.why_senseless() else case.imbalance,
        status="ok",
        run=run,
        host=(session.host if session else "") or socket.gethostname(),
        device=session.device if session else "",
        versions="; ".join(versions),
        timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def timed_row(row: Record, times: Sequence[float], iterations: int) -> Record:
    """The row of launches whose repeats took so many seconds each, and were right."""
    bounds = interval(times)
    algbw = rate_gbs(row.size_bytes, bounds.median)
    return replace(
        row,
        time_us=to_us(bounds.median),
        time_low_us=to_us(bounds.low),
        time_high_us=to_us(bounds.high),
        repeats=len(times),
        repeat_times_us=tuple(map(to_us, times)),
        iters=iterations,
        algbw_gbs=algbw,
        busbw_gbs=algbw * collective(row.op).factor(row.ranks) * (row.imbalance or 1),
        wrong=0,
    )


def with_alone(row: Record, together: Together[Plan | Case], alone_s: Sequence[float]) -> Record:
    """The row of launches together, with what they take one after the other, each alone."""
    assert row.time_us is not None
    alone_us, seconds = to_us(interval(alone_s).median), row.time_us * 1e-6
    return replace(
        row,
        alone_us=alone_us,
        over_alone=row.time_us / alone_us,
        algbw_gbs=rate_gbs(together.algorithm_bytes, seconds),
        busbw_gbs=rate_gbs(together.bus_bytes, seconds),
    )


def row_of_runs(rows: Sequence[Record]) -> Record:
    """The row of several runs of a point, which has the repeats of all; where one of them has no
    time, that one.
    """
    *_, last = rows
    without = [row for row in rows if row.status != "ok"]
    if without or len(rows) == 1:
        return without[0] if without else last
    times = [time * 1e-6 for row in rows for time in row.repeat_times_us]
    row = timed_row(last, times, last.iters)
    if last.alone_us and last.time_us and last.algbw_gbs and last.busbw_gbs and row.time_us:
        alone_us = median(one.alone_us or 0.0 for one in rows)
        scale = last.time_us / row.time_us
        row = replace(
            row,
            alone_us=alone_us,
            over_alone=row.time_us / alone_us,
            algbw_gbs=last.algbw_gbs * scale,
            busbw_gbs=last.busbw_gbs * scale,
        )
    percent = None
    if last.ceiling_gbs and row.busbw_gbs is not None:
        percent = 100 * row.busbw_gbs / last.ceiling_gbs
    notes = dict.fromkeys(note for row in rows for note in row.notes.split())
    return replace(row, wrong=last.wrong, percent=percent, notes=" ".join(notes))


def with_single_launches(batch: Batch, settings: Settings, repeat: int) -> Batch:
    """The batch of a repeat with its share of the launches that are timed one by one.

    >>> settings = Settings(distribution=1000, repeats=3)
    >>> [with_single_launches(Batch(), settings, k).single_launches for k in range(3)]
    [334, 333, 333]
    """
    asked, repeats = settings.distribution, settings.repeats
    launches = asked or DISTRIBUTION_LAUNCHES
    return replace(
        batch,
        single_launches=launches // repeats + (repeat < launches % repeats),
        single_s=math.inf if asked else DISTRIBUTION_S / repeats,
    )


def with_distribution(row: Record, seconds: Sequence[float]) -> Record:
    """The row with the percentiles of single launches, as far as so many show them."""
    if not seconds:
        return row
    times_us = sorted(max(LEAST_US, to_us(time)) for time in seconds)
    p50, p99, p999 = (percentile(times_us, share) for share in PERCENTILES.values())
    return replace(
        row,
        p50_us=p50,
        p99_us=p99,
        p999_us=p999,
        max_us=times_us[-1],
        histogram=histogram(times_us),
    )


def wrong_row(row: Record, wrong: Sequence[Wrong], plan: Plan | None, repeats: int) -> Record:
    """The row of launches with wrong elements; the reason names the first: rank, index, values, and
    the round that should have written it.
    """
    one = wrong[0]
    reason = f"rank {one.rank} element {one.index}: got {one.got}, expected {one.wanted}"
    if plan is not None and (
        writer := writer_of(plan, one.rank, one.index * plan.problem.item_bytes)
    ):
        reason += f"; {writer}"
    count = sum(one.count for one in wrong)
    return replace(row, status="wrong", wrong=count, repeats=repeats, reason=reason)


def is_apart(key: SessionKey, points: Sequence[SweepPoint]) -> bool:
    """Whether the ranks of a session with these points are processes that must not be on the GPUs
    while others are measured: those of a library that is forced to something are.
    """
    is_forced, first = len(key) > 2, points[0]
    found = opener(str(key[0]), is_together=first.together is not None)
    return is_forced or found.is_apart(first.job)


def ctas_of(point: SweepPoint) -> int:
    """CTAs of the launch of a rank, 0 if unknown; a library has one CTA a channel."""
    if point.plan is not None:
        return ctas(point.plan) if point.plan.kernel is not None else 0
    return point.case.channels if forced_by(point.case) else 0


def is_modelled(point: SweepPoint) -> bool:
    """Whether the times of a point were predicted by the model rather than measured."""
    return any("modelled" in samples.notes for samples in point.repeats)


def session_options(settings: Settings, group: Group) -> SessionOptions:
    """What sessions heed of the settings."""
    return SessionOptions(
        hot=settings.hot,
        machine=settings.machine,
        gpu=GpuOptions(
            gpus=settings.gpus,
            launch=settings.launch,
            isolated=settings.isolated,
            timeout_s=settings.timeout_s,
            inject=settings.inject,
            is_spread=len(set(group.hosts)) > 1 or settings.inject == "spread",
            net_memory=settings.net_memory,
            net_threads=settings.net_threads,
        ),
    )
