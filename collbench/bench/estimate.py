"""Estimates of how long a measurement takes: for the progress bar, --dry-run and deadlines. They
are rough by design, and no row shows them.

The time on CPUs is predicted by the profile of the machine. For GPUs three constants suffice, which
were fitted to default sweeps on 4 x H200. The model backend costs only the time of its own Python.
"""

from collbench.backends import FAMILY
from collbench.backends.cpu.layout import sets_of
from collbench.backends.repeat import (
    DISTRIBUTION_LAUNCHES,
    DISTRIBUTION_S,
    GPU_BATCH,
    REPLAYS,
    auto_iterations,
    rotations,
)
from collbench.core.case import Case
from collbench.core.options import Settings
from collbench.planning.plan import Plan
from collbench.planning.price.constants import CpuCosts
from collbench.planning.price.work import cpu_price

# The time of a launch, and the bytes of S that one moves a second, slow configurations included.
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
