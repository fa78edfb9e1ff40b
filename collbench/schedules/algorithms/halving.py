"""Recursive halving and doubling: partners at distance n/2, n/4, ..., 1 exchange halves of what is
left, then double it again.

2 log2(n) hops and, like the ring, 2(n-1)/n S bytes a rank for an allreduce. With n no power of two,
the ranks from p = 2^floor(log2 n) on fold: each gives its data to rank r - p before and gets its
result from it after. The rooted forms do one half with the exchange and the other with a binomial
tree. Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005.
"""

from collections.abc import Iterable

from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, inp, one_track, out, tmp
from collbench.schedules.ir import Edge, Operand, Program, Round, Step


class _Core:
    """A rank's part in the exchange among the first p positions, counted from the root: distances,
    partners and segments.

    Blocked collectives have n blocks: position q < p cares for block q and, folded, for block q +
    p.
    """

    def __init__(self, world: World, rank: int) -> None:
        self.n = world.n
        self.root = world.root
        self.p = 1 << (world.n.bit_length() - 1)
        self.position = (rank - self.root) % self.n
        self.is_folded = self.position >= self.p
        fold = self.position - self.p if self.is_folded else self.position + self.p
        self.fold = fold if fold < self.n else None
        self.distances = [self.p >> k for k in range(1, self.p.bit_length())]

    def edge(self, position: int, port: str) -> tuple[Edge, ...]:
        return (Edge((position + self.root) % self.n, port),)

    def mine(self, distance: int) -> list[int]:
        """The positions of the aligned segment of that length that holds mine."""
        low = self.position - self.position % distance
        return list(range(low, low + distance))

    def theirs(self, distance: int) -> list[int]:
        """The segment of my partner at that distance."""
        low = (self.position ^ distance) - (self.position ^ distance) % distance
        return list(range(low, low + distance))

    def blocks(self, positions: list[int]) -> list[int]:
        """The blocks that those positions care for."""
        return [
            *positions,
            *[position + self.p for position in positions if position + self.p < self.n],
        ]

    def send(self, sources: Iterable[Operand], position: int, port: str) -> Round:
        """One message: those chunks to that position."""
        return tuple(Step(src=(source,), send=self.edge(position, port)) for source in sources)

    def receive(self, targets: Iterable[Operand], position: int, port: str) -> Round:
        """One message: into those chunks from that position."""
        return tuple(Step(recv=self.edge(position, port), dst=target) for target in targets)


def _doubling(core: _Core, chunks: dict[int, list[int]]) -> list[Round]:
    """From the own segment to all: at distance 1, 2, ..., p/2 swap whole segments of the output."""
    rounds = []
    for distance in reversed(core.distances):
        partner = core.position ^ distance
        send = [out(chunk) for chunk in chunks[distance * 2] if chunk in chunks[distance]]
        take = [out(chunk) for chunk in chunks[distance * 2] if chunk not in chunks[distance]]
        rounds.append((*core.send(send, partner, "double"), *core.receive(take, partner, "double")))
    return rounds


def _halving(core: _Core, keep: dict[int, list[int]], first: list[Round]) -> list[Round]:
    """From all to the own segment: at distance p/2, ..., 1 give the other half, add to the own, in
    scratch memory.

    `first` is the round of the fold, if there was one: then the partial sums stand in scratch
    memory already.
    """
    rounds = list(first)
    in_scratch = bool(first)
    for distance in core.distances:
        partner = core.position ^ distance
        held = tmp if in_scratch else inp
        give = [chunk for chunk in keep[distance * 2] if chunk not in keep[distance]]
        add = tuple(
            Step(src=(held(chunk),), recv=core.edge(partner, "halve"), dst=tmp(chunk))
            for chunk in keep[distance]
        )
        rounds.append((*core.send([held(chunk) for chunk in give], partner, "halve"), *add))
        in_scratch = True
    return rounds


def _segments(core: _Core, *, blocked: bool) -> dict[int, list[int]]:
    """The chunks of my segment of each length 1, 2, ..., p."""
    lengths = [1, *[distance * 2 for distance in reversed(core.distances)]]
    return {
        length: core.blocks(core.mine(length)) if blocked else core.mine(length)
        for length in lengths
    }


def _fold_in(core: _Core, chunks: int) -> list[Round]:
    """Add what the folded rank gives, chunk by chunk, in scratch memory."""
    if core.fold is None:
        return []
    return [
        tuple(
            Step(src=(inp(chunk),), recv=core.edge(core.fold, "fold"), dst=tmp(chunk))
            for chunk in range(chunks)
        )
    ]


