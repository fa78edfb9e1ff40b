"""The torch backend: PyTorch's collectives on GPUs, in the same harness as ours: same graph, clock
and checks.

`library` is its process group of NCCL, on memory of cudaMalloc. `oneshot` and `twoshot` are the
allreduces of its symmetric memory, on memory that PyTorch allocates and its ranks map. None uses
NVLink multicast: the operations that do are left out, and no multicast object is made.

A process has one default process group, and the kernels of symmetric memory wait for each other
without a deadline. So each rank is a process of its own (gpu/child.py), whose end ends its kernels.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collbench.backends.base import GpuOptions, Peer, SessionOptions
from collbench.backends.gpu.memory import GpuArray
from collbench.backends.gpu.rank import ExportedMemory, Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import START_S, GpuFacts, GpuRank, GpuSession, why_no_gpus
from collbench.backends.library import Call, why_lacking
from collbench.backends.torch.process_group import (
    INSTALL_HINT,
    REDOPS,
    Calls,
    copied,
    is_copied,
    join,
    load_torch,
)
from collbench.core.case import Case, Problem
from collbench.core.dtypes import DTYPES
from collbench.core.errors import RefusedError, UnavailableError, first_line
from collbench.core.group import Group, RankContext
from collbench.core.launcher import with_switches
from collbench.core.peers import OWN_ALGOS

# what is launched, how many sets of user buffers there are, and by which of PyTorch's ways
TorchKey = tuple[Problem, int, str]
_FUNCTIONS = {"oneshot": "one_shot_all_reduce_out", "twoshot": "two_shot_all_reduce_"}
_NAMES = {"oneshot": "one-shot", "twoshot": "two-shot"}
_SYMMETRIC_TYPES = ("float32", "bfloat16")
_WORD_BYTES = 4  # of which the vectors of symmetric memory are multiples
# of the processes of the ranks: no multicast object, which operations left out here would need
VARIABLES = (("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),)
_SWITCHES = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM")  # variables that change how data moves
_REFUSALS = RuntimeError, TypeError, ValueError  # what PyTorch raises


class TorchRank(GpuRank[TorchKey]):
    """One rank's part."""

    why_not_shared = "torch and its NCCL refuse two ranks on one GPU"

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.memory: dict[str, Any] = {}  # tensors of all user buffers, by way
        self.graphs: Graphs = {}
        self.calls: list[Call] = []  # of each set
        self.ready: TorchKey | None = None  # what the graphs and calls are of

    def device(self, options: GpuOptions) -> GpuFacts:
        """Take this rank's GPU, with its stream as PyTorch's; what the driver wants to know of it.
        Raises UnavailableError.
        """
        facts, card = super().device(options), self.gpu.card
        try:
            self.torch, self.group = load_torch()
            cuda = self.torch.cuda
            self.place = self.torch.device("cuda", card.index)
            cuda.set_device(self.place)
            cuda.set_stream(cuda.ExternalStream(card.stream, self.place))
        except (ImportError, *_REFUSALS) as error:
            raise UnavailableError(
                f"PyTorch cannot use GPU {card.index}: {first_line(error)}"
            ) from None
        if not self.group.is_nccl_available():
            raise UnavailableError("this PyTorch is built without NCCL")
        version = ".".join(map(str, cuda.nccl.version()))
        text = f"{facts.version}; torch {self.torch.__version__}; nccl {version}"
        return replace(facts, version=with_switches(text, _SWITCHES))

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int) -> ExportedMemory:
        """Make the memory that barriers use, and the user buffers of the process group."""
        exported = super().allocate(arena_bytes, user_bytes, host_bytes)
        user = GpuArray(self.gpu.user, user_bytes)
        self.memory["library"] = self.torch.as_tensor(user, device=self.place)
        return exported

    def join(self, meeting: str) -> None:
        """Make the process group and its communicator, with all others. Raises RefusedError."""
        rank, n = self.context.rank, self.context.n
        try:
            join(self.group, "nccl", meeting, rank, n, device_id=self.place)
        except _REFUSALS as error:
            raise _refusal("make a process group", error) from None
        self.collectives = Calls(
            torch=self.torch, group=self.group, rank=rank, keeps_input=True, has_batches=True
        )

    def hold(self, size: int) -> None:
        """Have symmetric memory for user buffers, all ranks together. Raises RefusedError."""
        try:
            from torch.distributed import _symmetric_memory as symmetric

            memory = symmetric.empty(size, dtype=self.torch.uint8, device=self.place)
            symmetric.rendezvous(memory, self.group.group.WORLD)
        except (ImportError, AttributeError, *_REFUSALS) as error:
            raise _refusal("have symmetric memory", error) from None
        self.memory |= dict.fromkeys(_FUNCTIONS, memory)

    def _call(self, problem: Problem, way: str, number: int) -> Call:
        """The library's function on a set of user buffers, and its arguments."""
        memory, at = self.memory[way], problem.buffers(self.context.rank)
        first = number * stride_bytes(problem)
        give, take = (
            memory[first + offset : first + offset + size]
            for offset, size in ((at.in_offset, at.in_bytes), (at.out_offset, at.out_bytes))
        )
        if way == "library":
            return self.collectives.of(problem, give, take)
        operations, name = self.torch.ops.symm_mem, _FUNCTIONS[way]
        if not hasattr(operations, name):
            raise RefusedError(f"PyTorch {self.torch.__version__} has no {name}")
        call, ranks = getattr(operations, name), self.group.group.WORLD.group_name
        give, take = (self.collectives.typed(problem, one) for one in (give, take))
        if way == "oneshot":
            return call, (give, "sum", ranks, take)
        return copied(problem, call, give, take, "sum", ranks)

    def _queue(self, op: str, number: int, stream: int) -> None:
        """Queue one collective in PyTorch's stream, which is the stream. Raises RefusedError."""
        if self.options.inject == "drop" and self.context.rank == 0:
            return
        function, args = self.calls[number]
        try:
            function(*args)
        except _REFUSALS as error:
            raise _refusal(f"do {op}", error) from None

    def _launches(self, key: TorchKey) -> Launches:
        """PyTorch's collective, on the user buffers of the key's way."""
        problem, sets, way = key
        if self.ready != key:
            self.graphs, self.ready = {}, None
            self.calls = [self._call(problem, way, number) for number in range(sets)]
            self.ready = key
        self.gpu.user = self.memory[way].data_ptr()
        return Launches(
            gpu=self.gpu,
            problem=problem,
            queue=partial(self._queue, problem.op),
            sets=sets,
            wait=self._wait,
            graphs=self.graphs,
        )


