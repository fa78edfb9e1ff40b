"""Cases of a job's operations: what is measured for each of them.

`cases_of` and `candidates` are the places where an operation becomes a case. An uneven exchange
becomes the exchange of equal blocks of the same total here; where cases have blocks of their own
sizes, they begin here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collbench.bench.ranks import protocols_of
from collbench.bench.sweep import Sweep, cases, served
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.dtypes import DtypeName, RedopName, dtype
from collbench.core.knobs import KNOB, Value
from collbench.core.peers import forced_by, is_own_algo, is_peer, knobs_of
from collbench.jobs.model import JobOperation, OperationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What stands for the job where it is measured. ranks: the most of a communicator; dtype,
    redop: of all operations; None: as in the job. knobs: of our own collectives, what the job has
    now; of a library they are its own choice.
    """

    ranks: int | None = None
    dtype: DtypeName | None = None
    redop: RedopName | None = None
    knobs: Mapping[str, Value]

    def of(self, kind: OperationKind) -> OperationKind:
        """The kind that is measured for one of the job.

        >>> kind = OperationKind("allgather", 4096, "bfloat16", "sum", 64)
        >>> Stand(ranks=4, knobs={}).of(kind).ranks
        4
        """
        ranks = min(kind.ranks, self.ranks) if self.ranks else kind.ranks
        element = self.dtype or kind.dtype
        # a vector keeps its bytes, and has one element at least
        size = max(kind.size_bytes, dtype(element).item_bytes)
        is_reduction = collective(kind.op).is_reduction
        redop = self.redop if self.redop and is_reduction else kind.redop
        return kind._replace(ranks=ranks, dtype=element, redop=redop, size_bytes=size)


def cases_of(operation: JobOperation, backend: str, stand: Stand) -> list[Case]:
    """The cases that measure an operation as it is: one, or one for each form of a library."""
    knobs: dict[str, tuple[Value, ...]] = {"algo": ("auto",)}
    if not is_peer(backend):
        knobs |= {name: (value,) for name, value in stand.knobs.items()}
        knobs["algo"] = (served(knobs["algo"][0], operation.kind.op),)
    elif "buffers" in knobs_of(backend):
        knobs["buffers"] = KNOB["buffers"].choices
    return list(_cases(stand.of(operation.kind), backend, knobs, frozenset()))


# What NCCL is forced to, one set of processes for each.
_FORCED: dict[str, tuple[Value, ...]] = {
    "algo": ("ring", "chain"),
    "proto": ("simple", "ll128", "ll"),
    "channels": (32, 16),
}


def candidates(
    operation: JobOperation, backend: str, stand: Stand, *, has_hosts: bool
) -> list[Case]:
    """Other ways of a backend to do an operation; none of a library that can be forced to nothing.

    Of ours: every algorithm by every protocol. Of NCCL: ring and tree, protocols, channels.
    """
    kind = stand.of(operation.kind)
    if is_peer(backend):
        if not knobs_of(backend):
            return []
        found = _cases(kind, backend, _FORCED, frozenset(_FORCED))
        return [case for case in found if forced_by(case)]
    knobs: dict[str, tuple[Value, ...]] = {"proto": protocols_of(backend)}
    return list(_cases(kind, backend, knobs, frozenset(knobs), has_hosts=has_hosts))


def _cases(
    kind: OperationKind,
    backend: str,
    knobs: Mapping[str, tuple[Value, ...]],
    asked: frozenset[str],
    *,
    has_hosts: bool = False,
) -> Iterator[Case]:
    sweep = Sweep(
        sizes=(kind.size_bytes,),
        op=(kind.op,),
        backend=(backend,),
        ranks=(kind.ranks,),
        dtype=(kind.dtype,),
        redop=(kind.redop,),
        knobs=knobs,
        asked=asked,
    )
    peers = {backend: knobs_of(backend)} if is_peer(backend) else {}
    yield from cases(sweep, peers, has_hosts=has_hosts)


def form_name(case: Case) -> str:
    """What a column of times is called.

    >>> case = Case(op="allreduce", backend="nccl", algo="library", ranks=2, size_bytes=8)
    >>> form_name(case)
    'nccl plain'
    """
    if is_peer(case.backend) and "buffers" in knobs_of(case.backend):
        return f"{case.backend} {case.buffers}"
    if is_peer(case.backend) and is_own_algo(case.backend, case.algo) and case.algo != "library":
        return f"{case.backend} {case.algo}"
    return case.backend
