"""GPUs made of NumPy arrays: they run what collbench.device lowers and packs, all CTAs
concurrently, as the kernels do.

Everything comes from the bytes that a kernel would get: arguments and programs are unpacked by the
structures of types.cuh, and memory is found by address. Every rank sees memory at other addresses,
as processes do. CTAs are coroutines that a seeded scheduler steps; where lines say that they came,
a CTA has two threads or warps that run independently. Caches, the memory order, timeouts and the
lanes of a warp are not simulated.

A launch of a rank begins when its previous one has ended, whatever the other ranks do. After each
launch its outputs are compared; then all of its user buffers are poisoned and filled with new
values.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from collbench.backends.gpu.rank import stride_bytes
from collbench.backends.net.gpu_proxy import GpuProxy
from collbench.backends.net.proxy import DataComm
from collbench.backends.reference import reduce_step
from collbench.backends.repeat import compare_output, prepare_buffers
from collbench.core.case import Problem
from collbench.core.dtypes import dtype
from collbench.device.compile import kernel_source
from collbench.device.layout import (
    ABORT_AT,
    CONTROL_BYTES,
    Memory,
    is_in_host,
    layout,
    net_layout,
    pack_args,
    pack_constants,
)
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.protocols import sentinel
from tests.support.device_cta import Coroutine, Cta
from tests.support.fake_mpi import FakeComm, World
from tests.support.structures import structure, unpack

ARENA, USER, PROGRAM, NET, HOST = REGIONS = range(5)
_SIZE = 1 << 36  # of the addresses of one region
_POISON = 0xA5
_PERSISTENCE = 0.9  # probability that a coroutine which can go on does so


class Run(NamedTuple):
    """A launch: the number of the set of user buffers, and the elements of a block if they are not
    the plan's.
    """

    number: int = 0
    block_count: int = 0


class Gpus:
    """n GPUs with a plan's memory, and two sets of user buffers. any_size: their kernels also serve
    smaller problems.
    """

    def __init__(self, plan: Plan, seed: int = 0, *, any_size: bool = False) -> None:
        self.plan, self.chance, self.changes = plan, random.Random(seed), 0
        self.stride = stride_bytes(plan.problem)
        self.arenas = [np.zeros(layout(plan, rank).total, np.uint8) for rank in range(plan.n)]
        self.users = [np.full(2 * self.stride, _POISON, np.uint8) for _ in range(plan.n)]
        self.views: dict[tuple[int, int, int], np.ndarray] = {}
        self.flags: dict[tuple[int, int], np.ndarray] = {}
        self.allowed: set[tuple[int, int, int]] = set()
        self.hosts = [
            np.zeros(layout(plan, rank).fifos_end if is_in_host(plan) else 0, np.uint8)
            for rank in range(plan.n)
        ]
        for rank in range(plan.n):
            where = layout(plan, rank)
            self.arenas[rank][where.tmp :] = _POISON
            if PROTOCOLS.load(plan.proto).CLEARS:
                self.arenas[rank][where.fifos : where.fifos_end] = sentinel.MARKER_BYTE
        self.sizes = [macros_of(plan, rank, any_size=any_size) for rank in range(plan.n)]
        self._args: dict[tuple[int, Run], SimpleNamespace] = {}
        self.nets = [np.zeros(net_layout(plan, rank).words_end, np.uint8) for rank in range(plan.n)]
        self.slots = [
            np.zeros(net_layout(plan, rank).slots_bytes, np.uint8) for rank in range(plan.n)
        ]
        self.memory = {ARENA: self.arenas, USER: self.users, NET: self.slots, HOST: self.hosts}
        world = World(plan.n)
        self.proxies = [
            GpuProxy(
                DataComm(FakeComm(world, rank), OSError),
                plan,
                rank,
                self.nets[rank].data.cast("Q"),
                self.slots[rank].data,
            )
            for rank in range(plan.n)
        ]
        constants = [pack_constants(plan, rank) for rank in range(plan.n)]
        self.programs = [
            unpack(packed[: sizes["PROGRAM_BYTES"]], "Program", sizes)
            for packed, sizes in zip(constants, self.sizes, strict=True)
        ]
        self.blocks = [
            tables_of(packed, sizes, plan.channels)
            for packed, sizes in zip(constants, self.sizes, strict=True)
        ]

    # Memory, as a rank sees it

    def at(self, viewer: int, address: int, size: int) -> np.ndarray:
        """Memory at an address of a rank."""
        key = viewer, address, size
        if key not in self.views:
            self.views[key] = self._view(*key)
        return self.views[key]

    def _view(self, viewer: int, address: int, size: int) -> np.ndarray:
        (who, owner, region), offset = place_of(address)
        assert who == viewer, f"rank {viewer} uses an address {address:#x} that is rank {who}'s"
        if region == NET:
            assert owner == viewer
            offset -= _SIZE // 2
        memory = self.memory[region][owner]
        assert 0 <= offset <= offset + size <= len(memory), (
            f"rank {viewer} reaches {size} bytes at {offset} of {len(memory)} of rank {owner}"
        )
        return memory[offset : offset + size]

    def user(self, cta: Cta, address: int, size: int) -> np.ndarray:
        """A chunk of a rank's buffers of this launch's set, or of the rank's own scratch memory."""
        key = id(cta.a), address, size  # args() keeps the arguments
        if key not in self.allowed:
            self._assert_allowed(cta, address, size)
            self.allowed.add(key)
        return self.at(cta.rank, address, size)

    def _assert_allowed(self, cta: Cta, address: int, size: int) -> None:
        (_, owner, region), offset = place_of(address)
        if region == ARENA:
            assert owner == cta.rank
            assert offset >= layout(self.plan, owner).tmp
        else:
            first = offset - cta.a.set
            assert any(
                start <= first <= first + size <= end
                for start, end in _user_ranges(cta.problem, owner)
            ), f"{size} bytes at {first} of rank {owner}'s buffers"
        unit = 8 if self.plan.kernel and self.plan.kernel.proto == "ll" else 16
        known = self.sizes[cta.rank]
        assert not (size and known.get("ALIGNED") and address % unit), f"{address:#x}"
        assert not (known.get("WHOLE") and size % unit), f"{size} bytes"

    def word(self, viewer: int, address: int) -> int:
        return int(self.words(viewer, address)[0])

    def set_flag(self, viewer: int, address: int, value: int) -> None:
        """Set a flag in another rank's memory; the values of flags only grow."""
        word = self.words(viewer, address)
        assert value >= word[0]
        word[0] = value
        self.changes += 1

    def words(self, viewer: int, address: int) -> np.ndarray:
        """A flag, as an array of one element that shows the later values too."""
        if (viewer, address) not in self.flags:
            self.flags[viewer, address] = self._flag(viewer, address)
        return self.flags[viewer, address]

    def _flag(self, viewer: int, address: int) -> np.ndarray:
        (who, owner, region), offset = place_of(address)
        assert who == viewer
        if region == NET:
            assert owner == viewer
            assert offset >= CONTROL_BYTES
            return self.nets[owner][offset : offset + 8].view("<u8")
        assert region == shared_region(self.plan)
        assert offset < layout(self.plan, owner).fifos
        return self.memory[region][owner][offset : offset + 8].view("<u8")

    def reduce(self, operands: Sequence[np.ndarray], is_divided: int) -> np.ndarray:
        return reduced_bytes(self.plan, operands, is_divided)

    # Launches

    def args(self, rank: int, run: Run) -> SimpleNamespace:
        """The arguments of a rank's kernel, made once for all launches of a kind."""
        if (rank, run) not in self._args:
            self._args[rank, run] = args_of(self.plan, rank, run, self.sizes[rank])
        return self._args[rank, run]

    def run(self, *runs: Run) -> None:
        """Run launches one after the other on every rank and compare each. Asserts that all end."""
        streams = [self.stream(rank, runs) for rank in range(self.plan.n)]
        live: list[list[Coroutine]] = [next(stream) for stream in streams]
        haste = [self.chance.choice((0.1, 0.5, 1.0)) for _ in streams]
        is_patient = False
        proxies = [proxy for proxy in self.proxies if proxy.ends]
        for proxy in proxies:
            proxy.expect_each([problem_of(self.plan, run).block_count for run in runs])
        while any(live) or not all(proxy.is_idle() for proxy in proxies):
            before = self.changes
            for proxy in proxies:
                if is_patient or self.chance.random() < 0.5:
                    moved = sum(end.posted + end.done for end in proxy.ends)
                    proxy.turn()
                    self.changes += sum(end.posted + end.done for end in proxy.ends) - moved
            turns = [
                (self.chance.random() / (1 if is_patient else haste[rank]), rank, one)
                for rank, ctas in enumerate(live)
                for one in ctas
            ]
            for turn, rank, one in sorted(turns, key=itemgetter(0)):
                if turn > 1:
                    break  # so that each rank's part of them is its haste
                try:
                    while not next(one):
                        self.changes += 1
                        if self.chance.random() > _PERSISTENCE:
                            break
                except StopIteration:
                    self.changes += 1
                    live[rank].remove(one)
                    if not live[rank]:
                        live[rank] = next(streams[rank], [])
            if self.changes == before:
                assert not is_patient, (
                    f"all wait for each other: CTAs left by rank {[len(ctas) for ctas in live]}"
                )
            # it is a deadlock only if no coroutine could go on
            is_patient = self.changes == before

    def stream(self, rank: int, runs: Sequence[Run]) -> Iterator[list[Coroutine]]:
        """The coroutines of each launch in turn. Asserts that its output is what the collective's
        definition demands, and that an input which is not overwritten is unchanged.
        """
        for number, run in enumerate(runs):
            problem = problem_of(self.plan, run)
            at, kind = problem.buffers(rank), dtype(problem.dtype).numpy()
            mine = self.users[rank][run.number * self.stride :][: at.total_bytes]
            mine[:] = _POISON
            source = mine[at.in_offset :][: at.in_bytes].view(kind)
            target = mine[at.out_offset :][: at.out_bytes + at.guard_bytes].view(kind)
            prepare_buffers(problem, rank, source, target, number)
            args, given = self.args(rank, run), source.tobytes()
            ctas = [
                Cta(self, rank, index, problem, args)
                for index in range(self.plan.channels * self.sizes[rank]["TRACKS"])
            ]
            yield [one for cta in ctas for one in cta.coroutines()]
            wrong = compare_output(problem, rank, target, number)
            assert wrong is None, f"wrong: {wrong}"
            assert problem.in_place or source.tobytes() == given
            mine[:] = _POISON


