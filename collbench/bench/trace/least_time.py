"""The least time of a launch by the constants of a machine: its hops, and its bytes over the
fullest link, or on CPUs those that the busiest rank sends. Pure.
"""

from dataclasses import dataclass

from collbench.bench.trace.chain_model import ChainCosts
from collbench.core.case import Case
from collbench.planning.links import RankLinks
from collbench.planning.plan import Plan
from collbench.planning.price.constants import WAYS, are_borrowed
from collbench.planning.price.gpus import plan_bound
from collbench.schedules.passes import traffic

_WAY = {"NVLink": "nvlink", "PCIe": "pcie", "network": "net"}  # of what joins ranks, of the prices


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTime:
    """machine: whose constants these are; is_borrowed: they were fitted to other processors. what:
    the bytes that take so long, or why bytes_s is not known.
    """

    machine: str
    hops: int
    hops_s: float
    bytes_s: float | None
    what: str
    is_borrowed: bool = False


def least_time(
    plan: Plan, case: Case, costs: ChainCosts, links: RankLinks | None, model: str
) -> LeastTime:
    """No launch of the plan can be shorter, if the constants hold. links: of its GPUs, if known.
    model: the name of the GPUs, or of the CPU.
    """
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
        kind = on.kinds["ce" if plan.transport == "ce" else plan.proto]
        way = _WAY[links.joined(case.ranks)] if plan.transport != "shm" else "pcie"
        assert way in WAYS
        machine, hops_s = on.name, hops * on.hop_us(kind, way) * 1e-6
        full = plan_bound(plan, links.site_of(plan.n))
        what = "a link on the way has no known rate"
        if full is not None:
            bytes_s, what = full.seconds, f"its bytes over the fullest link ({full.name})"
    return LeastTime(
        machine=machine,
        hops=hops,
        hops_s=hops_s,
        bytes_s=bytes_s,
        what=what,
        is_borrowed=are_borrowed("gpu" if case.backend == "cuda" else "cpu", model),
    )
