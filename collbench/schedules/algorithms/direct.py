"""Direct: every block goes straight from the rank that has it to the rank that wants it. One hop,
no forwarding.

(n-1)/n S bytes a rank where all ranks take part; a root sends or receives them alone. Best where
every pair has a path of its own.
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
from collbench.schedules.ir import Edge, Program, Round, Step


def _send_blocks(world: World, rank: int) -> Round:
    """Block p of the input goes to rank p."""
    return send_chunks(((peer, peer) for peer in others(world, rank)), "direct")


def _receive_blocks(world: World, rank: int) -> Round:
    """Block p of the output comes from rank p."""
    return receive_chunks(((peer, peer) for peer in others(world, rank)), "direct")


def allgather(world: World, rank: int) -> Program:
    """Send the own block to all."""
    own = Step(src=(inp(0),), dst=out(rank), send=edges(others(world, rank), "direct"))
    return one_track((own, *_receive_blocks(world, rank)))


def reducescatter(world: World, rank: int) -> Program:
    """Send block p to rank p; add what arrives."""
    add = Step(src=(inp(rank),), recv=edges(others(world, rank), "direct"), dst=out(0))
    return one_track((*_send_blocks(world, rank), add))


def alltoall(world: World, rank: int) -> Program:
    """Send block p to rank p; keep the own block."""
    own = Step(src=(inp(rank),), dst=out(rank))
    return one_track((*_send_blocks(world, rank), own, *_receive_blocks(world, rank)))


def gather(world: World, rank: int) -> Program:
    """All send to the root."""
    if rank != world.root:
        return one_track((Step(src=(inp(0),), send=(Edge(world.root, "direct"),)),))
    return one_track((Step(src=(inp(0),), dst=out(rank)), *_receive_blocks(world, rank)))


def scatter(world: World, rank: int) -> Program:
    """The root sends block p to rank p."""
    if rank != world.root:
        return one_track((Step(recv=(Edge(world.root, "direct"),), dst=out(0)),))
    return one_track((*_send_blocks(world, rank), Step(src=(inp(rank),), dst=out(0))))


def broadcast(world: World, rank: int) -> Program:
    """The root sends everything to everyone: (n-1) S bytes leave it."""
    if rank != world.root:
        return one_track((Step(recv=(Edge(world.root, "direct"),), dst=out(0)),))
    return one_track((Step(src=(inp(0),), dst=out(0), send=edges(others(world, rank), "direct")),))


def sendrecv(world: World, rank: int) -> Program:
    """A shift by one: send to the next rank, receive from the previous."""
    n = world.n
    return one_track(
        (
            Step(src=(inp(0),), send=(Edge((rank + 1) % n, "direct"),)),
            Step(recv=(Edge((rank - 1) % n, "direct"),), dst=out(0)),
        )
    )


SERVES: Serves = {
    "allgather": allgather,
    "reducescatter": reducescatter,
    "alltoall": alltoall,
    "gather": gather,
    "scatter": scatter,
    "broadcast": broadcast,
    "sendrecv": sendrecv,
}
