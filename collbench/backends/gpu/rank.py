"""One rank's GPU as every GPU backend uses it: user buffers, expected outputs, barriers of all
ranks, and the clock.

What is measured is a function that queues one launch on one set of user buffers; whose launch it
is, this module does not know.
"""

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations

import numpy as np

from collbench.backends import repeat
from collbench.backends.net.gpu_proxy import Outside
from collbench.core.case import Problem
from collbench.core.collectives import collective
from collbench.core.dtypes import dtype
from collbench.core.errors import HangError
from collbench.core.options import MAX_SETS
from collbench.core.pattern import PERIOD, Wrong, inputs, reduced
from collbench.device.card import Card, Graph, Launch
from collbench.device.compile import barrier_source, cubin, flag_source, pattern_source
from collbench.device.host_memory import Handle
from collbench.device.layout import ABORT_AT, BARRIER_AT, CONTROL_BYTES
from collbench.device.loads import Load

GRAIN_BYTES = 512  # user buffers of a set begin at multiples of this
HOLD_NS = 300_000  # all ranks stay at a barrier until the slowest host has queued what follows
_OUTSIDE_PATIENCE = 2  # deadlines that a kernel waits for its host, which gives up before
_DEPENDENT_SM = 90  # compute capability from which on a launch may depend on the one before it
OUTSIDE = -1  # among barriers by how long they are held: the one that the host ends
_THREADS, _CTAS = 256, 512  # of the kernels that write and compare
_MISMATCHES_BYTES = 16
BARRIER = struct.Struct("<8Q")  # the arguments of the barrier's kernel
MAX_FLAGS = 32  # ranks of the least launch, as many as a warp has lanes
FLAG = struct.Struct(f"<{1 + MAX_FLAGS + 5}Q")  # the arguments of its kernel
POOL_BYTES = 32 << 20  # of constant data, at a time
# addresses by key, where the next goes, where there is no more room
Kept = tuple[dict[Hashable, int], int, int]
Exported = tuple[int, int, int, bytes]  # an allocation, as other ranks open it (see Card.export)
# of a rank: its arena, its user buffers, and its host memory where it has some
ExportedMemory = tuple[Exported, Exported, Handle | None]
QueueOne = Callable[[int, int], None]  # (set, stream)


Graphs = dict[tuple[object, ...], Graph]  # of what is launched, by how it is


def captured(
    card: Card, graphs: Graphs, key: tuple[object, ...], body: Callable[[int], None]
) -> Callable[[], None]:
    """What queues the graph of that key in the card's stream; captured from the body once. The
    graph ends where it is taken out of `graphs`, whoever still could queue it.
    """
    if key not in graphs:
        graphs[key] = card.capture(body)
    stream = card.as_cupy(card.stream)
    return lambda: graphs[key].launch(stream)


def stride_bytes(problem: Problem) -> int:
    """Bytes of user memory that one rank's buffers take."""
    return repeat.stride_bytes(problem, GRAIN_BYTES)


def sets_of(problem: Problem, cache_bytes: int, *, hot: bool) -> int:
    """Sets of user buffers: enough to pass the cache by taking them in turn, one if hot; and one
    for the last launch where results accumulate.
    """
    turning = 1 if hot else repeat.sets_to_pass(cache_bytes, stride_bytes(problem), MAX_SETS)
    return turning + repeat.accumulates(problem)


@dataclass(slots=True)
class Barriers:
    """Barriers of so many ranks: the address of this rank's words, where its flag lies in each
    rank's, a table of that, and the launches by how long they hold.
    """

    words: int = 0
    flags: Sequence[int] = ()
    peers: int = 0
    ranks: int = 0
    rank: int = 0  # this one, among them
    launches: dict[int, Launch] = field(default_factory=dict)


