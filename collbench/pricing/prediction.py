"""Prices of all algorithms on any number of hosts that are all alike.

    predict(machine, "allreduce", hosts, sizes) -> Prediction

For each number of hosts and size every algorithm, protocol, number of channels and size of a chunk
has a price (growth.py); the least is what a careful choice reaches. Messages between hosts go from
GPU to GPU by the NICs (GPUDirect RDMA), without a CPU that copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from collbench.planning.plan import CHANNEL_GRAIN_BYTES
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.pricing.constants import WAYS, GpuCosts
from collbench.pricing.fabric import RATES, Fabric
from collbench.pricing.growth import Growth
from collbench.pricing.lanes import Lanes, Values
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import ScheduleError

_CHANNELS = (1, 2, 4, 8, 16, 32, 64)
# Bytes of a slot: what FIFOs of four slots take stays within some MiB a connection.
_CHUNKS = {"simple": (1 << 16, 1 << 18), "ll": (1 << 15,), "ll128": (1 << 15, 1 << 16)}
_LEAST_PIECE = 256  # bytes for which another channel can be worth its CTA
_WIRE_BYTES = 1 << 20  # large enough for whole lines
LATENCIES = tuple(f"latency.{way}" for way in WAYS)
# What can be changed, and whose share in a result is asked for.
CONSTANTS = (*RATES, *LATENCIES, "launch", "messages", "cta", "memory")


@dataclass(frozen=True, kw_only=True, eq=False)
class Machine:
    """A fabric, and what prices events on it. factors: what is not as it is, by CONSTANTS, as a
    factor; seconds: latencies that were given.
    """

    fabric: Fabric
    costs: GpuCosts
    factors: Mapping[str, float]
    seconds: Mapping[str, float]


class Setting(NamedTuple):
    """How a lane runs a schedule."""

    proto: str
    channels: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The price of an algorithm at a number of hosts and a size. limit: the kind of what is at work
    longest, and for which share of the time. hops: of the longest chain, and those between domains.
    """

    algo: str
    hosts: int
    ranks: int
    size_bytes: int
    setting: Setting
    seconds: float
    limit: str
    limit_share: float
    hops: tuple[int, int]

    def busbw_gbs(self, op: OpName) -> float:
        return self.size_bytes / self.seconds * collective(op).factor(self.ranks) / 1e9


def lanes_of(
    machine: Machine,
    protos: Sequence[str],
    piece_bytes: Values,
    channels: Values,
    ctas: Values,
    factors: Mapping[str, Values],
) -> Lanes:
    """Lanes with these settings, and constants changed by these factors too."""
    on = machine.costs
    names = sorted(set(protos))
    place = np.array([names.index(proto) for proto in protos])

    def by_proto(numbers: Sequence[float]) -> Values:
        return np.array(numbers)[place]

    def factor(name: str) -> Values:
        return machine.factors.get(name, 1.0) * factors.get(name, np.ones(len(place)))

    kinds = [on.kinds[name] for name in names]
    hops = {way: [on.hop_us(kind, way) for kind in kinds] for way in WAYS}
    for name, seconds in machine.seconds.items():
        hops[name.removeprefix("latency.")] = [seconds * 1e6] * len(kinds)
    protocols = [PROTOCOLS.load(name) for name in names]
    messages, cta = factor("messages"), factor("cta")
    return Lanes(
        piece_bytes=piece_bytes,
        channels=channels,
        wire=by_proto(
            [
                float(protocol.wire_bytes(_WIRE_BYTES)) / _WIRE_BYTES / kind.link_share
                for protocol, kind in zip(protocols, kinds, strict=True)
            ]
        ),
        has_flags=by_proto([not protocol.HAS_SLICES for protocol in protocols]).astype(bool),
        launch_s=factor("launch") * 1e-6 * (on.launch_us + on.cta_us * (ctas - 1)),
        step_s=messages * by_proto([kind.step_us * 1e-6 for kind in kinds]),
        take_s=messages * by_proto([kind.take_us * 1e-6 for kind in kinds]),
        post_s=messages * by_proto([kind.post_us * 1e-6 for kind in kinds]),
        read_s=by_proto([1e-9 / kind.read_gbs for kind in kinds]) / cta,
        write_s=by_proto([1e-9 / kind.write_gbs for kind in kinds]) / cta,
        send_s=by_proto([1e-9 / kind.send_gbs for kind in kinds]) / cta,
        memory_s=1e-9 / on.memory_gbs / factor("memory"),
        hop_s={
            name: by_proto([us * 1e-6 for us in hop]) * factor(f"latency.{name}")
            for name, hop in hops.items()
        },
        share={rate: factor(rate) for rate in RATES},
    )


