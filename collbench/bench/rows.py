"""Rows from what was measured of a point, rows of points that were not, and their floors.

The floor of a row is the least time that its launch can take, whoever runs it: that of the least
launch of these ranks that exchanges a flag, and of the bytes that must move, both the best of the
run (docs/explanation/floors.md). A busy machine makes a floor too high, and never too low.
"""

import hashlib
import os
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from statistics import median

import numpy as np

from collbench import __version__
from collbench.backends.base import Session, SessionFacts
from collbench.bench.points import Job, SessionKey, SweepPoint, is_gpu
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.distribution import LEAST_US, PERCENTILES, histogram, percentile
from collbench.core.errors import CollbenchError, RankLostError
from collbench.core.group import Group
from collbench.core.limits import IMPOSSIBLE
from collbench.core.pattern import Wrong
from collbench.core.record import Record
from collbench.core.units import format_time_us, rate_gbs, to_us
from collbench.core.verdict import interval
from collbench.machine.others import FOREIGN_NOTE, foreign_cores, foreign_note
from collbench.planning.links import RankLinks
from collbench.planning.lowering import writer_of
from collbench.planning.plan import Plan
from collbench.planning.together import Together

_COPIES = tuple(1 << bits for bits in range(12, 25, 2))  # bytes
_COPIED, _TRIES = 1 << 20, 4  # bytes of a try at least
_FEW_BYTES = 1.01  # times as long as its flag takes a launch whose bytes take no time


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


def with_floor(row: Record, floor_s: float, accusing_s: float, untimed: Record) -> Record:
    """The row of right launches with the least time that they can take, 0: not known. Where all
    that its repeats leave is below what accuses, it is as the untimed row, and impossible. One
    that is possible and took less, in any repeat, shows that the floor is no more than that.
    """
    if not floor_s or row.time_us is None or row.time_high_us is None:
        return row
    is_possible = row.time_high_us * IMPOSSIBLE >= to_us(accusing_s)
    floor_us = min(to_us(floor_s), *row.repeat_times_us) if is_possible else to_us(floor_s)
    known = row if is_possible else replace(untimed, repeats=row.repeats, iters=row.iters)
    known = replace(known, floor_us=floor_us, of_floor=100 * floor_us / row.time_us)
    if is_possible:
        return known
    reason = (
        f"{format_time_us(row.time_us)} us a launch; to copy its bytes takes"
        f" {format_time_us(to_us(accusing_s))} us"
    )
    return replace(known, status="impossible", reason=reason)


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
    known = [one.floor_us for one in rows if one.floor_us is not None]
    if known and row.time_us:
        row = replace(row, floor_us=min(known), of_floor=100 * min(known) / row.time_us)
    notes = dict.fromkeys(note for row in rows for note in row.notes.split())
    texts = [note for note in notes if not note.startswith(FOREIGN_NOTE)]
    if foreign := max(foreign_cores(row.notes) for row in rows):
        texts.append(foreign_note(foreign))
    return replace(row, wrong=last.wrong, percent=percent, notes=" ".join(texts))


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
    what = f" element {one.index}" if one.index >= 0 else ""
    reason = f"rank {one.rank}{what}: got {one.got}, expected {one.wanted}"
    if (
        plan is not None
        and one.index >= 0
        and (writer := writer_of(plan, one.rank, one.index * plan.problem.item_bytes))
    ):
        reason += f"; {writer}"
    count = sum(one.count for one in wrong)
    return replace(row, status="wrong", wrong=count, repeats=repeats, reason=reason)


