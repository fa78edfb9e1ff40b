"""Launches that do nothing, or less than they should, and only while they are timed: on CPUs, by
libraries, on GPUs. Not a test.

first, last, tenth, half: only these work. head, tail: all but the first leave the first or the last
element of the output as it was. kept: those that find both as their last launch there left them do
nothing; not on GPUs. idle: none works.
"""

import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Literal
from unittest.mock import patch

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.blocking import HostBuffers
from collbench.backends.cpu import together
from collbench.backends.cpu.rank import CpuRank
from collbench.backends.gpu import timing
from collbench.backends.gpu.rank import Launches
from collbench.backends.library import LibraryRank
from collbench.backends.repeat import RankTiming
from collbench.core.case import Problem
from collbench.core.pattern import bits

PlantKind = Literal["first", "last", "tenth", "half", "head", "tail", "kept", "idle"]
PLANTS: tuple[PlantKind, ...] = ("first", "last", "tenth", "half", "head", "tail")


class Plant:
    """A defect in the launches of a timed batch of so many."""

    def __init__(self, kind: PlantKind, launches: int) -> None:
        self.kind, self.launches, self.number = kind, launches, 0
        self.left: dict[int, bytes] = {}  # by the address of an output: its ends

    def skips(self) -> bool:
        """Whether the next launch does nothing."""
        self.number += 1
        works = {
            "first": self.number == 1,
            "last": self.number == self.launches,
            "tenth": self.number % 10 == 0,
            "half": self.number % 2 == 0,
            "idle": False,
        }
        return not works.get(self.kind, True)

    def dropped(self) -> int | None:
        """The element that this launch leaves as it was."""
        return None if self.number == 1 else {"head": 0, "tail": -1}.get(self.kind)

    def run(self, launch: Callable[[], object], outputs: Sequence[Any]) -> None:
        """A launch with the defect; outputs: what it should write."""
        ends = {one.ctypes.data: one[[0, -1]].tobytes() for one in outputs if len(one)}
        if self.skips() or (self.kind == "kept" and ends.items() <= self.left.items()):
            return
        at = self.dropped()
        kept = [output[at] for output in outputs if at is not None and len(output)]
        launch()
        for output, value in zip((one for one in outputs if len(one)), kept, strict=False):
            output[at] = value
        self.left |= {one.ctypes.data: one[[0, -1]].tobytes() for one in outputs if len(one)}


def _launches(batch: Batch, *, singly: bool) -> int:
    return 1 + batch.single_launches if singly else batch.iterations * batch.aggregate


def _output(problem: Problem, rank: int, target: Any) -> Any:
    return bits(target)[: problem.buffers(rank).out_bytes // problem.item_bytes]


def on_cpu(kind: PlantKind, method: Callable[..., RankTiming]) -> Callable[..., RankTiming]:
    """A method of our rank that times launches, with the plant in these."""

    @wraps(method)  # the driver calls it by its name
    def planted(rank: Any, keys: Any, hot: bool, batch: Batch, *more: Any) -> RankTiming:
        parts = (
            [(part, part.loaded[keys[number], hot]) for number, part in rank.parts.items()]
            if isinstance(rank, together.TogetherRank)
            else [(rank, rank.loaded[keys, hot])]
        )
        outputs = {
            id(programs): _output(loaded.plan.problem, part.rank, loaded.buffers.arrays(number)[1])
            for part, loaded in parts
            for number, programs in enumerate(loaded.programs)
        }
        launches = _launches(batch, singly=method.__name__ == "timed_singly")
        plant, grouped = Plant(kind, launches), together.launch_grouped

        def launch_grouped(several: Sequence[together.Launch], limit_s: float) -> None:
            targets = [outputs[id(programs)] for _, programs in several]
            plant.run(partial(grouped, several, limit_s), targets)

        def launcher(real: Callable[..., None], plant: Plant) -> Callable[..., None]:
            return lambda programs, limit_s: plant.run(
                partial(real, programs, limit_s), [outputs[id(programs)]]
            )

        with ExitStack() as stack:
            stack.enter_context(patch.object(together, "launch_grouped", launch_grouped))
            for _, loaded in parts:
                launch = launcher(loaded.runner.launch, Plant(kind, launches))
                stack.enter_context(patch.object(loaded.runner, "launch", launch))
                if kind == "idle" and loaded.proxy is not None:
                    stack.enter_context(patch.object(loaded.proxy, "expect", lambda *_: None))
            return method(rank, keys, hot, batch, *more)

    return planted


def by_library(kind: PlantKind, method: Callable[..., RankTiming]) -> Callable[..., RankTiming]:
    """As on_cpu, of a library's rank."""

    @wraps(method)
    def planted(rank: LibraryRank, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        assert rank.prepared is not None
        buffers, calls = rank.prepared.buffers, rank.prepared.calls
        assert isinstance(buffers, HostBuffers)
        plant = Plant(kind, _launches(batch, singly=method.__name__ == "timed_singly"))
        outputs = [_output(problem, rank.rank, target) for target in buffers._outputs]
        spoiled = [
            (plant.run, (partial(function, *args), [output]))
            for (function, args), output in zip(calls, outputs, strict=True)
        ]
        with patch.object(rank.prepared, "calls", spoiled):
            return method(rank, problem, hot, batch)

    return planted


def on_gpu(kind: PlantKind, method: Callable[..., RankTiming]) -> Callable[..., RankTiming]:
    """As on_cpu, of what times launches on GPUs: a launch of a graph has what its capture had."""

    def planted(launches: Launches, batch: Batch, options: GpuOptions, work_s: float) -> RankTiming:
        plant = Plant(kind, _launches(batch, singly=method is timing_singly))
        gpu, problem = launches.gpu, launches.problem
        outputs = problem.buffers(gpu.rank).out_bytes // problem.item_bytes
        at = {"head": 0, "tail": max(0, outputs - 1)}.get(kind, 0)
        place, kept = gpu.keep(("plant", at), struct.pack("<Q", at)), gpu.keep("plant", bytes(8))

        def queue(number: int, stream: int) -> None:
            if plant.skips():
                return
            drops = plant.dropped() is not None and outputs
            address, _ = gpu.buffer(problem, "out", number)
            if drops:
                gpu.exchange(problem.item_bytes, (address, place, 0, kept, 1), stream)
            launches.queue(number, stream)
            if drops:
                gpu.exchange(problem.item_bytes, (address, place, kept, 0, 1), stream)

        return method(replace(launches, queue=queue, graphs={}), batch, options, work_s)

    return planted


timing_timed, timing_singly = timing.timed, timing.timed_singly


def plant(kind: PlantKind, *names: str) -> ExitStack:
    """From now on launches have the defect, until the stack is closed. names: of the methods that
    time launches; none: all.
    """
    stack, names = ExitStack(), names or ("timed", "timed_singly", "timed_together")
    for owner, wrap in (
        (CpuRank, on_cpu),
        (together.TogetherRank, on_cpu),
        (LibraryRank, by_library),
        (timing, on_gpu),
    ):
        for name in names:
            if hasattr(owner, name):
                planted = wrap(kind, getattr(owner, name))
                stack.enter_context(patch.object(owner, name, planted))
    return stack
