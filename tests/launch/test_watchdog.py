"""How a rank ends all ranks, with a fake in MPI's place; with MPI, and who is named, in
test_faults_mpi.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

from collbench.core.group import Rank, RankContext
from collbench.launch.driver import EXTENSIONS
from collbench.launch.guardian import GuardedWorld, blame_in
from collbench.launch.mpi import _MpiWorkerGroup
from collbench.launch.processes import RUNS
from collbench.launch.server import Reply
from tests.support.runs import ROOT, environment
from tests.support.tiers import tiered

WORDS = "Error: rank 0 waited in vain"
# The fake ends the process with 10 more than it was told to if the words were taken by then, with
# 20 more if not.
PROGRAM = f"""
import os, time
from collbench.launch import guardian, watchdog

class Comm:
    def Abort(self, code):
        CHANGE
        os._exit(code + (20 if guardian.is_unread(2) else 10))

guardian.READ_S, watchdog._END_S = LIMITS
watchdog.end_all(Comm(), 4, "{WORDS}")
"""


@tiered(
    ("late_s", "limits", "change", "code"),
    [
        (1.0, "60, 90", "pass", 14),
        (None, "0.2, 90", "pass", 24),
        (0.0, "60, 2", "time.sleep(60)", -signal.SIGALRM),
    ],
    1,
    ids=["a late reader", "no reader", "an MPI that hangs"],
)
def test_all_end_once_the_words_are_taken(
    late_s: float | None, limits: str, change: str, code: int
) -> None:
    program = PROGRAM.replace("CHANGE", change).replace("LIMITS", limits)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    ) as process:
        if late_s is None:
            process.wait()
        else:
            time.sleep(late_s)
        assert process.communicate()[1] == f"{WORDS}\n"
        assert process.returncode == code


def test_a_rank_ends_with_its_driver() -> None:
    """Whatever it waits for: a killed driver's mpirun may wait for it in turn."""
    with subprocess.Popen(["sleep", "60"]) as driver:
        program = (
            "import time; from collbench.core.launcher import Launcher;"
            "from collbench.launch.watchdog import watchdog_of;"
            f"watchdog_of(Launcher(vendor='MPICH', size=1, rank=0), {driver.pid});"
            "print('guarded', flush=True); time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"guarded\n"
            driver.kill()
            driver.wait()
            assert process.wait(timeout=30) == 4


def test_a_rank_that_hears_no_other_host_suspects_its_own() -> None:
    world = GuardedWorld(["a", "a", "b", "c"], [1, 2, 3, 4])
    silent = {2: "is silent", 3: "is silent"}
    heard = {1: RUNS, 2: "is silent", 3: RUNS}
    assert blame_in(world, heard, 0) == "; rank 2 is silent"
    assert blame_in(world, {1: "is gone", **silent}, 0) == (
        "; rank 1 is gone; it hears no other host: host a may be cut off"
    )
    two = GuardedWorld(["a", "b"], [1, 2])
    assert blame_in(two, {1: "is silent"}, 0) == "; rank 1 is silent"


def test_rank_0_does_its_part_with_a_deadline() -> None:
    """No other process looks after it."""
    watched: list[tuple[str, float]] = []

    @contextmanager
    def limit(what: str, deadline_s: float) -> Iterator[None]:
        watched.append((what, deadline_s))
        yield
        watched.pop()

    class Watched(Rank):
        def __init__(self, context: RankContext) -> None: ...

        def timed(self) -> object: ...

    def perform(message: object) -> Reply:
        return Reply(list(watched))

    group = SimpleNamespace(
        ranks=1,
        comm=None,
        watchdog=SimpleNamespace(limit=limit, guarded=nullcontext, fate=None),
        abort_waits=None,
        open_parts=set(),
        perform=perform,
    )
    workers = _MpiWorkerGroup(cast(Any, group), Watched, 0)
    assert workers.call(Watched.timed, timeout_s=3.0) == [
        [("its own part of the call timed", 3.0 * (1 + EXTENSIONS))]
    ]
    assert watched == []
