"""What a plan should cost on a machine, in closed form: for choices, estimates and deadlines. The
model backend plays processors event by event.

GPUs are described by their wires (topology): a launch, the hops of the longest chain one after the
other, and the fullest link's bytes.
"""

import math
from dataclasses import dataclass, fields

from collbench.machine.topology.ceiling import ceiling
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from collbench.planning.plan import Plan
from collbench.schedules.passes import pair_traffic, traffic
from collbench.spec.collectives import collective
from collbench.spec.options import DEFAULT_MACHINE
from collbench.util import catalog
from collbench.util.errors import UsageError

# A launch in a graph, and a hop by simple over NVLink: ring allreduce of 8 B 17.0 us over 6 hops,
# an empty exchange 2.5 us (4 x H200). Over PCIe and the network as much more as NCCL's table of
# latencies has it: 5.7 and 14 us where NVLink has 3.4.
_LAUNCH_US, _HOP_US = 2.5, 2.4
_FARTHER = {"NVL": 1.0, "NVB": 1.0, "C2C": 1.0, "NET": 14 / 3.4}
_OVER_PCIE = 5.7 / 3.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as profiles/machines/*.toml describes it.

    cores: ranks beyond them share. step_us: one action of a schedule beside its bytes. hop_us:
    until a flag is seen by a waiting rank; switch_us: the same where ranks share cores. rank_gbs:
    bytes read and written by one core. memory_gbs: the same by all of them.
    """

    name: str
    cores: int
    step_us: float
    hop_us: float
    switch_us: float
    rank_gbs: float
    memory_gbs: float

    def crowd(self, n: int) -> int:
        """Ranks on the fullest core."""
        return -(-n // self.cores)

    def hop_s(self, n: int) -> float:
        """Seconds until a flag is seen."""
        return (self.switch_us if n > self.cores else self.hop_us) * 1e-6


def machine(name: str = DEFAULT_MACHINE) -> Machine:
    """The machine of a profile. Raises UsageError if it only tells wires, or if a number is
    missing, unknown or not positive.

    >>> machine("cpu-2").cores
    2
    """
    profile = catalog.load("machines", name)
    wanted = {field.name for field in fields(Machine)} - {"name"}
    table = profile.get("machine")
    if not isinstance(table, dict):
        told = "tells how the machine is wired, not" if "topology" in profile else "does not tell"
        raise UsageError(
            f"machine profile {name} has no [machine]: it {told} what a step of a schedule costs"
            " there",
            f"add: {', '.join(sorted(wanted))}",
        )
    if set(table) != wanted:
        raise UsageError(
            f"machine profile {name}: [machine] has {', '.join(sorted(table)) or 'nothing'}",
            f"it must have exactly: {', '.join(sorted(wanted))}",
        )
    for key, value in table.items():
        kinds = (int,) if key == "cores" else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value < math.inf:
            raise UsageError(
                f"machine profile {name}: {key} = {value!r} is not a positive"
                f" {'whole ' * (key == 'cores')}number"
            )
    return Machine(name=name, **table)


def price(plan: Plan, on: Machine) -> float:
    """Seconds of one launch: the busiest rank's actions and bytes, times the ranks on a core, plus
    the hops one after the other.

    >>> from collbench.spec.case import Problem
    >>> from collbench.planning.plan import lay_out, registered
    >>> from collbench.spec.world import World
    >>> small = Problem(
    ...     op="allreduce",
    ...     n=2,
    ...     root=0,
    ...     block_count=256,
    ...     dtype="float32",
    ...     redop="sum",
    ...     in_place=False,
    ... )
    >>> 1e-6 < price(lay_out(small, registered("allreduce", "ring", World(n=2))), machine()) < 1e-4
    True
    """
    moved = traffic(plan.schedule)
    size_bytes = plan.problem.block_bytes * (
        plan.n if collective(plan.problem.op).size_in_blocks else 1
    )
    loops = sum(1 for channel in range(plan.channels) for _ in plan.loops(channel))
    bytes_touched = 2 * float(moved.sent + moved.received) * size_bytes
    work_s = moved.messages * loops * on.step_us * 1e-6 + bytes_touched / (on.rank_gbs * 1e9)
    return on.crowd(plan.n) * work_s + plan.proof.hops * on.hop_s(plan.n)


def link_price(plan: Plan, topology: Topology) -> float:
    """Seconds of one launch, rank r on the r-th GPU. Raises UsageError if there are too few GPUs,
    or a link on the way has no known rate.
    """
    gpus = [gpu.id for gpu in topology.gpus[: plan.n]]
    if len(gpus) < plan.n:
        raise UsageError(f"{topology.name} has {len(gpus)} GPUs, not {plan.n}", "use fewer --ranks")
    moved = pair_traffic(plan.schedule)
    found = ceiling(topology, gpus, moved)
    if found is None:
        raise UsageError(
            f"{topology.name}: a link between its GPUs has no known rate",
            "see collbench topo --rates",
        )
    hop_us = max(
        _HOP_US * _FARTHER.get(path(topology, gpus[a], gpus[b]).kind, _OVER_PCIE) for a, b in moved
    )
    size_bytes = plan.problem.block_bytes * (
        plan.n if collective(plan.problem.op).size_in_blocks else 1
    )
    return (_LAUNCH_US + plan.proof.hops * hop_us) * 1e-6 + size_bytes / (found.gbs * 1e9)
