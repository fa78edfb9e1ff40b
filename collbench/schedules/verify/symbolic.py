"""The symbolic execution behind collbench.schedules.verify.check: every rank's tracks as generators
over bounded FIFOs of symbolic values.

It raises at the first thing that is wrong. See check.py for what it proves and why one rank is
enough for a symmetric schedule.
"""

from collbench.core.errors import ScheduleError
from collbench.schedules.ir import Operand
from collbench.schedules.passes import cell
from collbench.schedules.verify.actor import Actor
from collbench.schedules.verify.proof import Proof, Value, name_of, tell
from collbench.schedules.verify.state import State


class Execution(State):
    """One symbolic execution, which can be proved."""

    def prove(self) -> Proof:
        self._fill_inputs()
        places = [
            (rank, track)
            for rank, program in enumerate(self.schedule.programs)
            for track in range(len(program))
        ]
        actors = [Actor(self, rank, track, number) for number, (rank, track) in enumerate(places)]
        running = [(actor, actor.steps()) for actor in actors]
        while running:
            still = [(actor, steps) for actor, steps in running if next(steps, "done") != "done"]
            if len(still) == len(running) and not any(actor.moved for actor, _ in still):
                raise self._deadlock([actor for actor, _ in still])
            for actor, _ in still:
                actor.moved = False
            running = still
        self._check_end()
        return Proof(
            complete=frozenset(self.complete),
            chunks=self.chunks,
            givers=self.givers,
            hops=self.hops,
        )

    def _fill_inputs(self) -> None:
        schedule = self.schedule
        for rank in range(len(schedule.programs)):
            count = (
                schedule.chunks["in"]
                if self.what.blocks("in", schedule.n, schedule.root, rank)
                else 0
            )
            for piece in range(self.launches * self.loops * self.slices):
                for chunk in range(count):
                    at = cell(schedule, rank, Operand("in", chunk), in_place=self.in_place)
                    self.memory[rank][at, piece] = Value(piece, chunk, 1 << rank)

    def _deadlock(self, actors: list[Actor]) -> ScheduleError:
        stuck = "; ".join(actor.waits_for for actor in actors[:4])
        slots = (
            f"{self.slots} slot{'s' * (self.slots != 1)} and {self.slices}"
            f" slice{'s' * (self.slices != 1)} a message"
        )
        return ScheduleError(
            f"{name_of(self.schedule)} deadlocks with {slots}: {stuck}",
            "slots must outnumber the slices that a rank sends before it receives; of the slots of"
            " ll and ll128 half and one count, because credits for the others may come late",
        )

    def _check_end(self) -> None:
        schedule, name = self.schedule, name_of(self.schedule)
        for key, fifo in self.fifos.items():
            if fifo.tokens:
                raise ScheduleError(
                    f"{name}: {len(fifo.tokens)} slices stay in port {key.port} from rank {key.src}"
                    f" to rank {key.dst}"
                )
        for rank in range(len(schedule.programs)):
            for want in self.what.wants(schedule.n, schedule.root, rank):
                mask = sum(1 << giver for giver in want.ranks)
                pairs = (
                    [(c, c) for c in range(schedule.chunks["out"])]
                    if self.what.is_interleaved
                    else [(want.out_block, want.in_block)]
                )
                for out_chunk, in_chunk in pairs:
                    for piece in range(self.launches * self.loops * self.slices):
                        actual = self.memory[rank].get((Operand("out", out_chunk), piece))
                        wanted = Value(piece, in_chunk, mask)
                        if actual != wanted:
                            raise ScheduleError(
                                f"{name}: rank {rank} out[{out_chunk}] ends as {tell(actual)},"
                                f" wanted {tell(wanted)}"
                            )
