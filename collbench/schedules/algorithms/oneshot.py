"""One-shot: everyone sends everything to everyone and adds by itself. One hop, (n-1) S bytes a
rank: for small messages.

Each rank adds its own operand first, so ranks may differ in the last bits of an inexact sum: see
docs/explanation/algorithms.md.
Source: the one-stage kernels of TensorRT-LLM and vLLM, where it is the fastest choice below some
hundred KiB.
"""

from collbench.core.world import World
from collbench.schedules.algorithms._steps import Serves, edges, inp, one_track, others, out
from collbench.schedules.ir import Program, Step


def allreduce(world: World, rank: int) -> Program:
    """Send the input to all, reduce the inputs of all."""
    peers = edges(others(world, rank), "all")
    return one_track(
        (Step(src=(inp(0),), send=peers),), (Step(src=(inp(0),), recv=peers, dst=out(0)),)
    )


SERVES: Serves = {"allreduce": allreduce}
