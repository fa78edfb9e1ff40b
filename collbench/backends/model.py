"""The model: prices plans on a described machine instead of running them.

It makes command-line tests exact, and prices machines that nobody has: GPUs by their links
(planning/price/gpus.py), CPU cores by what they and their memory take (cpus.py). Nothing is
computed or checked.
"""

from collections.abc import Sequence

from collbench.backends.base import Backend, Batch, Samples, Session, SessionOptions
from collbench.core.group import Group
from collbench.machine.formats import described
from collbench.planning.plan import Plan
from collbench.planning.price.constants import cpu_costs, gpu_costs
from collbench.planning.price.gpus import Site, gpu_price, site_of
from collbench.planning.price.work import cpu_price


def host_of(machine_name: str) -> str:
    """The host that rows of that machine name."""
    return f"model of {machine_name}"


class ModelSession(Session[Plan]):
    """Prices plans on one machine."""

    version = ""

    def __init__(self, machine_name: str, *, is_alone: bool = False) -> None:
        topology = described(machine_name)
        self._is_alone = is_alone
        self._cores = cpu_costs(machine_name) if topology is None else None
        self._topology, self._gpus = topology, gpu_costs(machine_name)
        self._sites: dict[int, Site] = {}
        self.host = self.device = host_of(machine_name)
        self._seconds: dict[Plan, float] = {}

    def run(self, plan: Plan, batch: Batch) -> Samples:
        """One repeat, always the same."""
        if plan not in self._seconds:
            self._seconds[plan] = self._price(plan)
        return Samples(
            seconds=(self._seconds[plan],) * plan.n,
            iterations=batch.iterations or 1,
            notes=("modelled",),
        )

    def _price(self, plan: Plan) -> float:
        if self._topology is None:
            assert self._cores is not None
            return cpu_price(plan, self._cores, is_alone=self._is_alone)
        if plan.n not in self._sites:
            gpus = [gpu.id for gpu in self._topology.gpus[: plan.n]]
            self._sites[plan.n] = site_of(self._topology, gpus, self._gpus)
        return gpu_price(plan, self._sites[plan.n], is_alone=self._is_alone)


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
        return ModelSession(options.machine, is_alone=options.gpu.isolated)


BACKEND = ModelBackend()
