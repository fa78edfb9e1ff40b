"""Which wires the ranks of a sweep are on: those of this machine's GPUs, or of a described one; and
what they mean for its rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from collbench.backends import FAMILY
from collbench.bench.ceilings import Ceilings, Orders
from collbench.launch.group import Group
from collbench.machine.formats import described
from collbench.machine.topology.model import Topology
from collbench.spec.case import Case
from collbench.spec.world import host_numbers

MODEL = "model"


class RankLinks:
    """The wires under each backend of a sweep. `recorded`: what was found out of this machine, or
    None.
    """

    def __init__(
        self,
        backends: Sequence[str],
        machine: str | None,
        group: Group,
        gpus: Sequence[int],
        recorded: Topology | None,
    ) -> None:
        told = described(machine) if machine is not None else None
        self._group = group
        self._topologies: dict[str, Topology] = {}
        self._gpus: dict[str, tuple[str, ...]] = {}
        for backend in backends:
            found = (
                told if backend == MODEL else (told or recorded) if _is_on_gpus(backend) else None
            )
            if found is not None:
                self._topologies[backend] = found
                self._gpus[backend] = (
                    tuple(gpu.id for gpu in found.gpus)
                    if backend == MODEL
                    else _gpus_of_ranks(found, group, gpus)
                )
        self._yardsticks = {
            backend: Ceilings(topology, self._gpus[backend])
            for backend, topology in self._topologies.items()
        }

    @property
    def are_known(self) -> bool:
        """Whether any backend has wires."""
        return bool(self._topologies)

    def ceilings(self, case: Case) -> Ceilings | None:
        """What the case's rows are measured by."""
        return self._yardsticks.get(case.backend)

    def orders(self, case: Case) -> Orders:
        """The rank orders that the case's algorithm should follow; none where the numbering of the
        ranks does.
        """
        ceilings = self._yardsticks.get(case.backend)
        return ceilings.orders_for(case) if ceilings is not None else ()

    def hosts(self, case: Case) -> tuple[int, ...]:
        """The hosts of the case's ranks where a described machine says that they are on several."""
        return (
            self._yardsticks[MODEL].hosts(case.ranks)
            if case.backend == MODEL and MODEL in self._yardsticks
            else ()
        )

    @property
    def has_hosts(self) -> bool:
        """Whether any backend has ranks on several hosts."""
        described = [self._yardsticks[MODEL]] if MODEL in self._yardsticks else []
        return bool(host_numbers(self._group.hosts)) or any(
            ceilings.hosts(len(ceilings.gpus)) for ceilings in described
        )

    def algorithm(self, case: Case) -> str:
        """What `auto` means: on wires that the model prices, the lowest price; else `auto`, which a
        table of measured numbers decides.
        """
        return (
            self._yardsticks[MODEL].cheapest(case)
            if case.backend == MODEL and MODEL in self._yardsticks
            else "auto"
        )


def _gpus_of_ranks(topology: Topology, group: Group, gpus: Sequence[int]) -> tuple[str, ...]:
    """The GPU of every rank: of its host, by the rank's number there, through the list of GPUs if
    one is given.
    """
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
    return (
        tuple(by_place[place] for place in wanted)
        if all(place in by_place for place in wanted)
        else ()
    )


def _is_on_gpus(backend: str) -> bool:
    return FAMILY.load(backend).is_gpu


def recorded(group: Group, options: Mapping[str, Any]) -> Topology | None:
    """What the hosts of the ranks have, if GPUs are in the sweep. Under a launcher all ranks must
    call it; only rank 0 gets an answer.
    """
    if not any(_is_on_gpus(backend) for backend in options.get("backend", ())):
        return None
    from collbench.machine.discovery import gather, record, topology_of

    found = [record()] if group.kind == "local" else gather(group.comm)  # type: ignore[attr-defined]
    return topology_of(found) if found else None
