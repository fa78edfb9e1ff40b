"""The nccl backend: NCCL's own collectives by NVIDIA's binding (nccl4py), in the same harness as
ours: same graph, clock and checks; on the same user buffers, of cudaMalloc, and on those that NCCL
has for itself, registered and in symmetric windows.

NCCL's own choice runs in the ranks that the group gives, like our kernels; what it is forced to
runs in new processes (gpu/child.py), one session for each set of variables.
"""

import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from collbench.backends.base import GpuOptions, Peer, SessionOptions
from collbench.backends.gpu.rank import ExportedMemory, Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import START_S, GpuFacts, GpuRank, GpuSession, why_no_gpus
from collbench.backends.nccl.knobs import GROUPED, registration, why_waived
from collbench.backends.repeat import RankTiming
from collbench.core.case import Case, Problem
from collbench.core.errors import HangError, RefusedError, UnavailableError, first_line
from collbench.core.group import Group, RankContext
from collbench.core.knobs import UserBuffers
from collbench.core.launcher import with_switches
from collbench.core.peers import Variables, forced_by
from collbench.device.card import load_cupy
from collbench.device.cupy_types import Nccl

# Of user buffers: what NCCL knows of them, and whether they are for sends and receives. Before
# 2.29.2 a collective can fail on registered buffers that a send or receive was the first to use
# (issue 1859 of NCCL), so that these have others.
Memory = tuple[UserBuffers, bool]
# what is launched, how many sets of user buffers there are, and in which memory
NcclKey = tuple[Problem, int, Memory]
PLAIN: Memory = ("plain", False)
_INTEGERS = {"int8": 0, "uint8": 1, "int32": 2, "int64": 4}
_FLOATS = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
NCCL_TYPES = _INTEGERS | _FLOATS | {"float8_e4m3fn": 10, "float8_e5m2": 11}  # ncclDataType_t
NCCL_REDOPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}  # ncclRedOp_t
_COLL_SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
_FUNCTIONS_SINCE = 22800  # ncclAlltoAll, ncclGather and ncclScatter
INSTALL = "install it with: pip install 'collbench[cuda13]' (or [cuda12])"


def load_nccl() -> Nccl:
    """NVIDIA's binding of NCCL, once it has found the library. Raises UnavailableError."""
    load_cupy()
    try:
        from nccl.bindings import nccl
    except ImportError:
        raise UnavailableError("nccl4py, the binding of NCCL, is not installed", INSTALL) from None
    try:
        nccl.get_version()
    except RuntimeError as error:
        raise UnavailableError(f"there is no NCCL: {first_line(error)}", INSTALL) from None
    return nccl


