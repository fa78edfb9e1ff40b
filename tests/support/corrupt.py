"""The command line with a defect in it: `python -m tests.support.corrupt DEFECT sweep ...`. Not a
test; what the tests of wrong data run.

element: rank 1 adds 1 to element 5 of its output in every launch. skip: rank 1 leaves out what it
should do last; a library's collective does nothing. late: every rank's results are spoilt from the
third launch on, after the first check. idle: timed launches do nothing, on CPUs, by libraries and
on GPUs. idle-singly: those that are timed one by one do nothing. load, timed: rank 1 stops itself
with SIGSTOP when that is asked of it for the third time. start: rank 1 comes to MPI_Init a minute
late. byte: rank 1 changes a byte of every
message to a partner. guardian: the last that a rank does is to stop its guardian. first, last,
tenth, half, head, tail: see plants.py.
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from typing import Any

from collbench.backends.cpu import interpreter
from collbench.backends.cpu.interpreter import arithmetic
from collbench.backends.cpu.rank import CpuRank
from collbench.backends.mpi.rank import MpiRank
from collbench.bench import pair_rank, pairwise
from collbench.cli import main
from collbench.launch import mpi as mpi_group
from collbench.planning.lowering import Action
from collbench.planning.plan import Plan
from tests.support.plants import PLANTS, plant
from tests.support.short_check import shorten

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
    runner: interpreter.Runner, programs: Sequence[Sequence[interpreter.BoundStep]], deadline: float
) -> None:
    _launch(runner, programs, deadline)
    if runner.launches >= 3:
        _, args = [call for program in programs for bound in program for call in bound.calls][-1]
        values: Any = args[2] if len(args) == 3 else args[1]
        values[0] += 1


class WrongPairRank(pair_rank.PairRank):
    def _exchange(self, peer: int, out: Any, into: Any, deadline_s: float) -> None:
        if out is not None and self.rank == 1:
            out[-1] ^= 1
        super()._exchange(peer, out, into, deadline_s)
        if out is not None and self.rank == 1:
            out[-1] ^= 1


def stop_guardian() -> None:
    """The last that a rank does."""
    if os.getppid() > 1:
        os.kill(os.getppid(), signal.SIGSTOP)


def plant_stop(
    owner: Any, name: str, call: int = 1, *, is_after: bool = False, late_s: float = 0.0
) -> None:
    """Let rank 1 stop itself before or after it does that; or come late to it. call: the number of
    the call on rank 1.
    """
    method, calls = getattr(owner, name), count(1)

    @wraps(method)  # which the driver calls by its name
    def planted(rank: Any, *args: Any, **more: Any) -> Any:
        is_now = getattr(rank, "rank", 0) == 1 and next(calls) == call
        if is_now and late_s:
            time.sleep(late_s)
        elif is_now and not is_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        found = method(rank, *args, **more)
        if is_now and is_after:
            os.kill(os.getpid(), signal.SIGSTOP)
        return found

    setattr(owner, name, planted)


if __name__ == "__main__":
    defect = sys.argv.pop(1)
    shorten()
    if defect in ("load", "timed"):
        plant_stop(CpuRank, defect, 3)
    elif defect == "start":
        plant_stop(mpi_group, "load_mpi", late_s=60)
    elif defect == "before-mpi":
        plant_stop(mpi_group, "load_mpi")
    elif defect == "shared-memory":
        plant_stop(mpi_group.MpiGroup, "_allocate")
    elif defect == "leave":
        plant_stop(mpi_group.MpiGroup, "_leave")
    elif defect == "after-mpi":
        plant_stop(mpi_group.MpiGroup, "serve", is_after=True)
    elif defect == "guardian":
        atexit.register(stop_guardian)
    elif defect == "byte":
        pairwise.PairRank = WrongPairRank  # type: ignore[attr-defined]
    elif defect in ("idle", "idle-singly"):
        plant("idle", "timed" if defect == "idle" else "timed_singly")
    elif defect in PLANTS:
        plant(defect)
    elif defect == "late":
        interpreter.Runner.launch = late  # type: ignore[method-assign,assignment]
    else:
        interpreter.arithmetic = {"element": element, "skip": skip}[defect]
        MpiRank._call = lambda self, problem, source, target: (lambda: None, ())  # type: ignore[method-assign]
    main()
