"""Chain: a pipeline along the ranks, towards the root and away from it.

What NCCL calls Tree inside one node. Allreduce runs up to rank 0 and down again at the same time,
on two tracks: 2(n-1) hops, but the loops follow each other one hop apart, so long messages move 2S
bytes a rank at full rate. Source: NCCL's in-node tree.
"""

from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, inp, one_track, out
from collbench.schedules.ir import Edge, Program, Step, Track


def allreduce(world: World, rank: int) -> Program:
    """Rank n-1 starts, rank 0 completes, the result goes back the same way."""
    last = world.n - 1
    if rank == 0:
        return one_track(
            (Step(src=(inp(0),), recv=(Edge(1, "up"),), dst=out(0), send=(Edge(1, "down"),)),)
        )
    up = Step(
        src=(inp(0),),
        recv=(Edge(rank + 1, "up"),) if rank < last else (),
        send=(Edge(rank - 1, "up"),),
    )
    down = Step(
        recv=(Edge(rank - 1, "down"),),
        dst=out(0),
        send=(Edge(rank + 1, "down"),) if rank < last else (),
    )
    return Track(name="up", rounds=((up,),)), Track(name="down", rounds=((down,),))


def broadcast(world: World, rank: int) -> Program:
    """The root sends to the next rank, and so on to the one before the root."""
    n, root = world.n, world.root
    after = (Edge((rank + 1) % n, "chain"),) if (rank + 1) % n != root else ()
    if rank == root:
        return one_track((Step(src=(inp(0),), dst=out(0), send=after),))
    return one_track((Step(recv=(Edge((rank - 1) % n, "chain"),), dst=out(0), send=after),))


def reduce(world: World, rank: int) -> Program:
    """The rank after the root starts; every rank adds its own; the root has the result."""
    n, root = world.n, world.root
    before = (Edge((rank - 1) % n, "chain"),) if (rank - 1) % n != root else ()
    if rank == root:
        return one_track((Step(src=(inp(0),), recv=before, dst=out(0)),))
    return one_track((Step(src=(inp(0),), recv=before, send=(Edge((rank + 1) % n, "chain"),)),))


SERVES: Serves = {"allreduce": allreduce, "broadcast": broadcast, "reduce": reduce}