class ConstantPool:
    """Constant data on a GPU, each uploaded once."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._start = self._next = self._end = 0
        self._known: dict[Hashable, int] = {}

    def keep(self, key: Hashable, data: bytes) -> int:
        """The address of the data, which is uploaded if the key is new."""
        if key not in self._known:
            size = -(-len(data) // 256) * 256
            if self._next + size > self._end:
                self.grow(max(size, POOL_BYTES))
            self._known[key], self._next = self._next, self._next + size
            self._card.upload(self._known[key], data)
        return self._known[key]

    def kept(self) -> Kept:
        """What is kept up to now: see forget()."""
        return dict(self._known), self._next, self._end

    def forget(self, since: Kept) -> None:
        """Forget what was kept since then, which nothing may use any more; its memory is free."""
        self._known, at, end = dict(since[0]), since[1], since[2]
        self._next = at if end == self._end else self._start

    def grow(self, size: int) -> None:
        """Have so many new bytes."""
        self._start = self._card.allocate(size)
        self._next, self._end = self._start, self._start + size


class DeviceRank:
    """One rank on its GPU, among the others."""

    def __init__(self, rank: int, n: int, card: Card, *, is_alone: bool) -> None:
        self.rank, self.n, self.card, self.is_alone = rank, n, card, is_alone
        self.arena = self.user = 0
        self.arenas: list[int] = []
        self.host_arenas: list[int] = []
        self.users: list[int] = []
        self._pool = ConstantPool(card)
        self._patterns: dict[int, tuple[int, int, int]] = {}
        self._flags: dict[int, Launch] = {}
        self._events: list[int] = []
        self.barriers = Barriers()
        self.timeout_s = 10.0
        self.is_peered = True
        self.numbers: Sequence[int] = range(n)  # of the ranks, among all
        self.assemble: Callable[[int], None] | None = None
        self.outside: Outside | None = None  # while a plan runs that sends messages
        # what runs beside launches, where that is measured: by the size of its matrices, or None
        self.loads: dict[int | None, Load] = {}

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int = 0) -> ExportedMemory:
        """Allocate the arena (control words, flags, FIFOs), the user buffers, and host memory for
        such an arena; returns what others need to reach them.
        """
        card = self.card
        self.arena = card.allocate(max(arena_bytes, CONTROL_BYTES))
        self.user = card.allocate(user_bytes)
        self._pool.grow(POOL_BYTES)
        barrier = cubin(barrier_source(), card.arch)
        self._barrier = card.function(barrier, "collbench_barrier")
        for item in (1, 2, 4, 8):
            code = cubin(pattern_source(item), card.arch)
            self._patterns[item] = (
                card.function(code, "collbench_fill"),
                card.function(code, "collbench_compare"),
                card.function(code, "collbench_exchange"),
            )
        exported = [
            card.export(pointer, to_processes=not self.is_alone)
            for pointer in (self.arena, self.user)
        ]
        return (
            exported[0],
            exported[1],
            card.allocate_host(max(host_bytes, CONTROL_BYTES)) if host_bytes else None,
        )

    def connect(
        self,
        exported: Sequence[ExportedMemory],
        timeout_s: float,
        assemble: Callable[[int], None] | None = None,
        *,
        is_peered: bool = True,
        near: Sequence[int] | None = None,
    ) -> None:
        """Reach the others' memory, their GPUs' if is_peered. Where none can be, on several hosts,
        `assemble` queues something that all must be there for.

        near: the ranks of this host, if others' memory cannot be reached: its address is 0, and
        the barrier of ranks is outside of their GPUs.
        """
        self.timeout_s, self.assemble, self.is_peered = timeout_s, assemble, is_peered
        mine, nothing = (self.arena, self.user), (0, 0)
        within = range(self.n) if near is None else near
        opened = [mine]
        if assemble is None and (is_peered or near is not None):
            opened = [
                (self.card.open(arena), self.card.open(user))
                if rank != self.rank and rank in within and is_peered
                else (mine if rank == self.rank else nothing)
                for rank, (arena, user, _) in enumerate(exported)
            ]
        self.arenas, self.users = [a for a, _ in opened], [b for _, b in opened]
        self.host_arenas = [
            self.card.open_host(host) if rank in within else 0
            for rank, (_, _, host) in enumerate(exported)
            if host is not None
        ]
        controls = (
            [self.arena]
            if near is not None
            else self.arenas
            if is_peered
            else self.host_arenas or [self.arena]
        )
        me = self.rank if len(controls) == self.n else 0
        self.controls = controls
        self.control = controls[me]
        self.aborts = self._addresses("aborts", [one + ABORT_AT for one in controls])
        self.barriers = self._barriers_at([one + BARRIER_AT for one in controls], me)
        self._mismatches = self.keep("mismatches", bytes(_MISMATCHES_BYTES))

    def part(
        self, ranks: Sequence[int], arenas_at: Sequence[int], users_at: Sequence[int]
    ) -> "DeviceRank":
        """The rank as it is among some ranks that run a plan of their own: its number is its place
        in `ranks`. Flags, FIFOs, scratch memory, reports, the words of barriers and user buffers of
        each rank begin so many bytes behind those of all. The abort words, the stream, events and
        constants are those of all.
        """
        part = copy(self)
        part.rank, part.n, part.numbers = ranks.index(self.rank), len(ranks), tuple(ranks)
        part.arena = self.arena + arenas_at[self.rank]
        part.user = self.user + users_at[self.rank]
        of_peers = ranks if self.is_peered else ()
        part.arenas = [self.arenas[rank] + arenas_at[rank] for rank in of_peers]
        part.users = [self.users[rank] + users_at[rank] for rank in of_peers]
        part.host_arenas = [
            self.host_arenas[rank] + arenas_at[rank] for rank in ranks if self.host_arenas
        ]
        controls = [self.controls[rank] for rank in ranks]
        part.aborts = self._addresses(("aborts", *ranks), [one + ABORT_AT for one in controls])
        part.barriers = self._barriers_at(
            [one + arenas_at[rank] + BARRIER_AT for one, rank in zip(controls, ranks, strict=True)],
            part.rank,
        )
        return part

    def _barriers_at(self, words: Sequence[int], own: int) -> "Barriers":
        """Barriers of ranks with flags at those addresses, of which one is this rank's own."""
        flags = [word + own * 8 for word in words]
        peers = self._addresses(("barrier", *words), flags)
        return Barriers(words[own], flags, peers, ranks=len(words), rank=own)

    def _addresses(self, key: Hashable, addresses: Sequence[int]) -> int:
        """A table of addresses on the GPU."""
        return self.keep(key, struct.pack(f"<{len(addresses)}Q", *addresses))

    def keep(self, key: Hashable, data: bytes) -> int:
        """Constant data on the GPU, uploaded once."""
        return self._pool.keep(key, data)

    def kept(self) -> Kept:
        """What is kept up to now: see forget()."""
        return self._pool.kept()

    def forget(self, since: Kept) -> None:
        """Forget what was kept since then, which nothing may use any more; its memory is free."""
        self._pool.forget(since)

    def barrier(self, hold_ns: int = HOLD_NS) -> None:
        """Queue a barrier of all ranks."""
        if self.outside is not None:
            self._queue_outside_barrier(self.outside)
            return
        if self.assemble is not None:
            self.assemble(self.card.stream)
        launches = self.barriers.launches
        if hold_ns not in launches:
            words = self.barriers.words, self.barriers.peers, self.control + ABORT_AT, self.aborts
            timeout_ns = int(self.timeout_s * 1e9)
            who = self.barriers.ranks, self.barriers.rank
            args = BARRIER.pack(*words, timeout_ns, hold_ns, *who)
            launches[hold_ns] = Launch(self.card, self._barrier, (1, 1), 32, [args])
        launches[hold_ns](self.card.stream)

    def _queue_outside_barrier(self, outside: Outside) -> None:
        """Queue a kernel that waits for this rank's host, which synchronises with the others when
        it has queued what follows.
        """
        if OUTSIDE not in self.barriers.launches:
            peers = self.keep("outside barrier", struct.pack("<2Q", *outside.barrier_table()))
            patience_ns = int(_OUTSIDE_PATIENCE * self.timeout_s * 1e9)
            aborts = outside.abort_word, self.aborts_outside(outside)
            args = BARRIER.pack(outside.barrier_word, peers, *aborts, patience_ns, 0, 2, 0)
            self.barriers.launches[OUTSIDE] = Launch(self.card, self._barrier, (1, 1), 32, [args])
        self.barriers.launches[OUTSIDE](self.card.stream)
        outside.is_at_barrier = True

    def flag(self, stream: int, ways: int) -> None:
        """Queue the least launch: one that exchanges a flag with all others, of MAX_FLAGS ranks at
        most, that of which rank 0 tells rank 1, or one that exchanges none. It depends on the one
        before it where the GPU has such launches.
        """
        if ways not in self._flags:
            is_dependent = self.card.arch >= _DEPENDENT_SM
            code = cubin(flag_source(is_dependent=is_dependent), self.card.arch)
            at = self.barriers
            pairs = [*permutations(range(at.ranks), 2)] if ways == 2 else [(0, 1)] * ways
            told = {listener for teller, listener in pairs if teller == at.rank}
            awaited = {teller for teller, listener in pairs if listener == at.rank}
            remote = [flag * (rank in told) for rank, flag in enumerate(at.flags)]
            remote += [0] * (MAX_FLAGS - len(remote))
            aborts, timeout_ns = (self.control + ABORT_AT, self.aborts), int(self.timeout_s * 1e9)
            bits = sum(1 << rank for rank in awaited)
            args = FLAG.pack(at.words, *remote, *aborts, timeout_ns, at.ranks * (ways > 0), bits)
            function = self.card.function(code, "collbench_flag")
            self._flags[ways] = Launch(
                self.card, function, (1, 1), MAX_FLAGS, [args], is_dependent=is_dependent
            )
        self._flags[ways](stream)

    def aborts_outside(self, outside: Outside) -> int:
        """The table of everybody's abort words, each of which is this rank's own."""
        return self.keep("outside aborts", struct.pack("<Q", outside.abort_word) * self.n)

    def expect(self, launches: int) -> None:
        """So many launches are queued before the next wait; who moves their messages must know."""
        if self.outside is not None and self.outside.proxy is not None:
            self.outside.proxy.expect(launches)

    # Inputs and expected outputs

    def buffer(self, problem: Problem, which: str, number: int, stride: int = 0) -> tuple[int, int]:
        """Address and bytes of the rank's input or output in a set; sets are `stride` bytes apart,
        0: as the problem needs.
        """
        at = problem.buffers(self.rank)
        is_in = which == "in"
        offset = at.in_offset if is_in else at.out_offset
        size = at.in_bytes if is_in else at.out_bytes
        return self.user + number * (stride or stride_bytes(problem)) + offset, size

    def _expected_blocks(self, problem: Problem, number: int) -> list[tuple[int, int, int, int]]:
        """(first element in the output, elements, table, phase) of every block that must come out
        in a set.
        """
        is_reduction, blocks = collective(problem.op).is_reduction, []
        start = repeat.phase(problem, number)
        for block in filter(lambda block: block.size, problem.blocks(self.rank)):
            if is_reduction:
                of = problem.dtype, problem.redop, problem.n
                table = self.keep(("reduced", *of), reduced(*of).tobytes())
            else:
                table = self._input_table(problem, block.giver)
            phase = (start + block.given_first) % PERIOD
            blocks.append((block.first, block.size, table, phase))
        return blocks

    def _input_table(self, problem: Problem, rank: int) -> int:
        is_reduction = collective(problem.op).is_reduction
        of = problem.dtype, problem.redop, problem.n, rank, is_reduction
        return self.keep(("inputs", *of), inputs(*of).tobytes())

    def _pattern(self, item: int, which: int, count: int, sets: int, args: bytes) -> None:
        ctas = max(1, min(_CTAS, -(-count // _THREADS)))
        words = [args[at : at + 8] for at in range(0, len(args) - len(args) % 8, 8)]
        narrow = [struct.pack("<I", PERIOD)] if which else [struct.pack("<I", PERIOD), args[-4:]]
        Launch(self.card, self._patterns[item][which], (ctas, sets), _THREADS, [*words, *narrow])(
            self.card.stream
        )

    def prepare(self, problem: Problem, sets: range, stride: int, *, is_warm: bool = False) -> None:
        """Queue poison for the outputs of some sets, then their inputs, which in place are part of
        them. is_warm: poison so little that the cache stays as it is (see repeat.poison_again).
        """
        item = problem.item_bytes
        step = repeat.WARM_STEP_BYTES // item if is_warm else 1
        out, _ = self.buffer(problem, "out", sets.start, stride)
        for first, count, table, phase in self._expected_blocks(problem, sets.start):
            apart = phase, stride, repeat.SET_PHASE, step
            args = struct.pack("<7QI", out + first * item, table, count, *apart, 1)
            self._pattern(item, 0, -(-count // step), len(sets), args)
        address, size = self.buffer(problem, "in", sets.start, stride)
        if size and not is_warm:
            count, table = size // item, self._input_table(problem, self.rank)
            apart = repeat.phase(problem, sets.start), stride, repeat.SET_PHASE, 1
            args = struct.pack("<7QI", address, table, count, *apart, 0)
            self._pattern(item, 0, count, len(sets), args)

    def exchange(self, item: int, words: tuple[int, int, int, int, int], stream: int) -> None:
        """Queue the kernel that writes or keeps single elements; its arguments are the words."""
        if count := words[-1]:
            grid, args = (-(-count // _THREADS), 1), [struct.pack("<Q", one) for one in words]
            Launch(self.card, self._patterns[item][2], grid, _THREADS, args)(stream)

    def clear_mismatches(self) -> None:
        """Forget what comparisons have found."""
        self.card.upload(self._mismatches, struct.pack("<2Q", 0, (1 << 64) - 1))

    def queue_compare(self, problem: Problem, sets: range, stride: int) -> None:
        """Queue a comparison of the outputs of some sets with the definition; findings add up."""
        out, _ = self.buffer(problem, "out", sets.start, stride)
        for first, count, table, phase in self._expected_blocks(problem, sets.start):
            start, apart = out + first * problem.item_bytes, (phase, stride, repeat.SET_PHASE)
            args = struct.pack("<8Q", start, table, count, *apart, first, self._mismatches)
            self._pattern(problem.item_bytes, 1, count, len(sets), args)

    def mismatches(self) -> tuple[int, int]:
        """How many wrong elements comparisons have found, and the least index of one."""
        total, index = struct.unpack("<2Q", self.card.download(self._mismatches, _MISMATCHES_BYTES))
        return total, index

    def compare(self, problem: Problem, sets: range) -> Wrong | None:
        """Compare the outputs of some sets with the definition; of the first that is wrong, the
        first wrong element.
        """
        stride = stride_bytes(problem)
        self.clear_mismatches()
        self.queue_compare(problem, sets, stride)
        self.card.wait(self.timeout_s)
        total, index = self.mismatches()
        if not total:
            return None
        kind = dtype(problem.dtype).numpy()
        wrong = (self._wrong_at(problem, number, index, kind) for number in sets)
        got, wanted = next((pair for pair in wrong if pair is not None), ("?", "?"))
        return Wrong(rank=self.rank, count=total, index=index, got=got, wanted=wanted)

    def _wrong_at(
        self, problem: Problem, number: int, index: int, kind: np.dtype[np.generic]
    ) -> tuple[str, str] | None:
        """What stands at an index of a set's output and what should, if they differ."""
        out, _ = self.buffer(problem, "out", number)
        for first, count, table, phase in self._expected_blocks(problem, number):
            if first <= index < first + count:
                item, wanted_index = problem.item_bytes, (index - first + phase) % PERIOD
                got = self.card.download(out + index * item, item)
                wanted = self.card.download(table + wanted_index * item, item)
                if got != wanted:
                    return str(np.frombuffer(got, kind)[0]), str(np.frombuffer(wanted, kind)[0])
        return None

    def events(self, count: int) -> Sequence[int]:
        """So many events with a time, always the same ones."""
        while len(self._events) < count:
            self._events.append(self.card.event())
        return self._events[:count]

    def wait(self, deadline_s: float) -> None:
        """Until all that was queued is done, and messages have left. Raises HangError if a kernel
        gave up, RankLostError if MPI lost a rank.
        """
        if self.outside is not None:
            self.outside.wait(self.card, deadline_s, self.timeout_s)
            if self.outside.is_aborted():
                raise HangError(f"rank {self.rank} was told to stop")
            return
        self.card.wait(deadline_s)
        if self.is_aborted():
            (missing,) = struct.unpack(
                "<Q", self.card.download(self.barriers.words + (self.barriers.ranks + 1) * 8, 8)
            )
            own = self.numbers[self.rank]
            if missing:
                peer = self.numbers[missing - 1]
                raise HangError(
                    f"rank {own} waited for rank {peer} to begin", suspect=((-1,), peer)
                )
            raise HangError(f"rank {own} was told to stop")

    def is_aborted(self) -> bool:
        """Whether any rank gave up."""
        return self.card.download(self.control + ABORT_AT, 4) != bytes(4)

    def close(self) -> None:
        for load in self.loads.values():
            load.close()
        self.card.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """What a rank launches, on how many sets of user buffers, and the graphs of it so far.

    queue: queues one launch. wait: waits until the stream is empty, for so many seconds of work
    beyond the deadline.
    """

    gpu: DeviceRank
    problem: Problem
    queue: QueueOne
    sets: int
    wait: Callable[[float], None]
    graphs: Graphs

    def in_turn(self, count: int) -> list[int]:
        """The sets of so many launches whose results are not compared one by one."""
        return repeat.sets_in_turn(self.problem, self.sets, count)

    def timed(self, count: int) -> list[int]:
        """The sets of a timed batch of so many launches."""
        return repeat.timed_sets(self.problem, self.sets, count)

    def checked(self, count: int) -> range:
        """The sets that are poisoned before such a batch and compared after it."""
        return repeat.checked_sets(self.problem, self.sets, count)

    def each(self, numbers: Iterable[int], stream: int) -> None:
        """Queue launches one by one, on those sets."""
        for number in numbers:
            self.queue(number, stream)

    def graph(self, numbers: Sequence[int]) -> Callable[[], None]:
        """Launches on those sets as one graph: what queues it in the stream."""
        return self.captured(tuple(numbers), partial(self.each, numbers))

    def captured(self, key: tuple[object, ...], body: Callable[[int], None]) -> Callable[[], None]:
        """What queues the graph of that key in the stream; captured from the body once."""
        return captured(self.gpu.card, self.graphs, key, body)

    def poison(self, sets: range) -> None:
        """Queue poison for the outputs of some sets that launches have written (see
        repeat.poison_again).
        """
        if sets:
            stride, is_warm = stride_bytes(self.problem), not self.problem.in_place
            self.gpu.prepare(self.problem, sets, stride, is_warm=is_warm)

    def compare(self, sets: range) -> Wrong | None:
        """Compare the outputs of some sets with the definition."""
        return self.gpu.compare(self.problem, sets) if sets else None
