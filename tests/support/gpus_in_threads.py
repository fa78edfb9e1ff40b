"""GPUs made of NumPy arrays under whole sessions of GPU backends: ranks are threads, each with a
card whose streams, events and graphs are queues of Python generators, and kernels are the CTAs of
device_cta.py, or those of pattern.cu, engine.cu and copy.cu as they are written below.

All that a rank does to its card is run as it is; kernels get the bytes that launches pack, and find
memory by its real address. Streams of all cards are stepped at random, so that launches which lack
an order read incomplete data. Caches, the memory order, timeouts of kernels and time are not
simulated, and any number of CTAs is resident.
"""

import os
import random
import struct
import threading
import time
from bisect import bisect, insort
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collbench.backends.base import GpuOptions
from collbench.backends.cuda import backend as cuda_backend
from collbench.backends.cuda import compilation, copy_engine
from collbench.backends.cuda import rank as cuda_rank
from collbench.backends.gpu import rank as gpu_rank
from collbench.backends.gpu import session as gpu_session
from collbench.backends.gpu.rank import BARRIER, FLAG, DeviceRank
from collbench.backends.gpu.session import GpuFacts
from collbench.core.case import Problem
from collbench.core.errors import HangError
from collbench.core.group import RankContext
from collbench.core.pattern import Wrong
from collbench.device import compile as device_compile
from collbench.device import copies as device_copies
from collbench.device.compile import Source, move_widths
from collbench.device.layout import TRACE_ARGS
from collbench.device.program import READY
from collbench.planning.plan import Plan
from tests.support.device import Gpus, reduced_bytes, tables_of
from tests.support.device_cta import Cta
from tests.support.gpu_session import facts_of
from tests.support.structures import structure, unpack

CACHE_BYTES = 1 << 14
_POOL_BYTES = 1 << 20
_PIECE = 96  # bytes of a copy between two turns
_PERSISTENCE = 0.9  # probability that a coroutine which can go on does so
Work = Iterator[bool]  # yields whether it waits
# what it is, the stream, an event, and what is begun there
Captured = tuple[str, int, int, Callable[[], Work]]


class Machine:
    """What all cards have in common: memory, streams, and the kernels that were compiled.

    resident: CTAs of a kernel that a card says can be resident. hangs_s: how long a rank waits for
    streams that do not end.
    """

    def __init__(self, seed: int = 0, resident: int = 264, hangs_s: float = 60.0) -> None:
        self.chance, self.lock = random.Random(seed), threading.RLock()
        self.resident, self.hangs_s, self.changes = resident, hangs_s, 0
        self.here = threading.local()  # card: the one that this thread, a rank, has made
        self.starts: list[int] = []
        self.memory: list[np.ndarray] = []
        self.streams: list[list[Work]] = []
        self.sources: list[Source] = []
        self.plans: dict[Source, Plan] = {}
        self.cards: list[Card] = []

    @property
    def most_streams(self) -> int:
        """Streams with launches of what is measured, on the card that had most."""
        return max(len(card.launching) for card in self.cards)

    def view(self, address: int, size: int) -> np.ndarray:
        """Memory that was allocated."""
        number = bisect(self.starts, address) - 1
        assert number >= 0, f"nothing is at {address:#x}"
        offset, memory = address - self.starts[number], self.memory[number]
        assert offset + size <= len(memory), f"{size} bytes at {offset} of {len(memory)}"
        return memory[offset : offset + size]

    def words(self, address: int, count: int = 1) -> np.ndarray:
        """Words of 8 bytes."""
        return self.view(address, 8 * count).view("<u8")

    def allocate(self, size: int) -> int:
        """Zeroed memory."""
        whole = np.zeros(size + 4096, np.uint8)
        skipped = -whole.ctypes.data % 4096
        memory = whole[skipped : skipped + size]
        with self.lock:
            at = bisect(self.starts, memory.ctypes.data)
            self.starts.insert(at, memory.ctypes.data)
            self.memory.insert(at, memory)
        return memory.ctypes.data

    def step(self) -> None:
        """Let every stream go on for a bit."""
        for stream in self.chance.sample(self.streams, len(self.streams)):
            while stream:
                try:
                    if next(stream[0]):
                        break
                except StopIteration:
                    stream.pop(0)
                if self.chance.random() > _PERSISTENCE:
                    break

    def compiled(self, source: Source, arch: int) -> bytes:
        """In the place of machine code: the number of the source."""
        with self.lock:
            if source not in self.sources:
                self.sources.append(source)
            return struct.pack("<I", self.sources.index(source))


