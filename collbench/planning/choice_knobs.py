"""How "auto" lays a case out on GPUs: channels, chunks, slices, threads. One table, each number
with the sweep that justifies it.

The sweeps were made on 4 x H200 (NVSwitch), one process a GPU, float32 sum, in CUDA graphs.
choice_shm.py and choice_net.py have what differs through host memory and over messages; which
algorithm and protocol serve a size is for tuning_gpu.py to say.
"""

from dataclasses import dataclass

from collbench.planning import choice_net, choice_shm
from collbench.planning.plan import proved
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.ir import Edge, Program, Schedule
from collbench.schedules.passes import direct_count, widest_message
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError

_K, _M = 1 << 10, 1 << 20
_ANY = 1 << 62
# By bytes of a chunk over all channels: (largest, channels). LL with one peer: ring allreduce of
# 256 KiB 8.64 us with 32 channels, 10.1 with 24, of 1 MiB 13.9 with 32 and 16.8 with 48. One-shot
# allreduce of 64 KiB, where every CTA polls three peers, 4.43 with 8 and 4.57 with 16.
_LL_CHANNELS = ((512, 1), (2 * _K, 4), (4 * _K, 8), (64 * _K, 16), (_ANY, 32))
_LL_CHANNELS_ONE_PEER = ((512, 1), (2 * _K, 4), (4 * _K, 8), (8 * _K, 16), (_ANY, 32))
_LL_CHANNELS_REDUCING = (
    (512, 1),
    (2 * _K, 4),
    (4 * _K, 8),
    (32 * _K, 16),
    (64 * _K, 8),
    (_ANY, 32),
)
# Threads of LL with one peer: ring allreduce of 1 MiB 13.9 us with 256 threads and two lines each,
# 15.5 with 512; of 1 GiB 145 and 182 GB/s.
_LL_WIDE_FROM = 16 * _M
_LL128_CHANNELS = ((16 * _K, 8), (64 * _K, 16), (512 * _K, 24), (_M, 48), (_ANY, 64))
# Allreduce of 1 MiB 10.6 us, 10.9 with 24; of 8 MiB 41.9, 42.6 with 64.
_LL128_CHANNELS_RING = ((16 * _K, 8), (64 * _K, 16), (256 * _K, 40), (512 * _K, 24), (_ANY, 48))
# Broadcast of 2 MiB 8.7 us, 9.0 with 64 channels; of 8 MiB 27.6 (simple: 29.8), of 16 MiB 52.7,
# 53.1 with 32 (simple: 52.9).
_LL128_CHANNELS_CHAIN = (*_LL128_CHANNELS[:-1], (8 * _M, 32), (_ANY, 64))
# By S. Ring in clusters: allreduce of 16 MiB 77.7 us with 32 channels, 78.7 with 64, 80.1 with 128;
# of 1 GiB 4378, 4389, 4393; allgather of 16 MiB 41.7, 42.9, 43.0; reducescatter, all of whose
# messages go through FIFOs, 47.7, 44.9, 45.9. Alltoall, which needs none, of 16 MiB 43.9 with 64,
# 41.8 with 128. Without clusters 128 channels are 3 to 5 % better than 32.
_SIMPLE_CHANNELS = ((2 * _M, 32), (8 * _M, 64), (_ANY, 32))
_SIMPLE_CHANNELS_FIFO_ONLY = ((2 * _M, 32), (_ANY, 64))
_SIMPLE_CHANNELS_NO_FIFO = ((2 * _M, 64), (_ANY, 128))
_SIMPLE_CHANNELS_UNCLUSTERED = ((2 * _M, 32), (32 * _M, 64), (_ANY, 128))
# From where on messages are cut in two, so that a rank passes the first half on while the second
# arrives: ring allgather of 16 MiB 43.6 us, 49.8 with one slice; ring allreduce 80.2, 84; at 4 MiB
# one slice is better.
_SLICED_FROM = 8 * _M
# Simple, where loops follow each other through the ranks (chain, tree): bytes of a chunk by S.
# Broadcast with 32 channels and 8 slots: 32 MiB by 64K 100.6 us, 256K 103.6; 128 MiB by 64K 383,
# 128K 380, 256K 385; 1 GiB by 64K 2978, 256K 2949. Straight to its place it is slower: 256 MiB 775,
# through FIFOs 754.
_PIPELINED_CHUNK_BYTES = ((64 * _M, 64 * _K), (128 * _M, 128 * _K), (_ANY, 256 * _K))
_PIPELINED_CHANNELS = ((2 * _M, 32), (8 * _M, 64), (_ANY, 32))
# Sendrecv of 512 MiB with 24 channels 1555 us by 1M, 1592 by 512K; alltoall, which serves several
# peers, of 1 GiB 2414 by 256K, 2490 by 1M.
_FEW_CHANNELS = 64
# A link serves the GPCs of a GPU in turn, whatever the number of CTAs in each. As the GPU places 24
# CTAs, some GPCs have one and some four: each to write its share of 1 GiB to a peer, they end
# between 1950 and 3063 us, 348 GB/s; in clusters of 4, which a GPC holds whole, between 2853 and
# 2918, 366 GB/s. So the clusters should be as many as the GPCs, a multiple, or fewer. They cost a
# launch 0.05 to 0.1 us: at 1 MiB they gain nothing.
_GPCS, _CLUSTERS, _CLUSTERED_FROM, _CLUSTERED_CTAS = 8, (4, 8), 2 * _M, 64
MAX_CHANNELS = 1024
MAX_CLUSTER = 8  # CTAs that every GPU with clusters can place together


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What is left to decide once the schedule and the protocol are known."""

    channels: int
    threads: int
    slots: int
    chunk: int
    slices: int
    unroll: int
    cluster: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the table asks of a case and its schedule.

    share: bytes of a chunk over all channels. peers: the most connections of one channel into or
    out of a rank. widest: chunks of the widest message that needs a FIFO; scratch: chunks;
    has_direct: messages that need no FIFO. hops: of a loop. is_clustered: CTAs may be. net:
    channels, bytes of a message and slices over messages of MPI; host: channels, bytes of a chunk
    and slices through host memory.
    """

    share: int
    tracks: int
    peers: int
    widest: int
    scratch: int
    has_direct: bool
    hops: int
    is_pipelined: bool
    is_clustered: bool
    net: tuple[int, int, int] | None
    host: tuple[int, int, int] | None

    @property
    def conns(self) -> int:
        """The most FIFOs of one channel at a rank, one way."""
        return self.peers if self.widest else 0


