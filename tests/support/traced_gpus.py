"""Two GPUs that are data only: sessions whose launches take the times of a model, and stamp what
played launches did, on timers of their own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from collbench.analysis.gpu_traces import stage_actors
from collbench.analysis.hunt.blame import Part
from collbench.backends.base import Batch, Samples, Session, SessionOptions
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda.rank import StampedLaunches, StampOrder
from collbench.backends.nccl import backend as nccl
from collbench.cli import _nccl_choice, _run_explain, _run_trace, _traces
from collbench.launch.group import Group
from collbench.machine import discovery
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.price.constants import gpu_costs
from collbench.planning.price.gpus import gpu_price, site_of
from collbench.spec.case import Case
from collbench.util.errors import RefusedError
from tests.analysis.test_blame import LINK_S, Played
from tests.analysis.test_gpu_traces import stamps_of

MACHINE = "hgx-h100"
PLAIN_S, STAMPED_S = 2e-5, 2.1e-5
_PLAYED = 2  # launches, which are taken in turn
NCCL_S = {"plain": 3e-5, "registered": 2e-5, "window": 1e-5}
CHOICE = "n1:7:7 [0] NCCL INFO AllReduce: 65536 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}"
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


class NcclStandIn(Session[Case]):
    """In the place of a session of NCCL. log: what it writes, where it is asked to."""

    device, version = "2 x stand-in", "nccl stand-in"
    log: ClassVar[str] = CHOICE
    refuses: ClassVar[str] = ""

    def __init__(self, *args: object, variables: Sequence[tuple[str, str]] = (), **_: Any) -> None:
        if file := dict(variables).get("NCCL_DEBUG_FILE"):
            Path(file).with_name("n1.7").write_text(self.log + "\n")

    def run(self, case: Case, batch: Batch) -> Samples:
        if case.buffers == self.refuses:
            raise RefusedError(f"NCCL does not have {case.buffers} buffers here")
        return Samples(seconds=(NCCL_S[case.buffers],) * case.ranks, iterations=1)


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line find these GPUs."""

    def opened(group: Group, jobs: Sequence[Any], options: SessionOptions) -> Any:
        return TracedSession() if isinstance(jobs[0], Plan) else NcclStandIn()

    for backend in (cuda.BACKEND, nccl.BACKEND):
        monkeypatch.setattr(backend, "why_not", lambda group: "")
        monkeypatch.setattr(backend, "open", opened)
    monkeypatch.setattr(cuda.BACKEND, "limits", lambda memory: LIMITS)
    monkeypatch.setattr(_nccl_choice, "NcclSession", NcclStandIn)
    monkeypatch.setattr(_run_explain, "has_nvidia_gpus", lambda: True)
    monkeypatch.setattr(_traces, "model_of_all", lambda: LIMITS.model)
    monkeypatch.setattr(_traces, "all_reach_each_other", lambda: True)
    for module in (_run_explain, _run_trace):
        monkeypatch.setattr(module, "why_no_gpus", lambda: "")
        monkeypatch.setattr(module, "device_count", lambda: 2)
    monkeypatch.setattr(_run_explain, "recordings_of", lambda group, options: ["a recording"])
    monkeypatch.setattr(discovery, "topology_of", lambda recordings: topology())
    monkeypatch.setattr(TracedSession, "late", {})
    monkeypatch.setattr(TracedSession, "traced", [])
    monkeypatch.setattr(NcclStandIn, "log", CHOICE)
    monkeypatch.setattr(NcclStandIn, "refuses", "")
