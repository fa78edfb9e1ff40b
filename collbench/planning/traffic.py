"""What a plan moves from rank to rank in one launch, in bytes.

    traffic(plan) -> {(source, target): Sent}

Between ranks that share memory a message is the data as the protocol lays it out, a flag that
announces it, and a flag that gives its slots back. Between others it is a message of MPI: as much
of a slot as is in use, or the data where it lies.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from collbench.planning.lowering import piece_of_step
from collbench.planning.plan import Loop, Plan
from collbench.planning.protocols import FAMILY
from collbench.schedules.ir import Edge
from collbench.schedules.passes import message_indices
from collbench.schedules.verify.proof import Place

FLAG_BYTES = 8
Pair = tuple[int, int]  # source and target


@dataclass(slots=True)
class Sent:
    """payload: of the user's data. wire: as it travels, with the flags of the protocol's lines and
    what lies between the chunks of a message. flags: that travel beside it. messages: slices, one
    after the other.
    """

    payload: int = 0
    wire: int = 0
    flags: int = 0
    messages: int = 0

    @property
    def total(self) -> int:
        """All bytes that leave the source."""
        return self.wire + self.flags


def traffic(plan: Plan) -> dict[Pair, Sent]:
    """What one launch of the plan sends from each rank to each other."""
    sent: dict[Pair, Sent] = {}
    loops = list(_loops(plan))
    for rank in range(plan.n):
        for t, track in enumerate(plan.schedule.program(rank)):
            for r, steps in enumerate(track.rounds):
                indices = message_indices(steps)[0]
                of_edge: dict[Edge, list[tuple[int, Place]]] = {}
                for (s, edge), index in indices.items():
                    of_edge.setdefault(edge, []).append((index, Place(rank, t, r, s)))
                pulled = plan.schedule.pulled_at(rank, t, r)
                for edge, chunks in of_edge.items():
                    for channel, loop, times in loops:
                        _add(sent, plan, channel, loop, times, rank, edge, chunks, edge in pulled)
    return sent


def _loops(plan: Plan) -> Iterator[tuple[int, Loop, int]]:
    """Every loop of every channel with its channel, those that are alike once; and how many."""
    if plan.problem.counts:
        for channel in range(plan.channels):
            for loop in plan.loops(channel):
                yield channel, loop, 1
        return
    alike = Counter(
        loop._replace(offset=0) for channel in range(plan.channels) for loop in plan.loops(channel)
    )
    for loop, times in alike.items():
        yield 0, loop, times


def _add(
    sent: dict[Pair, Sent],
    plan: Plan,
    channel: int,
    loop: Loop,
    times: int,
    rank: int,
    edge: Edge,
    chunks: list[tuple[int, Place]],
    is_pulled: bool,
) -> None:
    """Add a message of a loop that comes so many times."""
    stored_bytes = FAMILY.load(plan.proto).stored_bytes
    one = sent.setdefault((rank, edge.peer), Sent())
    is_remote = plan.is_remote(rank, edge.peer)
    for number in range(loop.slices):
        sizes = [
            (index, piece_of_step(plan, channel, loop, number, place)[1]) for index, place in chunks
        ]
        one.payload += times * sum(size for _, size in sizes)
        if is_remote and not is_pulled:
            one.wire += times * max(index * plan.piece_bytes + size for index, size in sizes)
        else:
            one.wire += times * sum(stored_bytes(size) for _, size in sizes)
    one.messages += times * loop.slices
    if not is_remote:
        batch = plan.kernel.credit_batch(plan.slots) if plan.kernel is not None else 1
        back = sent.setdefault((edge.peer, rank), Sent())
        back.flags += times * loop.slices * FLAG_BYTES // batch
        if plan.proto == "simple":
            one.flags += times * loop.slices * FLAG_BYTES
