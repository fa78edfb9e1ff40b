"""The described machine that results most likely come from, whose rows name its GPUs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.core import catalog
from collbench.core.text import texts_of
from collbench.machine.gpu_kinds import kind_of, kinds_of
from collbench.machine.topology.machines import machine_topology
from collbench.machine.topology.model import Topology

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """A described machine. is_same: its GPUs have the name and number of those in the rows."""

    name: str
    topology: Topology
    is_same: bool


def likeness(frame: "pd.DataFrame") -> Likeness | None:
    """The machine from profiles/machines with the GPUs of a file: by name and number, or else the
    smallest of that model and form that has room for its ranks.

    None where the file names no GPU, several machines, or one that nobody described.
    """
    devices = texts_of(frame["device"])
    wanted, ranks = kinds_of(devices), max(frame["ranks"], default=0)
    if len(devices) != 1 or not wanted:
        return None
    near: list[tuple[int, str, Topology]] = []
    for name in catalog.names("machines"):
        table = catalog.load("machines", name).get("topology", {})
        if not table or "board" in table:
            continue  # it has costs, no links, or it is one cloud's of a machine that is there too
        topology = machine_topology(name)
        gpus = topology.gpus
        if gpus and f"{len(gpus)} x {gpus[0].name}" in devices:
            return Likeness(name=name, topology=topology, is_same=True)
        if gpus and len(gpus) >= ranks:
            kind = kind_of(gpus[0].name)
            if any(kind.agrees(one) for one in wanted):
                near.append((len(gpus), name, topology))
    if not near:
        return None
    _, name, topology = min(near, key=lambda one: one[:2])
    return Likeness(name=name, topology=topology, is_same=False)
