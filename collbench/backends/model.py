"""The model: prices plans on a described machine instead of running them.

It makes command-line tests exact, and prices machines that nobody has: GPUs by their links
(pricing/gpus.py), CPU cores by what they and their memory take (pricing/cpus.py). Nothing is
computed or checked.
"""

from collections.abc import Sequence

from collbench.backends.base import Backend, Batch, Samples, Session, SessionOptions
from collbench.launch.group import Group
from collbench.machine.formats import described
from collbench.planning.plan import Plan
from collbench.pricing.constants import cpu_costs, gpu_costs
from collbench.pricing.cpus import cpu_price
from collbench.pricing.gpus import gpu_price


def host_of(machine_name: str) -> str:
    """The host that rows of that machine name."""
    return f"model of {machine_name}"


class ModelSession(Session[Plan]):
    """Prices plans on one machine."""

    version = ""

    def __init__(self, machine_name: str) -> None:
        self._links = described(machine_name)
        self._cores = cpu_costs(machine_name) if self._links is None else None
        self._gpus = gpu_costs(machine_name)
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
        if self._links is not None:
            return gpu_price(plan, self._links, self._gpus)
        assert self._cores is not None
        return cpu_price(plan, self._cores)


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
