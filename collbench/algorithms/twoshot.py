"""Two-shot: a direct reduce-scatter, then a direct allgather. Two hops and, like the ring, 2(n-1)/n S bytes a rank.

The bandwidth of a ring at the latency of two messages, if every pair of ranks has a path of its own. The rooted forms cut the vector
into n chunks in the same way: broadcast scatters and then gathers, reduce adds in n places and then gathers at the root.
Source: Rabenseifner 2004 with all-pairs exchanges; the two-stage kernels of vLLM and TensorRT-LLM.
"""

from collbench.algorithms._steps import Serves, edges, inp, one_track, others, out, tmp
from collbench.schedule import Edge, Program, Round, Step
from collbench.world import World


def _scatter_input(world: World, rank: int) -> Round:
    """Everyone gives chunk p of its input to rank p."""
    return tuple(Step(src=(inp(peer),), send=(Edge(peer, "scatter"),)) for peer in others(world, rank))


def allreduce(world: World, rank: int) -> Program:
    """Rank r adds chunk r of all and tells everyone."""
    peers = others(world, rank)
    add = Step(src=(inp(rank),), recv=edges(peers, "scatter"), dst=out(rank), send=edges(peers, "gather"))
    gather = tuple(Step(recv=(Edge(peer, "gather"),), dst=out(peer)) for peer in peers)
    return one_track(_scatter_input(world, rank), (add,), gather)


def broadcast(world: World, rank: int) -> Program:
    """The root gives chunk p to rank p, its own chunk to all; every rank passes its chunk on to all but the root."""
    root = world.root
    if rank == root:
        give = tuple(Step(src=(inp(peer),), dst=out(peer), send=(Edge(peer, "scatter"),)) for peer in others(world, rank))
        own = Step(src=(inp(root),), dst=out(root), send=edges(others(world, rank), "gather"))
        return one_track((*give, own))
    peers = [peer for peer in others(world, rank) if peer != root]
    take = Step(recv=(Edge(root, "scatter"),), dst=out(rank), send=edges(peers, "gather"))
    gather = tuple(Step(recv=(Edge(peer, "gather"),), dst=out(peer)) for peer in [*peers, root])
    return one_track((take,), gather)


def reduce(world: World, rank: int) -> Program:
    """Rank r adds chunk r of all; the root collects."""
    root, peers = world.root, others(world, rank)
    received = edges(peers, "scatter")
    if rank == root:
        add = Step(src=(inp(root),), recv=received, dst=out(root))
        gather = tuple(Step(recv=(Edge(peer, "gather"),), dst=out(peer)) for peer in peers)
        return one_track(_scatter_input(world, rank), (add,), gather)
    add = Step(src=(inp(rank),), recv=received, dst=tmp(0), send=(Edge(root, "gather"),))
    return one_track(_scatter_input(world, rank), (add,))


SERVES: Serves = {"allreduce": allreduce, "broadcast": broadcast, "reduce": reduce}
