"""A GPU whose memory is the host's and whose queue runs at once, for ranks of libraries that take
any memory; expected outputs and clocks as on CPUs. Of PyTorch the process group is Gloo's, which
has the same calls, and stands in for what symmetric memory computes.
"""

import ctypes
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from collbench.backends.base import GpuOptions
from collbench.backends.gpu.rank import DeviceRank, ExportedMemory, stride_bytes
from collbench.backends.gpu.session import GpuFacts
from collbench.backends.kernel.backend import KernelGpuRank
from collbench.backends.mpi.gpu import MpiGpuRank
from collbench.backends.repeat import RankTiming, compare_output, poison_again, prepare_buffers
from collbench.backends.torch.backend import TorchRank
from collbench.backends.torch.process_group import Calls, join, load_torch
from collbench.core.case import Problem
from collbench.core.dtypes import dtype
from collbench.core.group import RankContext
from collbench.core.pattern import Wrong
from tests.support.gpu_session import facts_of
from tests.support.gpus_in_threads import exchange

CACHE_BYTES = 1 << 16
HOST_MEMORY = {"name": "host memory", "cache_bytes": CACHE_BYTES, "version": "cuda 0"}


def array_at(address: int, size: int) -> Any:
    """The bytes there."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))


class HostCard:
    """In the place of a Card."""

    def __init__(self) -> None:
        self.index = self.stream = 0
        self.cache_bytes, self.events = CACHE_BYTES, [0.0]
        self.runtime = SimpleNamespace(
            memcpyAsync=lambda target, source, size, kind, stream: ctypes.memmove(
                target, source, size
            ),
            memcpyDefault=4,
            streamSynchronize=lambda stream: None,
        )

    def wait(self, deadline_s: float) -> None:
        pass

    def download(self, pointer: int, size: int) -> bytes:
        return bytes(array_at(pointer, size))

    def upload(self, pointer: int, data: bytes) -> None:
        array_at(pointer, len(data))[:] = np.frombuffer(data, np.uint8)

    def clear(self, pointer: int, size: int) -> None:
        pass

    def as_cupy(self, stream: int) -> int:
        return stream

    def capture(self, body: Callable[[int], None]) -> Any:
        return SimpleNamespace(launch=body)

    def event(self) -> int:
        self.events.append(0.0)
        return len(self.events) - 1

    def record(self, event: int) -> None:
        self.events[event] = time.perf_counter()

    record_by_graph = record

    def elapsed_s(self, start: int, stop: int) -> float:
        return self.events[stop] - self.events[start]

    def close(self) -> None:
        pass


class HostGpu(DeviceRank):
    """One rank on it."""

    control = 0

    def __init__(self, context: RankContext) -> None:
        super().__init__(context.rank, context.n, HostCard(), is_alone=True)  # type: ignore[arg-type]
        self.tables: dict[object, Any] = {}

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int = 0) -> ExportedMemory:
        self.memory = np.zeros(max(1, user_bytes), np.uint8)
        self.user = self.memory.ctypes.data
        return (0, 0, 0, b""), (0, 0, 0, b""), None

    def connect(
        self, exported: Sequence[ExportedMemory], timeout_s: float, *_: Any, **__: Any
    ) -> None:
        self.timeout_s = timeout_s

    def barrier(self, hold_ns: int = 0) -> None:
        pass

    def wait(self, deadline_s: float) -> None:
        pass

    def arrays(self, problem: Problem, number: int) -> tuple[Any, Any]:
        """Input and output of a set."""
        kind = dtype(problem.dtype).numpy()
        source, target = (
            array_at(*self.buffer(problem, which, number)).view(kind) for which in ("in", "out")
        )
        return source, target

    def prepare(self, problem: Problem, sets: range, stride: int, *, is_warm: bool = False) -> None:
        assert stride == stride_bytes(problem)
        for number in sets:
            if is_warm:
                poison_again(
                    problem, self.rank, *self.arrays(problem, number), number, is_warm=True
                )
            else:
                prepare_buffers(problem, self.rank, *self.arrays(problem, number), number)

    def keep(self, key: object, data: bytes) -> int:
        known = self.tables.setdefault(key, np.frombuffer(bytearray(data), np.uint8))
        return int(known.ctypes.data)

    def exchange(self, item: int, words: tuple[int, int, int, int, int], stream: int) -> None:
        exchange(array_at, item, *words)

    def compare(self, problem: Problem, sets: range) -> Wrong | None:
        outputs = ((number, self.arrays(problem, number)[1]) for number in sets)
        wrong = (compare_output(problem, self.rank, output, number) for number, output in outputs)
        return next((one for one in wrong if one is not None), None)


class HostMpiGpuRank(MpiGpuRank):
    """MPI on memory of which it does not know that it is not a GPU's."""

    def device(self, options: GpuOptions) -> GpuFacts:
        self._gpu = HostGpu(self.context)
        return facts_of(self.context.local_rank, **HOST_MEMORY)


class HostKernelRank(KernelGpuRank):
    """Somebody's kernel there."""

    def device(self, options: GpuOptions) -> GpuFacts:
        self.options, self._gpu = options, HostGpu(self.context)
        return facts_of(self.context.local_rank, **HOST_MEMORY)


class SilentMpiGpuRank(HostMpiGpuRank):
    """One whose calls do nothing once they are timed."""

    def timed(self, problem: Problem, hot: bool, batch: Any) -> RankTiming:
        assert self.prepared is not None
        self.prepared.calls = [(int, ())] * len(self.prepared.calls)
        return super().timed(problem, hot, batch)


class TorchOnHost:
    """PyTorch, with symmetric memory on tensors of the host."""

    def __init__(self, torch: Any, group: Any) -> None:
        def one_shot(give: Any, op: str, ranks: str, take: Any) -> None:
            assert op == "sum"
            total = give.clone()
            group.all_reduce(total)
            take.copy_(total)

        def two_shot(take: Any, op: str, ranks: str) -> None:
            assert op == "sum"
            group.all_reduce(take)

        self._torch = torch
        functions = {"one_shot_all_reduce_out": one_shot, "two_shot_all_reduce_": two_shot}
        self.ops = SimpleNamespace(symm_mem=SimpleNamespace(**functions))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class HostTorchRank(TorchRank):
    def device(self, options: GpuOptions) -> GpuFacts:
        torch, self.group = load_torch()
        torch.set_num_threads(1)
        self.options, self.torch = options, TorchOnHost(torch, self.group)
        self._gpu = HostGpu(self.context)
        return facts_of(self.context.local_rank, **HOST_MEMORY)

    def _tensor(self, address: int, size: int) -> Any:
        return self.torch.from_numpy(array_at(address, size))

    def join(self, meeting: str) -> None:
        join(self.group, "gloo", meeting, self.context.rank, self.context.n)
        self.collectives = Calls(
            torch=self.torch,
            group=self.group,
            rank=self.context.rank,
            keeps_input=False,
            has_batches=True,
        )

    def hold(self, size: int) -> None:
        self.memory |= dict.fromkeys(("oneshot", "twoshot"), self.torch.zeros(size).byte())
