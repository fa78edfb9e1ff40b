"""Two-shot: a direct reduce-scatter, then a direct allgather. Two hops and, like the ring, 2(n-1)/n
S bytes a rank.

The bandwidth of a ring at the latency of two messages, if every pair of ranks has a path of its
own. The rooted forms cut the vector into n-1 parts, one for each rank but the root, so that no rank
sends or receives more than S: broadcast scatters the parts and then gathers them everywhere, reduce
adds them in n-1 places and then gathers them at the root. Source: Rabenseifner 2004 with all-pairs
exchanges; the two-stage kernels of vLLM and TensorRT-LLM.
"""

from collbench.core.world import World
from collbench.schedules.algorithms._steps import (
    Serves,
    edges,
    inp,
    one_track,
    others,
    out,
    receive_chunks,
    send_chunks,
)
from collbench.schedules.ir import Edge, Program, Step


def allreduce(world: World, rank: int) -> Program:
    """Rank r reduces chunk r of all ranks and sends the result to every rank."""
    peers = others(world, rank)
    chunks = [(peer, peer) for peer in peers]
    add = Step(
        src=(inp(rank),), recv=edges(peers, "scatter"), dst=out(rank), send=edges(peers, "gather")
    )
    return one_track(send_chunks(chunks, "scatter"), (add,), receive_chunks(chunks, "gather"))


def _part(world: World, rank: int) -> int:
    """Which part of the vector a rank other than the root passes on or adds."""
    return (rank - world.root - 1) % world.n


def _parts(world: World, rank: int) -> list[tuple[int, int]]:
    """The other ranks that have a part, each with its part."""
    return [(peer, _part(world, peer)) for peer in others(world, rank) if peer != world.root]


def broadcast(world: World, rank: int) -> Program:
    """The root gives every other rank a part, which passes it on to all but the root."""
    root, parts = world.root, _parts(world, rank)
    if rank == root:
        return one_track(
            tuple(
                Step(src=(inp(part),), dst=out(part), send=(Edge(peer, "scatter"),))
                for peer, part in parts
            )
        )
    own = Step(
        recv=(Edge(root, "scatter"),),
        dst=out(_part(world, rank)),
        send=edges([peer for peer, _ in parts], "gather"),
    )
    gather = receive_chunks(parts, "gather")
    return one_track((own,), gather) if gather else one_track((own,))


def reduce(world: World, rank: int) -> Program:
    """Every rank but the root adds a part of all; the root collects."""
    parts = _parts(world, rank)
    scatter = send_chunks(parts, "scatter")
    if rank == world.root:
        return one_track(scatter, receive_chunks(parts, "gather"))
    add = Step(
        src=(inp(_part(world, rank)),),
        recv=edges(others(world, rank), "scatter"),
        send=(Edge(world.root, "gather"),),
    )
    return one_track(scatter, (add,)) if scatter else one_track((add,))


SERVES: Serves = {"allreduce": allreduce, "broadcast": broadcast, "reduce": reduce}
