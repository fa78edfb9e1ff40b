"""The command line with a defect in it: `python -m tests.support.corrupt DEFECT sweep ...`. Not a
test; what the tests of wrong data run.

element: rank 1 adds 1 to element 5 of its output in every launch. skip: rank 1 leaves out what it
should do last; a library's collective does nothing. late: every rank's results are spoilt from the
third launch on, after the first check. load, timed: rank 1 stops itself with SIGSTOP when that is
asked of it for the third time. start: rank 1 comes to MPI_Init a minute late.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from collbench.backends import mpi
from collbench.backends.cpu import backend as cpu
from collbench.backends.cpu import interpreter
from collbench.backends.cpu.interpreter import arithmetic
from collbench.cli import main
from collbench.launch import mpi as mpi_group
from collbench.launch.launcher import Launcher, load_mpi
from collbench.planning.lowering import Action
from collbench.planning.plan import Plan

_launch = interpreter.Runner.launch


def _writes_output(action: Action) -> bool:
    return any(
        region.space == "out"
        and region.owner == 1
        and region.offset <= 20 < region.offset + region.size
        for region in action.targets
    )


def element(plan: Plan, action: Action, view: Callable[[Any], Any]) -> list[Any]:
    calls = arithmetic(plan, action, view)
    for region in action.targets:
        if _writes_output(action) and region.space == "out" and region.owner == 1:
            at = 5 - region.offset // plan.problem.item_bytes
            calls.append(
                (lambda values, at: values.__setitem__(at, values[at] + 1), (view(region), at))
            )
    return calls


def skip(plan: Plan, action: Action, view: Callable[[Any], Any]) -> list[Any]:
    return [] if _writes_output(action) else arithmetic(plan, action, view)


def late(
    runner: interpreter.Runner, programs: Sequence[Sequence[interpreter.Bound]], deadline: float
) -> None:
    _launch(runner, programs, deadline)
    if runner.launches >= 3:
        _, args = [call for program in programs for bound in program for call in bound.calls][-1]
        values: Any = args[2] if len(args) == 3 else args[1]
        values[0] += 1


def stops(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a rank, which never returns from its third call on rank 1."""
    calls = 0

    @wraps(method)  # which the driver calls by its name
    def call(rank: cpu.CpuRank, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if rank.rank == 1 and calls == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        return method(rank, *args)

    return call


def late_to_start(found: Launcher | None) -> Any:
    if found is not None and found.rank == 1:
        time.sleep(60)
    return load_mpi(found)


if __name__ == "__main__":
    defect = sys.argv.pop(1)
    if defect in ("load", "timed"):
        setattr(cpu.CpuRank, defect, stops(getattr(cpu.CpuRank, defect)))
    elif defect == "start":
        setattr(mpi_group, "load_mpi", late_to_start)  # noqa: B010  mypy sees an import there
    elif defect == "late":
        interpreter.Runner.launch = late  # type: ignore[method-assign,assignment]
    else:
        interpreter.arithmetic = {"element": element, "skip": skip}[defect]
        mpi.MpiRank._call = lambda self, problem, source, target: (lambda: None, ())  # type: ignore[method-assign]
    main()