class NcclRank(GpuRank[NcclKey]):
    """One rank's part."""

    why_not_shared = "NCCL refuses two ranks on one GPU"

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.comm: Nccl = None
        self.owns_comm = True  # else somebody else destroys it
        self.graphs: Graphs = {}
        self.graphs_of: Hashable = None
        self._word: int | None = None
        self._users: dict[Memory, int] = {}  # where they begin
        self._held: dict[Memory, Nccl] = {}  # by which NCCL knows them
        self._allocated: list[int] = []  # by NCCL

    def device(self, options: GpuOptions) -> GpuFacts:
        """Take this rank's GPU; what the driver wants to know of it."""
        facts = super().device(options)
        self.nccl = load_nccl()
        # what the library says, and that it has not a function
        self.refusals = self.nccl.NCCLError, RuntimeError
        version, launch = self.nccl.get_version(), "stream" if options.isolated else options.launch
        text = f"{facts.version}; nccl {_version(version)}"
        return replace(
            facts,
            version=with_switches(text, ("NCCL_",)),
            buffers=registration(version, launch, os.environ),
        )

    def unique_id(self) -> bytes:
        """What ranks find each other by; rank 0's counts."""
        return bytes(self.nccl.get_unique_id())

    def connect(
        self,
        exported: Sequence[ExportedMemory],
        timeout_s: float,
        is_peered: bool,
        hosts: Sequence[str],
    ) -> None:
        """Reach the others' memory, or leave it to NCCL where ranks are on several hosts."""
        self.gpu.connect(
            exported,
            timeout_s,
            self._assemble if self.options.is_spread else None,
            is_peered=is_peered,
        )
        self._users[PLAIN] = self.gpu.user

    def _assemble(self, stream: int) -> None:
        """Queue a collective that none can leave before all have come."""
        if self._word is None:
            self._word = self.gpu.keep("assembled", bytes(8))
        word, kind, op = self._word, NCCL_TYPES["int32"], NCCL_REDOPS["min"]
        self.nccl.all_reduce(word, word, 1, kind, op, self.comm, stream)

    def join(self, unique_id: bytes) -> None:
        """Make the communicator, with all others. Raises RefusedError."""
        known = self.nccl.UniqueId.from_buffer(unique_id)
        try:
            self.comm = self.nccl.comm_init_rank(self.context.n, known, self.context.rank)
        except self.refusals as error:
            raise refusal("make a communicator", error) from None

    def hold(self, memory: Memory, size: int) -> None:
        """Have memory for user buffers, all ranks together. Raises RefusedError."""
        nccl, buffers = self.nccl, memory[0]
        what = f"have {buffers} buffers"
        try:
            user = nccl.mem_alloc(size)
            self._allocated.append(user)
            held = (
                nccl.comm_register(self.comm, user, size)
                if buffers == "registered"
                else nccl.comm_window_register(self.comm, user, size, _COLL_SYMMETRIC)
            )
        except self.refusals as error:
            raise refusal(what, error) from None
        if not held:
            raise RefusedError(f"NCCL does not {what} here", _WHY)
        self._users[memory], self._held[memory] = user, held

    def _call(self, problem: Problem) -> Callable[[int, int, int], None]:
        """The library's function: (input, output, stream)."""
        nccl, comm, rank = self.nccl, self.comm, self.context.rank
        n, root, count, block = problem.n, problem.root, problem.block_count, problem.block_bytes
        kind, op = NCCL_TYPES[problem.dtype], NCCL_REDOPS[problem.redop]
        if problem.counts:
            return self._uneven_call(problem, kind, op)

        def exchange(
            sends: Sequence[tuple[int, int]], receives: Sequence[tuple[int, int]]
        ) -> Callable[[int, int, int], None]:
            def run(source: int, target: int, stream: int) -> None:
                nccl.group_start()
                for peer, offset in sends:
                    nccl.send(source + offset, count, kind, peer, comm, stream)
                for peer, offset in receives:
                    nccl.recv(target + offset, count, kind, peer, comm, stream)
                nccl.group_end()

            return run

        everyone = [(peer, peer * block) for peer in range(n)]
        calls: dict[str, Callable[[int, int, int], None]] = {
            "allreduce": lambda a, b, stream: nccl.all_reduce(a, b, count, kind, op, comm, stream),
            "allgather": lambda a, b, stream: nccl.all_gather(a, b, count, kind, comm, stream),
            "reducescatter": lambda a, b, stream: nccl.reduce_scatter(
                a, b, count, kind, op, comm, stream
            ),
            "broadcast": lambda a, b, stream: nccl.broadcast(a, b, count, kind, root, comm, stream),
            "reduce": lambda a, b, stream: nccl.reduce(a, b, count, kind, op, root, comm, stream),
            "alltoall": exchange(everyone, everyone),
            "gather": exchange([(root, 0)], everyone if rank == root else []),
            "scatter": exchange(everyone if rank == root else [], [(root, 0)]),
            "sendrecv": exchange([((rank + 1) % n, 0)], [((rank - 1) % n, 0)]),
        }
        if nccl.get_version() >= _FUNCTIONS_SINCE:
            calls |= {
                "alltoall": lambda a, b, stream: nccl.allto_all(a, b, count, kind, comm, stream),
                "gather": lambda a, b, stream: nccl.gather(a, b, count, kind, root, comm, stream),
                "scatter": lambda a, b, stream: nccl.scatter(a, b, count, kind, root, comm, stream),
            }
        return calls[problem.op]

    def _uneven_call(self, problem: Problem, kind: int, op: int) -> Callable[[int, int, int], None]:
        """As _call(), of blocks that may be unequal: a group of one operation for each block that
        is not empty.
        """
        nccl, comm, me, item = self.nccl, self.comm, self.context.rank, problem.item_bytes
        given, taken = (
            [
                (peer, first * item, count)
                for peer, (first, count) in enumerate(
                    zip(
                        problem.block_firsts(which, me)[:-1],
                        problem.block_counts(which, me),
                        strict=True,
                    )
                )
            ]
            for which in ("in", "out")
        )

        def exchange(source: int, target: int, stream: int) -> None:
            for peer, offset, count in given:
                if count:
                    nccl.send(source + offset, count, kind, peer, comm, stream)
            for peer, offset, count in taken:
                if count:
                    nccl.recv(target + offset, count, kind, peer, comm, stream)

        def broadcasts(source: int, target: int, stream: int) -> None:
            for giver, offset, count in taken:
                if count:
                    nccl.broadcast(source, target + offset, count, kind, giver, comm, stream)

        def reductions(source: int, target: int, stream: int) -> None:
            for taker, offset, count in given:
                if count:
                    nccl.reduce(source + offset, target, count, kind, op, taker, comm, stream)

        calls = {"alltoallv": exchange, "allgatherv": broadcasts, "reducescatterv": reductions}
        queue = calls[problem.op]

        def run(source: int, target: int, stream: int) -> None:
            nccl.group_start()
            queue(source, target, stream)
            nccl.group_end()

        return run

    def _queue(
        self, problem: Problem, call: Callable[[int, int, int], None], number: int, stream: int
    ) -> None:
        """Queue one collective. Raises RefusedError."""
        source, _ = self.gpu.buffer(problem, "in", number)
        target, _ = self.gpu.buffer(problem, "out", number)
        if self.options.inject == "drop" and self._number == 0:
            return
        try:
            call(source, target, stream)
        except self.refusals as error:
            raise refusal(f"do {problem.op}", error) from None

    @property
    def _number(self) -> int:
        """The rank's number among all ranks of the session."""
        return self.gpu.numbers[self.gpu.rank]

    def first(self, key: NcclKey, is_checked: bool) -> RankTiming:
        """Run every set of buffers once and compare."""
        if self.options.inject == f"die:{self._number}":
            os.kill(os.getpid(), 9)
        return super().first(key, is_checked)

    def _launches(self, key: NcclKey) -> Launches:
        """The library's collective, on the user buffers of the key."""
        problem, sets, memory = key
        self.gpu.user = self._users[memory]
        return Launches(
            gpu=self.gpu,
            problem=problem,
            queue=partial(self._queue, problem, self._call(problem)),
            sets=sets,
            wait=self._wait,
            graphs=self._graphs(key),
        )

    def _graphs(self, key: Hashable) -> Graphs:
        """The graphs of what is launched; those of others are forgotten."""
        if self.graphs_of != key:
            self.graphs, self.graphs_of = {}, key
        return self.graphs

    def _wait(self, work_s: float) -> None:
        try:
            super()._wait(work_s)
        except HangError:
            self.give_up()
            raise

    def give_up(self) -> None:
        """End NCCL's kernels, which have no deadline: without this the GPU could not even give
        memory back. In a group NCCL tells every communicator to end before it waits for launches
        of any, and for the graphs that hold them.
        """
        with suppress(*self.refusals):
            self.nccl.group_start()
            self.abort_comms()
            self.nccl.group_end()

    def abort_comms(self) -> None:
        """Abort the communicator if it is its own, and let graphs of its launches go."""
        comm, self.comm = self.comm, None
        if comm is not None and self.owns_comm:
            with suppress(*self.refusals):
                self.nccl.comm_abort(comm)
        self.graphs.clear()

    def let_go(self) -> None:
        """Give back what NCCL has; graphs before the communicator, which waits for those that hold
        its launches.
        """
        self.graphs.clear()
        if self.comm is not None:
            with suppress(*self.refusals):
                for (buffers, _), held in self._held.items():
                    if buffers == "window":
                        self.nccl.comm_window_deregister(self.comm, held)
                    else:
                        self.nccl.comm_deregister(self.comm, held)
                if self.owns_comm:
                    self.nccl.comm_destroy(self.comm)
        for user in self._allocated:
            with suppress(*self.refusals):
                self.nccl.mem_free(user)

    def close(self) -> None:
        """Give memory back."""
        self.let_go()
        super().close()


