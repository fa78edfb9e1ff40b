"""Runs experiments: two processes with ranks of their own, measured in turns until the interval of
their ratio is narrow or the time is over.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from collbench.bench.experiment import Arm, Cost, Experiment, costs_of
from collbench.core.errors import UnavailableError
from collbench.core.host import shortage
from collbench.core.launcher import launcher, without_launcher
from collbench.launch.processes import fate
from collbench.machine.settings.files import settings

_START_S = 60.0  # for a process to open its ranks: a library of kernels may be compiled first
_ROUND_S = 20.0
_LEAST_ROUNDS, _MOST_ROUNDS = 6, 25  # six are the fewest that give an interval of 95 %
_LONGEST = 2.0  # times the budget that an experiment may take once its ranks are open
_NARROW = 0.04  # of an interval in logarithms, that more rounds need not narrow
_ON_GPUS = ("cuda", "nccl")
_AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT"
_END_S = 5.0


Rounds = list[tuple[Sequence[float], Sequence[float]]]


def measure(experiment: Experiment, budget_s: float) -> tuple[Cost, ...]:
    """The cost at each size of an experiment, which takes about so long. Raises UnavailableError
    with the reason if an arm cannot run, and FailsUnchanged if that is the cost.

    Ranks on CPUs are started twice: where they and their memory are placed stays for as long as
    they live, and differs between two starts by more than it does between rounds.
    """
    rounds: Rounds = []
    starts = 1 if experiment.backend in _ON_GPUS else 2
    noisy = [_take_turns(experiment, rounds, budget_s / starts, starts) for _ in range(starts)]
    return costs_of(experiment, rounds, is_noisy=any(noisy))


def _take_turns(experiment: Experiment, rounds: Rounds, budget_s: float, starts: int) -> bool:
    """Start both arms and add their rounds; returns whether other processes were busy."""
    start, before = time.monotonic(), len(rounds)
    least, most = -(-_LEAST_ROUNDS // starts), _MOST_ROUNDS // starts
    with ExitStack() as stack:
        found, changed = (
            stack.enter_context(_Process(experiment, arm))
            for arm in (experiment.found, experiment.changed)
        )
        changed.wait_until_ready()
        try:
            found.wait_until_ready()
        except UnavailableError as error:
            changed.end()  # it may have what the other one needs
            _prove_that_it_fails(experiment)
            raise UnavailableError(
                f"what starts alone did not start beside another: {error.message}"
            ) from None
        for one in (found, changed):  # what is slow the first time
            one.once()
        while (done := len(rounds) - before) < most:
            # ABBA: drift falls on both alike
            if done % 2:
                second = changed.once()
                rounds.append((found.once(), second))
            else:
                first = found.once()
                rounds.append((first, changed.once()))
            elapsed_s = time.monotonic() - start
            if done + 1 >= least:
                if elapsed_s > budget_s or all(
                    cost.ratio.high / cost.ratio.low < 1 + _NARROW
                    for cost in costs_of(experiment, rounds)
                ):
                    break
            elif elapsed_s > _LONGEST * budget_s:
                slowest = max(
                    sum(with_it[place] for with_it, _ in rounds)
                    / sum(without[place] for _, without in rounds)
                    for place in range(len(experiment.sizes))
                )
                raise UnavailableError(
                    f"the machine is busy, or very slow: {done + 1} of {least} rounds"
                    f" took {elapsed_s:.0f} s, {slowest:.3g} x as long as with the change"
                )
        return max(found.foreign, changed.foreign) > 0


class FailsUnchanged(Exception):  # noqa: N818 - what an experiment shows, no error of the tool
    """What was found keeps programs from starting, and they start with the change."""


def _prove_that_it_fails(experiment: Experiment) -> None:
    """Start what was found with nothing beside it. Raises FailsUnchanged if that fails."""
    with _Process(experiment, experiment.found) as found:
        try:
            found.wait_until_ready()
        except UnavailableError as error:
            raise FailsUnchanged(
                f"no program starts with it, and they start with the change: {error.message}"
            ) from None


class _Process:
    """One arm's process. foreign: cores' worth of time that other processes had meanwhile."""

    def __init__(self, experiment: Experiment, arm: Arm) -> None:
        job = {
            "backend": experiment.backend,
            "ranks": experiment.ranks,
            "op": experiment.op,
            "sizes": experiment.sizes,
            "knobs": dict(experiment.knobs),
            "cpulist": arm.cpulist,
        }
        self.foreign = 0.0
        environment = dict(os.environ)
        if launcher() is not None:  # no rank of its, but with the same settings of libraries
            allowed = {name: one for name, one in environment.items() if name.startswith(_AS_ROOT)}
            environment = without_launcher(environment) | settings(environment) | allowed
        for name, value in arm.environment.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "collbench.bench.arm", json.dumps(job)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(f"an experiment cannot start: {shortage(error)}") from None

    def __enter__(self) -> "_Process":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the process: it leaves when its input ends, or is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def wait_until_ready(self) -> None:
        """Until its ranks are open."""
        self._answer(_START_S)

    def once(self) -> list[float]:
        """Seconds at each size."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer(_ROUND_S)
        self.foreign = answer["foreign"]  # type: ignore[assignment]  # as arm.py writes it
        seconds: list[float] = answer["seconds"]  # type: ignore[assignment]
        return seconds

    def _answer(self, patience_s: float) -> dict[str, object]:
        """The next line that the process writes. It writes whole lines at once."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], patience_s)
        if not readable:
            raise UnavailableError(f"an experiment did not answer in {patience_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, object] = json.loads(line)
        if "reason" in answer:
            raise UnavailableError(str(answer["reason"]))
        return answer

    def _ended(self) -> UnavailableError:
        """Why a process that ended did."""
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return UnavailableError("the process of an experiment does not answer any more")
        return UnavailableError(f"the process of an experiment {fate(0, code)}")
