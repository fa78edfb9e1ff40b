"""The model: plays a plan's actions event by event on the cores and the memory of a described
machine, and invents times from that.

It makes command-line tests exact, and prices machines that nobody has. GPUs are priced by their
links, in closed form (cost.py). On CPUs each rank runs on core `rank mod cores`, one action at a
time; an action takes its step time and its bytes at the core's rate, and its bytes also queue at
the shared memory. Nothing is computed or checked.
"""

import heapq
from collections.abc import Sequence

from collbench.backends.base import Backend, Batch, Samples, Session, SessionOptions
from collbench.launch.group import Group
from collbench.machine.formats import described
from collbench.planning.cost import MachineCosts, link_price, machine
from collbench.planning.lowering import Action, actors
from collbench.planning.plan import Plan
from collbench.util.errors import HangError

_Event = tuple[str, int, int]  # "filled" or "freed", connection, slice


def host_of(machine_name: str) -> str:
    """The host that rows of that machine name."""
    return f"model of {machine_name}"


def play(plan: Plan, on: MachineCosts) -> list[float]:
    """Seconds at which each rank finishes one launch. Raises HangError if nobody can go on (a
    proved schedule always can).
    """
    players = [(rank, actor.actions) for rank in range(plan.n) for actor in actors(plan, rank)]
    times: dict[_Event, float] = {}
    waiting: dict[_Event, list[int]] = {}
    position, clock = [0] * len(players), [0.0] * len(players)
    cores, memory = [0.0] * on.cores, 0.0
    hop_s = on.hop_s(plan.n)
    ready: list[tuple[float, int]] = []

    def enqueue(index: int) -> None:
        """Put an actor's next action in the queue, or make it wait for the first event that is
        missing.
        """
        _, actions = players[index]
        if position[index] == len(actions):
            return
        start = clock[index]
        for event in _needs(plan, actions[position[index]]):
            if event not in times:
                waiting.setdefault(event, []).append(index)
                return
            start = max(start, times[event] + hop_s)
        heapq.heappush(ready, (start, index))

    for index in range(len(players)):
        enqueue(index)
    while ready:
        start, index = heapq.heappop(ready)
        rank, actions = players[index]
        action, core = actions[position[index]], rank % on.cores
        start = max(start, cores[core])
        touched = sum(region.size for region in (*action.operands, *action.targets))
        memory = max(memory, start) + touched / (on.memory_gbs * 1e9)
        end = max(start + on.step_us * 1e-6 + touched / (on.rank_gbs * 1e9), memory)
        clock[index] = cores[core] = end
        position[index] += 1
        events: list[_Event] = [("filled", *turn) for turn in action.post] + [
            ("freed", *turn) for turn in action.free
        ]
        times.update(dict.fromkeys(events, end))
        for event in events:
            for waiter in waiting.pop(event, ()):
                enqueue(waiter)
        enqueue(index)
    if any(position[index] < len(actions) for index, (_, actions) in enumerate(players)):
        raise HangError("the model hangs: some rank waits for ever")
    return [
        max(
            (clock[index] for index, (owner, _) in enumerate(players) if owner == rank), default=0.0
        )
        for rank in range(plan.n)
    ]


def _needs(plan: Plan, action: Action) -> list[_Event]:
    """What must have happened before an action: data, memory pulled by peers, and slots used before
    in the same launch.
    """
    needs: list[_Event] = [("filled", *turn) for turn in action.take] + [
        ("freed", *turn) for turn in action.back
    ]
    return needs + [
        ("freed", edge, number - plan.slots) for edge, number in action.room if number >= plan.slots
    ]


class ModelSession(Session[Plan]):
    """Plays plans on one machine."""

    version = ""

    def __init__(self, machine_name: str) -> None:
        self._links = described(machine_name)
        self._machine = machine(machine_name) if self._links is None else None
        self.host = self.device = host_of(machine_name)

    def run(self, plan: Plan, batch: Batch) -> Samples:
        """One repeat, always the same."""
        if self._links is not None:
            seconds = (link_price(plan, self._links),) * plan.n
        else:
            assert self._machine is not None
            seconds = tuple(play(plan, self._machine))
        return Samples(seconds=seconds, iterations=batch.iterations or 1, notes=("modelled",))


class ModelBackend(Backend):
    """Invents times."""

    name = "model"
    wants_machine = True
    has_launch_times = False

    def why_not(self, group: Group) -> str:
        return (
            "the model runs in one process: start it without a launcher"
            if group.kind == "mpi"
            else ""
        )

    def open(self, group: Group, plans: Sequence[Plan], options: SessionOptions) -> ModelSession:
        return ModelSession(options.machine)


BACKEND = ModelBackend()