def _refusal(what: str, error: Exception) -> RefusedError:
    """An error of PyTorch as ours."""
    return RefusedError(f"PyTorch does not {what}: {first_line(error)}")


class TorchSession(GpuSession[Case, TorchKey, TorchRank]):
    """Drives the ranks of PyTorch's collectives."""

    def __init__(
        self, group: Group, cases: Sequence[Case], *, hot: bool, options: GpuOptions
    ) -> None:
        n = cases[0].ranks
        # of the ranks' meeting, which PyTorch may come back to, and of their sockets
        self._folder = TemporaryDirectory(prefix="collbench-torch-")
        variables = (*VARIABLES, ("TMPDIR", self._folder.name))
        try:
            super().__init__(group, TorchRank, n, hot=hot, options=options, variables=variables)
        except BaseException:
            self._folder.cleanup()
            raise
        self._processes = ("processes",) if group.kind == "local" else ()
        self._refused: RefusedError | None = None
        with self._opening():
            sets = [self._sets(case.problem()) for case in cases]
            plain, symmetric = user_bytes(cases, sets)
            self._share_memory(0, max(1, plain))
            self._workers.call(TorchRank.join, f"{self._folder.name}/meeting", timeout_s=START_S)
            if symmetric:
                try:
                    self._workers.call(TorchRank.hold, symmetric, timeout_s=START_S)
                except RefusedError as error:
                    self._refused = error

    def _loaded(self, case: Case) -> tuple[TorchKey, Problem, int]:
        if self._refused is not None and case.algo in _FUNCTIONS:
            raise self._refused
        problem = case.problem()
        sets = self._sets(problem)
        return (problem, sets, case.algo), problem, sets

    def _notes_of(self, case: Case) -> tuple[str, ...]:
        has_copy = is_copied(case) and case.algo != "oneshot"
        return (*(["copied"] if has_copy else []), *self._processes)

    def close(self) -> None:
        """End the ranks."""
        super().close()
        self._folder.cleanup()


def user_bytes(cases: Sequence[Case], sets: Sequence[int]) -> tuple[int, int]:
    """Bytes of a rank's user buffers, in so many sets of each case: of the process group, and in
    symmetric memory.
    """
    sizes = {False: 0, True: 0}
    for case, count in zip(cases, sets, strict=True):
        is_symmetric = case.algo in _FUNCTIONS
        sizes[is_symmetric] = max(sizes[is_symmetric], count * stride_bytes(case.problem()))
    return sizes[False], sizes[True]


def cuda_of(origin: Path) -> str | None:
    """The version of CUDA that a PyTorch is built for, None if for none, by the file of its
    versions: loading PyTorch takes seconds, and libraries that this process may have of its own.
    """
    spec = spec_from_file_location("torch_version", origin.parent / "version.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    version: str | None = getattr(module, "cuda", None)
    return version


class TorchBackend(Peer):
    """The PyTorch of this installation."""

    name = "torch"
    is_gpu = True
    is_apart = True

    def why_not(self, group: Group) -> str:
        found = find_spec("torch")
        if found is None or found.origin is None:
            return f"PyTorch is not installed; {INSTALL_HINT}"
        if cuda_of(Path(found.origin)) is None:
            return "this PyTorch is built without CUDA"
        if len(set(group.hosts)) > 1:
            return "PyTorch is measured on one host"
        return why_no_gpus()

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        if case.algo not in _FUNCTIONS:
            return why_lacking("PyTorch", case, REDOPS, DTYPES, is_reduction=is_reduction)
        what, ops = f"PyTorch's {_NAMES[case.algo]}", OWN_ALGOS["torch"][case.algo]
        if case.op not in ops:
            return f"{what} serves {', '.join(ops)}, not {case.op}"
        if case.redop != "sum":
            return f"{what} has no reduction {case.redop}"
        if case.dtype not in _SYMMETRIC_TYPES:
            return f"{what} cannot reduce {case.dtype}"
        if case.size_bytes % _WORD_BYTES:
            return f"{what} takes whole words of {_WORD_BYTES} bytes, not {case.size_bytes} bytes"
        if case.in_place and case.algo == "oneshot":
            return f"{what} cannot write over its input, which other ranks still read"
        return ""

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> TorchSession:
        return TorchSession(group, cases, hot=options.hot, options=options.gpu)


BACKEND = TorchBackend()
