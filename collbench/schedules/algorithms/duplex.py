"""Duplex: direct, with what a rank sends and what it receives or keeps on tracks of their own, so
that both directions of its links are used at once.

The same messages in one hop; a CTA that sends never waits for what others send, nor copies within
its rank. It takes twice the CTAs a channel, and pays where a slot is long on its way and what goes
in both directions at once costs little: through host memory, over messages, and for large blocks
between two GPUs.
"""

from collbench.core.world import World
from collbench.schedules.algorithms import direct
from collbench.schedules.algorithms._steps import ProgramOf, Serves
from collbench.schedules.ir import Program, Track


def _apart(program_of: ProgramOf) -> ProgramOf:
    """The direct program, its only round cut in two."""

    def program(world: World, rank: int) -> Program:
        """What is sent, and what the rank keeps or receives."""
        ((steps,),) = (track.rounds for track in program_of(world, rank))
        sent = tuple(step for step in steps if step.send)
        kept = tuple(step for step in steps if not step.send)
        return Track(name="out", rounds=(sent,)), Track(name="in", rounds=(kept,))

    return program


SERVES: Serves = {
    op: _apart(direct.SERVES[op]) for op in ("allgather", "reducescatter", "alltoall", "sendrecv")
}