class Graph:
    """What a card has captured."""

    def __init__(self, card: "Card", works: Sequence[Captured]) -> None:
        self._card, self._works = card, works

    def launch(self, stream: int) -> None:
        for what, own, event, begin in self._works:
            self._card.queue(own, begin, what, event)


class Card:
    """In the place of a card of device/card.py."""

    name, arch, cache_bytes, multiprocessors = "made of arrays", 90, CACHE_BYTES, 132

    def __init__(self, machine: Machine, index: int) -> None:
        self.machine, self.index = machine, index
        self.events: list[list[bool]] = []
        self.launching: set[int] = set()  # streams that had launches of what is measured
        self.log: list[str] = []  # what was queued, launches of graphs among it
        self.freed, self.stamped = list[int](), 0
        self.stream = self.new_stream()
        self.captured: list[Captured] | None = None
        self.when_captured: list[Callable[[Graph], None]] = []
        self.runtime = SimpleNamespace(
            eventRecord=self._record,
            streamWaitEvent=self._wait_event,
            eventDisableTiming=2,
            eventCreateWithFlags=lambda flags: self.event(),
            memcpyAsync=self.copy,
        )
        with machine.lock:
            insort(machine.cards, self, key=lambda card: card.index)
        machine.here.card = self

    def new_stream(self) -> int:
        with self.machine.lock:
            self.machine.streams.append([])
            return len(self.machine.streams) - 1

    def queue(
        self, stream: int, begin: Callable[[], Work], what: str = "work", event: int = -1
    ) -> None:
        """Queue what begins when all before it in the stream has ended, or capture it."""
        if self.captured is not None:
            self.captured.append((what, stream, event, begin))
            return
        with self.machine.lock:
            self.log.append(what)
            self.machine.streams[stream].append(begin())

    def do(self, what: str, work: Callable[[], None]) -> None:
        """Queue a function in the main stream."""

        def begin() -> Work:
            work()
            yield False

        self.queue(self.stream, begin, what)

    def copy(
        self, target: int, source: int, size: int, kind: int, stream: int, what: str = "copy"
    ) -> None:
        """Queue a copy, which may be seen half done."""

        def begin() -> Work:
            for at in range(0, size, _PIECE):
                part = min(_PIECE, size - at)
                self.view(target + at, part)[:] = self.view(source + at, part)
                self.machine.changes += 1
                yield True

        self.queue(stream, begin, what)

    def event(self) -> int:
        self.events.append([True])
        return len(self.events) - 1

    def _record(self, event: int, stream: int) -> None:
        def begin() -> Work:
            # the record is the event's from now on, where it is queued
            is_done = self.events[event] = [False]

            def happen() -> Work:
                is_done[0] = True
                yield False

            return happen()

        self.queue(stream, begin, "record", event)

    def _wait_event(self, stream: int, event: int) -> None:
        def begin() -> Work:
            is_done = self.events[event]

            def wait() -> Work:
                while not is_done[0]:
                    yield True

            return wait()

        self.queue(stream, begin, "wait", event)

    def record(self, event: int) -> None:
        self._record(event, self.stream)

    record_by_graph = record

    def elapsed_s(self, start: int, stop: int) -> float:
        assert self.events[start][0]
        assert self.events[stop][0]
        return 1e-5

    def capture(self, body: Callable[[int], None]) -> "Graph":
        assert self.captured is None
        self.captured = []
        body(self.stream)
        works, self.captured = self.captured, None
        self._refuse_loose_ends(works)

        graph = Graph(self, works)
        for tell in self.when_captured:
            tell(graph)
        self.when_captured.clear()
        return graph

    def _refuse_loose_ends(self, works: Sequence[Captured]) -> None:
        """CUDA captures another stream from where it waits for one that is captured, and refuses a
        capture that does not come back from all of them.
        """
        inside, recorded, loose = {self.stream}, dict[int, int](), set[int]()
        for what, stream, event, _ in works:
            if what == "wait" and event in recorded:
                inside.add(stream)
                loose.discard(recorded[event])
            assert stream in inside, f"stream {stream} is not captured"
            if stream != self.stream:
                loose.add(stream)
            if what == "record":
                recorded[event] = stream
        assert not loose, f"streams {loose} have not been joined"

    def as_cupy(self, stream: int) -> int:
        return stream

    # Memory

    def allocate(self, size: int) -> int:
        return self.machine.allocate(max(1, size))

    def free(self, pointer: int) -> None:
        self.freed.append(pointer)

    def export(self, pointer: int, *, to_processes: bool) -> tuple[int, int, int, bytes]:
        return os.getpid(), self.index, pointer, b""

    def open(self, exported: tuple[int, int, int, bytes]) -> int:
        return exported[2]

    def allocate_host(self, size: int) -> int:
        return self.machine.allocate(size)

    def open_host(self, handle: int) -> int:
        return handle

    def view(self, address: int, size: int) -> np.ndarray:
        return self.machine.view(address, size)

    def upload(self, pointer: int, data: bytes) -> None:
        with self.machine.lock:
            self.view(pointer, len(data))[:] = np.frombuffer(data, np.uint8)

    def download(self, pointer: int, size: int) -> bytes:
        with self.machine.lock:
            return self.view(pointer, size).tobytes()

    def clear(self, pointer: int, size: int, byte: int = 0) -> None:
        self.do("clear", partial(self.view(pointer, size).fill, byte))

    # Kernels

    def function(self, code: bytes, name: str) -> tuple[Source, str]:
        return self.machine.sources[struct.unpack("<I", code)[0]], name

    def resident_ctas(self, function: object, threads: int, cluster: int = 1) -> int:
        return self.machine.resident

    def wait(self, deadline_s: float) -> None:
        """Until the main stream is empty; meanwhile all cards go on."""
        end, last, changes = time.monotonic() + self.machine.hangs_s, time.monotonic(), -1
        while True:
            with self.machine.lock:
                if not self.machine.streams[self.stream]:
                    return
                self.machine.step()
                if self.machine.changes != changes:
                    changes, last = self.machine.changes, time.monotonic()
            if time.monotonic() > min(end, last + self.machine.hangs_s):
                raise HangError(f"GPU {self.index} has not finished")
            time.sleep(0)

    def close(self) -> None: ...


