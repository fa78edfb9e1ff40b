"""Two GPUs that are data only: sessions whose launches take the times of a model, and stamp what
played launches did, on timers of their own.
"""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from collbench.backends.base import Batch, Samples, Session
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda.rank import StampedLaunches, StampOrder
from collbench.bench.trace import run as _run_trace
from collbench.bench.trace import traces as _traces
from collbench.bench.trace.gpus import stage_actors
from collbench.machine import discovery
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.gpus import gpu_price, site_of
from tests.bench.test_gpu_traces import stamps_of
from tests.support.played import LINK_S, Part, Played

MACHINE = "hgx-h100"
PLAIN_S, STAMPED_S = 2e-5, 2.1e-5
_PLAYED = 2  # launches, which are taken in turn
LIMITS = Limits(ctas=132, has_clusters=True, has_peers=True, model="NVIDIA H100 80GB HBM3")


def topology() -> Topology:
    """The links of the GPUs."""
    return machine_topology(MACHINE)


class TracedSession(Session[Plan]):
    """In the place of a session of cuda. late: the rank that comes late, in times of a link."""

    device, version = "2 x stand-in", "stand-in"
    late: ClassVar[dict[int, float]] = {}
    traced: ClassVar[list[tuple[str, int]]] = []

    def run(self, plan: Plan, batch: Batch) -> Samples:
        machine = topology()
        gpus = [gpu.id for gpu in machine.gpus[: plan.n]]
        seconds = gpu_price(plan, site_of(machine, gpus, gpu_costs()))
        return Samples(seconds=(seconds,) * plan.n, iterations=batch.iterations or 1)

    def trace(self, plan: Plan, order: StampOrder, records: Sequence[int]) -> list[StampedLaunches]:
        assert plan.transport != "ce"
        TracedSession.traced.append((plan.schedule.name, order.launches))
        slow: dict[Part, float] = {("late", (rank,)): times for rank, times in self.late.items()}
        slow |= {("late", (rank,)): delay / LINK_S for rank, delay in enumerate(order.delays_s)}
        played = Played(plan, slow)
        played.actors = [stage_actors(plan, rank) for rank in range(plan.n)]
        launches = [played.launch() for _ in range(_PLAYED)]
        return [
            StampedLaunches(
                stamps=[
                    stamps_of(played, rank, launches[number % _PLAYED][rank], max(records))
                    for number in range(order.kept)
                ],
                seconds=[(PLAIN_S, STAMPED_S)] * order.launches,
                wrong=0,
            )
            for rank in range(plan.n)
        ]


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line find these GPUs."""
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda.BACKEND, "open", lambda group, plans, options: TracedSession())
    monkeypatch.setattr(cuda.BACKEND, "limits", lambda memory: LIMITS)
    monkeypatch.setattr(_traces, "model_of_all", lambda: LIMITS.model)
    monkeypatch.setattr(_run_trace, "model_of_all", lambda: LIMITS.model)
    monkeypatch.setattr(_traces, "all_reach_each_other", lambda: True)
    monkeypatch.setattr(_run_trace, "why_no_gpus", lambda: "")
    monkeypatch.setattr(_run_trace, "device_count", lambda: 2)
    monkeypatch.setattr(_run_trace, "recordings_of", lambda group, options: ["a recording"])
    monkeypatch.setattr(discovery, "topology_of", lambda recordings: topology())
    monkeypatch.setattr(TracedSession, "late", {})
    monkeypatch.setattr(TracedSession, "traced", [])