@dataclass(slots=True)
class Floors:
    """What was measured in a run, the best of all times. flags_s: of the least launch of a session,
    in which a flag goes both ways, one way or none. rates: bytes a second of one process that
    copies so many bytes. failed: sessions that have no least launch.
    """

    flags_s: dict[tuple[SessionKey, int], float] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    failed: set[SessionKey] = field(default_factory=set)

    def measure(self, point: SweepPoint, session: Session[Job], limit_s: float) -> None:
        """Measure once more what the floor of a point is made of."""
        for ways in _ways(point.case):
            try:
                seconds = session.flag_s(limit_s, ways)
            except RankLostError:
                raise
            except CollbenchError:
                self.failed.add(point.session)
                seconds = 0.0
            key = point.session, ways
            self.flags_s[key] = min(seconds, self.flags_s.get(key, seconds))
        if not on_gpus(point.case):
            for size, rate in copy_rates().items():
                self.rates[size] = max(rate, self.rates.get(size, rate))

    def has(self, point: SweepPoint) -> bool:
        """Whether that was measured at all."""
        return all((point.session, ways) in self.flags_s for ways in _ways(point.case))

    def floor_s(self, point: SweepPoint, links: RankLinks | None) -> float:
        """Seconds that a launch of a point takes at least; 0 if that is not known."""
        if not self.has(point):
            return 0.0
        if not on_gpus(point.case):
            moving_s = self._copying_s(moved_bytes(point.case))
        elif point.together is not None:
            return 0.0
        else:
            moving_s = _on_links_s(point, links) if links is not None else 0.0
        if is_mutual(point.case):
            return self.flags_s[point.session, 2] + moving_s
        # bytes of the next launch may be on their way while the flag is
        none_s, one_way_s = (self.flags_s[point.session, ways] for ways in (0, 1))
        return max(one_way_s, none_s + moving_s)

    def lower(self, point: SweepPoint, floor_s: float, fastest_s: float) -> None:
        """Where a launch of so few bytes that they take no time was faster than its floor, so is
        the flag that it exchanged.
        """
        flag_s, excess_s = self.flags_s.get((point.session, 2), 0.0), floor_s - fastest_s
        if is_mutual(point.case) and excess_s > 0 and floor_s < _FEW_BYTES * flag_s:
            self.flags_s[point.session, 2] = flag_s - excess_s

    def accusing_s(self, point: SweepPoint) -> float:
        """The part of the floor below which a row is not believed; 0: any time is. It is that of
        the bytes: cores that other processes want may slow each exchange of a flag. Of GPUs the
        rates are those that links should have, which a virtual machine may not show.
        """
        if not self.has(point) or on_gpus(point.case):
            return 0.0
        return self._copying_s(moved_bytes(point.case))

    def _copying_s(self, size: float) -> float:
        """Seconds in which one process copies so many bytes: at the best rate of as many or more,
        and of the next size below.
        """
        known = [rate for near, rate in self.rates.items() if 4 * near > size]
        return size / max(known or [self.rates[_COPIES[-1]]])


def is_mutual(case: Case) -> bool:
    """Whether each rank waits for another one in every launch: else ranks run ahead of each other
    and wait for no flag.
    """
    return not (case.is_together or collective(case.op).is_rooted or 0 in case.counts())


def _ways(case: Case) -> tuple[int, ...]:
    """In how many ways flags go in the launches that its floor is made of."""
    return (2,) if is_mutual(case) else (1, 0)


def on_gpus(case: Case) -> bool:
    """Whether the user buffers are in GPU memory."""
    return is_gpu(case) or case.buffers == "gpu"


def moved_bytes(case: Case) -> float:
    """Bytes that ranks write for each other, on average: what is no copy of a rank's own.

    >>> [
    ...     moved_bytes(Case(op=op, backend="cpu", ranks=4, size_bytes=4096))
    ...     for op in ("allreduce", "allgather", "broadcast", "scatter")
    ... ]
    [4096.0, 3072.0, 3072.0, 768.0]
    """
    total = 0
    for part, _, _ in case.parts():
        problem, is_sum = part.problem(), collective(part.op).is_reduction
        for rank in range(problem.n):
            sizes = [one.size for one in problem.blocks(rank) if is_sum or one.giver != rank]
            total += sum(sizes) * problem.item_bytes
    return total / case.ranks


def _on_links_s(point: SweepPoint, links: RankLinks) -> float:
    """Seconds in which the best of all schedules moves the bytes over the links."""
    case, plans = point.case, (None, point.plan)
    tops = [top.gbs for plan in plans if (top := links.ceiling(case, plan)) is not None]
    bus_bytes = case.size_bytes * collective(case.op).factor(case.ranks) * (case.imbalance or 1)
    return bus_bytes / (1e9 * max(tops)) if tops else 0.0


def copy_rates() -> dict[int, float]:
    """Bytes a second of this process, which copies so many from one buffer to another, the best of
    some tries. It takes 30 ms.
    """
    source, target = np.ones((2, _COPIES[-1]), np.uint8)
    rates: dict[int, float] = {}
    for _ in range(_TRIES):  # apart for each size: others may have the core for a while
        for size in _COPIES:
            given, taken, times = source[:size], target[:size], max(1, _COPIED // size)
            start = time.perf_counter()
            for _ in range(times):
                np.copyto(taken, given)
            rate = times * size / (time.perf_counter() - start)
            rates[size] = max(rate, rates.get(size, 0.0))
    return rates