def allreduce(world: World, rank: int) -> Program:
    """Halve to one chunk a rank, double back to all of them."""
    core = _Core(world, rank)
    everything = list(range(core.p))
    if core.is_folded and core.fold is not None:
        return one_track(
            core.send(map(inp, everything), core.fold, "fold"),
            core.receive(map(out, everything), core.fold, "unfold"),
        )
    chunks = _segments(core, blocked=False)
    rounds = _halving(core, chunks, _fold_in(core, core.p))
    rounds[-1] = _finish(rounds[-1], tmp(core.position), out(core.position))
    rounds += _doubling(core, chunks)
    if core.fold is not None:
        rounds.append(core.send(map(out, everything), core.fold, "unfold"))
    return one_track(*rounds)


def _finish(steps: Round, scratch: Operand, target: Operand) -> Round:
    """The same round with one result written to `target` instead of `scratch`."""
    return tuple(
        Step(src=s.src, recv=s.recv, dst=target, send=s.send) if s.dst == scratch else s
        for s in steps
    )


def reducescatter(world: World, rank: int) -> Program:
    """Halve to the blocks that a position cares for; hand the folded rank its own."""
    core = _Core(world, rank)
    if core.is_folded and core.fold is not None:
        return one_track(
            core.send(map(inp, range(core.n)), core.fold, "fold"),
            core.receive([out(0)], core.fold, "unfold"),
        )
    rounds = _halving(core, _segments(core, blocked=True), _fold_in(core, core.n))
    rounds[-1] = _finish(rounds[-1], tmp(core.position), out(0))
    if core.fold is not None:
        rounds.append(core.send([tmp(core.fold)], core.fold, "unfold"))
    return one_track(*rounds)


def allgather(world: World, rank: int) -> Program:
    """Double from the own block (and the folded rank's) to all."""
    core = _Core(world, rank)
    own = Step(src=(inp(0),), dst=out(core.position))
    if core.is_folded and core.fold is not None:
        rest = [out(b) for b in range(core.n) if b != core.position]
        give = Step(src=(inp(0),), dst=out(core.position), send=core.edge(core.fold, "fold"))
        return one_track((give,), core.receive(rest, core.fold, "unfold"))
    first = (
        (own,) if core.fold is None else (own, *core.receive([out(core.fold)], core.fold, "fold"))
    )
    rounds = [first, *_doubling(core, _segments(core, blocked=True))]
    if core.fold is not None:
        rounds.append(
            core.send([out(b) for b in range(core.n) if b != core.fold], core.fold, "unfold")
        )
    return one_track(*rounds)


def broadcast(world: World, rank: int) -> Program:
    """A binomial scatter of p chunks from the root, then doubling; no rank is sent what it gave
    away in the scatter.
    """
    core = _Core(world, rank)
    everything = [out(c) for c in range(core.p)]
    if core.is_folded and core.fold is not None:
        return one_track(core.receive(everything, core.fold, "unfold"))
    rounds: list[Round] = []
    is_root = core.position == 0
    for distance in core.distances:
        if core.position % (2 * distance) == 0:
            give = [inp(c) if is_root else out(c) for c in core.theirs(distance)]
            rounds.append(core.send(give, core.position + distance, "scatter"))
        elif core.position % distance == 0:
            rounds.append(
                core.receive(map(out, core.mine(distance)), core.position - distance, "scatter")
            )
    if is_root:
        rounds.append(tuple(Step(src=(inp(c),), dst=out(c)) for c in range(core.p)))
    for distance in reversed(core.distances):
        partner = core.position ^ distance
        mine, theirs = map(out, core.mine(distance)), map(out, core.theirs(distance))
        sent = () if partner % (2 * distance) == 0 else core.send(mine, partner, "double")
        received = (
            () if core.position % (2 * distance) == 0 else core.receive(theirs, partner, "double")
        )
        rounds.append((*sent, *received))
    if core.fold is not None:
        rounds.append(core.send(everything, core.fold, "unfold"))
    return one_track(*rounds)


def reduce(world: World, rank: int) -> Program:
    """Halve to one chunk a rank, then a binomial gather at the root."""
    core = _Core(world, rank)
    if core.is_folded and core.fold is not None:
        return one_track(core.send(map(inp, range(core.p)), core.fold, "fold"))
    rounds = _halving(core, _segments(core, blocked=False), _fold_in(core, core.p))
    held = out if core.position == 0 else tmp
    rounds[-1] = _finish(rounds[-1], tmp(core.position), held(core.position))
    for distance in reversed(core.distances):
        if core.position % (2 * distance) == 0:
            rounds.append(
                core.receive(map(held, core.theirs(distance)), core.position + distance, "gather")
            )
        elif core.position % distance == 0:
            rounds.append(
                core.send(map(held, core.mine(distance)), core.position - distance, "gather")
            )
    return one_track(*rounds)


SERVES: Serves = {
    "allreduce": allreduce,
    "reducescatter": reducescatter,
    "allgather": allgather,
    "broadcast": broadcast,
    "reduce": reduce,
}