class _Wanted(NamedTuple):
    """A lane: hosts, size, setting, and what follows from them."""

    domains: int
    ranks: int
    hosts: int
    size_bytes: int
    setting: Setting
    piece_bytes: float
    loops: float
    used: int  # channels that have data
    ctas: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """An algorithm on a machine."""

    machine: Machine
    op: OpName
    name: str

    @cached_property
    def _growths(self) -> dict[int, Growth]:
        return {}

    def growth(self, hosts: int) -> tuple[Growth, int]:
        """What prices so many hosts, and how many domains they are."""
        fabric = self.machine.fabric.on(hosts)
        if fabric.width not in self._growths:
            self._growths[fabric.width] = Growth(fabric, self.op, self.name)
        return self._growths[fabric.width], max(1, hosts // fabric.hosts)

    def wanted(self, hosts: int, size_bytes: int) -> list[_Wanted]:
        """The settings that are tried."""
        growth, domains = self.growth(hosts)
        what = collective(self.op)
        ranks = domains * growth.fabric.width
        parts, widest, tracks = (
            growth.parts(domains),
            growth.widest(domains),
            growth.tracks(domains),
        )
        block = what.block_count(size_bytes, 1, ranks)
        wanted = {}
        for proto, chunks in _CHUNKS.items():
            if PROTOCOLS.load(proto).NEEDS_NVLINK and (domains > 1 or not growth.fabric.is_nvlink):
                continue
            for channels in _CHANNELS:
                if channels > 1 and channels * tracks > growth.fabric.ctas:
                    break
                share = -(-block // (channels * CHANNEL_GRAIN_BYTES)) * CHANNEL_GRAIN_BYTES
                size = min(share, block)
                used = -(-block // share) if block else 0
                if not size or used < channels or (channels > 1 and size < parts * _LEAST_PIECE):
                    continue
                for chunk in chunks:
                    piece = max(16.0, chunk / widest)
                    loops = -(-size // (parts * piece))
                    key = proto, channels, loops
                    wanted.setdefault(
                        key,
                        _Wanted(
                            domains,
                            ranks,
                            hosts,
                            size_bytes,
                            Setting(proto, channels, chunk),
                            size / parts / loops,
                            loops,
                            used,
                            used * tracks,
                        ),
                    )
        return list(wanted.values())

    def points(
        self, hosts: Sequence[int], sizes: Sequence[int]
    ) -> tuple[list[Point], dict[int, str]]:
        """The least price at each number of hosts and size, and why there is none at some hosts."""
        wanted: list[_Wanted] = []
        reasons: dict[int, str] = {}
        for number in hosts:
            try:
                wanted += [one for size in sizes for one in self.wanted(number, size)]
            except ScheduleError as error:
                reasons[number] = error.message
        best: dict[tuple[int, int], Point] = {}
        for point in self._priced(wanted):
            key = point.hosts, point.size_bytes
            if key not in best or point.seconds < best[key].seconds:
                best[key] = point
        for number in hosts:
            if not any(key[0] == number for key in best):
                reasons.setdefault(number, "its price follows no rule of growth")
        return list(best.values()), reasons

    def _priced(self, wanted: Sequence[_Wanted]) -> list[Point]:
        by_width: dict[int, list[_Wanted]] = {}
        for one in wanted:
            by_width.setdefault(self.growth(one.hosts)[0].fabric.width, []).append(one)
        points = []
        for some in by_width.values():
            growth, _ = self.growth(some[0].hosts)
            try:
                price = growth.price(
                    self.lanes(some),
                    np.array([one.loops for one in some]),
                    np.array([one.domains for one in some]),
                )
            except ScheduleError:
                continue
            kinds = list(price.busy)
            shares = np.array([price.busy[kind] for kind in kinds]) / price.seconds
            most = shares.argmax(axis=0)
            for k in np.flatnonzero(price.is_sure):
                one = some[k]
                points.append(
                    Point(
                        algo=self.name,
                        hosts=one.hosts,
                        ranks=one.ranks,
                        size_bytes=one.size_bytes,
                        setting=one.setting,
                        seconds=float(price.seconds[k]),
                        limit=kinds[most[k]],
                        limit_share=float(shares[most[k], k]),
                        hops=(0, 0),
                    )
                )
        return points

    def lanes(self, some: Sequence[_Wanted], factors: Mapping[str, Values] | None = None) -> Lanes:
        return lanes_of(
            self.machine,
            [one.setting.proto for one in some],
            np.array([one.piece_bytes for one in some]),
            np.array([float(one.used) for one in some]),
            np.array([float(one.ctas) for one in some]),
            factors or {},
        )
