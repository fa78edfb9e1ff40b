"""What a plan should cost on a machine, in closed form: for choices, estimates and deadlines. The
model backend simulates CPU ranks event by event.

The cost of a plan on GPUs comes from the links between them (topology): a launch, the hops of the
longest chain one after the other, and the bytes of the fullest link.
"""

import math
from dataclasses import dataclass, fields
from functools import lru_cache

from collbench.machine.topology.ceiling import ceiling
from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import GPU_CLASSES, path
from collbench.planning.plan import Plan
from collbench.schedules.ir import MAX_KEPT, Schedule
from collbench.schedules.passes import pair_traffic, traffic
from collbench.spec.collectives import collective
from collbench.spec.options import DEFAULT_MACHINE
from collbench.util import catalog
from collbench.util.errors import RefusedError, UsageError

NVLINK_PATHS, NETWORK_PATHS = (*GPU_CLASSES, "C2C"), ("NET",)  # all others are over PCIe


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCosts:
    """A machine as profiles/machines/*.toml describes it.

    cores: more ranks than these share cores. step_us: one action of a schedule, without its bytes.
    hop_us: until a waiting rank sees a flag; switch_us: the same where ranks share cores. rank_gbs:
    bytes that one core reads and writes; memory_gbs: the same of all cores.
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


def machine(name: str = DEFAULT_MACHINE) -> MachineCosts:
    """The machine of a profile. Raises UsageError if the profile only describes links, or if a
    number is missing, unknown or not positive.

    >>> machine("cpu-2").cores
    2
    """
    profile = catalog.load("machines", name)
    wanted = {field.name for field in fields(MachineCosts)} - {"name"}
    table = profile.get("machine")
    if not isinstance(table, dict):
        links = " it describes the links of the machine, but" if "topology" in profile else ""
        raise UsageError(
            f"machine profile {name} has no [machine]:{links} it does not say what a step of a"
            " schedule costs",
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
    return MachineCosts(name=name, **table)


def price(plan: Plan, on: MachineCosts) -> float:
    """Seconds of one launch on CPU cores: the busiest rank's actions and bytes, and the hops one
    after the other, times the ranks on a core, each of which takes its turn in every hop.

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
    return on.crowd(plan.n) * (work_s + plan.proof.hops * on.hop_s(plan.n))


def link_price(plan: Plan, topology: Topology) -> float:
    """Seconds of one launch on GPUs, rank r on the r-th GPU. Raises RefusedError if there are too
    few GPUs, or if a link on a path has no known rate.
    """
    gbs, hop_us = _link_limits(plan.schedule, topology)
    size_bytes = plan.problem.block_bytes * (
        plan.n if collective(plan.problem.op).size_in_blocks else 1
    )
    return (_latency()["launch_us"] + plan.proof.hops * hop_us) * 1e-6 + size_bytes / (gbs * 1e9)


@lru_cache(maxsize=MAX_KEPT)
def _link_limits(schedule: Schedule, topology: Topology) -> tuple[float, float]:
    """What does not depend on the size: the rate of S in GB/s, and the microseconds of the longest
    hop. Raises RefusedError.
    """
    gpus = [gpu.id for gpu in topology.gpus[: schedule.n]]
    if len(gpus) < schedule.n:
        raise RefusedError(
            f"{topology.name} has {len(gpus)} GPUs, not {schedule.n}", "use fewer --ranks"
        )
    moved = pair_traffic(schedule)
    limit = ceiling(topology, gpus, moved)
    if limit is None:
        raise RefusedError(
            f"{topology.name}: a link between its GPUs has no known rate",
            "see collbench topo --rates",
        )
    hop_us = max(
        _latency()["hop_us"] * _distance(path(topology, gpus[a], gpus[b]).kind) for a, b in moved
    )
    return limit.gbs, hop_us


def _distance(kind: str) -> float:
    """How many times the latency of NVLink a path has."""
    if kind in NVLINK_PATHS:
        return 1.0
    return _latency()["net_us" if kind in NETWORK_PATHS else "pcie_us"] / _latency()["nvlink_us"]


@lru_cache(maxsize=1)
def _latency() -> dict[str, float]:
    """Microseconds of a launch in a graph, of a hop by simple over NVLink, and of a hop on three
    kinds of paths, of which only the ratios count.
    """
    latency: dict[str, float] = catalog.load("tuning", "h200")["latency"]
    return latency
