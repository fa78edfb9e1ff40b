"""Carry out `tune --model`: measure configurations, find the machine's constants, keep them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from collbench.backends.base import Backend
from collbench.bench.points import plan_points
from collbench.bench.ranks import Asked, drive_on_rank0, least_cache_mib
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.errors import RefusedError, UnavailableError
from collbench.core.files import write_whole
from collbench.core.options import Options
from collbench.core.screen import remark, say
from collbench.planning.planner import machine_of
from collbench.planning.price.constants import own_file
from collbench.tune import constants
from collbench.tune.drawn import drawn_cases
from collbench.tune.run import asked_of, backend_of
from collbench.tune.show import tune_screen

_MOST_BYTES = {"cpu": 4 << 20, "cuda": 256 << 20}
_DRAWN = 2 * (constants.POINTS + constants.CHECKED)  # some of which cannot run here


def run_tune_model(options: Options) -> int:
    """Measure, fit, keep and show; returns the exit code."""
    who = asked_of(options)
    return drive_on_rank0(who.group, lambda: _drive(who, options))


def _drive(who: Asked, options: Options) -> int:
    backend, name, where = backend_of(who), who.backend, who.where()
    limits = backend.limits(who.settings.max_memory)
    points = plan_points(_cases(who, backend), who.group, who.settings.max_memory, where)
    wanted = constants.POINTS + constants.CHECKED
    runs = [point for point in points if not point.waived][:wanted]
    measurement = Measurement(runs, who.group, who.settings)
    ceilings = where.of(runs[0].case) if runs and backend.is_gpu else None
    if backend.is_gpu and ceilings is None:
        raise UnavailableError("the links of the GPUs are not known", "see collbench topo")
    remark(f"Measuring {len(runs)} configurations of {name}, and fitting the model to them.")
    try:
        measurement.open()
        with tune_screen() as (_, tell):
            measured = constants.measured(measurement, tell)
    finally:
        measurement.close()
    try:
        cache_mib = least_cache_mib() if backend.is_gpu else 0.0
        found = constants.found(measured, ceilings, measurement.machine.cores, cache_mib)
    except RefusedError as error:  # a link without a known rate
        raise UnavailableError(error.message, error.hint) from None
    machine = machine_of(name, limits)
    file = Path(options["out"]) if "out" in options else own_file(machine.kind, machine.model)
    say("\n".join(constants.lines(found)))
    if not found.is_better:
        raise UnavailableError(
            "the constants before price this machine better, so these are not kept",
            "end other processes (top shows them), and measure again",
        )
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        day = datetime.now(UTC).date().isoformat()
        write_whole(file, found.text(machine, day).encode())
    except OSError as error:
        raise UnavailableError(
            f"cannot write {file}: {error.strerror or error}", "give --out"
        ) from None
    remark(f"Wrote {file}" + ("." if "out" in options else ", which prices this machine now."))
    return 0


def _cases(who: Asked, backend: Backend) -> Sequence[Case]:
    """Drawn configurations of the ranks, and without a launcher of other numbers of them."""
    if who.group.ranks:
        numbers = [who.ranks]
    elif backend.is_gpu:
        numbers = list(range(2, who.ranks + 1))
    else:
        numbers = [2, who.ranks, who.ranks, who.ranks + 1]  # more than there are cores, too
    return drawn_cases(
        who.backend,
        lambda drawn: drawn.choice(numbers),
        _DRAWN,
        limits=backend.limits(who.settings.max_memory),
        most_bytes=_MOST_BYTES[who.backend],
    )
