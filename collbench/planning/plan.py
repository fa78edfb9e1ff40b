"""A case laid out in memory: which channel owns which bytes, and how they are cut into loops,
chunks and slices.

Interleaved collectives: a channel owns a contiguous range of the vector and walks it in loops of
`chunks x chunk_bytes`; chunk j of a loop is its j-th part. Blocked collectives: a channel owns the
same part of every block and walks it in loops of chunk_bytes. The last loop shrinks the chunk.
Where blocks are unequal, loops go on until the longest part of a block is done, and the chunks of
the others are empty by then, but are still handed over. A message takes `slices` slots; slice s of
it carries piece s of each of its chunks. Every backend reads its work from a plan: as actions
(lowering.py) or as the program of a kernel (device/program.py).
"""

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple, overload

from collbench.core.case import Problem
from collbench.core.collectives import collective
from collbench.core.knobs import LaunchMode, P2p
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.schedules.ir import MAX_KEPT, Operand, Schedule
from collbench.schedules.passes import home, landing, message_chunks, operand_count, step_count
from collbench.schedules.verify.check import Proof

Domains = tuple[int, ...]  # the shared-memory domain of every rank, () for one
CHANNEL_GRAIN_BYTES = 64  # channels and shrunken chunks begin on cache lines
# What of a plan follows from its schedule, and is not hashed again.
_IN_SCHEDULE = ("schedule", "proof", "direct", "widest")


