"""Points of a sweep: each case with its plan, or why there is none, what it will take, in which
order repeats are measured, and of which points more are needed.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from collbench.backends import FAMILY, together_names, together_of
from collbench.backends.base import (
    Backend,
    GpuOptions,
    Peer,
    Samples,
    SessionOpener,
    SessionOptions,
)
from collbench.backends.cpu.layout import sets_of
from collbench.backends.repeat import (
    DISTRIBUTION_LAUNCHES,
    DISTRIBUTION_S,
    GPU_BATCH,
    REPLAYS,
    auto_iterations,
    rotations,
)
from collbench.bench.ranks import Ranks, hosts_of
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.core.group import Group
from collbench.core.host import usable_cores
from collbench.core.knobs import KNOBS
from collbench.core.options import DEFAULT_MEMORY, Settings
from collbench.core.peers import forced_by, is_peer
from collbench.core.verdict import may_move, middle
from collbench.device.program import ctas
from collbench.machine.others import Span
from collbench.planning.chooser import choice_of_problem, choose
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.price.constants import CpuCosts
from collbench.planning.price.work import cpu_price
from collbench.planning.together import Part, Together
from collbench.planning.tuning import Origin

# backend, ranks, and the variables that its processes are started with
SessionKey = tuple[str | int | tuple[str, str], ...]
# what a session runs: a peer's a case, any other's a plan, or several together
Job = Plan | Case | Together[Plan | Case]
STRIDE = 24  # points between two repeats of one point, in a sweep long enough
# The seconds between them that suffice to see drift: slow points need fewer others in between, and
# their rows come sooner.
SPREAD_S = 5.0
# Estimates of how long a measurement takes are rough, and no row shows them.
# Of GPUs: the time of a launch, and the bytes of S that one moves a second; fitted to default
# sweeps on 4 x H200.
_GPU_LAUNCH_S, _GPU_BYTES_S = 5e-6, 2e11
_GPU_REPEAT_S = 0.015  # of calls, fills, the capture of a graph, and comparisons
_MODEL_REPEAT_S = 0.004
_FILL_BYTES_S = 5e9  # of user data that a rank writes and compares
_CALL_S = 0.008  # of a rank, to be told what to do and to answer
# Until ranks have come that mpirun starts, those that load PyTorch, and others.
_START_S = {"mpi": 2.0, "gloo": 2.0, "torch": 3.0}
_MESSAGES_START_S, _FORK_S = 2.0, 0.3
_BARRIERS = 2  # times as long as a launch alone takes one with its barrier
_BIND_S = 4e-5  # of a rank, to bind one operand of an action


@dataclass(slots=True)
class SweepPoint:
    """A case on its way to a record: resolved and planned, or waived with a reason. is_choice: the
    tool itself would choose this case for its problem. chosen: what decided its algorithm and
    protocol (chooser.How). origin: of what it was left to choose. together: all collectives of a
    case that has several at once; plan is then of the first.
    """

    case: Case
    plan: Plan | None = None
    waived: str = ""
    is_choice: bool = False
    chosen: str = ""
    origin: Origin | None = None
    together: Together[Plan | Case] | None = None
    repeats: list[Samples] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)  # of its repeats, where the kernel says

    def anew(self) -> "SweepPoint":
        """The same point, not yet measured."""
        return replace(self, repeats=[], spans=[])

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


def plan_points(
    cases: Sequence[Case],
    group: Group,
    max_memory: int = DEFAULT_MEMORY,
    where: Ranks | None = None,
    progress: Callable[[int], None] = lambda begun: None,
) -> list[SweepPoint]:
    """Resolve and lay out every case. A case that cannot run is waived with its reason; cases that
    resolve to the same are measured once.

    where: what is known of where the ranks run. progress(number): called before each case with
    how many were planned.
    """
    refused: dict[str, str] = {}
    limits: dict[str, Limits] = {}
    points: dict[tuple[Case, str], SweepPoint] = {}
    where = where or Ranks(hosts=hosts_of(group))
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
            else plan(case, backend, replace(limits[case.backend], hosts=where.hosts), where)
        )
        if point.together is not None:
            found = together_of(case.backend)
            point.waived = found.why_waived(point.together) if found is not None else ""
        elif point.plan is not None and not backend.is_peer and not point.waived:
            point.waived = backend.why_waived(point.plan, group)
        points.setdefault((point.case, point.waived), point)
    return list(points.values())


def _planned(case: Case, backend: Backend | Peer, limits: Limits, where: Ranks) -> SweepPoint:
    if backend.is_peer:
        return SweepPoint(case, waived=backend.why_waived(case, collective(case.op).is_reduction))
    limits, links = where.base(case, limits), where.of(case)
    try:
        found = choose(case, limits, links)
    except ScheduleError as error:
        return SweepPoint(case, waived=error.text)
    return SweepPoint(
        found.case,
        found.plan,
        is_choice=found.case == choice_of_problem(case, limits, links),
        chosen=found.how,
        origin=found.origin,
    )


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
    case: Case, backend: Backend | Peer, limits: Limits, where: Ranks
) -> SweepPoint:
    """As _planned(), of several collectives at once. The point has the knobs of the first one, and
    the algorithms of all.
    """
    points: dict[Case, SweepPoint] = {}
    parts: list[Part[Plan | Case]] = []
    if backend.is_gpu:  # the CTAs of all groups of a rank are on its GPU at once
        groups = {part.group: part.ranks for part in case.parts()}
        most = max(Counter(rank for ranks in groups.values() for rank in ranks).values())
        limits = replace(limits, ctas=limits.ctas // most)
    for single, ranks, group in case.parts():
        if single not in points:
            point = _planned(single, backend, limits, where)
            if point.plan is not None and point.plan.transport == "ce" != single.transport:
                point = _planned(replace(single, transport="p2p"), backend, limits, where)
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
        chosen=first.chosen,
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


def launch_s(case: Case, plan: Plan | None, on: CpuCosts) -> float:
    """Seconds of one launch."""
    if is_gpu(case):
        return _GPU_LAUNCH_S + case.size_bytes / _GPU_BYTES_S
    if plan is not None:
        return cpu_price(plan, on)
    size_s = case.ranks * case.size_bytes * 8 / (on.memory_gbs * 1e9)
    return on.crowd(case.ranks) * size_s + 10 * on.hop_s(case.ranks)


def start_s(case: Case, plan: Plan | None) -> float:
    """Seconds until the ranks of a session with this case have started."""
    if case.backend in _START_S:
        return _START_S[case.backend]
    return _MESSAGES_START_S if plan is not None and plan.domains else _FORK_S


def repeat_s(case: Case, plan: Plan | None, on: CpuCosts, settings: Settings) -> float:
    """Seconds of one repeat with the preparation of its data; iterations 0: as many as the backend
    would take.
    """
    iterations, aggregate = settings.iterations, settings.aggregate
    if FAMILY.load(case.backend).wants_machine:
        return _MODEL_REPEAT_S
    once_s = launch_s(case, plan, on)
    single_s = single_launches_s(case, once_s, settings)
    if is_gpu(case):
        launches = (REPLAYS + 1) * (iterations or auto_iterations(once_s, GPU_BATCH)) * aggregate
        return _GPU_REPEAT_S + launches * once_s + single_s
    launches = (iterations or auto_iterations(once_s)) * aggregate + settings.warmup
    sets, load_s = rotations(case.problem(), hot=settings.hot), 0.0
    if plan is not None:
        sets = sets_of(plan, hot=settings.hot)
        load_s = sets * plan.operand_count() * _BIND_S / settings.repeats
    data_s = sets * case.size_bytes * 4 / _FILL_BYTES_S if settings.is_checked else 0
    return (
        on.crowd(case.ranks) * (_CALL_S + load_s + data_s) + (launches + sets) * once_s + single_s
    )


def single_launches_s(case: Case, once_s: float, settings: Settings) -> float:
    """Seconds of the launches of a repeat that are timed one by one, each with its barrier."""
    asked = settings.distribution
    if asked is None or not FAMILY.load(case.backend).has_launch_times:
        return 0.0
    launches_s = _BARRIERS * (asked or DISTRIBUTION_LAUNCHES) * once_s
    return (launches_s if asked else min(launches_s, _BARRIERS * DISTRIBUTION_S)) / settings.repeats


def is_gpu(case: Case) -> bool:
    """Whether a case runs on GPUs."""
    return FAMILY.load(case.backend).is_gpu


def is_apart(key: SessionKey, points: Sequence[SweepPoint]) -> bool:
    """Whether the ranks of a session with these points are processes that must not be on the GPUs
    while others are measured, as those of a forced library, and of MPI with memory of GPUs.
    """
    is_forced, first = len(key) > 2, points[0]
    found = opener(str(key[0]), is_together=first.together is not None)
    return is_forced or found.is_apart or first.case.buffers == "gpu"


def ctas_of(point: SweepPoint) -> int:
    """CTAs of the launch of a rank, 0 if unknown; a library has one CTA a channel."""
    if point.plan is not None:
        return ctas(point.plan) if point.plan.kernel is not None else 0
    return point.case.channels if forced_by(point.case) else 0


def is_modelled(point: SweepPoint) -> bool:
    """Whether the times of a point were predicted by the model rather than measured."""
    return any("modelled" in samples.notes for samples in point.repeats)


def cores_of(group: Group) -> int:
    """The cores that all ranks have together; a launcher may have pinned this one to some."""
    if group.kind == "local":
        return usable_cores()
    return (os.cpu_count() or 1) * len(set(group.hosts))


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


def matters(point: SweepPoint, live: Sequence[SweepPoint]) -> bool:
    """Whether one repeat could move the time of a point, and that an answer: it is the tool's own
    choice, or may be the fastest of its problem, of ours or of its library.
    """
    times = _times_of(point)
    if any(samples.wrong for samples in point.repeats) or not may_move(times):
        return False
    rivals = [one for one in live if one.repeats and _contest(one) == _contest(point)]
    least = min(middle(_times_of(one)) for one in rivals)
    return point.is_choice or sorted(times)[len(times) // 2 - 1] <= least


def _times_of(point: SweepPoint) -> list[float]:
    return [max(samples.seconds) for samples in point.repeats]


def _contest(point: SweepPoint) -> tuple[object, ...]:
    """What points have in common of which one is the fastest."""
    case = point.case
    backend = case.backend if is_peer(case.backend) else ""
    return (
        backend,
        case.op,
        case.size_bytes,
        case.ranks,
        case.dtype,
        case.redop,
        case.root,
        (case.placement, case.skew, case.groups, case.mix),
    )