def reduced_bytes(plan: Plan, operands: Sequence[np.ndarray], is_divided: int) -> np.ndarray:
    """One step's arithmetic, on bytes."""
    kind = dtype(plan.problem.dtype).numpy()
    with np.errstate(all="ignore"):  # what lies past the end of a line is computed too
        values = [operand.view(kind) for operand in operands]
        return reduce_step(values, plan, is_complete=bool(is_divided)).copy().view(np.uint8)


@lru_cache(maxsize=256)
def _user_ranges(problem: Problem, rank: int) -> list[tuple[int, int]]:
    """Where a rank's input and output begin and end in its user memory."""
    at = problem.buffers(rank)
    return [
        (at.in_offset, at.in_offset + at.in_bytes),
        (at.out_offset, at.out_offset + at.out_bytes),
    ]


def problem_of(plan: Plan, run: Run) -> Problem:
    """The problem that a launch computes."""
    return replace(plan.problem, block_count=run.block_count or plan.problem.block_count)


def args_of(plan: Plan, rank: int, run: Run, sizes: dict[str, int]) -> SimpleNamespace:
    """The arguments that a kernel gets, unpacked."""
    problem, set_offset = problem_of(plan, run), run.number * stride_bytes(plan.problem)
    packed = pack_args(
        plan,
        rank,
        memory_of(problem, rank, shared_region(plan)),
        set_offset=set_offset,
        timeout_ns=10**10,
        block_bytes=problem.block_bytes,
    )
    return unpack(packed, "Args", sizes)


