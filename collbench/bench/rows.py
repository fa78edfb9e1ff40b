"""Rows from what was measured of a point, and rows of points that were not."""

import hashlib
import os
import platform
import socket
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from statistics import median

from collbench import __version__
from collbench.backends.base import SessionFacts
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.distribution import LEAST_US, PERCENTILES, histogram, percentile
from collbench.core.group import Group
from collbench.core.limits import IMPOSSIBLE
from collbench.core.pattern import Wrong
from collbench.core.record import Record
from collbench.core.units import format_time_us, rate_gbs, to_us
from collbench.core.verdict import interval
from collbench.machine.others import FOREIGN_NOTE, foreign_cores, foreign_note
from collbench.planning.lowering import writer_of
from collbench.planning.plan import Plan
from collbench.planning.together import Together


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
