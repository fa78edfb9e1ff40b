"""Duplex: direct, with what a rank sends and what it receives on tracks of their own, so that both
directions of its links are used at once.

The same messages in one hop; a CTA that sends never waits for what others send. It takes twice the
CTAs a channel, and pays where a slot is long on its way and what goes in both directions at once
costs little: through host memory, and over messages.
"""

from collbench.schedules.algorithms import direct
from collbench.schedules.algorithms._steps import ProgramOf, Serves
from collbench.schedules.ir import Program, Track
from collbench.spec.world import World


def _apart(program_of: ProgramOf) -> ProgramOf:
    """The direct program, its only round cut in two."""

    def program(world: World, rank: int) -> Program:
        """Sends and own copies, and what is received."""
        ((steps,),) = (track.rounds for track in program_of(world, rank))
        received = tuple(step for step in steps if step.recv)
        sent = tuple(step for step in steps if not step.recv)
        return Track(name="out", rounds=(sent,)), Track(name="in", rounds=(received,))

    return program


SERVES: Serves = {
    op: _apart(direct.SERVES[op]) for op in ("allgather", "reducescatter", "alltoall", "sendrecv")
}