def tables_of(
    packed: bytes, sizes: dict[str, int], channels: int
) -> list[list[tuple[int, int]]] | None:
    """Each channel's table of unequal blocks, which lies behind the program; None if blocks are
    equal.
    """
    if "BLOCKS" not in sizes:
        assert len(packed) == sizes["PROGRAM_BYTES"]
        return None
    kind = structure("Block", {})
    behind = -(-sizes["PROGRAM_BYTES"] // kind.itemsize) * kind.itemsize
    tables = np.frombuffer(packed[behind:], kind).reshape(channels, sizes["BLOCKS"])
    return [[(first, size) for first, size in table.tolist()] for table in tables]


def macros_of(plan: Plan, rank: int, *, any_size: bool = False) -> dict[str, int]:
    """The macros of a rank's kernel that are numbers."""
    return {
        name: int(value)
        for name, value in kernel_source(plan, rank, any_size=any_size).macros
        if value.isdecimal()
    }


def shared_region(plan: Plan) -> int:
    """The region with the flags and FIFOs of ranks that share memory."""
    return HOST if is_in_host(plan) else ARENA


def memory_of(problem: Problem, viewer: int, shared: int = ARENA) -> Memory:
    """The addresses of all memory as one rank sees it. No other rank uses the same addresses.
    shared: the region of flags and FIFOs.
    """

    def base(owner: int, region: int) -> int:
        return (((viewer + 1) * 64 + owner) * len(REGIONS) + region) * _SIZE

    buffers = [problem.buffers(rank) for rank in range(problem.n)]
    return Memory(
        arenas=tuple(base(rank, shared) for rank in range(problem.n)),
        inputs=tuple(base(rank, USER) + at.in_offset for rank, at in enumerate(buffers)),
        outputs=tuple(base(rank, USER) + at.out_offset for rank, at in enumerate(buffers)),
        own=base(viewer, ARENA),
        abort=base(viewer, ARENA) + ABORT_AT,
        program=base(viewer, PROGRAM),
        aborts=base(viewer, PROGRAM) + _SIZE // 2,
        net=base(viewer, NET),
        net_slots=base(viewer, NET) + _SIZE // 2,
    )


def place_of(address: int) -> tuple[tuple[int, int, int], int]:
    """The viewer of an address, the owner of its memory, the region, and the offset there."""
    region, offset = divmod(address, _SIZE)
    view, region = divmod(region, len(REGIONS))
    return (view // 64 - 1, view % 64, region), offset
