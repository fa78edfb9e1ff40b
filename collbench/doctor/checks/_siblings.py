"""Parts of a machine that should be equal: which of them differ, and what people call them."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from collbench.doctor.check import Evidence
from collbench.machine.discovery.recording import GpuCondition, GpuRecord, Nic, PciDevice, Recording
from collbench.machine.topology.model import Node, Topology
from collbench.machine.topology.paths import CLASS_ORDER, Path, path

Part = TypeVar("Part")
Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Generic[Part, Value]):
    """usual: the value of more than half of the parts, which `same` of them have; None: no value is
    so common. odd: the parts of each other value; all of them where none is usual.
    """

    usual: Value | None
    same: int
    odd: Mapping[Value, tuple[Part, ...]]


def difference(values: Mapping[Part, Value | None]) -> Difference[Part, Value] | None:
    """How parts differ; None if they do not. A value of None is unknown and left out.

    >>> difference({"a": 1, "b": 1, "c": 2}).odd
    {2: ('c',)}
    >>> difference({"a": 1, "b": 2, "c": None}).odd
    {1: ('a',), 2: ('b',)}
    >>> difference({"a": 1, "b": 1})
    """
    known = {part: value for part, value in values.items() if value is not None}
    counts = Counter(known.values())
    if len(counts) < 2:
        return None
    value, same = counts.most_common(1)[0]
    usual = value if 2 * same > len(known) else None
    odd: dict[Value, tuple[Part, ...]] = {}
    for part, value in known.items():
        if value != usual:
            odd[value] = (*odd.get(value, ()), part)
    return Difference(usual=usual, same=same if usual is not None else 0, odd=odd)


def odd_ones(
    values: Mapping[Part, str | None], call: Callable[[Sequence[Part]], str]
) -> Iterator[tuple[str, str]]:
    """Who differs, and in what, for each value that is not usual; all in one where none is. call:
    what people call some parts.

    >>> from collbench.core.text import listed
    >>> list(odd_ones({"a": "5", "b": "6", "c": "6"}, listed))
    [('a', '5, where 2 others have 6')]
    >>> list(odd_ones({"a": "5", "b": "6"}, listed))
    [('a and b', 'a: 5; b: 6')]
    """
    found = difference(values)
    if found is None:
        return
    if found.usual is None:
        parts = [part for odd in found.odd.values() for part in odd]
        order = list(values)
        yield (
            call(sorted(parts, key=order.index)),
            "; ".join(f"{call(odd)}: {value}" for value, odd in found.odd.items()),
        )
        return
    others = f"{found.same} other{'s have' if found.same > 1 else ' has'}"
    for value, odd in found.odd.items():
        yield call(odd), f"{value}, where {others} {found.usual}"


def conditions(evidence: Evidence) -> Iterator[tuple[str, GpuRecord, GpuCondition]]:
    """All GPUs whose state is known at rest, with what people call them."""
    for name, gpu in evidence.gpus():
        if gpu.condition is not None:
            yield name, gpu, gpu.condition


def bridges_above(host: Recording, address: str) -> list[PciDevice] | None:
    """The PCI functions above one, from the root down; None if it is not in the PCIe tree."""
    by_address = {device.address: device for device in host.pci}
    device = by_address.get(address)
    if device is None:
        return None
    return [by_address[part] for part in device.path.split("/")[:-1] if part in by_address]


def are_all_beside(host: Recording, nics: Iterable[Nic]) -> bool:
    """Whether each GPU shares a switch or a port with one of these NICs. It takes no graph, which
    hundreds of hosts would make slow.
    """
    paths = {device.address: device.path for device in host.pci}
    bridges = {part for nic in nics for part in paths.get(nic.address, "").split("/")[:-1]}
    shared = bridges & paths.keys()
    return all(
        shared & set(paths.get(gpu.address or "", "").split("/")[:-1]) for gpu in host.usable_gpus
    )


def nearest_nics(host: Recording, topology: Topology) -> Iterator[tuple[Node, list[Path]]]:
    """Each GPU with its ways to all RDMA devices of the host, the nearest class first. Those
    without a place in the PCIe tree are left out: in the graph they are drawn somewhere.
    """
    nics = [
        nic
        for nic in topology.of_kind("nic")
        if nic.fact("rdma") == "yes" and bridges_above(host, nic.address) is not None
    ]
    for gpu in topology.gpus if nics else ():
        if bridges_above(host, gpu.address) is not None:
            ways = (path(topology, gpu.id, nic.id) for nic in nics)
            yield gpu, sorted(ways, key=lambda way: CLASS_ORDER[way.kind])
