"""Ring: every rank sends to the next and receives from the previous; each byte crosses each link
the fewest times possible.

Allreduce is reduce-scatter around the ring, then allgather: 2(n-1) hops, 2(n-1)/n S bytes a rank,
in 2n-1 rounds because the last addition and the first forwarding are one step. Source: Patarasuk
and Yuan 2009; the order of chunks is NCCL's. Around a ring, broadcast and reduce are the pipelined
chain.
"""

from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, inp, one_track, out
from collbench.schedules.algorithms.chain import broadcast, reduce
from collbench.schedules.ir import Edge, Program, Step


def _around(world: World, rank: int) -> tuple[int, tuple[Edge], tuple[Edge]]:
    """The number of ranks, the edge from the rank before and the edge to the rank after."""
    n = world.n
    return n, (Edge((rank - 1) % n, "ring"),), (Edge((rank + 1) % n, "ring"),)


def allreduce(world: World, rank: int) -> Program:
    """Chunk c starts at rank c+1, is complete at rank c, and ends its second lap at rank c-1."""
    n, before, after = _around(world, rank)
    chunk = [(rank - 1 - k) % n for k in range(2 * n)]
    return one_track(
        (Step(src=(inp(chunk[0]),), send=after),),
        *[(Step(src=(inp(chunk[k]),), recv=before, send=after),) for k in range(1, n - 1)],
        (Step(src=(inp(rank),), recv=before, dst=out(rank), send=after),),
        *[(Step(recv=before, dst=out(chunk[k]), send=after),) for k in range(n, 2 * n - 2)],
        (Step(recv=before, dst=out(chunk[2 * n - 2])),),
    )


def allgather(world: World, rank: int) -> Program:
    """n-1 hops: the own block leaves first, the block of the next rank arrives last."""
    n, before, after = _around(world, rank)
    return one_track(
        (Step(src=(inp(0),), dst=out(rank), send=after),),
        *[(Step(recv=before, dst=out((rank - k) % n), send=after),) for k in range(1, n - 1)],
        (Step(recv=before, dst=out((rank + 1) % n)),),
    )


def reducescatter(world: World, rank: int) -> Program:
    """n-1 hops: the block of the previous rank leaves first, the own block arrives last."""
    n, before, after = _around(world, rank)
    return one_track(
        (Step(src=(inp((rank - 1) % n),), send=after),),
        *[
            (Step(src=(inp((rank - 1 - k) % n),), recv=before, send=after),)
            for k in range(1, n - 1)
        ],
        (Step(src=(inp(rank),), recv=before, dst=out(0)),),
    )


SERVES: Serves = {
    "allreduce": allreduce,
    "allgather": allgather,
    "reducescatter": reducescatter,
    "broadcast": broadcast,
    "reduce": reduce,
}