def exchange(
    view: Callable[[int, int], np.ndarray],
    item: int,
    data: int,
    places: int,
    values: int,
    seen: int,
    count: int,
) -> None:
    """The kernel of pattern.cu that writes or keeps single elements."""
    for at, place in enumerate(view(places, 8 * count).view("i8").tolist()):
        element = view(data + place * item, item)
        if seen:
            view(seen + at * item, item)[:] = element
        if values:
            element[:] = view(values + at * item, item)


def fill_or_compare(
    view: Callable[[int, int], np.ndarray],
    item: int,
    number: int,
    args: Sequence[int],
    *,
    is_fill: bool,
) -> None:
    """The kernels of pattern.cu that write or compare a set."""
    address, table, count, phase, stride, shift, *more = args
    period = more[-2] if is_fill else more[-1]
    values = view(table, period * item).view(f"u{item}")
    wanted = values[(np.arange(count) + phase + number * shift) % period]
    data = view(address + number * stride, count * item).view(f"u{item}")
    if is_fill:
        step, _, flip = more
        for some in (slice(None, None, step), slice(-1, None)):
            data[some] = ~wanted[some] if flip else wanted[some]
    else:
        first, found = more[0], view(more[1], 16).view("u8")
        wrong = np.flatnonzero(data != wanted)
        found[0] += len(wrong)
        found[1] = min([found[1], *(first + wrong[:1].astype("u8"))])


