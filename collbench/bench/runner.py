"""From points to records: measures the repeats of every point spread over the sweep, verifies them,
and has them made into rows.

Points are measured in a sliding order: repeat k of a point follows some points after repeat k - 1.
So drift shows in the spread of the repeats, and rows still finish all along. Backends are reached
only through their sessions.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from collbench.backends import FAMILY
from collbench.backends.base import Batch, Session, SessionOpener
from collbench.backends.net.receivers import may_take_threads
from collbench.backends.repeat import DISTRIBUTION_LAUNCHES, DISTRIBUTION_S
from collbench.bench.points import (
    SPREAD_S,
    STRIDE,
    Job,
    SessionKey,
    SweepPoint,
    cores_of,
    ctas_of,
    estimate_s,
    is_apart,
    is_gpu,
    is_modelled,
    matters,
    opener,
    order,
    session_options,
    start_s,
)
from collbench.bench.rows import (
    Floors,
    new_run,
    timed_row,
    unmeasured_row,
    with_alone,
    with_distribution,
    with_floor,
    wrong_row,
)
from collbench.core.case import Case
from collbench.core.errors import CollbenchError, RefusedError, ScheduleError, UnavailableError
from collbench.core.group import Group
from collbench.core.host import cpu_name, memory_left_bytes, own_cores
from collbench.core.limits import (
    ADVISED_REPEATS,
    FOREIGN_SHARE,
    LONGER_BESIDE_ONE,
    MORE_REPEATS,
    MORE_TIME_SHARE,
)
from collbench.core.options import Settings
from collbench.core.peers import is_peer, library_of
from collbench.core.record import Record
from collbench.core.verdict import interval, is_noisy, middle
from collbench.launch.driver import OutOfTime, ended_at
from collbench.launch.local import own_processes
from collbench.machine.others import Look, Span, demand, foreign_note, look
from collbench.planning.links import RankLinks, is_far_below
from collbench.planning.price.constants import costs_here, cpu_costs

if TYPE_CHECKING:
    from collbench.bench.wire import Ledger

_WATCHED_S = 0.2
FLOOR_TRIES = 3  # measurements of a floor before the first row that has it
SHARING = 8  # ranks that may share a core without more patience


class Measurement:
    """Measures points and yields records in the order in which they finish.

    A library that is forced to something needs processes of its own, started with environment
    variables, and some need them anyway. Its points come after all others, one set of processes at
    a time, so that no more than one set waits on the GPUs.

    ceilings: the links of a case's ranks, where they are known. progress is called after every
    repeat with the estimated seconds of work that are done. end_s: of the monotonic clock, when
    ranks that this host started are left in the middle of a repeat.
    """

    def __init__(
        self,
        points: Sequence[SweepPoint],
        group: Group,
        settings: Settings,
        ceilings: Callable[[Case], RankLinks | None] = lambda case: None,
    ) -> None:
        self.points, self.group, self.settings, self.ceilings = points, group, settings, ceilings
        self.progress: Callable[[float], None] = lambda done_s: None
        self.machine = replace(cpu_costs(costs_here("cpu", cpu_name())), cores=cores_of(group))
        self.sessions: dict[SessionKey, Session[Job]] = {}
        self.run_id = new_run()
        self.floors = Floors()
        self.ledgers: list[tuple[Case, Ledger]] = []  # of the rows so far, if they are asked for
        self.end_s = math.inf
        self._begin_s, self._again_s = time.monotonic(), 0.0
        self._opening: list[Span] = []
        self._own: frozenset[int] = frozenset()  # the processes of this run, once they are needed

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
        if not has_machine_time(point.case):
            return ["isolated"] if settings.isolated else []
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
        is_timed = any(has_machine_time(point.case) for point in self.points)
        before = self.look() if is_timed else None
        for key, points in self._by_session().items():
            if not is_apart(key, points):
                self._open(key, points)
        self._opened_since(before)

    def _opened_since(self, before: Look | None) -> None:
        after = self.look() if before is not None else None
        self._opening = [] if before is None or after is None else [(before, after)]

    def watch(self) -> None:
        """See for a moment what others have of the machine, where no session is opened."""
        before = self.look()
        time.sleep(_WATCHED_S)
        self._opened_since(before)

    def estimate_s(self, others: float | None = None) -> float:
        """Seconds that all repeats of all points should take, and their ranks to start, beside so
        many other tasks: those that want the cores take turns on them, ranks wait for each other's
        turns, and rows that this moves are repeated. None: as if nobody had to take turns.
        """
        starts_s = [
            max(start_s(point.case, point.plan) for point in points)
            for points in self._by_session().values()
        ]
        repeats_s = self.settings.repeats * sum(map(self._repeat_s, self.points))
        if others is None:
            return sum(starts_s) + repeats_s
        ranks = max((self._ranks_here(point.case) for point in self.points), default=0)
        turns = max(1.0, (others + ranks) / len(self._cores))
        return turns * (sum(starts_s) + repeats_s * (1 + LONGER_BESIDE_ONE * min(1.0, others)))

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
                self._own = frozenset()
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
        self._begin_s, self._again_s = time.monotonic(), 0.0
        for point in self.points:
            if point.waived:
                yield self._record(point)
        sessions = self._by_session()
        together = {key for key, points in sessions.items() if not is_apart(key, points)}
        yield from self._measured(
            [point for point in self.points if not point.waived and point.session in together]
        )
        for turn in self._turns():
            yield from self._opened_and(turn, self._measured)

    def _turns(self) -> Iterator[dict[SessionKey, list[SweepPoint]]]:
        """The sessions that are open apart from others, one after the other, but for releases of a
        library that are forced to the same: these are open at once, and take turns.
        """
        turns = dict[tuple[object, ...], dict[SessionKey, list[SweepPoint]]]()
        for key, points in self._by_session().items():
            if is_apart(key, points):
                turns.setdefault((library_of(str(key[0])), *key[1:]), {})[key] = points
        yield from turns.values()

    def _opened_and(
        self,
        turn: Mapping[SessionKey, Sequence[SweepPoint]],
        measured: Callable[[Sequence[SweepPoint]], Iterator[Record]],
    ) -> Iterator[Record]:
        """Open sessions, yield the rows of their points, and close them."""
        points = [one for one in self.points if not one.waived and one.session in turn]
        for key, of in turn.items():
            self._open(key, of)
        yield from (self._record(point) for point in points if point.waived)
        yield from measured([point for point in points if not point.waived])
        for key in turn:
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
            is_last = repeat == self.settings.repeats - 1
            try:
                self._repeat(point)
                if is_last:
                    self._repeat_again(point, live)
                    self._repeat_below(point)
            except (RefusedError, ScheduleError) as error:
                point.waived = error.text
                yield self._record(point)
                continue
            except CollbenchError as error:
                yield self._record(point, error=error)
                raise
            self.progress(self._repeat_s(point))
            if is_last:
                yield self._record(point)
                point.plan = point.together = None  # its lowered actions take much memory

    def _repeat_again(self, point: SweepPoint, live: Sequence[SweepPoint]) -> None:
        """More repeats of a point, two at a time, while one of them that is far off would move its
        time and with it an answer, as long as that takes little of the sweep's time.
        """
        asked = self.settings.repeats
        if asked < 2 or is_modelled(point) or self.has_launch_times(point):
            return
        while len(point.repeats) < asked + MORE_REPEATS and matters(point, live):
            begin_s = time.monotonic()
            self._repeat(point)
            self._repeat(point)
            self._again_s += time.monotonic() - begin_s
            if self._again_s > MORE_TIME_SHARE * (time.monotonic() - self._begin_s):
                return

    def _repeat_below(self, point: SweepPoint) -> None:
        """More repeats of a point that is below its floor by its bytes, each after another
        measurement of that: then its interval leaves a repeat out, and both met the same load.
        """
        if not has_machine_time(point.case) or any(samples.wrong for samples in point.repeats):
            return
        limit_s = self._patience(point.case) * self.settings.timeout_s
        session = self.sessions[point.session]
        for _ in range(FLOOR_TRIES * (not self.floors.has(point))):
            self.floors.measure(point, session, limit_s)
        while len(point.repeats) < ADVISED_REPEATS:
            times = [max(samples.seconds) for samples in point.repeats]
            if middle(times) >= self._accusing_s(point):
                return
            self.floors.measure(point, session, limit_s)
            self._repeat(point)

    def _accusing_s(self, point: SweepPoint) -> float:
        """Seconds below which a row is not believed; other hosts may copy faster than this one."""
        if len(set(self.group.hosts)) > 1:
            return 0.0
        return self.floors.accusing_s(point)

    def records_within(self, end_s: float) -> Iterator[Record]:
        """As records(), for as many repeats as should end before that time of the monotonic clock:
        of the first point one anyway. A point that was not reached has no row.
        """
        yield from (self._record(point) for point in self.points if point.waived)
        groups = self._by_session()
        together = [one for key, of in groups.items() if not is_apart(key, of) for one in of]
        # libraries beside ours, so that what time is left for has what it is held against
        places: dict[tuple[str, int], int] = {}
        for case in (one.case for one in together):
            places.setdefault((case.op, case.size_bytes), len(places))
        together.sort(
            key=lambda one: (
                places[one.case.op, one.case.size_bytes],
                not is_peer(one.case.backend),
            )
        )
        yield from self._rounds(together, end_s)
        is_first = not together
        for turn in self._turns():
            if is_first or time.monotonic() < end_s:
                is_first = False
                yield from self._opened_and(turn, partial(self._rounds, end_s=end_s))

    def records_so_far(self) -> list[Record]:
        """The rows of points that were measured at all, where records_within() was ended."""
        return [self._record(point) for point in self.points if point.repeats]

    def _rounds(self, live: Sequence[SweepPoint], end_s: float) -> Iterator[Record]:
        """The rows of points whose sessions are open, one repeat of all after the other."""
        is_over = False
        for round_number in range(self.settings.repeats):
            is_last = round_number == self.settings.repeats - 1
            for number, point in enumerate(live):
                is_due = not number and not point.repeats
                left_s = end_s - time.monotonic()
                is_wanted = self._repeat_s(point) <= left_s or is_due
                if is_wanted and not (point.waived or is_over):
                    try:
                        self._repeat(point)
                        if is_last:
                            self._repeat_below(point)
                    except (RefusedError, ScheduleError) as error:
                        point.waived = error.text
                    except OutOfTime:
                        is_over = True  # its session answers no more
                    self.progress(self._repeat_s(point))
                if is_last and (point.repeats or point.waived):
                    yield self._record(point)

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
        """Cores that other processes took from ranks while points were measured."""
        return self._taken([span for point in self.points for span in point.spans])

    @property
    def foreign_at_start(self) -> float:
        """Cores that other processes took, or would have taken, while sessions were opened."""
        return self._taken(self._opening)

    @property
    def own(self) -> frozenset[int]:
        """The processes of this run on this host."""
        self._own = self._own or own_processes()
        return self._own

    def look(self) -> Look | None:
        """The processors now, as the ranks may use them."""
        is_all = len(self._cores) == os.cpu_count()
        return look(self.own, () if is_all else self._cores)

    @property
    def _cores(self) -> Collection[int]:
        """Cores of this host that ranks may use; a launcher may have pinned this one to some."""
        return own_cores() if self.group.kind == "local" else range(os.cpu_count() or 1)

    def _taken(self, spans: Sequence[Span], ranks: int | None = None) -> float:
        """Cores that other processes had or waited for in some spans of time; 0 where that is
        little, or left a core to every rank of this host (None: of the largest point).
        """
        foreign = demand(spans)
        if ranks is None:
            ranks = max((self._ranks_here(point.case) for point in self.points), default=0)
        return foreign if foreign > FOREIGN_SHARE and foreign + ranks > len(self._cores) else 0.0

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
        if self.has_launch_times(point) and len(point.repeats) < settings.repeats:
            batch = with_single_launches(batch, settings, len(point.repeats))
        if point.together is not None:
            point.together = replace(point.together, order=settings.launch_order)
        before = self.look() if has_machine_time(point.case) else None
        # a launcher's ranks cannot be left: they would answer a later call
        with ended_at(self.end_s if self.group.kind == "local" else math.inf):
            point.repeats.append(session.run(point.job, batch))
        if before is not None and (after := self.look()) is not None:
            point.spans.append((before, after))

    def _patience(self, case: Case) -> float:
        """How many timeouts a rank waits for another: more than one where many ranks share a core,
        because each also waits for the turns of all others.
        """
        return 1.0 if is_gpu(case) else max(1.0, self.machine.crowd(case.ranks) / SHARING)

    def _record(self, point: SweepPoint, error: CollbenchError | None = None) -> Record:
        case = point.case
        session = self.sessions.get(point.session)
        row = unmeasured_row(case, group=self.group, session=session, run=self.run_id)
        conditions = " ".join(self._conditions(point))
        row = replace(row, ctas=ctas_of(point), chosen=point.chosen, notes=conditions)
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
        untimed, row = row, timed_row(row, times, iterations)
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
        top = ceilings.ceiling(case, point.plan) if ceilings is not None and is_known else None
        if top is not None and (busbw := row.busbw_gbs) is not None:
            percent = 100 * busbw / top.gbs
            row = replace(row, ceiling_gbs=top.gbs, percent=percent, limit=top.text)
            if is_far_below(busbw, interval(times).median, top.gbs):
                notes.append("far-below-ceiling")
        floor_s = self.floors.floor_s(point, ceilings)
        row = with_floor(row, floor_s, self._accusing_s(point), untimed)
        if row.status == "ok":
            self.floors.lower(point, floor_s, min(times))
        return replace(row, notes=" ".join(notes))

    def _with_wire(self, row: Record, point: SweepPoint) -> Record:
        """The row with what passed the links in all repeats, if that was read."""
        moved = [samples.wire for samples in point.repeats if samples.wire is not None]
        if not moved:
            return row
        from collbench.bench.wire import ledger_of
        from collbench.machine.discovery.counters import Moved

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
        taken = self._taken(point.spans, self._ranks_here(point.case))
        if (len(times) > 1 and is_noisy(times)) or taken:
            notes.append("noisy")
        notes += [foreign_note(taken)] if taken else []
        notes += ["no-floor"] * (point.session in self.floors.failed)
        if point.is_choice:
            notes.append("auto")
        return notes

    def close(self) -> None:
        """Close every session."""
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()


def has_machine_time(case: Case) -> bool:
    """Whether a case is measured, and not priced on a described machine."""
    return not FAMILY.load(case.backend).wants_machine


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