class Connection(NamedTuple):
    """A FIFO: its ends, and how many slices one launch sends along it. `fifo_offset` is -1 if no
    message needs one.
    """

    src: int
    dst: int
    port: str
    channel: int
    slices: int
    fifo_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How a GPU runs a plan: the protocol's kernel, threads of a CTA, accesses in flight, and what
    is compiled in.

    unroll: 16-byte accesses of an operand (simple), or lines (ll), that a thread has in flight.
    reload: read a line again once its flag was seen (ll128). cluster: neighbouring CTAs that the
    GPU places together (thread block clusters, from sm_90 on); 1: no clusters. ctas: of the kernel
    that reduces, or copies within its GPU, beside the copy engine; 0 where nothing needs one, and
    where every channel and track has a CTA. pdl: when the launch behind may take its place on the
    GPU (programmatic dependent launch, from sm_90 on).
    """

    proto: str
    threads: int
    unroll: int = 1
    cluster: int = 1
    reload: bool = True
    specialized: bool = False
    ctas: int = 0
    pdl: LaunchMode = "off"

    def credit_batch(self, slots: int) -> int:
        """How many slots the kernel gives back at a time: see device/flagged.cuh."""
        return 1 if self.proto == "simple" else max(1, slots // 2)

    def sure_slots(self, slots: int) -> int:
        """How many of a FIFO's slots its sender can count on, whatever the phase of the batches.

        A receiver holds back fewer credits than a batch, so a sender never waits where it would not
        with that many fewer slots and every credit at once. A schedule that ends with fewer slots
        ends with more, whatever it sends in a loop. Where readers clear slots, half of them are
        free, and the others hold what the launch before sent.
        """
        if PROTOCOLS.load(self.proto).CLEARS:
            return max(1, slots // 2)
        return slots - (self.credit_batch(slots) - 1)


class Carried(NamedTuple):
    """A message of a loop: whether it is zero-copy, and then where its chunks lie: in the
    receiver's memory (push) or the sender's (pull).
    """

    is_direct: bool
    places: tuple[Operand, ...]


Port = tuple[int, int, str]  # source, destination, name


class PortTable(NamedTuple):
    """The connections of one channel: their ports in the order of their numbers, the number and the
    messages of one loop of each, and how many FIFOs lie before its own (-1: it needs none).
    """

    ports: list[Port]
    numbers: dict[Port, int]
    messages: dict[Port, list[Carried]]
    fifos_before: list[int]
    fifo_count: int

    @classmethod
    def of(cls, messages: dict[Port, list[Carried]], domains: Domains) -> "PortTable":
        """The table of ports with these messages."""
        has_fifo = [
            not all(message.is_direct for message in carried)
            or (bool(domains) and domains[src] != domains[dst])
            for (src, dst, _), carried in messages.items()
        ]
        places = [
            number - 1 if own else -1
            for own, number in zip(has_fifo, accumulate(has_fifo), strict=True)
        ]
        numbers = {port: number for number, port in enumerate(messages)}
        return cls(list(messages), numbers, messages, places, sum(has_fifo))


@lru_cache(maxsize=MAX_KEPT)
def _port_table(schedule: Schedule, domains: Domains) -> PortTable:
    return PortTable.of(_messages_of_port(schedule), domains)


def _messages_of_port(schedule: Schedule) -> dict[Port, list[Carried]]:
    """For each port, its messages in one loop, in order."""
    sent: dict[Port, list[Carried]] = {}
    received: dict[Port, list[Carried]] = {}
    for rank in range(schedule.n):
        for t, track in enumerate(schedule.program(rank)):
            for r, steps in enumerate(track.rounds):
                pulled, pushed = schedule.pulled_at(rank, t, r), schedule.pushed_at(rank, t, r)
                out, into = message_chunks(steps)
                for edge in out:
                    is_pulled = edge in pulled
                    homes = (home(step) for step in steps if is_pulled and edge in step.send)
                    port = sent.setdefault((rank, edge.peer, edge.port), [])
                    port.append(Carried(is_pulled, tuple(homes)))
                for edge in into:
                    places = landing(steps, edge) if edge in pushed else ()
                    port = received.setdefault((edge.peer, rank, edge.port), [])
                    port.append(Carried(edge in pushed, places))
    return {
        key: [a if a.is_direct else b for a, b in zip(messages, received[key], strict=True)]
        for key, messages in sent.items()
    }


@lru_cache(maxsize=MAX_KEPT)
def most_messages(schedule: Schedule) -> int:
    """Messages that one loop sends along the busiest connection."""
    return max(map(len, _port_table(schedule, ()).messages.values()), default=0)


@lru_cache(maxsize=MAX_KEPT)
def _digest(schedule: Schedule) -> str:
    """A hash of the programs, and of what is pulled and pushed."""
    pulled, pushed = (
        sorted((at, sorted(edges)) for at, edges in table.items())
        for table in (schedule.pulled, schedule.pushed)
    )
    ready = sorted((program, sorted(edges)) for program, edges in schedule.ready.items())
    text = repr((schedule.op, schedule.name, schedule.programs, pulled, pushed, ready))
    return hashlib.sha256(text.encode()).hexdigest()


class Loop(NamedTuple):
    """One loop of a channel: where it starts in a block (in the channel's part of each block, where
    blocks are unequal), bytes in all, the chunk's bytes, slices a message.
    """

    offset: int
    size: int
    chunk: int
    slices: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A proved schedule with its layout. Made by lay_out().

    A connection has `slots` slots of slot_bytes (0: no message needs one); a chunk is chunk_bytes a
    loop and travels in slices of piece_bytes. p2p: who moves a zero-copy message, the receiver
    (pull) or the sender (push). widest: chunks of the largest message through a FIFO. kernel: how a
    GPU runs it, None elsewhere. transport: where connections have their memory. proto: what a slot
    looks like, the kernel's where there is one. domains: the shared-memory domain of every rank
    (domains_of()); a message that is pulled zero-copy between two domains is sent from where
    it lies, into a slot of the receiver's FIFO.
    """

    problem: Problem
    schedule: Schedule
    proof: Proof
    direct: bool
    p2p: P2p
    channels: int
    slots: int
    slot_bytes: int
    chunk_bytes: int
    piece_bytes: int
    widest: int
    kernel: Kernel | None = None
    transport: str = "shm"
    proto: str = "simple"
    domains: Domains = ()

    def __getstate__(self) -> dict[str, object]:
        """What other processes need: they find out for themselves what follows from it."""
        return {field.name: vars(self)[field.name] for field in fields(self)}

    @property
    def n(self) -> int:
        return self.schedule.n

    @cached_property
    def is_interleaved(self) -> bool:
        """Whether a loop walks the parts of one vector rather than the same part of every block."""
        return collective(self.schedule.op).is_interleaved

    @property
    def parts(self) -> int:
        """Chunks that a loop cuts from the range of a channel."""
        return self.schedule.chunks["in"] if self.is_interleaved else 1

    @property
    def slices(self) -> int:
        """Slices of a message that carries a whole chunk."""
        return -(-self.chunk_bytes // self.piece_bytes)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that ranks must agree on."""
        own = [vars(self)[field.name] for field in fields(self) if field.name not in _IN_SCHEDULE]
        text = repr((_digest(self.schedule), *own))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def share_of(self, block_bytes: int) -> int:
        """What a channel would own of a block of that size."""
        grain = max(CHANNEL_GRAIN_BYTES, self.problem.item_bytes)
        return -(-block_bytes // (self.channels * grain)) * grain

    def channel_range(self, channel: int) -> tuple[int, int]:
        """First byte and size of the channel's part of a block; later channels may be empty. Of
        unequal blocks: 0, and the longest part.
        """
        if self.problem.counts:
            item_bytes, counts = self.problem.item_bytes, set(self.problem.counts)
            return 0, max(self.part_of(channel, count * item_bytes)[1] for count in counts)
        return self.part_of(channel, self.problem.block_bytes)

    def part_of(self, channel: int, block_bytes: int) -> tuple[int, int]:
        """First byte and size of the channel's part of a block of that size."""
        share_bytes = self.share_of(block_bytes)
        first = min(channel * share_bytes, block_bytes)
        return first, min(share_bytes, block_bytes - first)

    def loops(self, channel: int) -> Iterator[Loop]:
        """The loops of a channel: full chunks, then one of whatever is left, cut evenly."""
        owned = self.channel_range(channel)
        return (self._loop(*owned, number) for number in range(self.loop_count(channel)))

    def loop_count(self, channel: int) -> int:
        """How many loops a channel has."""
        return -(-self.channel_range(channel)[1] // (self.parts * self.chunk_bytes))

    def loop(self, channel: int, number: int) -> Loop:
        """One loop of a channel."""
        return self._loop(*self.channel_range(channel), number)

    def _loop(self, first: int, size: int, number: int) -> Loop:
        parts, chunk = self.parts, self.chunk_bytes
        done = number * parts * chunk
        left = size - done
        if left < parts * chunk:
            even = -(-left // parts)
            grain = CHANNEL_GRAIN_BYTES if even > CHANNEL_GRAIN_BYTES else self.problem.item_bytes
            chunk = min(-(-even // grain) * grain, self.chunk_bytes)
        return Loop(first + done, min(left, parts * chunk), chunk, -(-chunk // self.piece_bytes))

    def piece(self, loop: Loop, number: int, chunk: int) -> tuple[int, int]:
        """First byte within a chunk of a loop, and size, of its slice of that number."""
        size = loop.size
        if self.is_interleaved:
            size = min(loop.chunk, max(0, loop.size - chunk * loop.chunk))
        first = min(number * self.piece_bytes, size)
        return first, min(self.piece_bytes, size - first)

    def piece_of_block(
        self, channel: int, loop: Loop, number: int, giver: int, chunk: int
    ) -> tuple[int, int]:
        """As piece(), of one of unequal blocks: that of a rank's input."""
        block_bytes = self.problem.count_of(giver, chunk) * self.problem.item_bytes
        left = self.part_of(channel, block_bytes)[1] - loop.offset
        size = min(loop.chunk, max(0, left))
        first = min(number * self.piece_bytes, size)
        return first, min(self.piece_bytes, size - first)

    def place_of_block(
        self, channel: int, loop: Loop, buffer: Literal["in", "out"], owner: int, chunk: int
    ) -> int:
        """Where a loop begins in one of unequal blocks, in bytes of a rank's buffer."""
        first, size = self.part_of_block(channel, buffer, owner, chunk)
        return first + min(loop.offset, size)

    def part_of_block(
        self, channel: int, buffer: Literal["in", "out"], owner: int, chunk: int
    ) -> tuple[int, int]:
        """First byte in a rank's buffer, and size, of a channel's part of an unequal block."""
        firsts, item_bytes = self._firsts_of(buffer, owner), self.problem.item_bytes
        first, end = firsts[chunk], firsts[chunk + 1]
        own, size = self.part_of(channel, (end - first) * item_bytes)
        return first * item_bytes + own, size

    def _firsts_of(self, buffer: Literal["in", "out"], owner: int) -> tuple[int, ...]:
        """Where the blocks of a rank's buffer begin, in elements."""
        kept: dict[tuple[str, int], tuple[int, ...]] = self.__dict__.setdefault("_firsts", {})
        if (buffer, owner) not in kept:
            kept[buffer, owner] = self.problem.block_firsts(buffer, owner)
        return kept[buffer, owner]

    @property
    def tmp_bytes(self) -> int:
        """Scratch memory of one rank, all channels."""
        return self.channels * self.schedule.chunks["tmp"] * self.chunk_bytes

    def is_remote(self, a: int, b: int) -> bool:
        """Whether messages of MPI join two ranks, not memory."""
        return bool(self.domains) and self.domains[a] != self.domains[b]

    def ends(self, rank: int) -> list[int]:
        """The connections of a rank that go to other shared-memory domains."""
        if not self.domains:
            return []
        pairs = ((one.src, one.dst) for one in self.connections)
        return [edge for edge, pair in enumerate(pairs) if rank in pair and self.is_remote(*pair)]

    @property
    def fifo_bytes(self) -> int:
        """All FIFOs together."""
        return self.channels * self.port_table.fifo_count * self.slots * self.slot_bytes

    @cached_property
    def port_table(self) -> PortTable:
        """The connections of a channel: those of every channel are the same."""
        return _port_table(self.schedule, self.domains)

    @property
    def messages_of_port(self) -> dict[Port, list[Carried]]:
        """For each port, its messages in one loop, in order."""
        return self.port_table.messages

    @cached_property
    def slices_of_channel(self) -> list[int]:
        """Slices of a message in one launch, all loops together, for each channel."""
        return [
            sum(loop.slices for loop in self.loops(channel)) for channel in range(self.channels)
        ]

    @property
    def most_messages(self) -> int:
        """Messages that one loop sends along the busiest connection."""
        return most_messages(self.schedule)

    @property
    def most_loops(self) -> int:
        """Loops of the channel that has most."""
        return max(map(self.loop_count, range(self.channels)))

    @property
    def most_slices(self) -> int:
        """Slices that one launch sends along the busiest connection."""
        return max(self.slices_of_channel) * self.most_messages

    @property
    def connections(self) -> "Connections":
        """Every connection of every channel, numbered by its place in the sequence."""
        return Connections(self)

    def number_of(self, channel: int, src: int, dst: int, port: str) -> int:
        """The number of a connection."""
        table = self.port_table
        return channel * len(table.ports) + table.numbers[src, dst, port]

    def action_count(self) -> int:
        """Actions of the busiest rank in one launch, counting last loops as full."""
        return self._full_slices * step_count(self.schedule)

    def operand_count(self) -> int:
        """Operands of these actions."""
        return self._full_slices * operand_count(self.schedule)

    @property
    def _full_slices(self) -> int:
        """Slices of a message in one launch, counting last loops as full."""
        loop_bytes = self.parts * self.chunk_bytes
        ranges = [self.channel_range(channel)[1] for channel in range(self.channels)]
        return sum(-(-size // loop_bytes) for size in ranges) * self.slices


class Connections(Sequence[Connection]):
    """The connections of a plan, made when they are asked for: a rank of many uses few of them."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._table = plan, plan.port_table

    def __len__(self) -> int:
        return self._plan.channels * len(self._table.ports)

    @overload
    def __getitem__(self, number: int) -> Connection: ...

    @overload
    def __getitem__(self, number: slice) -> list[Connection]: ...

    def __getitem__(self, number: int | slice) -> Connection | list[Connection]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        plan, table = self._plan, self._table
        if not 0 <= number < len(self):
            raise IndexError(number)
        channel, place = divmod(number, len(table.ports))
        port, before = table.ports[place], table.fifos_before[place]
        slices = plan.slices_of_channel[channel] * len(table.messages[port])
        fifo = channel * table.fifo_count + before
        offset = fifo * plan.slots * plan.slot_bytes if before >= 0 else -1
        return Connection(*port, channel, slices, offset)


def domains_of(transport: str, hosts: Sequence[Hashable]) -> Domains:
    """The shared-memory domain of every rank, numbered by its first rank. Messages join a domain to
    the others. () if there is only one.

    With `net` every rank is a domain of its own, with `auto` every host is one. With the others all
    ranks are one domain, whatever the hosts (see their why_not).

    >>> (
    ...     domains_of("auto", ["a", "b", "a"]),
    ...     domains_of("auto", ["a", "a"]),
    ...     domains_of("net", ["a", "a"]),
    ...     domains_of("shm", ["a", "a"]),
    ... )
    ((0, 1, 0), (), (0, 1), ())
    """
    if transport == "net":
        return tuple(range(len(hosts)))
    names = list(dict.fromkeys(hosts))
    return (
        tuple(names.index(host) for host in hosts) if transport == "auto" and len(names) > 1 else ()
    )


def label(of_ranks: Domains, inside: str = "shm") -> str:
    """The transports that those domains need: memory, messages or both. inside: the transport of a
    domain.

    >>> label(()), label((0, 1, 2)), label((0, 0, 1), "p2p")
    ('shm', 'net', 'p2p+net')
    """
    if not of_ranks:
        return inside
    return "net" if len(set(of_ranks)) == len(of_ranks) else f"{inside}+net"


def seats(of_ranks: Domains, n: int) -> list[int]:
    """The number of every rank among those of its domain.

    >>> seats((0, 1, 0), 3), seats((), 3)
    ([0, 0, 1], [0, 1, 2])
    """
    if not of_ranks:
        return list(range(n))
    return [of_ranks[:rank].count(of_ranks[rank]) for rank in range(n)]