class Launch:
    """In the place of a launch of device/card.py."""

    def __init__(
        self,
        card: Card,
        function: tuple[Source, str],
        grid: tuple[int, int],
        block: int,
        args: Sequence[bytes],
        *,
        cluster: int = 1,
        is_dependent: bool = False,
    ) -> None:
        self.card, (self.source, self.name), self.grid = card, function, grid
        self.own_args, self.is_dependent = tuple(args), is_dependent

    def __call__(self, stream: int) -> None:
        name = self.name.removeprefix("collbench_")
        if name == "copy":
            target, source, size = (int.from_bytes(arg, "little") for arg in self.own_args)
            self.card.copy(target, source, size, 0, stream, f"copy by {self.grid[0]} CTAs")
            return
        work: Callable[[int], Work] = getattr(self, f"_{name}", self._pattern)
        self.card.queue(stream, partial(work, stream), name)

    def _run(self, stream: int) -> Work:
        """The kernel of a plan."""
        machine = self.card.machine
        args, *stamps = self.own_args
        memory = PlanMemory(machine, machine.plans[self.source], self.source, args)
        self.card.launching.add(stream)
        if stamps:  # the first one counts the launches with stamps
            self.card.stamped += 1
            machine.view(TRACE_ARGS.unpack(stamps[0])[0], 1)[:] = self.card.stamped
        ctas = [memory.cta(number) for number in range(self.grid[0])]
        live = [one for cta in ctas for one in cta.coroutines()]
        while live:
            before = machine.changes
            for one in machine.chance.sample(live, len(live)):
                try:
                    while not next(one):
                        machine.changes += 1
                        if machine.chance.random() > _PERSISTENCE:
                            break
                except StopIteration:
                    machine.changes += 1
                    live.remove(one)
            yield machine.changes == before

    def _barrier(self, stream: int) -> Work:
        """The kernel of barrier.cu."""
        machine = self.card.machine
        local, table, _, _, _, _, ranks, _ = BARRIER.unpack(self.own_args[0])
        peers = [int(peer) for peer in machine.words(table, ranks)]
        yield from self._meet(local, peers, range(ranks))

    def _flag(self, stream: int) -> Work:
        """The kernel of flag.cu."""
        local, *remote, _, _, _, ranks, bits = FLAG.unpack(self.own_args[0])
        awaited = [rank for rank in range(ranks) if bits >> rank & 1]
        if ranks:
            yield from self._meet(local, remote[:ranks], awaited)

    def _meet(self, local: int, remote: list[int], awaited: Sequence[int]) -> Work:
        """Set a word of each peer's that is not 0, and wait for those of one's own."""
        machine, ranks = self.card.machine, len(remote)
        own = machine.words(local, ranks + 2)
        count = int(own[ranks]) + 1
        for address in filter(None, remote):
            machine.words(address)[0] = count
        machine.changes += 1
        end = time.monotonic() + machine.hangs_s
        while not all(own[awaited] >= count) and time.monotonic() < end:
            yield True
        own[ranks] = count

    def _flags(self) -> tuple[np.ndarray, list[Any]]:
        """The launch counter of kernels of engine.cu, and their flag entries."""
        (engine,) = np.frombuffer(self.own_args[0], structure("Engine", {}, "engine.cu"))
        kind = structure("FlagEntry", {}, "engine.cu")
        address, length = (int.from_bytes(arg, "little") for arg in self.own_args[1:3])
        entries = self.card.view(address, length * kind.itemsize).view(kind)
        return self.card.machine.words(int(engine["launch"])), list(entries.copy())

    def _wait(self, stream: int) -> Work:
        (launches, entries), machine = self._flags(), self.card.machine
        end = time.monotonic() + machine.hangs_s
        for entry in entries:
            value = (int(launches[0]) - 1) * int(entry["per_launch"]) + int(entry["number"])
            flag = machine.words(int(entry["flag"]))
            while flag[0] < value and time.monotonic() < end:
                yield True

    def _signal(self, stream: int) -> Work:
        (launches, entries), machine = self._flags(), self.card.machine
        begins = int.from_bytes(self.own_args[3], "little")
        launch = int(launches[0]) - (1 - begins)
        launches[0] = launch + 1
        for entry in entries:
            assert bool(begins) == (entry["signal"] == READY)
            value = launch * int(entry["per_launch"]) + int(entry["number"])
            flag = machine.words(int(entry["flag"]))
            assert value >= flag[0], "flags only grow"
            if value <= int(entry["limit"]):
                flag[0] = value
            machine.changes += 1
            yield True

    def _move(self, stream: int) -> Work:
        machine, plan = self.card.machine, self.card.machine.plans[self.source]
        kind = structure("MoveArgs", {"MAX_SOURCES": move_widths(plan)[-1]}, "engine.cu")
        (move,) = np.frombuffer(self.own_args[0], kind)
        size, part = int(move["bytes"]), _PIECE // plan.problem.item_bytes * plan.problem.item_bytes
        for at in range(0, size, part):
            length = min(part, size - at)
            sources = [
                machine.view(int(address) + at, length)
                for address in move["source"][: move["sources"]]
            ]
            target = machine.view(int(move["target"]) + at, length)
            target[:] = reduced_bytes(plan, sources, int(move["divide"]))
            machine.changes += 1
            yield True

    def _pattern(self, stream: int) -> Work:
        """The kernels of pattern.cu, for every set."""
        view = self.card.machine.view
        item = int(dict(self.source.macros)["ITEM"])
        if self.name.endswith("exchange"):
            exchange(view, item, *(int.from_bytes(arg, "little") for arg in self.own_args))
            self.card.machine.changes += 1
            yield False
            return
        args = [int.from_bytes(arg, "little") for arg in self.own_args]
        for number in range(self.grid[1]):
            fill_or_compare(view, item, number, args, is_fill=self.name.endswith("fill"))
        self.card.machine.changes += 1
        yield False


