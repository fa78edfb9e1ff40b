"""GPUs whose copy engines are queues of Python generators: streams, events and the kernels of
engine.cu, over the memory of device.py.

This runs backends/cuda/copy_engine.py with a simulated runtime and simulated launches; arguments
and flag entries are unpacked by the structures of engine.cu. The streams of all ranks are stepped
at random, and copies proceed piece by piece, so that commands which lack an order read incomplete
data. Graphs, the memory order, timeouts and time are not simulated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collbench.backends.cuda import copy_engine
from collbench.backends.cuda.copy_engine import CopyEngine
from collbench.device.compile import move_widths
from collbench.device.engine import slices_of
from collbench.device.layout import STATES_AT, layout
from collbench.device.program import READY
from collbench.planning.plan import Plan
from tests.support.device import ARENA, USER, Gpus, Run, memory_of, problem_of
from tests.support.structures import structure

_PIECE = 96  # bytes of a copy between two turns
_POISON = 0xA5
Work = Iterator[bool]  # False: waits for another stream


class Streams:
    """The runtime of one rank: streams are lists of work."""

    eventDisableTiming, memcpyDefault = 2, 4

    def __init__(self, gpus: "CopyGpus", rank: int) -> None:
        self.gpus, self.rank, self.numbers = gpus, rank, count(1)
        self.streams: dict[int, list[Work]] = {0: []}
        self.recorded: dict[int, list[bool]] = {}
        self.copied = 0

    def new_stream(self) -> int:
        """As Card.new_stream."""
        self.streams[number := next(self.numbers)] = []
        return number

    def eventCreateWithFlags(self, flags: int) -> int:
        return next(self.numbers)

    def eventRecord(self, event: int, stream: int) -> None:
        is_done = self.recorded[event] = [False]

        def happen() -> Work:
            is_done[0] = True
            yield True

        self.streams[stream].append(happen())

    def streamWaitEvent(self, stream: int, event: int) -> None:
        is_done = self.recorded[event]

        def wait() -> Work:
            while not is_done[0]:
                yield False

        self.streams[stream].append(wait())

    def memcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        assert kind == self.memcpyDefault
        assert size > 0
        self.copied += 1

        def copy() -> Work:
            for at in range(0, size, _PIECE):
                length = min(_PIECE, size - at)
                self.gpus.at(self.rank, target + at, length)[:] = self.gpus.at(
                    self.rank, source + at, length
                )
                yield True

        self.streams[stream].append(copy())


class Kernel:
    """A launch: simulates a kernel of engine.cu."""

    def __init__(
        self, card: Any, function: str, grid: tuple[int, int], block: int, args: Sequence[bytes]
    ) -> None:
        self.runtime, self.function, self.args = card.runtime, function, args
        self.gpus: CopyGpus = card.runtime.gpus
        assert grid[0] > 0

    def __call__(self, stream: int) -> None:
        work: dict[str, Callable[[], Work]] = {
            "collbench_wait": self._wait,
            "collbench_signal": self._signal,
            "collbench_move": self._move,
        }
        self.runtime.streams[stream].append(work[self.function]())

    def _entries(self) -> tuple[int, list[Any]]:
        """The address of the launch counter, and the flag entries."""
        (engine,) = np.frombuffer(self.args[0], structure("Engine", {}, "engine.cu"))
        kind = structure("FlagEntry", {}, "engine.cu")
        address, length = (int.from_bytes(arg, "little") for arg in self.args[1:3])
        table = self.gpus.tables[self.runtime.rank]
        start = address - table.base
        assert engine["rank"] == self.runtime.rank
        return int(engine["launch"]), list(
            np.frombuffer(table.data[start : start + length * kind.itemsize], kind)
        )

    def _wait(self) -> Work:
        gpus, rank = self.gpus, self.runtime.rank
        state, entries = self._entries()
        launch = gpus.word(rank, state) - 1
        for entry in entries:
            while gpus.word(rank, int(entry["flag"])) < launch * int(entry["per_launch"]) + int(
                entry["number"]
            ):
                yield False
        yield True

    def _signal(self) -> Work:
        gpus, rank = self.gpus, self.runtime.rank
        state, entries = self._entries()
        begins = int.from_bytes(self.args[3], "little")
        launch = gpus.word(rank, state) - (1 - begins)
        if begins:
            gpus.set_flag(rank, state, launch + 1)
        for entry in entries:
            assert bool(begins) == (entry["signal"] == READY)
            if (value := launch * int(entry["per_launch"]) + int(entry["number"])) <= int(
                entry["limit"]
            ):
                gpus.set_flag(rank, int(entry["flag"]), value)
            yield True

    def _move(self) -> Work:
        gpus, rank = self.gpus, self.runtime.rank
        (move,) = np.frombuffer(
            self.args[0],
            structure("MoveArgs", {"MAX_SOURCES": move_widths(gpus.plan)[-1]}, "engine.cu"),
        )
        size, unit = int(move["bytes"]), gpus.plan.problem.item_bytes
        for at in range(0, size, _PIECE // unit * unit):
            length = min(_PIECE // unit * unit, size - at)
            sources = [
                gpus.at(rank, int(address) + at, length)
                for address in move["source"][: move["sources"]]
            ]
            gpus.at(rank, int(move["target"]) + at, length)[:] = gpus.reduce(
                sources, int(move["divide"])
            )
            yield True


class CopyGpus(Gpus):
    """n GPUs with a plan's memory, two sets of user buffers, and streams."""

    def __init__(
        self,
        plan: Plan,
        monkeypatch: pytest.MonkeyPatch,
        seed: int = 0,
        silent_after: int | None = None,
    ) -> None:
        self.begin(plan, seed)
        self.silent_after = silent_after
        self.memory = {ARENA: self.arenas, USER: self.users}
        for rank in range(plan.n):
            self.arenas[rank][layout(plan, rank).fifos :] = _POISON
        self.runtimes = [Streams(self, rank) for rank in range(plan.n)]
        self.tables = [SimpleNamespace(base=1 << 50, data=b"") for _ in range(plan.n)]
        monkeypatch.setattr(copy_engine, "Launch", Kernel)
        self.engines = [CopyEngine(self._lane(rank)) for rank in range(plan.n)]

    def _lane(self, rank: int) -> Any:
        table = self.tables[rank]

        def keep(key: object, data: bytes) -> int:
            address: int = table.base + len(table.data)
            table.data += data
            return address

        card = SimpleNamespace(
            runtime=self.runtimes[rank],
            new_stream=self.runtimes[rank].new_stream,
            function=lambda cubin, name: name,
        )
        return SimpleNamespace(rank=rank, card=card, keep=keep, timeout_s=10.0)

    def run(self, *runs: Run) -> None:
        """Run launches one after the other on every rank and compare each. Asserts that all end.
        Launches with other block counts than the plan's make it a stress test.
        """
        for rank, engine in enumerate(self.engines):
            self._queue(rank, engine, runs)
        self.finish()

    def finish(self) -> None:
        """Step all streams at random. Asserts that all end."""
        is_stuck = False
        while any(work for runtime in self.runtimes for work in runtime.streams.values()):
            moved = 0
            streams = [
                work for runtime in self.runtimes for work in runtime.streams.values() if work
            ]
            self.chance.shuffle(streams)
            for work in streams:
                for _ in range(1 if is_stuck else self.chance.randrange(4)):
                    if not work:
                        break
                    try:
                        if not next(work[0]):
                            break
                    except StopIteration:
                        work.pop(0)
                    moved += 1
            assert moved or not is_stuck, "all streams wait"
            is_stuck = not moved

    def _queue(self, rank: int, engine: CopyEngine, runs: Sequence[Run]) -> None:
        plan, main = self.plan, self.runtimes[rank].streams[0]
        is_soak, done, known = any(run.block_count for run in runs), [0] * plan.channels, {}
        for number, run in enumerate(runs):
            main.append(
                self._host(lambda run=run, number=number: self.fill(rank, run, 1009 * number))  # type: ignore[misc]
            )
            one = replace(plan, problem=problem_of(plan, run))
            if is_soak or run not in known:
                known[run] = engine.queue(
                    one,
                    b"",
                    memory_of(one.problem, rank),
                    set_offset=run.number * self.stride,
                    done_before=done if is_soak else None,
                    silent_after=self.silent_after,
                )
            known[run](0)
            done = [before + slices_of(one, channel) for channel, before in enumerate(done)]
            main.append(self._host(lambda run=run, number=number: self._judge(rank, run, number)))  # type: ignore[misc]

    def _judge(self, rank: int, run: Run, number: int) -> None:
        self.compare(rank, run, 1009 * number)
        self.set_of(rank, run)[:] = _POISON

    def _host(self, work: Callable[[], None]) -> Work:
        work()
        yield True

    def launches(self, rank: int) -> int:
        """The number of launches that a rank has counted."""
        return int(self.arenas[rank][STATES_AT : STATES_AT + 8].view("<u8")[0])