_WHY = "with NCCL_DEBUG=WARN in the environment it says why"


def refusal(what: str, error: Exception) -> RefusedError:
    """An error of NCCL as ours."""
    return RefusedError(f"NCCL does not {what}: {first_line(error)}", _WHY)


def _version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def notes_of(case: Case, facts: GpuFacts, *, is_forced: bool) -> tuple[str, ...]:
    """Notes on every repeat of a case. is_forced: its ranks are processes for that."""
    # while a graph is captured, NCCL may register plain buffers, too
    of_plain = (facts.buffers,) if case.buffers == "plain" else ()
    return (*filter(None, of_plain), *(["processes"] if is_forced else []))


def memory_of(case: Case) -> Memory:
    """The memory of a case's user buffers."""
    return PLAIN if case.buffers == "plain" else (case.buffers, case.op in GROUPED)


class NcclSession(GpuSession[Case, NcclKey, NcclRank]):
    """Drives the ranks of the library's collectives. All its cases have the same forced_by().
    variables: more of the ranks' environment.
    """

    def __init__(
        self,
        group: Group,
        cases: Sequence[Case],
        *,
        hot: bool,
        options: GpuOptions,
        variables: Variables = (),
    ) -> None:
        variables = (*forced_by(cases[0]), *variables)
        super().__init__(
            group, NcclRank, cases[0].ranks, hot=hot, options=options, variables=variables
        )
        self._is_forced = bool(variables) and group.kind == "local"
        self._refused: dict[Memory, RefusedError] = {}
        with self._opening():
            sizes: dict[Memory, int] = {PLAIN: 0}
            for case in cases:
                problem, memory = case.problem(), memory_of(case)
                size = stride_bytes(problem) * self._sets(problem)
                sizes[memory] = max(size, sizes.get(memory, 0))
            self._share_memory(0, sizes.pop(PLAIN))
            unique_id = self._workers.call(NcclRank.unique_id, timeout_s=START_S)[0]
            self._workers.call(NcclRank.join, unique_id, timeout_s=START_S)
            for memory, size in sizes.items():
                try:
                    self._workers.call(NcclRank.hold, memory, size, timeout_s=START_S)
                except RefusedError as error:
                    self._refused[memory] = error

    def _loaded(self, case: Case) -> tuple[NcclKey, Problem, int]:
        memory = memory_of(case)
        if memory in self._refused:
            raise self._refused[memory]
        problem = case.problem()
        sets = self._sets(problem)
        return (problem, sets, memory), problem, sets

    def _notes_of(self, case: Case) -> tuple[str, ...]:
        return notes_of(case, self.facts[0], is_forced=self._is_forced)


class NcclBackend(Peer):
    """The NCCL that nccl4py finds."""

    name = "nccl"
    is_gpu = True

    def why_not(self, group: Group) -> str:
        if why := why_no_gpus():
            return why
        try:
            load_nccl()
        except UnavailableError as error:
            return error.message
        return ""

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        return why_waived(case)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> NcclSession:
        return NcclSession(group, cases, hot=options.hot, options=options.gpu)


BACKEND = NcclBackend()
