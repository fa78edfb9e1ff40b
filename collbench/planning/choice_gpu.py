"""What "auto" means on GPUs: road, algorithm and protocol by size, and whether it can be done.
tuning_knobs.py has the rest.

The sweeps were made on 4 x H200 (NVSwitch), one process a GPU, float32 sum, in CUDA graphs.
"""

from dataclasses import dataclass, replace

from collbench.planning import choice_net, choice_shm
from collbench.planning.choice_knobs import edges_of, is_pipelined, knobs_of, peers_of
from collbench.planning.choice_net import Choices
from collbench.planning.plan import Kernel, Plan, lay_out, made_direct
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import net, p2p
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import direct_count, widest_message
from collbench.spec.case import Case
from collbench.spec.knobs import P2p, unheeded
from collbench.spec.options import DEFAULT_MEMORY
from collbench.util.errors import ScheduleError
from collbench.util.units import format_size

_K, _M = 1 << 10, 1 << 20
_ANY = 1 << 62
# (largest S, algorithm, protocol). Allreduce, us: 64 KiB one-shot ll 4.9, ll128 5.0; 128 KiB
# one-shot ll128 5.7, two-shot ll 6.4; 256 KiB one-shot ll128 7.0, two-shot ll 7.4; 512 KiB two-shot
# ll128 9.1, ring ll128 9.9; 1 MiB ring ll128 10.9, two-shot 11.2; 8 MiB ring ll128 41.9, two-shot
# simple 45.6; 16 MiB ring simple 77.7, ring ll128 82.0; 1 GiB ring simple 4378. Ring of 8 MiB:
# allgather ll128 22.8, direct simple 25.0; reducescatter ll128 23.3, simple 30.7. Broadcast of 4
# KiB direct 1.79, chain 1.95, of 32 KiB 2.31, 2.09: and alone one hop is less than three.
_BEST: dict[str, Choices] = {
    "allreduce": (
        (64 * _K, "oneshot", "ll"),
        (256 * _K, "oneshot", "ll128"),
        (512 * _K, "twoshot", "ll128"),
        (8 * _M, "ring", "ll128"),
        (_ANY, "ring", "simple"),
    ),
    "allgather": (
        (256 * _K, "direct", "ll"),
        (512 * _K, "direct", "ll128"),
        (8 * _M, "ring", "ll128"),
        (_ANY, "ring", "simple"),
    ),
    "reducescatter": (
        (256 * _K, "direct", "ll"),
        (512 * _K, "direct", "ll128"),
        (8 * _M, "ring", "ll128"),
        (_ANY, "ring", "simple"),
    ),
    "broadcast": (
        (8 * _K, "direct", "ll"),
        (128 * _K, "chain", "ll"),
        (16 * _M, "chain", "ll128"),
        (_ANY, "chain", "simple"),
    ),
    "reduce": ((64 * _K, "chain", "ll"), (16 * _M, "chain", "ll128"), (_ANY, "chain", "simple")),
    "alltoall": ((256 * _K, "direct", "ll"), (_M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "gather": (
        (256 * _K, "direct", "ll"),
        (16 * _M, "direct", "ll128"),
        (_ANY, "direct", "simple"),
    ),
    "scatter": (
        (256 * _K, "direct", "ll"),
        (4 * _M, "direct", "ll128"),
        (_ANY, "direct", "simple"),
    ),
    "sendrecv": (
        (128 * _K, "direct", "ll"),
        (2 * _M, "direct", "ll128"),
        (_ANY, "direct", "simple"),
    ),
}
# where an algorithm is given and no protocol
_PROTOCOL_OF_SIZE = ((256 * _K, "ll"), (8 * _M, "ll128"), (_ANY, "simple"))
MAX_PROGRAM_STEPS = 24  # of a track that is compiled in: more only make the kernel's code large
# of connections that a rank has: what a launch's arguments, 4096 bytes, have room for
MAX_ENDS = 70
MAX_CHUNK_BYTES = 1 << 30
FLAG_BYTES = 128  # a word that is polled has a cache line of its own
MEMORY_GRAIN_BYTES = 512  # FIFOs and scratch memory begin at multiples of this
# Peer access or CUDA IPC, which rows do not tell apart; host memory that both ends map; messages of
# MPI. For ce see tuning_ce.py.
TRANSPORTS = ("p2p", "shm", "net")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a GPU has for one launch: CTAs that can be resident, bytes that FIFOs may take,
    clusters, whether all reach their peers' memory.

    orders: of ranks, that use the wires best. hosts: of the ranks, where there are several
    (world.host_numbers).
    """

    ctas: int = 132
    has_clusters: bool = True
    has_peers: bool = True
    memory_bytes: int = DEFAULT_MEMORY
    orders: tuple[tuple[int, ...], ...] = ()
    hosts: tuple[int, ...] = ()


def best_of(case: Case, limits: Limits = Limits()) -> tuple[str, str]:
    """Algorithm and protocol of a case that leaves one of them open. Raises ScheduleError.

    >>> best_of(Case(op="allreduce", backend="cuda", proto="auto", ranks=4, size_bytes=8))
    ('oneshot', 'll')
    """
    road = transport_of(case, limits)
    if case.proto == "auto" and "net" in road:
        case = replace(case, proto="ll" if case.size_bytes <= choice_net.LL_UP_TO else "simple")
    by_host = road == "shm"
    table = _tables(road, case.ranks)[case.op]
    for largest, algo, proto in table:
        if case.algo == "auto" and case.size_bytes <= largest and case.proto in ("auto", proto):
            return algo, proto
    if case.algo == "auto":  # a protocol for which the table has no size: the algorithm of the size
        return next(algo for largest, algo, _ in table if case.size_bytes <= largest), case.proto
    if case.proto != "auto":
        return case.algo, case.proto
    if by_host:
        return case.algo, "ll" if case.size_bytes <= choice_shm.LL_UP_TO else "simple"
    return case.algo, next(
        proto for largest, proto in _PROTOCOL_OF_SIZE if case.size_bytes <= largest
    )


def _tables(road: str, ranks: int) -> dict[str, Choices]:
    """Which algorithm and protocol serve which size on that road, by collective."""
    if road == "shm":
        return choice_shm.BEST_OF_TWO if ranks == 2 else choice_shm.BEST
    if road == "net":
        return {
            **_BEST,
            **(choice_net.BEST_OF_FEW if ranks in choice_net.FEW_RANKS else choice_net.BEST),
        }
    return _BEST


def domains_of(case: Case, limits: Limits) -> net.Domains:
    """Which of the case's GPUs reach each other's memory, or share their host's."""
    return net.domains(
        case.transport, limits.hosts if len(limits.hosts) == case.ranks else (0,) * case.ranks
    )


def transport_of(case: Case, limits: Limits) -> str:
    """Where the case's connections have their memory, inside an island and between them. Raises
    ScheduleError for a road that GPUs do not have.

    >>> case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=8)
    >>> (
    ...     transport_of(case, Limits()),
    ...     transport_of(case, Limits(hosts=(0, 0, 1, 1))),
    ...     transport_of(replace(case, transport="net"), Limits()),
    ... )
    ('p2p', 'p2p+net', 'net')
    """
    if case.transport not in ("auto", *TRANSPORTS):
        raise ScheduleError(
            f"GPUs pass data by {', '.join(TRANSPORTS)} or ce, not by {case.transport}",
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
        domains_of(case, limits),
        "shm" if case.transport == "shm" or not limits.has_peers else "p2p",
    )


def lay_out_gpu(case: Case, schedule: Schedule, proto: str, limits: Limits) -> tuple[Case, Plan]:
    """The case with nothing left to decide, and its plan. Raises ScheduleError if it cannot be
    done.
    """
    flagged = proto != "simple"
    p2p: P2p = "pull" if case.p2p == "pull" else "push"
    if flagged:
        refuse_in_place(case, proto)
    road, domains = transport_of(case, limits), domains_of(case, limits)
    if road != "p2p" and (proto == "ll128" or case.direct == "on"):
        raise ScheduleError(
            (
                "ll128 needs lines of 128 bytes that arrive whole, which PCIe does not promise"
                if proto == "ll128"
                else (
                    f"{'by messages' if domains else 'through host memory'} nothing reaches a"
                    " peer's buffers in place"
                )
            ),
            (
                "use --transport p2p"
                if not domains
                else "use --proto simple or ll"
                if proto == "ll128"
                else "leave --direct out"
            ),
        )
    if domains and p2p == "pull":
        raise ScheduleError(
            "a message of MPI is pushed by its sender: nothing is pulled", "use --p2p push"
        )
    for knob in unheeded(case, proto=proto):
        raise ScheduleError(
            f"{knob.flag} has no effect with {proto}",
            f"use --proto {' or '.join(knob.protocols)}, or leave {knob.flag} out",
        )
    _refuse_many_ends(schedule)
    pipelined = is_pipelined(schedule, case.in_place)
    direct = not flagged and case.direct != "off" and road == "p2p"
    if case.direct == "auto" and (case.buffsize or pipelined):
        direct = False
    facts = PROTOCOLS.load(proto)
    ready = made_direct(schedule, p2p, case.in_place) if direct else schedule
    knobs = knobs_of(
        case,
        ready,
        proto,
        road,
        ctas=limits.ctas,
        memory_bytes=limits.memory_bytes,
        has_clusters=limits.has_clusters,
    )
    widest = max(1, widest_message(ready))
    slot_bytes = 0
    if case.buffsize:
        if not widest_message(ready):
            raise ScheduleError(
                "every message goes straight to its place: there is no buffer to size",
                "use --direct off",
            )
        slot_bytes = widest * (
            facts.payload_bytes(case.buffsize // knobs.slots // widest) // 16 * 16
        )
        if not slot_bytes:
            raise ScheduleError(
                f"a buffer of {format_size(case.buffsize)} has no room for {knobs.slots} slots",
                "use a larger --buffsize",
            )
        chunk = case.chunk or slot_bytes // widest * knobs.slices
        knobs = replace(knobs, chunk=min(chunk, slot_bytes // widest) if flagged else chunk)
    tracks = max(len(program) for program in schedule.programs)
    if knobs.channels * tracks > limits.ctas:
        raise ScheduleError(
            f"{knobs.channels} channels of {tracks} tracks are {knobs.channels * tracks} CTAs;"
            f" {limits.ctas} can be resident",
            f"use at most {limits.ctas // tracks} channels",
        )
    longest = max(
        sum(len(steps) for steps in track.rounds)
        for program in schedule.programs
        for track in program
    )
    specialized = flagged and (
        case.specialize == "on" or (case.specialize == "auto" and longest <= MAX_PROGRAM_STEPS)
    )
    kernel = Kernel(
        proto=proto,
        threads=knobs.threads,
        unroll=knobs.unroll,
        cluster=knobs.cluster,
        reload=case.reload != "off",
        specialized=specialized,
    )
    plan = lay_out(
        case.problem(),
        schedule,
        direct=direct,
        p2p=p2p,
        channels=knobs.channels,
        slots=knobs.slots,
        chunk_bytes=knobs.chunk,
        slot_bytes=slot_bytes,
        slices=knobs.slices,
        kernel=kernel,
        transport=road,
        domains=domains,
    )
    needed = memory_bytes(plan)
    if needed > limits.memory_bytes:
        raise ScheduleError(
            f"FIFOs, flags and scratch of {-(-needed >> 20)}M a GPU, {limits.memory_bytes >> 20}M"
            " are allowed",
            "use fewer --channels, a smaller --chunk or --buffsize, or more --max-memory",
        )
    _refuse_too_large(plan, schedule)
    done = replace(
        case,
        proto=proto,
        algo=schedule.name,
        transport=road,
        direct="on" if direct and direct_count(plan.schedule) else "off",
        p2p=p2p,
        channels=plan.channels,
        threads=knobs.threads,
        slots=plan.slots,
        chunk=plan.chunk_bytes,
        slices=plan.slices,
        unroll=knobs.unroll,
        cluster=knobs.cluster,
        buffsize=plan.slots * slot_wire_bytes(plan),
        reload="auto" if proto != "ll128" else "on" if kernel.reload else "off",
        specialize="on" if specialized else "off",
    )
    return done, plan


def refuse_in_place(case: Case, proto: str) -> None:
    """Raise ScheduleError if a case wants messages of a protocol with flags to go past the FIFO."""
    if case.p2p == "pull" or case.direct == "on":
        raise ScheduleError(
            f"{proto} carries flags in its FIFO, in the receiver's memory: it is neither direct nor"
            " pulled",
            "use --proto simple",
        )


def slot_wire_bytes(plan: Plan) -> int:
    """Bytes of a slot as it lies in memory: each chunk of a message begins where the protocol
    can.
    """
    return plan.widest * int(PROTOCOLS.load(plan.proto).wire_bytes(plan.piece_bytes))


def memory_bytes(plan: Plan) -> int:
    """FIFOs, flags and scratch memory of the GPU that has most of them, those in host memory
    included.
    """
    fifo = -(-plan.slots * slot_wire_bytes(plan) // MEMORY_GRAIN_BYTES) * MEMORY_GRAIN_BYTES
    found = [0] * plan.n
    for connection in plan.connections:
        found[connection.src] += FLAG_BYTES
        found[connection.dst] += FLAG_BYTES
        if connection.fifo_offset >= 0:
            for owner in (
                (connection.src, connection.dst)
                if plan.is_remote(connection.src, connection.dst)
                else (connection.dst if plan.p2p == "push" else connection.src,)
            ):
                found[owner] += fifo
    return max(found) + plan.tmp_bytes


def _refuse_too_large(plan: Plan, schedule: Schedule) -> None:
    """Kernels count the bytes of a chunk, and of what channels are apart in FIFOs and in scratch
    memory, in 32 bits. Raises ScheduleError.
    """
    fifos = (
        peers_of(plan.schedule) * (2 if plan.domains else 1) if widest_message(plan.schedule) else 0
    )
    apart = max(
        fifos * (plan.slots * slot_wire_bytes(plan) + 8 * MEMORY_GRAIN_BYTES),
        schedule.chunks["tmp"] * plan.chunk_bytes,
    )
    if plan.chunk_bytes > MAX_CHUNK_BYTES or apart >= 1 << 32:
        raise ScheduleError(
            f"chunks of {format_size(plan.chunk_bytes)} and {plan.slots} slots",
            f"kernels take chunks up to {format_size(MAX_CHUNK_BYTES)}, and 4G a channel",
        )


def _refuse_many_ends(schedule: Schedule) -> None:
    """Raise ScheduleError if a rank has more connections than a launch has room for: asked first,
    as a proof of so many takes long.
    """
    ends = max(sum(map(len, edges_of(program))) for program in schedule.programs)
    if ends > MAX_ENDS:
        raise ScheduleError(
            f"a rank has {ends} ends of connections: a launch has room for {MAX_ENDS}",
            "use fewer ranks, or an algorithm with fewer peers where there is one, such as ring",
        )
