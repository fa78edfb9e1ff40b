"""How "auto" lays a case out on GPUs: channels, chunk, slices, threads and slots.

The numbers are those of profiles/tuning; here are the rules that pick a table, and the formulas.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from collbench.planning.limits import Limits, peers_of
from collbench.planning.plan import proved
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.protocols.ll import LL_LINE_PAYLOAD
from collbench.planning.protocols.ll128 import WARP_PAYLOAD
from collbench.planning.tuning import (
    ANY_SIZE,
    ChannelRow,
    ClusterTuning,
    GpuTuning,
    Ll128Channels,
    LlChannels,
    NetShape,
    NetTuning,
    ShmShape,
    ShmTuning,
    SimpleChannels,
    row_for,
    rows_of,
)
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import direct_count, widest_message
from collbench.spec.case import Case
from collbench.spec.collectives import collective
from collbench.util.errors import ScheduleError

MAX_GPU_CHANNELS = 1024
MAX_CLUSTER = 8  # CTAs that every GPU with clusters can place together
MAX_UNROLL = 16  # accesses whose values a thread has registers for
WARP, MIN_THREADS, MAX_THREADS = 32, 64, 1024
LEAST_CHUNK_BYTES = 16  # a vector of one access
CHUNK_GRAIN_BYTES = 64  # chunks that the planner chooses are multiples of a cache line
# FIFOs and scratch memory take 7/8 of what is allowed; the rest is for flags and alignment.
BUDGET_PARTS, BUDGET_OF = 7, 8
SLACK_OF = 16  # chunks may exceed the largest of the table by this part of it, together
SHORT_RING_HOPS = 2  # hops that a ring of two ranks has at most


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchKnobs:
    """What is left to decide once the schedule and the protocol are known."""

    channels: int
    threads: int
    slots: int
    chunk: int
    slices: int
    unroll: int
    cluster: int


class ScheduleShape(NamedTuple):
    """What the rules ask of a schedule.

    tracks: of a rank. peers: the most connections of one channel into or out of a rank. hops:
    messages on the longest chain of one loop. is_pipelined: loops follow each other through the
    ranks. is_rooted: what the collective is.
    """

    tracks: int
    peers: int
    hops: int
    is_pipelined: bool
    is_rooted: bool


class TransportKnobs(NamedTuple):
    """Channels, the bytes of a chunk (shm) or a message (net) at most, and slices of a message."""

    channels: int
    size: int
    slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the rules ask of a case and its schedule.

    share: bytes of a chunk over all channels. widest: chunks of the widest message that needs a
    FIFO; scratch: chunks; has_direct: some messages need no FIFO. is_clustered: CTAs may be.
    by_transport: what host memory and messages of MPI ask for, None in memory of peers.
    """

    shape: ScheduleShape
    share: int
    widest: int
    scratch: int
    has_direct: bool
    is_clustered: bool
    is_net: bool
    by_transport: TransportKnobs | None

    @property
    def fifos(self) -> int:
        """The most FIFOs of one channel at a rank, one way."""
        return self.shape.peers if self.widest else 0


