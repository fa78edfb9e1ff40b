"""Star: all to one, one to all. The parameter-server pattern, kept to show why it does not scale.

Two hops, but 2(n-1) S bytes cross the links of the hub (rank 0, or the root) while all others wait
for it.
"""

from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, edges, inp, one_track, others, out
from collbench.schedules.algorithms.direct import broadcast, gather, scatter
from collbench.schedules.ir import Edge, Program, Step

_HUB = 0


def allreduce(world: World, rank: int) -> Program:
    """The hub adds everything and sends the result to everyone."""
    if rank != _HUB:
        return one_track(
            (Step(src=(inp(0),), send=(Edge(_HUB, "up"),)),),
            (Step(recv=(Edge(_HUB, "down"),), dst=out(0)),),
        )
    peers = others(world, _HUB)
    return one_track(
        (Step(src=(inp(0),), recv=edges(peers, "up"), dst=out(0), send=edges(peers, "down")),)
    )


def reduce(world: World, rank: int) -> Program:
    """The root adds everything."""
    if rank != world.root:
        return one_track((Step(src=(inp(0),), send=(Edge(world.root, "up"),)),))
    return one_track((Step(src=(inp(0),), recv=edges(others(world, rank), "up"), dst=out(0)),))


def allgather(world: World, rank: int) -> Program:
    """The hub collects all blocks and sends them all to everyone."""
    peers = others(world, _HUB)
    if rank != _HUB:
        up = Step(src=(inp(0),), dst=out(rank), send=(Edge(_HUB, "up"),))
        blocks = [block for block in range(world.n) if block != rank]
        return one_track(
            (up,), tuple(Step(recv=(Edge(_HUB, "down"),), dst=out(block)) for block in blocks)
        )
    collect = tuple(
        Step(
            recv=(Edge(peer, "up"),),
            dst=out(peer),
            send=tuple(Edge(other, "down") for other in peers if other != peer),
        )
        for peer in sorted(peers)
    )
    own = Step(src=(inp(0),), dst=out(_HUB), send=edges(peers, "down"))
    return one_track((own, *collect))


def reducescatter(world: World, rank: int) -> Program:
    """The hub adds every block and hands them out."""
    n, peers = world.n, others(world, _HUB)
    if rank != _HUB:
        up = tuple(Step(src=(inp(block),), send=(Edge(_HUB, "up"),)) for block in range(n))
        return one_track(up, (Step(recv=(Edge(_HUB, "down"),), dst=out(0)),))
    add = [
        Step(
            src=(inp(block),),
            recv=edges(peers, "up"),
            dst=out(0) if block == _HUB else None,
            send=(Edge(block, "down"),) if block != _HUB else (),
        )
        for block in range(n)
    ]
    return one_track(tuple(add))


SERVES: Serves = {
    "allreduce": allreduce,
    "reduce": reduce,
    "allgather": allgather,
    "reducescatter": reducescatter,
    "broadcast": broadcast,
    "gather": gather,
    "scatter": scatter,
}
