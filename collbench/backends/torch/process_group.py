"""The collectives of PyTorch's default process group, as calls that are ready to be made: what Gloo
on CPUs and NCCL on GPUs have alike.

PyTorch reduces and broadcasts in place. Out of place these calls are preceded by a copy, which
`--placement in` has not.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from collbench.backends.library import Call
from collbench.core.case import Case, Problem
from collbench.core.collectives import collective

REDOPS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}
_WORK_IN_PLACE = ("allreduce", "broadcast", "reduce")
START_S = 120.0  # for all ranks to load PyTorch and to meet
INSTALL_HINT = "install it with: pip install 'collbench[torch]'"


def load_torch() -> tuple[Any, Any]:
    """PyTorch, and its module of process groups."""
    # loading is long, and looks for devices that are not meant
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from torch import distributed

    return torch, distributed


def join(group: Any, backend: str, meeting: str, rank: int, n: int, **more: object) -> None:
    """Make the default process group of module `group` with all others, which find each other by a
    file.
    """
    group.init_process_group(
        backend,
        store=group.FileStore(meeting, n),
        rank=rank,
        world_size=n,
        timeout=timedelta(seconds=START_S),
        **more,
    )


def is_copied(case: Case) -> bool:
    """Whether a call of the process group is preceded by a copy."""
    return case.op in _WORK_IN_PLACE and not case.in_place


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The calls of one rank.

    torch: the module; group: the module of its process groups. keeps_input: reductions to a root
    leave what the other ranks give as it is. has_batches: a send and a receive are one operation.
    """

    torch: Any
    group: Any
    rank: int
    keeps_input: bool
    has_batches: bool

    def of(self, problem: Problem, source: Any, target: Any) -> Call:
        """The function for a problem and its arguments. source, target: tensors of the bytes of the
        rank's input and output.
        """
        group, n, root = self.group, problem.n, problem.root
        is_root = self.rank == root
        give, take = self.typed(problem, source), self.typed(problem, target)
        op = getattr(group.ReduceOp, REDOPS[problem.redop])
        gives, takes = (list(one.chunk(n)) if len(one) else None for one in (give, take))
        calls: dict[str, Callable[[], Call]] = {
            "allreduce": lambda: copied(problem, group.all_reduce, give, take, op),
            "broadcast": lambda: copied(problem, group.broadcast, give, take, root),
            "reduce": lambda: self._reduce(problem, give, take, op),
            "allgather": lambda: (self._single("all_gather"), (take, give)),
            "reducescatter": lambda: (self._single("reduce_scatter"), (take, give, op)),
            "alltoall": lambda: (group.all_to_all_single, (take, give)),
            "gather": lambda: (group.gather, (give, takes if is_root else None, root)),
            "scatter": lambda: (group.scatter, (take, gives if is_root else None, root)),
            "sendrecv": lambda: self._exchange(n, give, take),
        }
        return calls[problem.op]()

    def typed(self, problem: Problem, memory: Any) -> Any:
        """The elements in the bytes of a tensor; what is not reduced stays bytes."""
        if collective(problem.op).is_reduction:
            return memory.view(getattr(self.torch, problem.dtype))
        return memory

    def _reduce(self, problem: Problem, give: Any, take: Any, op: object) -> Call:
        """To the root, on a copy where the library would overwrite what another rank gives."""
        reduce, root = self.group.reduce, problem.root
        if self.rank == root:
            return copied(problem, reduce, give, take, root, op)
        if self.keeps_input:
            return reduce, (give, root, op)
        scratch = self.torch.empty_like(give)

        def run() -> None:
            scratch.copy_(give)
            reduce(scratch, root, op)

        return run, ()

    def _exchange(self, n: int, give: Any, take: Any) -> Call:
        """A send to the next rank and a receive from the one before."""
        group, after, before = self.group, (self.rank + 1) % n, (self.rank - 1) % n
        if self.has_batches:
            both = [group.P2POp(group.isend, give, after), group.P2POp(group.irecv, take, before)]

            def batch() -> None:
                for work in group.batch_isend_irecv(both):
                    work.wait()

            return batch, ()

        def exchange() -> None:
            sending = group.isend(give, after)
            group.recv(take, before)
            sending.wait()

        return exchange, ()

    def _single(self, name: str) -> Callable[..., object]:
        """A function on whole tensors, by its new name or the one that it had."""
        old = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}
        found: Callable[..., object] = getattr(
            self.group, f"{name}_single" if hasattr(self.group, f"{name}_single") else old[name]
        )
        return found


def copied(
    problem: Problem, call: Callable[..., object], give: Any, take: Any, *args: object
) -> Call:
    """A call that works on the output, which has the input first."""
    if problem.in_place or not len(give):
        return call, (take, *args)

    def run() -> None:
        take.copy_(give)
        call(take, *args)

    return run, ()
