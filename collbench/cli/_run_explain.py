"""Carry out `explain`: measure the tool's choice, its neighbours and a library, trace one launch.

On GPUs the library is NCCL, on each kind of user buffers; what it chose comes from its own log.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from collbench.analysis.trace_summary import ChainCosts, summary
from collbench.backends.gpu.session import why_no_gpus
from collbench.bench.points import SweepPoint, plan_points
from collbench.bench.runner import Measurement
from collbench.cli._links import Ranks, ranks_of, recordings_of
from collbench.cli._nccl_choice import nccl_choice
from collbench.cli._options import refusal, width
from collbench.cli._rank0 import drive_on_rank0, group_here
from collbench.cli._rules import Options
from collbench.cli._screen import say
from collbench.cli._traces import chain_costs, default_ranks, launches_of, traced
from collbench.device.card import device_count
from collbench.launch.group import Group
from collbench.launch.launcher import launcher
from collbench.machine.host import has_nvidia_gpus
from collbench.planning.links import RankLinks
from collbench.planning.plan import Plan
from collbench.planning.price.constants import WAYS
from collbench.planning.price.gpus import plan_bound
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.report.tables.explain import (
    Explanation,
    Floor,
    LibraryForm,
    Neighbour,
    explain_lines,
)
from collbench.results.record import Record
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.schedules.passes import traffic
from collbench.spec.case import Case
from collbench.spec.knobs import KNOB, KNOBS, UNASKED, unheeded
from collbench.spec.options import Settings
from collbench.util.errors import UnavailableError

_REPEATS = 5
_TRACED = 20  # launches
_FACTORS = (0.5, 2.0)  # of a knob that is a number
_NUMBERS = ("channels", "slots", "chunk")
_GPU_TRANSPORTS = ("p2p", "shm", "ce")
_GPU_PDL = ("off", "early", "late")
_WAY = {"NVLink": "nvlink", "PCIe": "pcie", "network": "net"}  # what joins ranks


def run_explain(options: Options) -> int:
    """The whole command; returns the exit code."""
    timeout_s = options["timeout"] or 10.0
    under = launcher()
    backend = options["backend"] or ("cuda" if has_nvidia_gpus() else "cpu")
    ranks = options["ranks"]
    if backend == "cuda":
        if why := why_no_gpus():
            raise UnavailableError(why, "give --backend cpu")
        if under is None and device_count() == 1:
            why, hint = "One GPU: nothing travels between ranks", "--backend cpu explains the CPUs"
            if options["backend"]:
                raise UnavailableError(why, hint)
            say(f"{why}. {hint}.")
            return 0
        ranks = ranks or device_count()
    if under is not None:
        ranks = under.size
    case = Case(
        op=options["op"],
        backend=backend,
        ranks=ranks or default_ranks(),
        size_bytes=options["size"],
    )
    group = group_here(timeout_s)
    recordings = recordings_of(group, {"backend": (backend,)})

    def drive() -> int:
        from collbench.machine.discovery import topology_of

        topology = topology_of(recordings) if recordings else None
        where = ranks_of((backend,), None, group, (), topology)
        return _drive(group, case, where, timeout_s)

    return drive_on_rank0(group, drive)


def _drive(group: Group, case: Case, where: Ranks, timeout_s: float) -> int:
    (own,) = plan_points([case], group, where=where)
    if own.plan is None or own.waived:
        raise refusal(own.waived or "no plan", "change --op or --size")
    plan = own.plan
    points: dict[str, tuple[str, SweepPoint]] = {_work(plan): ("", own)}
    for flag, neighbour in _neighbours(case, own.case):
        (point,) = plan_points([neighbour], group, where=where)
        if point.plan is not None and not point.waived:
            points.setdefault(_work(point.plan), (flag, point))
    libraries = plan_points(_of_library(case), group)
    ours = [point for _, point in points.values()]
    rows = _measured([*ours, *libraries], group, timeout_s)
    chosen, *others = rows[: len(ours)]
    if chosen.status != "ok":
        raise refusal(f"{chosen.status}: {chosen.reason}", "change --op or --size")
    flags = [flag for flag, _ in points.values()][1:]
    forms = [LibraryForm(row, _form(row), _why(row)) for row in rows[len(ours) :]]
    known = [form for form in forms if not form.why]
    fastest = min(known, key=lambda form: form.row.time_us or 0.0, default=None)
    is_traced = plan.transport != "ce"
    costs = chain_costs(plan, own.case, group)
    found = Explanation(
        row=chosen,
        origin=own.origin,
        hops=plan.proof.hops,
        floor=_floor(plan, own.case, costs, where.of(own.case)),
        trace=summary(traced(plan, own.case, group, launches_of(plan, _TRACED), timeout_s), costs)
        if is_traced
        else None,
        neighbours=tuple(
            Neighbour(flag, row)
            for flag, row in zip(flags, others, strict=True)
            if row.status == "ok"
        ),
        libraries=tuple(forms),
        choice=nccl_choice(_case_of(fastest, libraries), group, timeout_s)
        if fastest is not None and fastest.row.backend == "nccl"
        else "",
    )
    say("\n".join(explain_lines(found, width(sys.stdout))))
    return 0


def _neighbours(case: Case, own: Case) -> Iterator[tuple[str, Case]]:
    """The case with one knob given, and how that is written. own: the case as it was chosen."""
    is_on_gpus = case.backend == "cuda"
    own = _asked(own)
    for name in ALGORITHMS.names():
        if case.op in ALGORITHMS.load(name).SERVES:
            yield f"--algo {name}", replace(case, algo=name)
    for name in PROTOCOLS.names():
        yield f"--proto {name}", replace(case, proto=name)
    for name in _GPU_TRANSPORTS if is_on_gpus else ():
        yield f"--transport {name}", replace(case, transport=name)
    for pdl in _GPU_PDL if is_on_gpus else ():
        yield f"--pdl {pdl}", replace(own, pdl=pdl)  # type: ignore[arg-type]  # is a mode
    for name in _NUMBERS:
        for factor in _FACTORS:
            value = int(getattr(own, name) * factor)
            if value > 0:
                text = f"{KNOB[name].flag} {KNOB[name].text(value)}"
                yield text, replace(own, **{name: value})  # type: ignore[arg-type]  # is a number


def _work(plan: Plan) -> str:
    """A digest of what a plan does: chunks that are longer than what there is to cut change
    nothing, nor do on CPUs slots beyond the slices of a launch.
    """
    loops = [loop for channel in range(plan.channels) for loop in plan.loops(channel)]
    longest = max(loop.chunk for loop in loops)
    used = replace(
        plan,
        slots=plan.slots if plan.kernel is not None else min(plan.slots, plan.most_slices),
        chunk_bytes=longest,
        piece_bytes=min(plan.piece_bytes, longest),
        slot_bytes=min(plan.slot_bytes, longest),
    )
    return used.digest


def _asked(own: Case) -> Case:
    """A case that was chosen as one that asks for the same, but for what follows from its channels,
    slots and chunk, and for knobs that nothing in it heeds.
    """
    follows = [KNOB["buffsize"], KNOB["cluster"]]
    lost = unheeded(own, backend=own.backend, proto=own.proto, transport=own.transport)
    defaults = {knob.name: knob.default for knob in (*follows, *lost)}
    return replace(own, **defaults)


def _of_library(case: Case) -> list[Case]:
    """What the library would do with the same: NCCL on each kind of buffers on GPUs, else MPI."""
    backend = "nccl" if case.backend == "cuda" else "mpi"
    unasked = replace(case, backend=backend, **{one.name: UNASKED[one.name] for one in KNOBS})
    if backend == "mpi":
        return [unasked]
    return [replace(unasked, buffers=form) for form in KNOB["buffers"].choices]


def _form(row: Record) -> str:
    """The library, and on which user buffers."""
    return f"{row.backend} on {row.buffers} buffers" if row.backend == "nccl" else row.backend


def _why(row: Record) -> str:
    """Why a row has no time."""
    return row.reason if row.status != "ok" else ""


def _case_of(form: LibraryForm, points: Sequence[SweepPoint]) -> Case:
    """The case of a row of the library."""
    return next(point.case for point in points if point.case.buffers == form.row.buffers)


def _measured(points: Sequence[SweepPoint], group: Group, timeout_s: float) -> list[Record]:
    """The rows of the points. Raises UnavailableError if a result is wrong."""
    measurement = Measurement(points, group, Settings(repeats=_REPEATS, timeout_s=timeout_s))
    with closing(measurement):
        measurement.open()
        keys = [measurement.key_of(point) for point in points]
        found = {row.point: row for row in measurement.records()}
    rows = [found[key] for key in keys]
    for row in rows:
        if row.status == "wrong":
            raise UnavailableError(f"{row.status}: {row.reason}", "run a sweep of it")
    return rows


def _floor(plan: Plan, case: Case, costs: ChainCosts, links: RankLinks | None) -> Floor:
    """The least time by the constants: its hops, and its bytes over the fullest link, or on CPUs
    those that the busiest rank sends.
    """
    hops = plan.proof.hops
    if case.backend != "cuda":
        sent = traffic(plan.schedule).sent
        bytes_s = float(sent) * case.size_bytes / (costs.kind.send_gbs * 1e9)
        what = f"{sent} S sent by the busiest rank"
        return Floor(costs.machine, hops * costs.hop_s, bytes_s, what)
    if links is None or not links.gpus:
        return Floor(costs.machine, hops * costs.hop_s, None, "its links are not known")
    on = links.costs
    kind = on.kinds["ce" if plan.transport == "ce" else plan.proto]
    way = _WAY[links.joined(case.ranks)] if plan.transport != "shm" else "pcie"
    assert way in WAYS
    hops_s = hops * on.hop_us(kind, way) * 1e-6
    full = plan_bound(plan, links.site_of(plan.n))
    if full is None:
        return Floor(on.name, hops_s, None, "a link on the way has no known rate")
    return Floor(on.name, hops_s, full.seconds, f"its bytes over the fullest link ({full.name})")
