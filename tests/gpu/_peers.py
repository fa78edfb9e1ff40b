"""What is tried of libraries on GPUs: every collective, type and reduction that they have, on sizes
that fit badly.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import get_args

from collbench.backends.base import GpuOptions
from collbench.backends.gpu.session import GpuFacts, TakesGpu
from collbench.backends.mpi.gpu import MpiGpuRank
from collbench.backends.mpi.rank import MPI_REDOPS, MPI_TYPES
from collbench.backends.net.gpu_proxy import why_not_cuda_aware
from collbench.backends.torch.backend import BACKEND as TORCH
from collbench.core.case import Case, Problem
from collbench.core.collectives import OPS, UNEVEN_OPS, collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName, dtype
from collbench.core.knobs import KNOBS, PLACEMENTS, NcclBuffers, UserBuffers
from collbench.device.host_memory import HostMemory
from collbench.planning.together import Together
from tests.gpu._plans import Knobs, jobs_at_once
from tests.support.batteries import placements, problem

COUNT = 2999
SYMMETRIC_COUNTS = (2, 2998, 1 << 20)  # of symmetric memory: words of 4 bytes


def _moved(n: int, *dtypes: DtypeName) -> Iterator[Problem]:
    """Every collective with those types."""
    for op in OPS:
        for name in dtypes:
            for in_place in placements(op):
                root = n - 1 if collective(op).is_rooted else 0
                yield problem(op, n, root=root, count=COUNT, dtype=name, in_place=in_place)


def _reduced(n: int) -> Iterator[Problem]:
    """Every type with every reduction."""
    for name in DTYPES:
        for redop in REDOPS:
            # NCCL multiplies by 1/n, which rounds
            if not (redop == "avg" and dtype(name).is_float and n & (n - 1)):
                yield problem("allreduce", n, count=COUNT, dtype=name, redop=redop)


def nccl_cases(n: int) -> list[Case]:
    """NCCL's, on each kind of user buffers."""
    kinds: tuple[NcclBuffers, ...] = get_args(NcclBuffers)
    problems = [*_moved(n, "float32", "bfloat16"), *_reduced(n)]
    even = [
        _case_of(_aligned(what, kind), "nccl", buffers=kind) for kind in kinds for what in problems
    ]
    uneven = [
        Case(
            op=op,
            backend="nccl",
            algo="library",
            proto="",
            ranks=n,
            size_bytes=4 * COUNT,
            skew=skew,
            placement=placement,
            buffers=kind,
        ).rounded()
        for kind in kinds
        for op in UNEVEN_OPS
        for skew in ("zipf:1.1", "hot:1")
        for placement in PLACEMENTS[: len(placements(op))]
    ]
    return [*even, *uneven]


def nccl_together_jobs(n: int) -> list[list[Together[Case]]]:
    """NCCL's collectives at once, as ours, in a session each for all kinds of user buffers: windows
    where blocks are whole words (see _aligned), averages where NCCL does not round (see _reduced).
    """
    kinds: tuple[NcclBuffers, ...] = get_args(NcclBuffers)
    forced = {knob.name for knob in KNOBS}

    def case_of(buffers: UserBuffers, ranks: int, knobs: Knobs) -> Case:
        free = {name: value for name, value in knobs.items() if name not in forced}
        return Case(
            backend="nccl", algo="library", proto="", buffers=buffers, ranks=ranks, **free
        ).rounded()

    def is_fine(job: Together[Case]) -> bool:
        problems = [part.problem for part in job.parts]
        has_windows = any(part.job.buffers == "window" for part in job.parts)
        return all(
            (not has_windows or one.block_bytes % 4 == 0)
            and (one.redop != "avg" or not one.n & (one.n - 1))
            for one in problems
        )

    sessions = [jobs_at_once(n, partial(case_of, kind)) for kind in kinds]
    return [
        list(filter(is_fine, (job for jobs in of_kinds for job in jobs)))
        for of_kinds in zip(*sessions, strict=True)
    ]


def torch_cases(n: int) -> list[Case]:
    """PyTorch's, by its process group and in symmetric memory."""
    problems = [*_moved(n, "float32", "bfloat16"), *_reduced(n)]
    symmetric = [
        problem("allreduce", n, count=count, dtype=name, in_place=in_place)
        for count in SYMMETRIC_COUNTS
        for name in ("float32", "bfloat16")
        for in_place in (False, True)
    ]
    found = [
        _case_of(what, "torch", algo=algo) for what in symmetric for algo in ("oneshot", "twoshot")
    ]
    return [
        *(_case_of(what, "torch") for what in problems),
        *(case for case in found if not TORCH.why_waived(case, is_reduction=True)),
    ]


def may_be_refused(case: Case) -> bool:
    """Whether PyTorch may refuse it: sums of 8-bit floats need NCCL 2.24 and sm_90."""
    return collective(case.op).is_reduction and case.dtype.startswith("float8")


def mpi_cases(n: int) -> list[Case]:
    """MPI's, with buffers for GPUs."""
    types: tuple[DtypeName, ...] = tuple(name for name in DTYPES if name in MPI_TYPES)
    redops: tuple[RedopName, ...] = tuple(name for name in REDOPS if name in MPI_REDOPS)
    problems = [
        *(what for what in _moved(n, "float32") if what.op != "reducescatter" or not what.in_place),
        *(problem("allreduce", n, count=COUNT, dtype=name) for name in types),
        *(problem("allreduce", n, count=1 << 20, redop=redop) for redop in redops),
    ]
    return [_case_of(what, "mpi", buffers="gpu") for what in problems]


def described(case: Case) -> str:
    """A case in a few words."""
    return (
        f"{case.backend} {case.algo} {case.op} {case.dtype} {case.redop} {case.placement}"
        f" {case.size_bytes} bytes"
    )


def _aligned(what: Problem, buffers: UserBuffers) -> Problem:
    """The problem with blocks of whole words where NCCL is wrong with others (seen with 2.28.9:
    allgather and reducescatter of bfloat16 in windows).
    """
    least = max(1, 4 // what.item_bytes) if buffers == "window" else 1
    return replace(what, block_count=-(-what.block_count // least) * least)


def _case_of(
    what: Problem, backend: str, *, algo: str = "library", buffers: UserBuffers = "plain"
) -> Case:
    """The case of a library's own choice."""
    size = collective(what.op).size_bytes(what.block_count, what.item_bytes, what.n)
    return Case(
        op=what.op,
        backend=backend,
        algo=algo,
        proto="",
        buffers=buffers,
        dtype=what.dtype,
        redop=what.redop,
        root=what.root,
        placement="in" if what.in_place else "out",
        ranks=what.n,
        size_bytes=size,
    )


class MappedMpiGpuRank(MpiGpuRank):
    """One whose user buffers are in host memory that its GPU maps, if MPI takes no GPU memory."""

    mapped: HostMemory | None = None

    def device(self, options: GpuOptions) -> GpuFacts:
        why = why_not_cuda_aware()
        if not why:
            return super().device(options)
        facts = TakesGpu.device(self, options)
        return replace(facts, version=f"{facts.version}; {why}: mapped")

    def allocate(self, user_bytes: int, timeout_s: float) -> None:
        is_mapped = bool(why_not_cuda_aware())
        super().allocate(1 if is_mapped else user_bytes, timeout_s)
        if is_mapped:
            self.mapped = self.gpu.card.own_host(user_bytes)
            self.gpu.user = self.mapped.address

    def close(self) -> None:
        if self.mapped is not None:
            self.mapped.close()
        super().close()
