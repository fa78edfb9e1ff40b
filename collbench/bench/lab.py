"""Runs experiments: two processes with ranks of their own, measured in turns until the interval of
their ratio is narrow or the time is over.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import cast

from collbench.bench.arm import ArmRank
from collbench.bench.experiment import Arm, Cost, Experiment, costs_of
from collbench.core.errors import CollbenchError, UnavailableError
from collbench.core.group import RankContext
from collbench.core.host import shortage
from collbench.core.launcher import launcher, without_launcher
from collbench.launch.child import END_S, Child
from collbench.launch.processes import LOST_S
from collbench.launch.server import rank_name
from collbench.machine.settings.files import settings

_START_S = 60.0  # for a process to open its ranks: a library of kernels may be compiled first
_ROUND_S = 20.0
_LEAST_ROUNDS, _MOST_ROUNDS = 6, 25  # six are the fewest that give an interval of 95 %
_LONGEST = 2.0  # times the budget that an experiment may take once its ranks are open
_NARROW = 0.04  # of an interval in logarithms, that more rounds need not narrow
_ON_GPUS = ("cuda", "nccl")
_AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT"

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
            stack.enter_context(closing(_ArmProcess(experiment, arm)))
            for arm in (experiment.found, experiment.changed)
        )
        changed.wait_until_ready()
        try:
            found.wait_until_ready()
        except UnavailableError as error:
            changed.close()  # it may have what the other one needs
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
    with closing(_ArmProcess(experiment, experiment.found)) as found:
        try:
            found.wait_until_ready()
        except UnavailableError as error:
            raise FailsUnchanged(
                f"no program starts with it, and they start with the change: {error.message}"
            ) from None


class _ArmProcess:
    """One arm's process. foreign: cores' worth of time that other processes had meanwhile."""

    def __init__(self, experiment: Experiment, arm: Arm) -> None:
        self.foreign = 0.0
        environment = dict(os.environ)
        if launcher() is not None:  # no rank of its, but with the same settings of libraries
            allowed = {name: one for name, one in environment.items() if name.startswith(_AS_ROOT)}
            environment = without_launcher(environment) | settings(environment) | allowed
        wanted = {**environment, **arm.environment}
        environment = {name: value for name, value in wanted.items() if value is not None}
        try:
            self._child = Child(
                "the process of an experiment",
                rank_name(ArmRank),
                RankContext(rank=0, n=1),
                environment,
                talk=subprocess.DEVNULL,
            )
        except OSError as error:
            raise UnavailableError(f"an experiment cannot start: {shortage(error)}") from None
        self._child.ask("open", experiment, arm.cpulist)

    def close(self) -> None:
        """End the process, if it has not ended."""
        self._child.end(END_S)

    def wait_until_ready(self) -> None:
        """Until its ranks are open."""
        self._answer(_START_S)

    def once(self) -> Sequence[float]:
        """Seconds at each size."""
        self._child.ask("once")
        seconds, self.foreign = cast("tuple[Sequence[float], float]", self._answer(_ROUND_S))
        return seconds

    def _answer(self, patience_s: float) -> object:
        """What it says next. Raises UnavailableError with the reason if it cannot go on: it has
        ended then.
        """
        try:
            return self._child.answer(patience_s, stopped_s=LOST_S)
        except CollbenchError as error:
            self.close()
            raise UnavailableError(error.message) from None
