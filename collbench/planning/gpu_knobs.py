"""How "auto" lays a case out on GPUs: channels, chunk, slices, threads and slots.

What is wanted stands in the tuning files; here it is fitted to the case and to the GPU.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.dtypes import dtype
from collbench.core.errors import ScheduleError
from collbench.planning.layout import proved
from collbench.planning.limits import Limits, peers_of
from collbench.planning.plan import most_messages
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.planning.tuning import Fact, Facts, Tuning, Values, number
from collbench.schedules.ir import MAX_KEPT, Schedule
from collbench.schedules.passes import direct_count, widest_message
from collbench.schedules.verify.proof import Proof

MAX_GPU_CHANNELS = 1024
MAX_CLUSTER = 8  # CTAs that every GPU with clusters can place together
MAX_UNROLL = 16  # accesses whose values a thread has registers for
WARP, MIN_THREADS, MAX_THREADS = 32, 64, 1024
LEAST_CHUNK_BYTES = 16  # a vector of one access
CHUNK_GRAIN_BYTES = 64  # chunks that the planner chooses are multiples of a cache line
# FIFOs and scratch memory take 7/8 of what is allowed; the rest is for flags and alignment.
BUDGET_PARTS, BUDGET_OF = 7, 8
SLACK_OF = 16  # chunks may exceed the largest of the table by this part of it, together
ANY_BYTES = 1 << 62  # where no FIFO and no scratch memory is needed
_USUAL_SLOTS = 4  # of plans
_WHOLE_BYTES = 1 << 20  # large enough for whole lines of every protocol


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
    """What there is to know of a schedule.

    tracks: of a rank. peers: the most connections of one channel into or out of a rank. hops:
    messages on the longest chain of one loop. pipelined: loops follow each other through the ranks.
    widest: chunks of the widest message that needs a FIFO. scratch: chunks. direct: messages that
    need no FIFO.
    """

    tracks: int
    peers: int
    hops: int
    pipelined: bool
    widest: int
    scratch: int
    direct: int

    def facts(self) -> dict[str, Fact]:
        """The facts of the tuning files."""
        return {
            "tracks": self.tracks,
            "peers": self.peers,
            "hops": self.hops,
            "pipelined": self.pipelined,
            "buffered": self.widest > 0,
            "some_direct": self.direct > 0,
        }


@lru_cache(maxsize=MAX_KEPT)
def shape_of(schedule: Schedule, in_place: bool) -> ScheduleShape:
    """The shape of a schedule. Raises ScheduleError where it cannot be proved."""
    hops = _proved_somehow(schedule, in_place).hops
    return ScheduleShape(
        tracks=max(len(program) for program in schedule.programs),
        peers=peers_of(schedule),
        hops=hops,
        # more ranks than any of them has rounds for: the bandwidth comes from loops in a row
        pipelined=hops
        > max(len(track.rounds) for program in schedule.programs for track in program),
        widest=widest_message(schedule),
        scratch=schedule.chunks["tmp"],
        direct=direct_count(schedule),
    )


def _proved_somehow(schedule: Schedule, in_place: bool) -> Proof:
    """The proof with the slots of most plans, which then need no other; else with eight, which are
    enough for every schedule of one slice.
    """
    with suppress(ScheduleError):
        return proved(schedule, _USUAL_SLOTS, 1, in_place)
    return proved(schedule, 8, 1, in_place)


def launch_knobs(
    case: Case, schedule: Schedule, facts: dict[str, Fact], tuning: Tuning, limits: Limits
) -> LaunchKnobs:
    """What is asked for, else what the tuning files say, of a schedule whose messages are already
    zero-copy where they will be.

    facts: of the case, with transport, protocol and direct. Raises ScheduleError.
    """
    shape = shape_of(schedule, case.in_place)
    # bytes of a chunk over all channels
    parts = schedule.chunks["in"] if collective(case.op).is_interleaved else 1
    # of unequal blocks as of equal ones of the same size in all
    share = max(1, -(-case.block_count * dtype(case.dtype).item_bytes // parts))
    facts = {
        **facts,
        **shape.facts(),
        "share": share,
        "has_clusters": limits.has_clusters,
        "may_cluster": limits.has_clusters and case.cluster != 1,
    }
    protocol = PROTOCOLS.load(str(facts["proto"]))
    # where readers clear slots, for two launches
    least = 2 * most_messages(schedule) if protocol.CLEARS else 1
    slots = case.slots or max(least, tuning.number("slots", facts))
    slices = case.slices or tuning.number("slices", facts)
    if slices > 1 and not protocol.HAS_SLICES:
        raise ScheduleError(f"{facts['proto']} sends a message as one slice", "leave --slices out")
    channels = case.channels or min(
        max(1, limits.ctas // shape.tracks),
        tuning.number("channels", facts),
        max(1, share // tuning.number("channel_bytes", facts)),
    )
    if channels > MAX_GPU_CHANNELS:
        raise ScheduleError(
            f"{channels} channels: at most {MAX_GPU_CHANNELS}", "use fewer --channels"
        )
    facts |= {"channels": channels, "ctas": channels * shape.tracks}
    own = -(-share // channels)  # bytes of a chunk on one channel, if one loop does it all
    allowed = limits.memory_bytes * BUDGET_PARTS // BUDGET_OF // channels
    largest = _largest_chunk(facts, tuning, own, slices)
    # no loop for a small rest, which would cost a hand-over
    loops = max(1, -((largest // SLACK_OF - own) // largest))
    largest = max(largest, -(-own // loops))
    whole = -(-min(own, largest) // CHUNK_GRAIN_BYTES) * CHUNK_GRAIN_BYTES
    roomy = _roomy_chunk(facts, shape, allowed, slots, slices)
    roomy = roomy // CHUNK_GRAIN_BYTES * CHUNK_GRAIN_BYTES
    chunk = case.chunk or max(LEAST_CHUNK_BYTES, min(whole, roomy))
    threads = case.threads or _threads(facts, tuning, min(own, chunk))
    if threads % WARP or not MIN_THREADS <= threads <= MAX_THREADS:
        raise ScheduleError(f"threads of a CTA: {threads}", "use a multiple of 32 from 64 to 1024")
    facts["thread_share"] = -(-min(own, chunk) // threads)
    unroll = case.unroll or tuning.number("unroll", facts)
    if unroll > MAX_UNROLL:
        raise ScheduleError(
            f"{unroll} accesses in flight: at most {MAX_UNROLL}", "use a smaller --unroll"
        )
    cluster = case.cluster or _cluster(channels, shape.tracks, tuning.row("cluster", facts))
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


def _largest_chunk(facts: Facts, tuning: Tuning, own: int, slices: int) -> int:
    """Bytes of a chunk that are better not exceeded; own: of a chunk on one channel."""
    row, fill = tuning.row("chunk", facts), tuning.row("fills", facts)
    if "slice" not in row:
        return max(1, number(row, "chunk") // slices) * slices
    size, share, hops = number(row, "slice"), number(facts, "share"), number(facts, "hops")
    if fills := number(fill, "fills", 0):
        # the first slice is waited for at every hop
        filling = min(size, share // number(facts, "channels") // (fills * hops))
        grain = number(fill, "fill_grain")
        size = max(number(fill, "fill_least"), filling // grain * grain)
    return size * slices


def _roomy_chunk(
    facts: Facts, shape: ScheduleShape, memory_bytes: int, slots: int, slices: int
) -> int:
    """Bytes of a chunk for which there is memory; memory_bytes: of a channel."""
    protocol = PROTOCOLS.load(str(facts["proto"]))
    wire = int(protocol.wire_bytes(_WHOLE_BYTES)) // _WHOLE_BYTES
    ends = max(TRANSPORTS.load(part).FIFOS for part in str(facts["transport"]).split("+"))
    fifos = shape.peers if shape.widest else 0
    shares = fifos * slots * shape.widest * wire * ends + shape.scratch * slices
    roomy = memory_bytes // shares * slices if shares else ANY_BYTES
    return min(roomy, int(protocol.payload_bytes(roomy * wire)))


def _threads(facts: Facts, tuning: Tuning, chunk: int) -> int:
    """Threads of a CTA that works on chunks of that many bytes."""
    threads, each = tuning.number("threads", facts), tuning.number("thread_bytes", facts, 0)
    if not each:
        return threads
    return max(MIN_THREADS, min(threads, -(-chunk // (each * WARP)) * WARP))


def _cluster(channels: int, tracks: int, row: Values) -> int:
    """The smallest cluster with which every GPC that has any CTA has as many as the others, or 1.

    >>> wanted = {"cluster": (4, 8), "gpcs": 8}
    >>> [_cluster(channels, 1, wanted) for channels in (3, 24, 32, 48, 64)]
    [1, 4, 4, 8, 4]
    """
    sizes, gpcs = row.get("cluster", ()), number(row, "gpcs")
    for size in sizes if isinstance(sizes, tuple) else ():
        clusters, rest = divmod(channels * tracks, size)
        if channels % size == 0 and rest == 0 and (clusters <= gpcs or clusters % gpcs == 0):
            return size
    return 1
