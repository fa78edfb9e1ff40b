"""The reference: NumPy, one process, real FIFOs, the fixed operand order. What every other backend
must equal bit for bit.

Slow on purpose: it resolves every region anew, moves real bytes through real slots, and takes the
tracks of all ranks in turn.
"""

import time
from collections.abc import Sequence

import numpy as np

from collbench.backends.base import Backend, Batch, Samples, Session, SessionOptions
from collbench.backends.repeat import stride_bytes, verify_in_process
from collbench.core.dtypes import Array, divide, dtype, saturate, ufunc
from collbench.core.errors import HangError
from collbench.core.group import Group
from collbench.core.pattern import Wrong
from collbench.planning.lowering import Action, Region, actors
from collbench.planning.plan import Plan


def reduce_step(operands: Sequence["Array"], plan: Plan, *, is_complete: bool) -> "Array":
    """What one step computes: its operands in order, accumulated as dtypes.py says, divided if avg
    is complete here.
    """
    kind = dtype(plan.problem.dtype)
    if len(operands) == 1:
        return operands[0]
    total = operands[0].astype(kind.accumulator())
    for operand in operands[1:]:
        ufunc(plan.problem.redop)(total, operand.astype(total.dtype), total)
    if is_complete and plan.problem.redop == "avg":
        divide(total, plan.n)
    saturate(total, kind)
    return total.astype(kind.numpy())


class ReferenceRun:
    """The memory of all ranks and the counters of all connections, for one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.element = dtype(plan.problem.dtype).numpy()
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []
        for at in map(plan.problem.buffers, range(plan.n)):
            memory = np.zeros(at.total_bytes, np.uint8)
            self.inputs.append(memory[at.in_offset : at.in_offset + at.in_bytes])
            self.outputs.append(
                memory[at.out_offset : at.out_offset + at.out_bytes + at.guard_bytes]
            )
        self.tmp = [np.zeros(plan.tmp_bytes, np.uint8) for _ in range(plan.n)]
        self.slots: dict[int, Array] = {}
        self.filled = [0] * len(plan.connections)
        self.freed = [0] * len(plan.connections)

    def buffer(self, rank: int, which: str) -> "Array":
        """A rank's whole input, or its output and the guard behind it, in the element type."""
        return (self.inputs if which == "in" else self.outputs)[rank].view(self.element)

    def view(self, region: Region) -> "Array":
        """The elements of a region."""
        if region.space == "slot":
            memory = self.slots.setdefault(
                region.owner, np.zeros(self.plan.slots * self.plan.slot_bytes, np.uint8)
            )
        elif region.space == "tmp":
            memory = self.tmp[region.owner]
        else:
            memory = (self.inputs if region.space == "in" else self.outputs)[region.owner]
        return memory[region.offset : region.offset + region.size].view(self.element)

    def launch(self) -> None:
        """Run the plan once on all ranks. Raises HangError if nobody can go on."""
        base_filled, base_freed = list(self.filled), list(self.freed)
        waiting = [
            (rank, actor, iter(actor.actions))
            for rank in range(self.plan.n)
            for actor in actors(self.plan, rank)
        ]
        pending = [next(actions, None) for _, _, actions in waiting]
        while any(action is not None for action in pending):
            moved = False
            for index, (_, _, actions) in enumerate(waiting):
                action = pending[index]
                while action is not None and self._is_ready(action, base_filled, base_freed):
                    self._do(action)
                    action, moved = next(actions, None), True
                pending[index] = action
            if not moved:
                waiting_action = next(action for action in pending if action is not None)
                raise HangError(
                    f"the reference hangs: rank {waiting_action.place.program}, track"
                    f" {waiting_action.place.track}, round {waiting_action.place.round}"
                )

    def _is_ready(self, action: Action, base_filled: list[int], base_freed: list[int]) -> bool:
        return (
            all(self.filled[edge] > base_filled[edge] + number for edge, number in action.take)
            and all(
                self.freed[edge] > base_freed[edge] + number - self.plan.slots
                for edge, number in action.room
            )
            and all(self.freed[edge] > base_freed[edge] + number for edge, number in action.back)
        )

    def _do(self, action: Action) -> None:
        if action.operands and action.operands[0].size:
            result = reduce_step(
                [self.view(region) for region in action.operands],
                self.plan,
                is_complete=action.divide,
            )
            for region in action.targets:
                self.view(region)[...] = result
        for edge, _ in action.post:
            self.filled[edge] += 1
        for edge, _ in action.free:
            self.freed[edge] += 1


class ReferenceSession(Session[Plan]):
    """Runs plans in this process."""

    device = "NumPy, one process"
    version = f"numpy {np.__version__}"

    def run(self, plan: Plan, batch: Batch) -> Samples:
        """Time whole launches behind an untimed one, and verify each; every rank is given the time
        of all of them, because one process does all the work.
        """
        machine, iterations = ReferenceRun(plan), batch.iterations or 1
        times: list[float] = []
        wrong: list[Wrong] = []

        def launch() -> None:
            start = time.perf_counter()
            machine.launch()
            times.append(time.perf_counter() - start)

        for _ in range(1 + iterations):
            if batch.is_checked:
                wrong += verify_in_process(plan.problem, machine.buffer, launch)
            else:
                launch()
        seconds = sum(times[1:]) / iterations
        return Samples(seconds=(seconds,) * plan.n, iterations=iterations, wrong=tuple(wrong))

    def once(self, plan: Plan, inputs: Sequence["Array"]) -> list["Array"]:
        """One launch on given inputs, one array a rank; returns every rank's output."""
        machine = ReferenceRun(plan)
        for rank, values in enumerate(inputs):
            machine.buffer(rank, "in")[...] = values
        machine.launch()
        sizes = [plan.problem.buffers(rank).out_bytes for rank in range(plan.n)]
        return [
            machine.outputs[rank][:size].view(machine.element).copy()
            for rank, size in enumerate(sizes)
        ]


class ReferenceBackend(Backend):
    """What tests compare with."""

    name = "reference"
    has_launch_times = False  # all ranks are one process: nothing of the machine is in its times

    def why_not(self, group: Group) -> str:
        return (
            "the reference runs all ranks in one process: start it without a launcher"
            if group.kind == "mpi"
            else ""
        )

    def private_bytes(self, plan: Plan, *, hot: bool) -> int:
        return stride_bytes(plan.problem) + plan.tmp_bytes + plan.fifo_bytes // plan.n

    def open(
        self, group: Group, plans: Sequence[Plan], options: SessionOptions
    ) -> ReferenceSession:
        return ReferenceSession()


BACKEND = ReferenceBackend()
