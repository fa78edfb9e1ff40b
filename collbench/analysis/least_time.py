"""The least time of a launch by the constants of a machine: its hops, and its bytes over the
fullest link, or on CPUs those that the busiest rank sends. Pure.
"""

from dataclasses import dataclass

from collbench.analysis.trace_summary import ChainCosts
from collbench.bench.ceilings import Ceilings
from collbench.planning.plan import Plan
from collbench.pricing.gpus import fullest_link
from collbench.schedules.passes import traffic
from collbench.spec.case import Case

_WAY = {"NVLink": "nvlink", "PCIe": "pcie", "network": "net"}  # of Ceilings.joined(), of the prices


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """machine: whose constants these are. what: the bytes that take so long, or why bytes_s is not
    known.
    """

    machine: str
    hops: int
    hops_s: float
    bytes_s: float | None
    what: str


def least_time(plan: Plan, case: Case, costs: ChainCosts, links: Ceilings | None) -> LeastTime:
    """No launch of the plan can be shorter, if the constants hold. links: of its GPUs, if known."""
    hops = plan.proof.hops
    machine, hops_s, bytes_s = costs.machine, hops * costs.hop_s, None
    if case.backend != "cuda":
        sent = traffic(plan.schedule).sent
        bytes_s = float(sent) * case.size_bytes / (costs.kind.send_gbs * 1e9)
        what = f"{sent} S sent by the busiest rank"
    elif links is None or not links.gpus:
        what = "its links are not known"
    else:
        on = links.costs
        way = _WAY[links.joined(case.ranks)] if plan.transport != "shm" else "pcie"
        machine, hops_s = on.name, hops * on.hop_us(on.kinds[plan.proto], way) * 1e-6
        full = fullest_link(plan, links.topology, links.gpus[: plan.n], on)
        what = "a link on the way has no known rate"
        if full is not None:
            bytes_s, what = full.seconds, f"its bytes over the fullest link ({full.name})"
    return LeastTime(machine=machine, hops=hops, hops_s=hops_s, bytes_s=bytes_s, what=what)