def launch_knobs(
    case: Case, schedule: Schedule, proto: str, transport: str, tuning: GpuTuning, limits: Limits
) -> LaunchKnobs:
    """What is asked for, else what the tables say, of a schedule whose messages are already
    zero-copy where they will be.

    transport: see selection.transport_of. Raises ScheduleError.
    """
    facts = _facts(case, schedule, proto, transport, tuning, limits)
    slots = case.slots or _slots(proto, facts, tuning)
    slices = case.slices or _slices(case, proto, facts, tuning)
    if proto != "simple" and slices > 1:
        raise ScheduleError(f"{proto} sends a message as one slice", "leave --slices out")
    tracks = facts.shape.tracks
    channels = case.channels or min(
        max(1, limits.ctas // tracks), _channels(case, proto, facts, tuning)
    )
    if channels > MAX_GPU_CHANNELS:
        raise ScheduleError(
            f"{channels} channels: at most {MAX_GPU_CHANNELS}", "use fewer --channels"
        )
    own = -(-facts.share // channels)  # bytes of a chunk on one channel, if one loop does it all
    allowed = limits.memory_bytes * BUDGET_PARTS // BUDGET_OF // channels
    largest = _largest_chunk(case, proto, facts, tuning, channels, slices)
    # no loop for a small rest, which would cost a hand-over
    loops = max(1, -((largest // SLACK_OF - own) // largest))
    largest = max(largest, -(-own // loops))
    whole = -(-min(own, largest) // CHUNK_GRAIN_BYTES) * CHUNK_GRAIN_BYTES
    roomy = _roomy_chunk(proto, facts, allowed, slots, slices)
    roomy = roomy // CHUNK_GRAIN_BYTES * CHUNK_GRAIN_BYTES
    chunk = case.chunk or max(LEAST_CHUNK_BYTES, min(whole, roomy))
    threads = case.threads or _threads(case, proto, facts, tuning, min(own, chunk))
    if threads % WARP or not MIN_THREADS <= threads <= MAX_THREADS:
        raise ScheduleError(f"{threads} threads of a CTA", "use a multiple of 32 from 64 to 1024")
    unroll = case.unroll or _unroll(proto, tuning, min(own, chunk), threads)
    if unroll > MAX_UNROLL:
        raise ScheduleError(
            f"{unroll} accesses in flight: at most {MAX_UNROLL}", "use a smaller --unroll"
        )
    cluster = case.cluster or (
        _cluster(channels, tracks, tuning.p2p.cluster) if facts.is_clustered else 1
    )
    if cluster > 1 and not limits.has_clusters:
        raise ScheduleError(
            f"clusters of {cluster} CTAs: GPUs before sm_90 have none", "use --cluster 1"
        )
    if cluster > MAX_CLUSTER or channels % cluster:
        raise ScheduleError(
            f"clusters of {cluster} CTAs for {channels} channels",
            f"use a divisor of the channels, at most {MAX_CLUSTER}",
        )
    return LaunchKnobs(
        channels=channels,
        threads=threads,
        slots=slots,
        chunk=chunk,
        slices=slices,
        unroll=unroll,
        cluster=cluster,
    )


def _facts(
    case: Case, schedule: Schedule, proto: str, transport: str, tuning: GpuTuning, limits: Limits
) -> _Facts:
    """What the rules ask."""
    what = collective(case.op)
    share = -(-case.problem().block_bytes // (schedule.chunks["in"] if what.is_interleaved else 1))
    shape = ScheduleShape(
        tracks=max(len(program) for program in schedule.programs),
        peers=peers_of(schedule),
        hops=hops_of(schedule, case.in_place),
        is_pipelined=is_pipelined(schedule, case.in_place),
        is_rooted=what.is_rooted,
    )
    by_transport, is_net = None, "net" in transport
    if is_net:
        by_transport = net_knobs(
            case.size_bytes,
            share,
            case.ranks,
            # Chains were measured with simple: ll takes channels as elsewhere, and its own chunks.
            shape._replace(
                peers=shape.peers if transport == "net" else 0,
                is_pipelined=shape.is_pipelined and proto == "simple",
            ),
            tuning.net,
        )
    elif proto == "simple" and transport == "shm":
        by_transport = shm_knobs(case.size_bytes, shape, tuning.shm)
    return _Facts(
        shape=shape,
        share=share,
        widest=widest_message(schedule),
        scratch=schedule.chunks["tmp"],
        has_direct=bool(direct_count(schedule)),
        is_net=is_net,
        by_transport=by_transport,
        is_clustered=limits.has_clusters
        and case.cluster != 1
        and not is_net
        and case.size_bytes >= tuning.p2p.cluster.from_size,
    )


def shm_knobs(size_bytes: int, shape: ScheduleShape, tuning: ShmTuning) -> TransportKnobs:
    """What protocol simple uses through host memory.

    >>> from collbench.planning.tuning import gpu_tuning
    >>> ring = ScheduleShape(tracks=1, peers=1, hops=2, is_pipelined=False, is_rooted=False)
    >>> shm_knobs(4 << 20, ring, gpu_tuning().shm)
    TransportKnobs(channels=12, size=131072, slices=1)
    >>> shm_knobs(64 << 20, ring._replace(peers=3, hops=1), gpu_tuning().shm)
    TransportKnobs(channels=32, size=16384, slices=1)
    """
    table = tuning.shape[_shm_shape(shape)]
    row = row_for(size_bytes, table.rows)
    is_sliced = shape.hops > 1 and size_bytes >= table.sliced_from
    return TransportKnobs(row.channels, row.chunk, 2 if is_sliced else 1)


def _shm_shape(shape: ScheduleShape) -> ShmShape:
    """The table for a schedule through host memory."""
    if shape.is_pipelined:
        return "pipelined"
    if shape.hops == 1 and shape.tracks > 1:
        return "duplex_one_peer" if shape.peers == 1 else "duplex"
    if shape.peers > 1:
        return "direct" if shape.hops == 1 else "several_hops"
    if shape.is_rooted:
        return "one_way"
    if shape.hops == 1:
        return "one_hop_ring"
    return "ring" if shape.hops <= SHORT_RING_HOPS else "long_ring"


def net_knobs(
    size_bytes: int, block_bytes: int, ranks: int, shape: ScheduleShape, tuning: NetTuning
) -> TransportKnobs:
    """What is used over messages of MPI.

    block_bytes: of a chunk over all channels. shape.peers: of a rank that reaches all of them by
    messages, otherwise 0: then the same channels also carry what stays on a host.

    >>> from collbench.planning.tuning import gpu_tuning
    >>> ring = ScheduleShape(tracks=1, peers=1, hops=6, is_pipelined=False, is_rooted=False)
    >>> net_knobs(64 << 20, 16 << 20, 4, ring, gpu_tuning().net)
    TransportKnobs(channels=4, size=1048576, slices=2)
    >>> chain = ring._replace(hops=3, is_pipelined=True, is_rooted=True)
    >>> net_knobs(16 << 20, 16 << 20, 4, chain, gpu_tuning().net)
    TransportKnobs(channels=2, size=1048576, slices=1)
    """
    rules = tuning.messages
    is_measured = shape.is_pipelined and shape.peers > 0 and ranks in rules.pipelined_ranks
    table = tuning.shape["pipelined" if is_measured else _net_shape(ranks, shape)]
    row = row_for(size_bytes, table.rows)
    channels, message = row.channels, int(row.message)
    if shape.hops == 1 and shape.peers > 1:
        channels = min(channels, rules.several_peers_channels)
    if shape.is_pipelined and not is_measured:
        # The first message is waited for at every hop: so many fill the chain twice.
        filling = min(message, block_bytes // channels // (2 * shape.hops))
        message = max(rules.first_message, filling // rules.message_grain * rules.message_grain)
    is_sliced = shape.hops > 1 and not shape.is_pipelined and size_bytes >= rules.sliced_from
    return TransportKnobs(channels, message, 2 if is_sliced else 1)


def _net_shape(ranks: int, shape: ScheduleShape) -> NetShape:
    """The table for a schedule over messages whose loops do not follow each other."""
    if shape.is_rooted:
        return "rooted"
    if not shape.peers:
        return "ring"
    if shape.hops == 1 and shape.tracks > 1:
        if ranks == 2:
            return "duplex_two_ranks"
        return "duplex_one_peer" if shape.peers == 1 else "duplex"
    if shape.hops == 1:
        return "one_peer" if shape.peers == 1 else "several_peers"
    return "ring" if ranks == 2 else "ring_of_many"


def _slots(proto: str, facts: _Facts, tuning: GpuTuning) -> int:
    """Slots of a FIFO."""
    if proto != "simple":
        return tuning.p2p.ll.slots if proto == "ll" else tuning.p2p.ll128.slots
    return (
        tuning.p2p.simple.pipelined_slots if facts.shape.is_pipelined else tuning.p2p.simple.slots
    )


def _slices(case: Case, proto: str, facts: _Facts, tuning: GpuTuning) -> int:
    """Slices of a message. With two, a rank passes the first on while the second arrives."""
    if proto != "simple":
        return 1
    if facts.by_transport:
        return facts.by_transport.slices
    simple, shape = tuning.p2p.simple, facts.shape
    is_sliced = case.size_bytes >= simple.sliced_from and not shape.is_pipelined and shape.hops > 1
    return simple.slices if is_sliced else 1


def _channels(case: Case, proto: str, facts: _Facts, tuning: GpuTuning) -> int:
    """Channels, as far as each of them has something to do."""
    p2p, share = tuning.p2p, facts.share

    def channels_for(size: int, rows: Iterable[ChannelRow]) -> int:
        return row_for(size, rows_of(case.ranks, rows)).channels

    if facts.by_transport or proto == "simple":
        rows = p2p.simple.channels[_simple_channels(facts)]
        by_transport = facts.by_transport
        by_size = by_transport.channels if by_transport else channels_for(case.size_bytes, rows)
        return min(by_size, max(1, share // p2p.simple.least_share))
    if proto == "ll":
        several: LlChannels = "reduction" if collective(case.op).is_reduction else "several_peers"
        return channels_for(share, p2p.ll.channels["one_peer" if facts.fifos == 1 else several])
    one: Ll128Channels = "pipelined" if facts.shape.is_pipelined else "one_peer"
    rows = p2p.ll128.channels["several_peers" if facts.fifos > 1 else one]
    return min(channels_for(share, rows), max(1, share // WARP_PAYLOAD))


def _simple_channels(facts: _Facts) -> SimpleChannels:
    """The table that says how many channels protocol simple uses in memory of peers."""
    if facts.shape.tracks > 1 and facts.shape.hops == 1:
        return "duplex"
    if not facts.widest:
        return "zero_copy"
    if not facts.is_clustered:
        return "unclustered"
    if facts.shape.is_pipelined:
        return "pipelined"
    return "mixed" if facts.has_direct else "fifo"


def _largest_chunk(
    case: Case, proto: str, facts: _Facts, tuning: GpuTuning, channels: int, slices: int
) -> int:
    """Bytes of a chunk that are better not exceeded."""
    if proto != "simple":
        return tuning.p2p.ll.chunk if proto == "ll" else tuning.p2p.ll128.chunk
    if facts.by_transport:
        size = facts.by_transport.size
        return size * slices if facts.is_net else size // slices * slices
    simple = tuning.p2p.simple
    if facts.shape.is_pipelined:
        return row_for(case.size_bytes, simple.pipelined_chunk).chunk * slices
    if channels < simple.few_channels and (facts.widest or facts.shape.peers == 1):
        return simple.chunk_few_channels // slices * slices
    return simple.chunk * slices


def _roomy_chunk(proto: str, facts: _Facts, memory_bytes: int, slots: int, slices: int) -> int:
    """Bytes of a chunk for which there is memory; memory_bytes: of a channel."""
    # lines of ll are half flags; messages have FIFOs at both ends
    factor = (2 if proto == "ll" else 1) * (2 if facts.is_net else 1)
    shares = facts.fifos * slots * facts.widest * factor + facts.scratch * slices
    roomy = memory_bytes // shares * slices if shares else ANY_SIZE
    return int(PROTOCOLS.load(proto).payload_bytes(roomy)) if proto == "ll128" else roomy


def _threads(case: Case, proto: str, facts: _Facts, tuning: GpuTuning, chunk: int) -> int:
    """Threads of a CTA that works on chunks of that many bytes."""
    if proto == "simple":
        return tuning.p2p.simple.threads
    if proto == "ll128":
        ll128 = tuning.p2p.ll128
        is_wide = facts.share >= ll128.threads_wide_from
        return ll128.threads_wide if is_wide else ll128.threads
    ll = tuning.p2p.ll
    is_wide = facts.fifos > 1 or case.size_bytes >= ll.threads_wide_from
    lines = -(-chunk // LL_LINE_PAYLOAD)
    return max(
        MIN_THREADS, min(ll.threads_wide if is_wide else ll.threads, -(-lines // WARP) * WARP)
    )


def _unroll(proto: str, tuning: GpuTuning, chunk: int, threads: int) -> int:
    """Accesses or lines that a thread has in flight."""
    if proto == "simple":
        return tuning.p2p.simple.unroll
    # a thread has several lines in flight where the chunk has two for each thread or more
    is_long = proto == "ll" and chunk > threads * 2 * LL_LINE_PAYLOAD
    return tuning.p2p.ll.lines if is_long else 1


def _cluster(channels: int, tracks: int, tuning: ClusterTuning) -> int:
    """The smallest cluster with which every GPC that has any CTA has as many as the others, or 1.

    >>> from collbench.planning.tuning import gpu_tuning
    >>> cluster = gpu_tuning().p2p.cluster
    >>> [_cluster(channels, 1, cluster) for channels in (3, 24, 32, 48, 64, 128)]
    [1, 4, 4, 8, 4, 1]
    """
    for size in tuning.sizes:
        clusters, rest = divmod(channels * tracks, size)
        if (
            channels % size == 0
            and rest == 0
            and channels * tracks <= tuning.ctas
            and (clusters <= tuning.gpcs or clusters % tuning.gpcs == 0)
        ):
            return size
    return 1


def hops_of(schedule: Schedule, in_place: bool) -> int:
    """Messages on the longest chain of one loop."""
    # Eight slots are enough for every schedule of one slice.
    return proved(schedule, 8, 1, in_place).hops


def is_pipelined(schedule: Schedule, in_place: bool) -> bool:
    """Whether a loop passes through more ranks than any of them has rounds for: then its bandwidth
    comes from loops that follow each other.
    """
    return hops_of(schedule, in_place) > max(
        len(track.rounds) for program in schedule.programs for track in program
    )
