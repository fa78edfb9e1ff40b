"""What checks read: recordings at rest, under load and after it, and measurements. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from collbench.bench.pairs import RankPair
from collbench.machine.discovery import topology_of
from collbench.machine.discovery.recording import GpuRecord, ProcessRecord, Recording, SystemRecord
from collbench.machine.topology.model import Topology

# What a check needs to see anything, besides a recording.
Need = Literal["gpus", "two gpus", "condition", "nics", "system", "processes", "ranks", "hosts",
               "load", "host copies", "pairs", "left out"]  # fmt: skip
# what takes more than reading
MEASURED: tuple[Need, ...] = ("load", "host copies", "pairs", "left out")
# GPUs that one host must have
_LEAST_GPUS: Mapping[Need, int] = {
    "gpus": 1, "condition": 1, "load": 1, "host copies": 1, "two gpus": 2, "pairs": 2,
    "left out": 3,
}  # fmt: skip
_REASONS: Mapping[Need, str] = {
    "condition": "the recording has no states of GPUs: record it again",
    "nics": "no NIC is a PCI device here",
    "system": "the recording has nothing about the system: record it again",
    "processes": "the recording has nothing about processes: record it again",
    "ranks": "no launcher started several ranks",
    "hosts": "there is one host",
    "load": "nothing was measured",
    "host copies": "no copies through the host were measured",
    "pairs": "pairs were not measured",
    "left out": "no rank was left out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Bus bandwidths of a collective without one GPU, in rounds; gpu None: with all of them."""

    gpu: int | None
    busbw_gbs: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """hosts: at rest. loaded, after: the same hosts under the load of our own traffic and after it;
    empty where there was none. alone, together: GB/s of GPUs of the first host through the host,
    one after the other and all at once, by CUDA's numbers, as those of `pairs`. will_measure: what
    takes more than reading comes later.
    """

    hosts: tuple[Recording, ...]
    loaded: tuple[Recording, ...] = ()
    after: tuple[Recording, ...] = ()
    alone: Mapping[int, float] = field(default_factory=dict)
    together: Mapping[int, float] = field(default_factory=dict)
    pairs: tuple[RankPair, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    missing: Mapping[Need, str] = field(default_factory=dict)
    will_measure: bool = False

    @cached_property
    def topology(self) -> Topology:
        """The graph of all hosts."""
        return topology_of(self.hosts)

    @cached_property
    def topologies(self) -> tuple[Topology, ...]:
        """The graph of each host alone."""
        return tuple(topology_of((host,)) for host in self.hosts)

    def why_not(self, need: Need) -> str:
        """Why a need is not met; nothing if it is."""
        if need in self.missing:
            return self.missing[need]
        gpus = self._count("gpus")
        is_later = self.will_measure and need in MEASURED
        if gpus < _LEAST_GPUS.get(need, 0) and (is_later or need not in MEASURED):
            return f"NVML shows {gpus or 'no'} GPU{'s' * (gpus > 1)} here"
        return "" if is_later or self._is_seen(need) else _REASONS[need]

    def is_absent(self, need: Need) -> bool:
        """Whether a need is not met because there is no such thing here, so that nothing of it can
        be wrong unseen.
        """
        if need in _LEAST_GPUS:
            return self._count("gpus") < _LEAST_GPUS[need]
        return need in ("nics", "ranks", "hosts") and not self._is_seen(need)

    def _count(self, part: Literal["gpus", "nics", "processes"]) -> int:
        """Of the host that has the most."""
        return max((len(getattr(host, part)) for host in self.hosts), default=0)

    def _is_seen(self, need: Need) -> bool:
        return {
            "gpus": True,
            "two gpus": True,
            "condition": any(gpu.condition is not None for _, gpu in self.gpus()),
            "nics": self._count("nics") > 0,
            "system": any(host.system is not None for host in self.hosts),
            "processes": self._count("processes") > 0,
            "ranks": sum(len(host.processes) for host in self.hosts) > 1,
            "hosts": len(self.hosts) > 1,
            "load": bool(self.loaded),
            "host copies": bool(self.alone),
            "pairs": bool(self.pairs),
            "left out": bool(self.left_out),
        }[need]

    def gpus(self, hosts: Sequence[Recording] | None = None) -> Iterator[tuple[str, GpuRecord]]:
        """All GPUs that NVML can ask, with what people call them; hosts: `loaded` or `after`."""
        for place, host in enumerate(self.hosts if hosts is None else hosts):
            for gpu in host.gpus:
                if "handle" not in gpu.unknown:
                    yield self.on(f"GPU {gpu.index}", self.hosts[place]), gpu

    def systems(self) -> Iterator[tuple[str, Recording, SystemRecord]]:
        """All hosts whose system is known, and what people call them."""
        for host in self.hosts:
            if host.system is not None:
                yield self.name(host), host, host.system

    def processes(self) -> Iterator[tuple[str, Recording, ProcessRecord]]:
        """All ranks with their hosts, and what people call them."""
        for host in self.hosts:
            for process in host.processes:
                name = f"rank {process.rank}" if process.ranks > 1 else "this process"
                yield self.on(name, host), host, process

    def on(self, what: str, host: Recording) -> str:
        """A part of a host by its name, with the host's where there are several."""
        return f"{what} of {self.name(host)}" if len(self.hosts) > 1 else what

    def name(self, host: Recording) -> str:
        """What a host is called."""
        if len(self.hosts) == 1:
            return "this host"
        return self._names[id(host)]

    @cached_property
    def _names(self) -> Mapping[int, str]:
        """Of several hosts, by identity: two may be equal."""
        counts = Counter(host.hostname for host in self.hosts)
        return {
            id(host): host.hostname
            if host.hostname and counts[host.hostname] == 1
            else f"host {place}"
            for place, host in enumerate(self.hosts)
        }