class PlanMemory(Gpus):
    """What the CTAs of a launch reach, and their program, by real addresses."""

    def __init__(self, machine: Machine, plan: Plan, source: Source, packed: bytes) -> None:
        self.machine, self.plan = machine, plan
        sizes = {name: int(value) for name, value in source.macros if value.isdecimal()}
        self.own_args = unpack(packed, "Args", sizes)
        rank, at = self.own_args.rank, self.own_args.program
        length = sizes["PROGRAM_BYTES"]
        program = machine.view(at, length).tobytes()
        self.programs = cast(Any, {rank: unpack(program, "Program", sizes)})
        self.sizes = cast(Any, {rank: sizes})
        constants = program
        if "BLOCKS" in sizes:
            kind = structure("Block", {}).itemsize
            behind = -(-length // kind) * kind
            constants = machine.view(at, behind + plan.channels * sizes["BLOCKS"] * kind).tobytes()
        self.blocks = cast(Any, {rank: tables_of(constants, sizes, plan.channels)})

    @property
    def changes(self) -> int:
        return self.machine.changes

    @changes.setter
    def changes(self, value: int) -> None:
        self.machine.changes = value

    def cta(self, number: int) -> Cta:
        """One of the launch's CTAs."""
        return Cta(self, self.own_args.rank, number, self.plan.problem, self.own_args)

    def at(self, viewer: int, address: int, size: int) -> np.ndarray:
        return self.machine.view(address, size)

    def user(self, cta: Cta, address: int, size: int) -> np.ndarray:
        return self.machine.view(address, size)

    def words(self, viewer: int, address: int) -> np.ndarray:
        return self.machine.words(address)


def run_on(machine: Machine, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the cuda backend has n GPUs of a machine."""

    def take_gpu(context: RankContext, options: GpuOptions) -> tuple[DeviceRank, GpuFacts]:
        named = {"name": Card.name, "cache_bytes": Card.cache_bytes, "version": "cuda 0"}
        facts = facts_of(context.rank, **named)
        card = cast(Any, Card(machine, context.rank))
        return DeviceRank(context.rank, context.n, card, is_alone=True), facts

    def kernel_source(plan: Plan, rank: int, *args: Any, **more: Any) -> Source:
        source = device_compile.kernel_source(plan, rank, *args, **more)
        machine.plans.setdefault(source, plan)
        return source

    health = SimpleNamespace(notes=lambda: ())
    monkeypatch.setattr(gpu_session, "take_gpu", take_gpu)
    monkeypatch.setattr(gpu_session, "cuda_errors", lambda: ())
    monkeypatch.setattr(gpu_session, "device_count", lambda: n)
    monkeypatch.setattr(gpu_session, "GpuHealth", lambda facts: health)
    monkeypatch.setattr(gpu_rank, "POOL_BYTES", _POOL_BYTES)
    monkeypatch.setattr(gpu_rank, "cubin", machine.compiled)
    monkeypatch.setattr(device_copies, "cubin", machine.compiled)
    monkeypatch.setattr(device_copies, "Launch", Launch)
    monkeypatch.setattr(gpu_rank, "Launch", Launch)
    monkeypatch.setattr(cuda_rank, "Launch", Launch)
    monkeypatch.setattr(copy_engine, "Launch", Launch)
    monkeypatch.setattr(compilation, "cubin", machine.compiled)
    for module in (compilation, cuda_backend):
        monkeypatch.setattr(module, "kernel_source", kernel_source)


def spoil(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """From now on the third element of 4 bytes that a rank has as its output is spoiled, before it
    is compared; rank: among all.
    """
    compare = DeviceRank.compare

    def spoiled(gpu: DeviceRank, problem: Problem, sets: range) -> Wrong | None:
        if gpu.numbers[gpu.rank] == rank:
            out, _ = gpu.buffer(problem, "out", sets[0])
            gpu.card.upload(out + 8, bytes(4))
        return compare(gpu, problem, sets)

    monkeypatch.setattr(DeviceRank, "compare", spoiled)
