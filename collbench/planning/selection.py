"""Which algorithm, protocol and transport "auto" takes for a case, by profiles/tuning.

On the links of a described machine the algorithm is the one of the lowest price
(bench/ceilings.py), and the rest is as here.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from collbench.planning.limits import Limits
from collbench.planning.transports import ce, net, p2p, shm
from collbench.planning.tuning import (
    Algorithm,
    BestRow,
    BestTable,
    CpuTuning,
    DefaultTuning,
    GpuTuning,
    HostsTuning,
    row_for,
    rows_of,
)
from collbench.schedules.algorithms import FAMILY, needs_hosts
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError

# p2p: peer access or CUDA IPC, which rows do not tell apart; shm: host memory that both ends map;
# net: messages of MPI
GPU_TRANSPORTS = ("p2p", "shm", "net")
CPU_TRANSPORTS = ("shm", "net")


def algorithms_of(op: str, *, has_hosts: bool = True) -> tuple[str, ...]:
    """The registered algorithms that serve a collective; without several hosts, those that need
    none.
    """
    return tuple(
        name
        for name in FAMILY
        if op in FAMILY.load(name).SERVES and (has_hosts or not needs_hosts(name))
    )


def problem_of(case: Case, algo: str = "auto") -> Case:
    """A case of the same problem that leaves every knob open, but for the algorithm."""
    return Case(
        op=case.op,
        backend=case.backend,
        algo=algo,
        dtype=case.dtype,
        redop=case.redop,
        root=case.root,
        placement=case.placement,
        ranks=case.ranks,
        size_bytes=case.size_bytes,
    )


def between_hosts(case: Case, hosts: tuple[int, ...], tuning: HostsTuning) -> str:
    """The algorithm for ranks on several hosts, or auto, which leaves it to the table of one host.

    The links between hosts are slower than those within one, so the bytes between hosts decide.
    With L ranks a host, direct exchanges send each byte to L ranks of every other host.
    hierarchical sends it there once, and each rank sends its part, through the nearest network card
    where hosts have several. Where the hosts have unlike numbers of ranks, a ring that enters each
    host once does almost as little, through one rank. Small messages cost hops, not bytes.

    >>> from collbench.planning.tuning import cpu_tuning
    >>> case = Case(op="allreduce", backend="cpu", ranks=4, size_bytes=1 << 20)
    >>> hosts = (0, 0, 1, 1), (0, 1, 1, 1), (0, 1, 2, 3)
    >>> [between_hosts(case, each, cpu_tuning().hosts) for each in hosts]
    ['hierarchical', 'ring', 'auto']
    """
    ranks_of = Counter(hosts).values()
    algo = "hierarchical" if len(set(ranks_of)) == 1 else "ring"
    is_bound_by_bytes = case.size_bytes > tuning.latency_bound_up_to and max(ranks_of) > 1
    return algo if is_bound_by_bytes and algo in algorithms_of(case.op) else "auto"


def best_for_cpu(case: Case, tuning: CpuTuning, domains: net.Domains) -> str:
    """The algorithm of a case that leaves it open, on CPU cores.

    domains: the ranks' shared-memory domains, () for one.
    """
    if not domains:
        return row_for(case.size_bytes, _rows(case, tuning.default, tuning.shm.best)).algo
    size_of_rank = -(-case.size_bytes // min(case.ranks, tuning.net.ranks_counted))
    rows = _rows(case, tuning.default, tuning.net.best, tuning.shm.best)
    return row_for(size_of_rank, rows).algo


def best_by_copies(case: Case, tuning: GpuTuning) -> str:
    """The algorithm of a case for copy engines: its own, or the table's.

    >>> from collbench.planning.tuning import gpu_tuning
    >>> case = Case(op="alltoall", backend="cuda", ranks=4, size_bytes=1 << 30)
    >>> best_by_copies(case, gpu_tuning())
    'direct'
    """
    if case.algo != "auto":
        return case.algo
    return row_for(case.size_bytes, _rows(case, tuning.default, tuning.ce.best)).algo


def are_copies_best(case: Case, limits: Limits, tuning: GpuTuning) -> bool:
    """Whether "auto" takes copy engines: for some large collectives that leave all knobs open.

    >>> from collbench.planning.tuning import gpu_tuning
    >>> case = Case(op="alltoall", backend="cuda", ranks=4, size_bytes=1 << 30)
    >>> (
    ...     are_copies_best(case, Limits(), gpu_tuning()),
    ...     are_copies_best(replace(case, channels=8), Limits(), gpu_tuning()),
    ...     are_copies_best(case, Limits(has_peers=False), gpu_tuning()),
    ... )
    (True, False, False)
    """
    chosen = rows_of(case.ranks, tuning.ce.chosen.get(case.op, ()))
    if (
        not any(case.size_bytes >= row.from_size for row in chosen)
        or not limits.has_peers
        or ce.why_not(limits.hosts)
    ):
        return False
    problem = problem_of(case)
    return (
        replace(case, algo="auto", proto="auto") == problem
        and case.algo in ("auto", best_by_copies(problem, tuning))
        and case.proto in ("auto", "simple")
    )


def best_for_gpu(case: Case, limits: Limits, tuning: GpuTuning) -> tuple[str, str]:
    """Algorithm and protocol of a case on GPUs. Raises ScheduleError.

    >>> from collbench.planning.tuning import gpu_tuning
    >>> case = Case(op="allreduce", backend="cuda", proto="auto", ranks=4, size_bytes=8)
    >>> best_for_gpu(case, Limits(), gpu_tuning())
    ('oneshot', 'll')
    """
    transport, size = transport_of(case, limits), case.size_bytes
    by_messages = "net" in transport
    section = tuning.net if by_messages else tuning.shm if transport == "shm" else tuning.p2p
    proto = case.proto
    if proto == "auto" and (by_messages or case.algo != "auto"):
        proto = row_for(size, section.protocol).proto
    if case.algo != "auto":
        return case.algo, proto
    tables = {"shm": (tuning.shm.best,), "net": (tuning.net.best, tuning.p2p.best)}.get(
        transport, (tuning.p2p.best,)
    )
    rows = _rows(case, tuning.default, *tables)
    for row in rows:
        if size <= row.up_to and proto in ("auto", row.proto):
            return row.algo, row.proto
    # the table has no such size with this protocol: the algorithm of the size
    return row_for(size, rows).algo, proto


def _rows(
    case: Case, default: DefaultTuning, *tables: Mapping[str, BestTable]
) -> tuple[BestRow, ...]:
    """The rows of the first table that has any for the case's collective and number of ranks, else
    the generic ones of its kind. Raises ScheduleError if no algorithm serves the collective.
    """
    for table in tables:
        if case.op in table:
            rows = rows_of(case.ranks, table[case.op].rows)
            if rows:
                return rows
    what, served = collective(case.op), algorithms_of(case.op, has_hosts=False)
    if not served:
        raise ScheduleError(f"no algorithm serves {case.op}", "see `collbench algos`")
    kind = default.reduction if what.is_reduction else default.blocked
    kind = default.rooted if what.is_rooted else kind
    return tuple(
        replace(row, algo=row.algo if row.algo in served else Algorithm(served[0]))
        for row in kind.rows
    )


def cpu_domains(case: Case, hosts: tuple[int, ...]) -> net.Domains:
    """The shared-memory domain of every rank on CPU cores, () for one. Raises ScheduleError for a
    transport that the ranks do not have.
    """
    if case.transport not in ("auto", *CPU_TRANSPORTS):
        raise ScheduleError(
            f"ranks on CPUs pass data by {' or '.join(CPU_TRANSPORTS)}, not by {case.transport}",
            "leave --transport out",
        )
    host_of = hosts or (0,) * case.ranks
    if case.transport == "shm" and (why := shm.why_not(host_of)):
        raise ScheduleError(why, "use --transport net, or auto for both")
    return net.domains(case.transport, host_of)


def gpu_domains(case: Case, limits: Limits) -> net.Domains:
    """The domain of every GPU, whose members reach each other's memory or share their host's; ()
    for one.
    """
    return net.domains(
        case.transport, limits.hosts if len(limits.hosts) == case.ranks else (0,) * case.ranks
    )


def transport_of(case: Case, limits: Limits) -> str:
    """Where the case's connections have their memory, inside a domain and between domains. Raises
    ScheduleError for a transport that GPUs do not have.

    >>> case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=8)
    >>> (
    ...     transport_of(case, Limits()),
    ...     transport_of(case, Limits(hosts=(0, 0, 1, 1))),
    ...     transport_of(replace(case, transport="net"), Limits()),
    ... )
    ('p2p', 'p2p+net', 'net')
    """
    if case.transport not in ("auto", *GPU_TRANSPORTS):
        raise ScheduleError(
            f"GPUs pass data by {', '.join(GPU_TRANSPORTS)} or ce, not by {case.transport}",
            "leave --transport out",
        )
    if case.transport in ("p2p", "shm") and (why := p2p.why_not(limits.hosts)):
        raise ScheduleError(why, "use --transport net, or auto")
    if case.transport == "p2p" and not limits.has_peers:
        raise ScheduleError(
            "not every GPU can reach the memory of every other",
            "use --transport shm, or see `collbench topo --p2p`",
        )
    return net.label(
        gpu_domains(case, limits),
        "shm" if case.transport == "shm" or not limits.has_peers else "p2p",
    )