def _facts(case: Case, schedule: Schedule, proto: str, road: str, *, has_clusters: bool) -> _Facts:
    """What the table asks."""
    what = collective(case.op)
    share = -(-case.problem().block_bytes // (schedule.chunks["in"] if what.is_interleaved else 1))
    peers, hops, pipelined = (
        peers_of(schedule),
        _hops(schedule, case.in_place),
        is_pipelined(schedule, case.in_place),
    )
    tracks = max(len(program) for program in schedule.programs)
    net: tuple[int, int, int] | None = None
    host: tuple[int, int, int] | None = None
    if "net" in road:
        by_messages = peers if road == "net" else 0
        net = choice_net.simple_knobs(
            case.size_bytes,
            share,
            ranks=case.ranks,
            tracks=tracks,
            peers=by_messages,
            hops=hops,
            is_rooted=what.is_rooted,
            # chains were measured by simple: ll takes channels as elsewhere, and chunks of its own
            is_pipelined=pipelined and proto == "simple",
        )
    elif proto == "simple" and road == "shm":
        host = choice_shm.simple_knobs(
            case.size_bytes,
            is_rooted=what.is_rooted,
            is_pipelined=pipelined,
            tracks=tracks,
            peers=peers,
            hops=hops,
        )
    return _Facts(
        share=share,
        tracks=tracks,
        peers=peers,
        widest=widest_message(schedule),
        scratch=schedule.chunks["tmp"],
        has_direct=bool(direct_count(schedule)),
        hops=hops,
        is_pipelined=pipelined,
        net=net,
        host=host,
        is_clustered=has_clusters
        and case.cluster != 1
        and net is None
        and case.size_bytes >= _CLUSTERED_FROM,
    )


def knobs_of(
    case: Case,
    schedule: Schedule,
    proto: str,
    road: str,
    *,
    ctas: int,
    memory_bytes: int,
    has_clusters: bool,
) -> Knobs:
    """What is asked for, else what the table says, of a schedule whose messages are direct where
    they are going to be.

    road: see tuning_gpu.road_of; ctas: that can be resident; memory_bytes: for FIFOs and scratch
    memory. Raises ScheduleError.
    """
    facts = _facts(case, schedule, proto, road, has_clusters=has_clusters)
    slots, slices = (
        case.slots or (4 if proto == "simple" and not facts.is_pipelined else 8),
        case.slices or _slices(case, proto, facts),
    )
    if proto != "simple" and slices > 1:
        raise ScheduleError(f"{proto} sends a message as one slice", "leave --slices out")
    channels = case.channels or min(max(1, ctas // facts.tracks), _channels(case, proto, facts))
    if channels > MAX_CHANNELS:
        raise ScheduleError(f"{channels} channels: at most {MAX_CHANNELS}", "use fewer --channels")
    own = -(-facts.share // channels)  # bytes of a chunk on one channel, if one loop does it all
    roomy = _roomy_chunk(proto, facts, memory_bytes * 7 // 8 // channels, slots, slices)
    chunk = case.chunk or max(
        16,
        min(
            -(-own // 64) * 64,
            _largest_chunk(case, proto, facts, channels, slices),
            roomy // 64 * 64,
        ),
    )
    threads = case.threads or _threads(case, proto, facts, min(own, chunk))
    if threads % 32 or not 64 <= threads <= 1024:
        raise ScheduleError(f"{threads} threads of a CTA", "use a multiple of 32 from 64 to 1024")
    unroll = case.unroll or (
        8
        if proto == "simple"
        else 1
        if proto == "ll128"
        else 2
        if min(own, chunk) > threads * 16
        else 1
    )
    if unroll > 16:
        raise ScheduleError(f"{unroll} accesses in flight: at most 16", "use a smaller --unroll")
    cluster = case.cluster or (_cluster(channels, facts.tracks) if facts.is_clustered else 1)
    if cluster > 1 and not has_clusters:
        raise ScheduleError(
            f"clusters of {cluster} CTAs: GPUs before sm_90 have none", "use --cluster 1"
        )
    if cluster > MAX_CLUSTER or channels % cluster:
        raise ScheduleError(
            f"clusters of {cluster} CTAs for {channels} channels",
            f"use a divisor of the channels, at most {MAX_CLUSTER}",
        )
    return Knobs(
        channels=channels,
        threads=threads,
        slots=slots,
        chunk=chunk,
        slices=slices,
        unroll=unroll,
        cluster=cluster,
    )


def _slices(case: Case, proto: str, facts: _Facts) -> int:
    """Slices of a message."""
    if proto != "simple":
        return 1
    if by_road := facts.net or facts.host:
        return by_road[2]
    return 2 if case.size_bytes >= _SLICED_FROM and not facts.is_pipelined and facts.hops > 1 else 1


def _channels(case: Case, proto: str, facts: _Facts) -> int:
    """Channels, as far as they have something to do each."""
    if facts.net or proto == "simple":
        by_road = facts.net or facts.host
        by_size = by_road[0] if by_road else _up_to(case.size_bytes, _simple_channels(facts))
        return min(by_size, max(1, facts.share // (4 * _K)))
    if proto == "ll":
        table = (
            _LL_CHANNELS_ONE_PEER
            if facts.conns == 1
            else _LL_CHANNELS_REDUCING
            if collective(case.op).is_reduction
            else _LL_CHANNELS
        )
        return _up_to(facts.share, table)
    table = (
        _LL128_CHANNELS
        if facts.conns > 1
        else _LL128_CHANNELS_CHAIN
        if facts.is_pipelined
        else _LL128_CHANNELS_RING
    )
    return min(_up_to(facts.share, table), max(1, facts.share // 1920))


def _simple_channels(facts: _Facts) -> tuple[tuple[int, int], ...]:
    """Which table says how many channels protocol simple uses in memory of peers."""
    if not facts.widest:
        return _SIMPLE_CHANNELS_NO_FIFO
    if not facts.is_clustered:
        return _SIMPLE_CHANNELS_UNCLUSTERED
    if facts.is_pipelined:
        return _PIPELINED_CHANNELS
    return _SIMPLE_CHANNELS if facts.has_direct else _SIMPLE_CHANNELS_FIFO_ONLY


def _largest_chunk(case: Case, proto: str, facts: _Facts, channels: int, slices: int) -> int:
    """Bytes of a chunk that are better not exceeded."""
    if proto != "simple":
        return 32 * _K if proto == "ll" else 60 * _K
    if facts.host:
        return facts.host[1] // slices * slices
    if facts.net:
        return facts.net[1] * slices
    if facts.is_pipelined:
        return _up_to(case.size_bytes, _PIPELINED_CHUNK_BYTES) * slices
    return (
        _M // slices * slices
        if channels < _FEW_CHANNELS and (facts.widest or facts.peers == 1)
        else 256 * _K * slices
    )


def _roomy_chunk(proto: str, facts: _Facts, memory_bytes: int, slots: int, slices: int) -> int:
    """Bytes of a chunk for which there is memory; memory_bytes: of a channel."""
    # lines that are half flags; FIFOs at both ends
    factor = (2 if proto == "ll" else 1) * (2 if facts.net else 1)
    shares = facts.conns * slots * facts.widest * factor + facts.scratch * slices
    roomy = memory_bytes // shares * slices if shares else _ANY
    return int(PROTOCOLS.load(proto).payload_bytes(roomy)) if proto == "ll128" else roomy


def _threads(case: Case, proto: str, facts: _Facts, chunk: int) -> int:
    """Threads of a CTA that works on chunks of that many bytes."""
    if proto != "ll":
        return 512 if proto == "simple" else 384 if facts.share >= 512 * _K else 256
    most, lines = (
        512 if facts.conns > 1 or case.size_bytes >= _LL_WIDE_FROM else 256,
        -(-chunk // 8),
    )
    return max(64, min(most, -(-lines // 32) * 32))


def _cluster(channels: int, tracks: int) -> int:
    """The smallest cluster with which every GPC that has any CTA has as many as the others, or 1.

    >>> [_cluster(channels, 1) for channels in (3, 24, 32, 48, 64, 128)]
    [1, 4, 4, 8, 4, 1]
    """
    for size in _CLUSTERS:
        clusters, rest = divmod(channels * tracks, size)
        if (
            channels % size == 0
            and rest == 0
            and channels * tracks <= _CLUSTERED_CTAS
            and (clusters <= _GPCS or clusters % _GPCS == 0)
        ):
            return size
    return 1


def _up_to(size: int, table: tuple[tuple[int, int], ...]) -> int:
    """The entry for a size."""
    return next(value for largest, value in table if size <= largest)


def _hops(schedule: Schedule, in_place: bool) -> int:
    """Messages on the longest chain of one loop."""
    return proved(schedule, 8, 1, 1, in_place).hops


def is_pipelined(schedule: Schedule, in_place: bool) -> bool:
    """Whether a loop passes through more ranks than any of them has rounds for: then its bandwidth
    comes from loops that follow each other.
    """
    return _hops(schedule, in_place) > max(
        len(track.rounds) for program in schedule.programs for track in program
    )


def peers_of(schedule: Schedule) -> int:
    """The most connections of one channel into or out of one rank."""
    return max(len(ends) for program in schedule.programs for ends in edges_of(program))


def edges_of(program: Program) -> tuple[set[Edge], set[Edge]]:
    """The connections into and out of a rank."""
    steps = [step for track in program for steps in track.rounds for step in steps]
    return {edge for step in steps for edge in step.recv}, {
        edge for step in steps for edge in step.send
    }
