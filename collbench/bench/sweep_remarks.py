"""What is said of a sweep before it runs: its time, who shares cores, what has no effect."""

import os
from collections.abc import Sequence
from dataclasses import replace

from collbench.bench.points import SweepPoint
from collbench.bench.runner import Measurement
from collbench.bench.sweep import Sweep
from collbench.core.knobs import KNOB
from collbench.core.options import Settings
from collbench.core.peers import forced_by, knobs_of
from collbench.core.screen import remark
from collbench.core.units import format_duration
from collbench.launch.group import Group
from collbench.machine.host import usable_cores

_NEW_PROCESSES_S = 3  # until new processes have their GPUs and NCCL, roughly
_LONG_S, _HOPELESS_S = 10, 3600  # a sweep that takes longer is told so first, and how to shorten it
_SHORTER = " Fewer --ranks, --sizes, --algo or --repeats make it shorter; Ctrl-C ends it."
_ON_CPUS = ("cpu", "mpi", "gloo")  # backends whose ranks each want a core


def remark_on_time(runs: Sequence[Measurement]) -> None:
    """Say how long the sweep should take, if that is long, and what would shorten it."""
    estimate_s = sum(run.estimate_s() for run in runs)
    if estimate_s < _LONG_S:
        return
    live = [point.case for point in runs[-1].points if not point.waived]
    more = f" in {len(runs)} runs" if len(runs) > 1 else ""
    remark(
        f"{len(live)} point{'s' * (len(live) != 1)} with up to {max(case.ranks for case in live)}"
        f" ranks{more}: about {format_duration(estimate_s)}."
        + (_SHORTER if estimate_s > _HOPELESS_S else "")
    )


def remark_on_cores(points: Sequence[SweepPoint], group: Group) -> None:
    """Say where more ranks than cores run on CPUs, and what that does to the times."""
    live = [point.case for point in points if not point.waived]
    ranks = max((case.ranks for case in live if case.backend in _ON_CPUS), default=0)
    is_local = group.kind == "local"
    here = ranks if is_local or not ranks else group.hosts.count(group.hosts[0])
    cores = usable_cores() if is_local else os.cpu_count() or 1  # a launcher may pin each rank
    if here > cores:
        remark(
            f"{here} ranks share {cores} CPU core{'s' * (cores > 1)}: they wait for each other's"
            f" turn, so times are longer and vary more than with --ranks {max(2, cores)}."
        )


def remark_on_order(points: Sequence[SweepPoint], settings: Settings) -> None:
    """Say how an order of launches can deadlock, if it can."""
    whys = {
        replace(point.together, order=settings.launch_order).why_it_can_deadlock(): None
        for point in points
        if point.together is not None
    }
    for why in filter(None, whys):
        remark(
            f"{why[0].upper()}{why[1:]}. A point that does is given up after its --timeout,"
            f" {settings.timeout_s:g} s."
        )


def remark_on_peer(
    peer: str, sweep: Sweep, points: Sequence[SweepPoint], knobs_given: Sequence[str]
) -> None:
    """Print the knobs that a library is forced to, and those without effect on it."""
    knobs = knobs_of(peer)
    forced = [name for name in knobs_given if name in knobs and name in sweep.asked]
    lost = [KNOB[name].flag for name in knobs_given if name not in forced]
    for name in forced:
        missing = [
            value
            for value in sweep.values(name)
            if knobs[name] and value not in (*knobs[name], "auto")
        ]
        lost += [f"{KNOB[name].flag} {','.join(map(str, missing))}"] if missing else []
    live = [point for point in points if point.case.backend == peer and not point.waived]
    sets = len({point.session for point in live if forced_by(point.case)})
    remarks = []
    if sets:
        remarks.append(
            f"{sets} set{'s' * (sets > 1)} of processes, about {_NEW_PROCESSES_S} s each, forced by"
            f" {', '.join(KNOB[name].flag for name in forced)}"
        )
    if lost:
        remarks.append(f"{', '.join(lost)} {'do' if len(lost) > 1 else 'does'} not reach it")
    if remarks:
        remark(f"{peer}: the library's own choice; {'; '.join(remarks)}.")
