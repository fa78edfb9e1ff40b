"""A rank of the torch backend on a GPU whose memory is the host's: PyTorch's process group is
Gloo's, which has the same calls, and stands in for what symmetric memory computes.
"""

from types import SimpleNamespace
from typing import Any

from collbench.backends.base import GpuOptions
from collbench.backends.gpu.session import GpuFacts
from collbench.backends.torch.backend import TorchRank
from collbench.backends.torch.process_group import Calls, join, load_torch
from tests.support.gpu_session import facts_of
from tests.support.host_gpu import HOST_MEMORY, HostGpu, array_at


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
