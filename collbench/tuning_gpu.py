"""What "auto" means on GPUs: algorithm, protocol and knobs by size. One table, each number with the sweep that justifies it.

The sweeps were made on 4 x H200 (NVSwitch), one process a GPU, float32 sum, in CUDA graphs.
"""

from dataclasses import dataclass, replace

from collbench import tuning_net, tuning_shm
from collbench.case import Case, P2p
from collbench.collectives import collective
from collbench.errors import ScheduleError
from collbench.passes import direct_count, widest_message
from collbench.plan import Kernel, Plan, lay_out, made_direct, proved
from collbench.protocols import FAMILY as PROTOCOLS
from collbench.schedule import Edge, Program, Schedule
from collbench.transports import net, p2p
from collbench.units import format_size

_K, _M = 1 << 10, 1 << 20
_ANY = 1 << 62
# (largest S, algorithm, protocol). Allreduce, us: 64 KiB one-shot ll 4.9, ll128 5.0; 128 KiB one-shot ll128 5.7, two-shot ll 6.4; 256 KiB
# one-shot ll128 7.0, two-shot ll 7.4; 512 KiB two-shot ll128 9.1, ring ll128 9.9; 1 MiB ring ll128 10.9, two-shot 11.2; 8 MiB ring
# ll128 41.9, two-shot simple 45.6; 16 MiB ring simple 77.7, ring ll128 82.0; 1 GiB ring simple 4378. Ring of 8 MiB: allgather ll128 22.8, direct
# simple 25.0; reducescatter ll128 23.3, simple 30.7. Broadcast of 4 KiB direct 1.79, chain 1.95, of 32 KiB 2.31, 2.09: and alone
# one hop is less than three.
_BEST: dict[str, tuple[tuple[int, str, str], ...]] = {
    "allreduce": (
        (64 * _K, "oneshot", "ll"), (256 * _K, "oneshot", "ll128"), (512 * _K, "twoshot", "ll128"), (8 * _M, "ring", "ll128"), (_ANY, "ring", "simple"),
    ),
    "allgather": (
        (256 * _K, "direct", "ll"), (512 * _K, "direct", "ll128"), (8 * _M, "ring", "ll128"), (_ANY, "ring", "simple"),
    ),
    "reducescatter": ((256 * _K, "direct", "ll"), (512 * _K, "direct", "ll128"), (8 * _M, "ring", "ll128"), (_ANY, "ring", "simple")),
    "broadcast": ((8 * _K, "direct", "ll"), (128 * _K, "chain", "ll"), (16 * _M, "chain", "ll128"), (_ANY, "chain", "simple")),
    "reduce": ((64 * _K, "chain", "ll"), (16 * _M, "chain", "ll128"), (_ANY, "chain", "simple")),
    "alltoall": ((256 * _K, "direct", "ll"), (_M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "gather": ((256 * _K, "direct", "ll"), (16 * _M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "scatter": ((256 * _K, "direct", "ll"), (4 * _M, "direct", "ll128"), (_ANY, "direct", "simple")),
    "sendrecv": ((128 * _K, "direct", "ll"), (2 * _M, "direct", "ll128"), (_ANY, "direct", "simple")),
}
# By bytes of a chunk over all channels: (largest, channels). LL with one peer: ring allreduce of 256 KiB 8.64 us with 32 channels, 10.1 with 24, of
# 1 MiB 13.9 with 32 and 16.8 with 48. One-shot allreduce of 64 KiB, where every CTA polls three peers, 4.43 with 8 and 4.57 with 16.
_LL_CHANNELS = ((512, 1), (2 * _K, 4), (4 * _K, 8), (64 * _K, 16), (_ANY, 32))
_LL_CHANNELS_ONE_PEER = ((512, 1), (2 * _K, 4), (4 * _K, 8), (8 * _K, 16), (_ANY, 32))
_LL_CHANNELS_REDUCING = ((512, 1), (2 * _K, 4), (4 * _K, 8), (32 * _K, 16), (64 * _K, 8), (_ANY, 32))
# Threads of LL with one peer: ring allreduce of 1 MiB 13.9 us with 256 threads and two lines each, 15.5 with 512; of 1 GiB 145 and 182 GB/s.
_LL_WIDE_FROM = 16 * _M
_LL128_CHANNELS = ((16 * _K, 8), (64 * _K, 16), (512 * _K, 24), (_M, 48), (_ANY, 64))
# Allreduce of 1 MiB 10.6 us, 10.9 with 24; of 8 MiB 41.9, 42.6 with 64.
_LL128_CHANNELS_RING = ((16 * _K, 8), (64 * _K, 16), (256 * _K, 40), (512 * _K, 24), (_ANY, 48))
# Broadcast of 2 MiB 8.7 us, 9.0 with 64 channels; of 8 MiB 27.6 (simple: 29.8), of 16 MiB 52.7, 53.1 with 32 (simple: 52.9).
_LL128_CHANNELS_CHAIN = (*_LL128_CHANNELS[:-1], (8 * _M, 32), (_ANY, 64))
# By S. Ring in clusters: allreduce of 16 MiB 77.7 us with 32 channels, 78.7 with 64, 80.1 with 128; of 1 GiB 4378, 4389, 4393; allgather of 16 MiB
# 41.7, 42.9, 43.0; reducescatter, all of whose messages go through FIFOs, 47.7, 44.9, 45.9. Alltoall, which needs none, of 16 MiB 43.9 with 64, 41.8 with
# 128. Without clusters 128 channels are 3 to 5 % better than 32.
_SIMPLE_CHANNELS = ((2 * _M, 32), (8 * _M, 64), (_ANY, 32))
_SIMPLE_CHANNELS_FIFO_ONLY = ((2 * _M, 32), (_ANY, 64))
_SIMPLE_CHANNELS_NO_FIFO = ((2 * _M, 64), (_ANY, 128))
_SIMPLE_CHANNELS_UNCLUSTERED = ((2 * _M, 32), (32 * _M, 64), (_ANY, 128))
_PROTOCOL_OF_SIZE = ((256 * _K, "ll"), (8 * _M, "ll128"), (_ANY, "simple"))  # where an algorithm is given and no protocol
# From where on messages are cut in two, so that a rank passes the first half on while the second arrives: ring allgather of 16 MiB 43.6 us, 49.8
# with one slice; ring allreduce 80.2, 84; at 4 MiB one slice is better.
_SLICED_FROM = 8 * _M
# Simple, where loops follow each other through the ranks (chain, tree): bytes of a chunk by S. Broadcast with 32 channels and 8 slots: 32 MiB by 64K
# 100.6 us, 256K 103.6; 128 MiB by 64K 383, 128K 380, 256K 385; 1 GiB by 64K 2978, 256K 2949. Straight to its place it is slower: 256 MiB 775, through
# FIFOs 754.
_PIPELINED_CHUNK_BYTES = ((64 * _M, 64 * _K), (128 * _M, 128 * _K), (_ANY, 256 * _K))
_PIPELINED_CHANNELS = ((2 * _M, 32), (8 * _M, 64), (_ANY, 32))
# Sendrecv of 512 MiB with 24 channels 1555 us by 1M, 1592 by 512K; alltoall, which serves several peers, of 1 GiB 2414 by 256K, 2490 by 1M.
_FEW_CHANNELS = 64
# A link serves the GPCs of a GPU in turn, whatever the number of CTAs in each. As the GPU places 24 CTAs, some GPCs have one and some four: each to write
# its share of 1 GiB to a peer, they end between 1950 and 3063 us, 348 GB/s; in clusters of 4, which a GPC holds whole, between 2853 and 2918, 366 GB/s.
# So the clusters should be as many as the GPCs, a multiple, or fewer. They cost a launch 0.05 to 0.1 us: at 1 MiB they gain nothing.
_GPCS, _CLUSTERS, _CLUSTERED_FROM, _CLUSTERED_CTAS = 8, (4, 8), 2 * _M, 64
MAX_PROGRAM_STEPS = 24  # of a track that is compiled in: more only make the kernel's code large
MAX_CHANNELS = 1024
MAX_CLUSTER = 8  # CTAs that every GPU with clusters can place together
MAX_ENDS = 70  # of connections that a rank has: what a launch's arguments, 4096 bytes, have room for
MAX_CHUNK_BYTES = 1 << 30
FLAG_BYTES = 128  # a word that is polled has a cache line of its own
MEMORY_GRAIN_BYTES = 512  # FIFOs and scratch memory begin at multiples of this
# Peer access or CUDA IPC, which rows do not tell apart; host memory that both ends map; messages of MPI. For ce see tuning_ce.py.
TRANSPORTS = ("p2p", "shm", "net")
DEFAULT_MEMORY = 256 << 20  # of FIFOs, flags and scratch memory, a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a GPU has for one launch: CTAs that can be resident, bytes that FIFOs may take, clusters, whether all reach their peers' memory.

    orders: of ranks, that use the wires best. hosts: of the ranks, where there are several (world.host_numbers).
    """

    ctas: int = 132
    has_clusters: bool = True
    has_peers: bool = True
    memory_bytes: int = DEFAULT_MEMORY
    orders: tuple[tuple[int, ...], ...] = ()
    hosts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knobs:
    """What is left to decide once the schedule and the protocol are known."""

    channels: int
    threads: int
    slots: int
    chunk: int
    slices: int
    unroll: int
    cluster: int


def best_of(case: Case, limits: Limits = Limits()) -> tuple[str, str]:
    """Algorithm and protocol of a case that leaves one of them open. Raises ScheduleError.

    >>> best_of(Case(op="allreduce", backend="cuda", proto="auto", ranks=4, size_bytes=8))
    ('oneshot', 'll')
    """
    road = road_of(case, limits)
    if case.proto == "auto" and "net" in road:
        case = replace(case, proto="ll" if case.size_bytes <= tuning_net.LL_UP_TO else "simple")
    by_host = road == "shm"
    table = (tuning_shm.BEST if by_host else _BEST)[case.op]
    for largest, algo, proto in table:
        if case.algo == "auto" and case.size_bytes <= largest and case.proto in ("auto", proto):
            return algo, proto
    if case.algo == "auto":  # a protocol for which the table has no size: the algorithm of the size
        return next(algo for largest, algo, _ in table if case.size_bytes <= largest), case.proto
    if case.proto != "auto":
        return case.algo, case.proto
    if by_host:
        return case.algo, "ll" if case.size_bytes <= tuning_shm.LL_UP_TO else "simple"
    return case.algo, next(proto for largest, proto in _PROTOCOL_OF_SIZE if case.size_bytes <= largest)


def islands_of(case: Case, limits: Limits) -> net.Islands:
    """Which of the case's GPUs reach each other's memory, or share their host's."""
    return net.islands(case.transport, limits.hosts if len(limits.hosts) == case.ranks else (0,) * case.ranks)


def road_of(case: Case, limits: Limits) -> str:
    """Where the case's connections have their memory, inside an island and between them. Raises ScheduleError for a road that GPUs do not have.

    >>> case = Case(op="allreduce", backend="cuda", ranks=4, size_bytes=8)
    >>> road_of(case, Limits()), road_of(case, Limits(hosts=(0, 0, 1, 1))), road_of(replace(case, transport="net"), Limits())
    ('p2p', 'p2p+net', 'net')
    """
    if case.transport not in ("auto", *TRANSPORTS):
        raise ScheduleError(f"GPUs pass data by {', '.join(TRANSPORTS)} or ce, not by {case.transport}", "leave --transport out")
    if case.transport in ("p2p", "shm") and (why := p2p.why_not(limits.hosts)):
        raise ScheduleError(why, "use --transport net, or auto")
    if case.transport == "p2p" and not limits.has_peers:
        raise ScheduleError("not every GPU can reach the memory of every other", "use --transport shm, or see `collbench topo --p2p`")
    return net.label(islands_of(case, limits), "shm" if case.transport == "shm" or not limits.has_peers else "p2p")


def lay_out_gpu(case: Case, schedule: Schedule, proto: str, limits: Limits) -> tuple[Case, Plan]:
    """The case with nothing left to decide, and its plan. Raises ScheduleError if it cannot be done."""
    flagged = proto != "simple"
    p2p: P2p = "pull" if case.p2p == "pull" else "push"
    if flagged:
        refuse_in_place(case, proto)
    road, islands = road_of(case, limits), islands_of(case, limits)
    if road != "p2p" and (proto == "ll128" or case.direct == "on"):
        raise ScheduleError(
            "ll128 needs lines of 128 bytes that arrive whole, which PCIe does not promise" if proto == "ll128" else
            f"{'by messages' if islands else 'through host memory'} nothing reaches a peer's buffers in place",
            "use --transport p2p" if not islands else "use --proto simple or ll" if proto == "ll128" else "leave --direct out",
        )
    if islands and p2p == "pull":
        raise ScheduleError("a message of MPI is pushed by its sender: nothing is pulled", "use --p2p push")
    if case.unroll and proto == "ll128":
        raise ScheduleError("ll128 has always four vectors of a line on their way: nothing to unroll", "use --proto simple or ll")
    if case.reload != "auto" and proto != "ll128":
        raise ScheduleError(f"{proto} reads no line again", "use --proto ll128")
    pipelined = is_pipelined(schedule, case.in_place)
    direct = not flagged and case.direct != "off" and road == "p2p"
    if case.direct == "auto" and (case.buffsize or pipelined):
        direct = False
    facts = PROTOCOLS.load(proto)
    ready = made_direct(schedule, p2p, case.in_place) if direct else schedule
    knobs = _knobs(case, ready, proto, limits, pipelined=pipelined)
    widest = max(1, widest_message(ready))
    slot_bytes = 0
    if case.buffsize:
        if not widest_message(ready):
            raise ScheduleError("every message goes straight to its place: there is no buffer to size", "use --direct off")
        slot_bytes = widest * (facts.payload_bytes(case.buffsize // knobs.slots // widest) // 16 * 16)
        if not slot_bytes:
            raise ScheduleError(f"a buffer of {format_size(case.buffsize)} has no room for {knobs.slots} slots", "use a larger --buffsize")
        chunk = case.chunk or slot_bytes // widest * knobs.slices
        knobs = replace(knobs, chunk=min(chunk, slot_bytes // widest) if flagged else chunk)
    tracks = max(len(program) for program in schedule.programs)
    if knobs.channels * tracks > limits.ctas:
        raise ScheduleError(
            f"{knobs.channels} channels of {tracks} tracks are {knobs.channels * tracks} CTAs; {limits.ctas} can be resident",
            f"use at most {limits.ctas // tracks} channels",
        )
    longest = max(sum(len(steps) for steps in track.rounds) for program in schedule.programs for track in program)
    specialized = flagged and (case.specialize == "on" or (case.specialize == "auto" and longest <= MAX_PROGRAM_STEPS))
    kernel = Kernel(proto=proto, threads=knobs.threads, unroll=knobs.unroll, cluster=knobs.cluster, reload=case.reload != "off", specialized=specialized)
    plan = lay_out(
        case.problem(), schedule, direct=direct, p2p=p2p, channels=knobs.channels, slots=knobs.slots, chunk_bytes=knobs.chunk, slot_bytes=slot_bytes,
        slices=knobs.slices, kernel=kernel, transport=road, islands=islands,
    )
    needed = memory_bytes(plan)
    if needed > limits.memory_bytes:
        raise ScheduleError(
            f"FIFOs, flags and scratch of {-(-needed >> 20)}M a GPU, {limits.memory_bytes >> 20}M are allowed",
            "use fewer --channels, a smaller --chunk or --buffsize, or more --max-memory",
        )
    _refuse_too_large(plan, schedule)
    done = replace(
        case, proto=proto, algo=schedule.name, transport=road, direct="on" if direct and direct_count(plan.schedule) else "off", p2p=p2p,
        channels=plan.channels, threads=knobs.threads, slots=plan.slots, chunk=plan.chunk_bytes, slices=plan.slices, unroll=knobs.unroll,
        cluster=knobs.cluster, buffsize=plan.slots * slot_wire_bytes(plan),
        reload="auto" if proto != "ll128" else "on" if kernel.reload else "off", specialize="on" if specialized else "off",
    )
    return done, plan


def refuse_in_place(case: Case, proto: str) -> None:
    """Raise ScheduleError if a case wants messages of a protocol with flags to go past the FIFO."""
    if case.p2p == "pull" or case.direct == "on":
        raise ScheduleError(f"{proto} carries flags in its FIFO, in the receiver's memory: it is neither direct nor pulled", "use --proto simple")


def slot_wire_bytes(plan: Plan) -> int:
    """Bytes of a slot as it lies in memory: each chunk of a message begins where the protocol can."""
    return plan.widest * int(PROTOCOLS.load(plan.proto).wire_bytes(plan.piece_bytes))


def memory_bytes(plan: Plan) -> int:
    """FIFOs, flags and scratch memory of the GPU that has most of them, those in host memory included."""
    fifo = -(-plan.slots * slot_wire_bytes(plan) // MEMORY_GRAIN_BYTES) * MEMORY_GRAIN_BYTES
    found = [0] * plan.n
    for connection in plan.connections:
        found[connection.src] += FLAG_BYTES
        found[connection.dst] += FLAG_BYTES
        if connection.fifo_offset >= 0:
            for owner in (connection.src, connection.dst) if plan.is_apart(connection.src, connection.dst) else (
                connection.dst if plan.p2p == "push" else connection.src,
            ):
                found[owner] += fifo
    return max(found) + plan.tmp_bytes


def _refuse_too_large(plan: Plan, schedule: Schedule) -> None:
    """Kernels count the bytes of a chunk, and of what channels are apart in FIFOs and in scratch memory, in 32 bits. Raises ScheduleError."""
    fifos = _peers(plan.schedule) * (2 if plan.islands else 1) if widest_message(plan.schedule) else 0
    apart = max(fifos * (plan.slots * slot_wire_bytes(plan) + 8 * MEMORY_GRAIN_BYTES), schedule.chunks["tmp"] * plan.chunk_bytes)
    if plan.chunk_bytes > MAX_CHUNK_BYTES or apart >= 1 << 32:
        raise ScheduleError(
            f"chunks of {format_size(plan.chunk_bytes)} and {plan.slots} slots", f"kernels take chunks up to {format_size(MAX_CHUNK_BYTES)}, and 4G a channel"
        )
    ends = max(sum(map(len, _edges(program))) for program in plan.schedule.programs)
    if ends > MAX_ENDS:
        raise ScheduleError(f"a rank has {ends} ends of connections: a launch has room for {MAX_ENDS}", "use an algorithm with fewer peers, such as ring")


def _knobs(case: Case, schedule: Schedule, proto: str, limits: Limits, *, pipelined: bool) -> _Knobs:
    """The table: what is asked for, else by protocol and bytes of a chunk over all channels."""
    parts = schedule.chunks["in"] if collective(case.op).is_interleaved else 1
    share = -(-case.problem().block_bytes // parts)
    tracks = max(len(program) for program in schedule.programs)
    most = max(1, limits.ctas // tracks)
    slots = case.slots or (4 if proto == "simple" and not pipelined else 8)
    hops, is_rooted = _hops(schedule, case.in_place), collective(case.op).is_rooted
    by_net: tuple[int, ...] = ()  # channels, bytes of a message, slices
    if islands_of(case, limits):
        by_net = tuning_net.simple_knobs(case.size_bytes, share, is_rooted=is_rooted, is_pipelined=pipelined, hops=hops)
    is_cut = proto == "simple" and case.size_bytes >= _SLICED_FROM and not pipelined and hops > 1
    slices = case.slices or (by_net[2] if by_net and proto == "simple" else 2 if is_cut else 1)
    if proto != "simple" and slices > 1:
        raise ScheduleError(f"{proto} sends a message as one slice", "leave --slices out")
    peers, widest = _peers(schedule), widest_message(schedule)
    conns = peers if widest else 0
    by_host: tuple[int, ...] = ()  # channels, bytes of a chunk
    if proto == "simple" and road_of(case, limits) == "shm":
        by_host = tuning_shm.simple_knobs(case.size_bytes, pipelined=pipelined, peers=peers, hops=hops)
    if by_net:
        wanted = min(by_net[0], max(1, share // (4 * _K)))
    elif proto == "ll":
        wanted = _up_to(share, _LL_CHANNELS_ONE_PEER if conns == 1 else _LL_CHANNELS_REDUCING if collective(case.op).is_reduction else _LL_CHANNELS)
    elif proto == "ll128":
        table = _LL128_CHANNELS if conns > 1 else _LL128_CHANNELS_CHAIN if pipelined else _LL128_CHANNELS_RING
        wanted = min(_up_to(share, table), max(1, share // 1920))
    else:
        by_size = by_host[0] if by_host else _up_to(case.size_bytes, _simple_channels(case, schedule, limits, pipelined=pipelined))
        wanted = min(by_size, max(1, share // (4 * _K)))
    channels = case.channels or min(most, wanted)
    if channels > MAX_CHANNELS:
        raise ScheduleError(f"{channels} channels: at most {MAX_CHANNELS}")
    own = -(-share // channels)  # bytes of a chunk on one channel, if one loop does it all
    largest = 32 * _K if proto == "ll" else 60 * _K if proto == "ll128" else 256 * _K
    if by_host:
        largest = by_host[1] // slices
    elif proto == "simple" and by_net:
        largest = by_net[1]
    elif pipelined and proto == "simple":
        largest = _up_to(case.size_bytes, _PIPELINED_CHUNK_BYTES)
    elif proto == "simple" and channels < _FEW_CHANNELS and (widest or peers == 1):
        largest = _M // slices
    factor = (2 if proto == "ll" else 1) * (2 if by_net else 1)  # lines that are half flags; FIFOs at both ends
    roomy = limits.memory_bytes * 7 // 8 // max(1, channels * (conns * slots * widest * factor + schedule.chunks["tmp"] * slices)) * slices
    if proto == "ll128":
        roomy = PROTOCOLS.load(proto).payload_bytes(roomy)
    chunk = case.chunk or max(16, min(-(-own // 64) * 64, largest * slices, roomy // 64 * 64))
    lines = -(-min(own, chunk) // 8)
    most_threads = 512 if conns > 1 or case.size_bytes >= _LL_WIDE_FROM else 256
    threads = case.threads or {"ll": max(64, min(most_threads, -(-lines // 32) * 32)), "ll128": 384 if share >= 512 * _K else 256, "simple": 512}[proto]
    if threads % 32 or not 64 <= threads <= 1024:
        raise ScheduleError(f"{threads} threads of a CTA", "use a multiple of 32 from 64 to 1024")
    unroll = case.unroll or (8 if proto == "simple" else 1 if proto == "ll128" else 2 if min(own, chunk) > threads * 16 else 1)
    if unroll > 16:
        raise ScheduleError(f"{unroll} accesses in flight: at most 16")
    cluster = case.cluster or (_cluster(channels, tracks) if _is_clustered(case, proto, limits) else 1)
    if cluster > 1 and not limits.has_clusters:
        raise ScheduleError(f"clusters of {cluster} CTAs: GPUs before sm_90 have none", "use --cluster 1")
    if cluster > MAX_CLUSTER or channels % cluster:
        raise ScheduleError(f"clusters of {cluster} CTAs for {channels} channels", f"use a divisor of the channels, at most {MAX_CLUSTER}")
    return _Knobs(channels=channels, threads=threads, slots=slots, chunk=chunk, slices=slices, unroll=unroll, cluster=cluster)


def _is_clustered(case: Case, proto: str, limits: Limits) -> bool:
    """Whether CTAs are to be placed in clusters, if their number allows it."""
    return limits.has_clusters and case.cluster != 1 and not islands_of(case, limits) and case.size_bytes >= _CLUSTERED_FROM


def _cluster(channels: int, tracks: int) -> int:
    """The smallest cluster with which every GPC that has any CTA has as many as the others, or 1.

    >>> [_cluster(channels, 1) for channels in (3, 24, 32, 48, 64, 128)]
    [1, 4, 4, 8, 4, 1]
    """
    for size in _CLUSTERS:
        clusters, rest = divmod(channels * tracks, size)
        if channels % size == 0 and rest == 0 and channels * tracks <= _CLUSTERED_CTAS and (clusters <= _GPCS or clusters % _GPCS == 0):
            return size
    return 1


def _simple_channels(case: Case, schedule: Schedule, limits: Limits, *, pipelined: bool) -> tuple[tuple[int, int], ...]:
    """Which table says how many channels protocol simple uses."""
    if not widest_message(schedule):
        return _SIMPLE_CHANNELS_NO_FIFO
    if not _is_clustered(case, "simple", limits):
        return _SIMPLE_CHANNELS_UNCLUSTERED
    if pipelined:
        return _PIPELINED_CHANNELS
    return _SIMPLE_CHANNELS if direct_count(schedule) else _SIMPLE_CHANNELS_FIFO_ONLY


def _up_to(size: int, table: tuple[tuple[int, int], ...]) -> int:
    """The entry for a size."""
    return next(value for largest, value in table if size <= largest)


def _hops(schedule: Schedule, in_place: bool) -> int:
    """Messages on the longest chain of one loop."""
    return proved(schedule, 8, 1, 1, in_place).hops


def is_pipelined(schedule: Schedule, in_place: bool) -> bool:
    """Whether a loop passes through more ranks than any of them has rounds for: then its bandwidth comes from loops that follow each other."""
    return _hops(schedule, in_place) > max(len(track.rounds) for program in schedule.programs for track in program)


def _peers(schedule: Schedule) -> int:
    """The most connections of one channel into or out of one rank."""
    return max(len(ends) for program in schedule.programs for ends in _edges(program))


def _edges(program: Program) -> tuple[set[Edge], set[Edge]]:
    """The connections into and out of a rank."""
    steps = [step for track in program for steps in track.rounds for step in steps]
    return {edge for step in steps for edge in step.recv}, {edge for step in steps for edge in step.send}

