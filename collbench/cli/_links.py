"""Which links the ranks of a sweep have: those of this machine's GPUs, or of a described one; and
what they mean for its rows.
"""

from collections.abc import Sequence
from dataclasses import replace

from collbench.backends import FAMILY
from collbench.bench.ceilings import Ceilings
from collbench.bench.points import CaseLinks
from collbench.cli._options import remark
from collbench.cli._rules import Options
from collbench.launch.group import Group
from collbench.machine.discovery.recording import Recording
from collbench.machine.formats import described
from collbench.machine.topology import unnamed
from collbench.machine.topology.model import Topology
from collbench.planning.limits import Limits
from collbench.planning.planner import machine_of, problem_of, tuning_for
from collbench.planning.selection import is_measured
from collbench.planning.tuning import Value, Values, tuning_without
from collbench.pricing.constants import costs_here, gpu_costs
from collbench.spec.case import Case
from collbench.spec.world import host_numbers, ranks_per_gpu
from collbench.util.errors import UsageError

MODEL = "model"
_PRICED = ("cuda", MODEL)
_MANY_RANKS = 16


class RankLinks(CaseLinks):
    """The links that each backend of a sweep uses. `recorded`: those of this machine, or None."""

    def __init__(
        self,
        backends: Sequence[str],
        machine: str | None,
        group: Group,
        gpus: Sequence[int],
        recorded: Topology | None,
    ) -> None:
        topology_described = described(machine) if machine is not None else None
        if topology_described is not None and (text := unnamed.remark(topology_described)):
            remark(text)
        self._group = group
        self._ceilings: dict[str, Ceilings] = {}
        self._ranks_per_gpu = ranks_per_gpu(gpus)
        for backend in backends:
            if backend == MODEL and topology_described is not None:
                self._ceilings[backend] = Ceilings(
                    topology_described,
                    tuple(gpu.id for gpu in topology_described.gpus),
                    gpu_costs(str(machine)),
                )
            elif self._ranks_per_gpu > 1:  # between these ranks there are no links
                pass
            elif _is_on_gpus(backend) and (topology := topology_described or recorded) is not None:
                used = _gpus_of_ranks(topology, group, gpus)
                names = {topology.by_id[gpu].name for gpu in used}
                costs = gpu_costs(costs_here("gpu", names.pop() if len(names) == 1 else ""))
                self._ceilings[backend] = Ceilings(topology, used, costs)

    @property
    def are_known(self) -> bool:
        """Whether the links of any backend are known."""
        return bool(self._ceilings)

    def ceilings(self, case: Case) -> Ceilings | None:
        """The ceilings of the case's rows."""
        return self._ceilings.get(case.backend)

    def limits(self, case: Case, limits: Limits) -> Limits:
        """The limits with what the links say of the case's ranks: those that share a GPU share its
        multiprocessors. A described machine has its own hosts and GPUs.
        """
        ceilings = self._ceilings.get(case.backend)
        if ceilings is None and _is_on_gpus(case.backend):
            has_lines = limits.has_lines and self._ranks_per_gpu > 1  # else over unknown links
            ctas = limits.ctas // self._ranks_per_gpu
            return replace(limits, ctas=ctas, has_lines=has_lines)
        if ceilings is None:
            return limits
        if case.backend == MODEL:
            limits = ceilings.described(limits, case.ranks)
        return replace(limits, joined=ceilings.joined(case.ranks), orders=ceilings.orders_for(case))

    @property
    def has_hosts(self) -> bool:
        """Whether any backend has ranks on several hosts."""
        model = self._ceilings.get(MODEL)
        return bool(host_numbers(self._group.hosts)) or (
            model is not None and bool(model.hosts(len(model.gpus)))
        )

    def pricing(self, case: Case, limits: Limits, left_out: str = "") -> str:
        """Where the model prices the links: on a described machine, and on GPUs for whose case no
        tuning file that fits has a choice. left_out: the user's file that is not asked.
        """
        ceilings = self._ceilings.get(case.backend)
        if ceilings is None or case.backend not in _PRICED:
            return ""
        here = self._joined(case, limits)
        if case.backend != MODEL:
            tuning = tuning_for(case, here)
            if left_out:
                tuning = tuning_without(machine_of(case.backend, here), case.ranks, left_out)
            if is_measured(case, here, tuning):
                return ""
        return ceilings.costs.name

    def way(self, case: Case, limits: Limits, left_out: str = "") -> Values:
        """What the model chooses of a case that leaves all open, as a row of a tuning file; none
        where tuning files decide.
        """
        if not self.pricing(case, limits, left_out):
            return {}
        found = self._ceilings[case.backend].cheapest(case, limits)
        if "auto" in (found.algo, found.proto):
            return {}
        row: dict[str, Value] = {"algo": found.algo, "proto": found.proto}
        if found.channels:
            row |= {"channels": found.channels, "channel_bytes": 1}
        return row | ({"chunk": found.chunk} if found.chunk else {})

    def priced(self, case: Case, limits: Limits) -> Case:
        """The case with what it leaves open: where the model decides, what has the lowest price;
        else open, which tuning files decide.
        """
        if not self.pricing(case, limits):
            return case
        ceilings = self._ceilings[case.backend]
        own = ceilings.described(limits, case.ranks) if case.backend == MODEL else limits
        return ceilings.cheapest(case, own)

    def best(self, case: Case, limits: Limits) -> Case | None:
        """What the tool takes for the case's problem. Of many ranks only where it is asked for:
        every algorithm has to be proved.
        """
        problem = problem_of(case)
        if case.algo != "auto" and case.ranks > _MANY_RANKS and self.pricing(problem, limits):
            return None
        return self.priced(problem, limits)

    def _joined(self, case: Case, limits: Limits) -> Limits:
        return replace(limits, joined=self._ceilings[case.backend].joined(case.ranks))


def refuse_few_gpus(machine: str, ranks: int) -> None:
    """Raise UsageError if a described machine has GPUs, but not one for each rank: the schedules of
    many ranks take long to prove.
    """
    links = described(machine)
    if links is not None and ranks > len(links.gpus):
        raise UsageError(f"{machine} has {len(links.gpus)} GPUs, not {ranks}", "use fewer --ranks")


def _gpus_of_ranks(topology: Topology, group: Group, gpus: Sequence[int]) -> tuple[str, ...]:
    """The GPU of every rank: by its number on its host, through the list of GPUs if given."""
    by_place = {(gpu.host, gpu.index): gpu.id for gpu in topology.gpus}
    if group.kind == "local":
        wanted = [
            (0, index) for index in gpus or sorted(index for host, index in by_place if host == 0)
        ]
    else:
        hosts = list(dict.fromkeys(group.hosts))
        places = [
            (hosts.index(host), list(group.hosts[:rank]).count(host))
            for rank, host in enumerate(group.hosts)
        ]
        wanted = [(host, gpus[local] if local < len(gpus) else local) for host, local in places]
    if all(place in by_place for place in wanted):
        return tuple(by_place[place] for place in wanted)
    return ()


def _is_on_gpus(backend: str) -> bool:
    return FAMILY.load(backend).is_gpu


def recordings_of(group: Group, options: Options) -> list[Recording]:
    """What the ranks' hosts are, if GPUs are in the sweep. Under a launcher all ranks must call it;
    only rank 0 gets them.
    """
    if not any(_is_on_gpus(backend) for backend in options.get("backend", ())):
        return []
    from collbench.machine.discovery import gather, record

    return [record()] if group.kind == "local" else gather(group.comm) or []  # type: ignore[attr-defined]
