"""Prices of all algorithms on any number of hosts that are all alike.

    predict(machine, "allreduce", hosts, sizes) -> Prediction

For each number of hosts and size every algorithm, protocol, number of channels and size of a chunk
has a price (growth.py); the least is what a careful choice reaches. Messages between hosts go from
GPU to GPU by the NICs (GPUDirect RDMA), without a CPU that copies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from collbench.planning.plan import CHANNEL_GRAIN_BYTES
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.pricing.constants import WAYS, GpuCosts
from collbench.pricing.fabric import RATES, Fabric
from collbench.pricing.growth import WIDE, Growth, WideGrowth
from collbench.pricing.lanes import Lanes, Values
from collbench.schedules.algorithms import algorithms_of
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import RefusedError, ScheduleError
from collbench.util.units import rate_gbs

_CHANNELS = (1, 2, 4, 8, 16, 32, 64)
# Bytes of a slot: what FIFOs of four slots take stays within some MiB a connection.
_CHUNKS = {"simple": (1 << 16, 1 << 18), "ll": (1 << 15,), "ll128": (1 << 15, 1 << 16)}
_LEAST_PIECE = 256  # bytes for which another channel can be worth its CTA
_LEAST_CHUNK = 16.0
_STEP = 0.02  # of a constant, for slopes
LATENCY = "latency"
_WIRE_BYTES = 1 << 20  # large enough for whole lines
LATENCIES = tuple(f"latency.{way}" for way in WAYS)
# What can be changed, and whose share in a result is asked for.
CONSTANTS = (*RATES, *LATENCIES, "launch", "cold", "messages", "cta", "memory")


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


class Lane(NamedTuple):
    """A setting at a number of hosts and a size, and what follows. used: channels that have data;
    piece_bytes: of a slice.
    """

    hosts: int
    domains: int
    ranks: int
    size_bytes: int
    setting: Setting
    piece_bytes: float
    loops: float
    used: int
    ctas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The least price of an algorithm at a number of hosts and a size. busy: seconds that what is
    busiest of each kind is at work. hops: of the longest chain, and those between domains.
    alpha_beta_s: hops by their latencies, and the bytes of the fullest link by its rate.
    """

    algo: str
    lane: Lane
    seconds: float
    busy: Mapping[str, float]
    hops: tuple[int, int]
    alpha_beta_s: float

    def busbw_gbs(self, op: OpName) -> float:
        """Bus bandwidth."""
        lane = self.lane
        return rate_gbs(lane.size_bytes, self.seconds) * collective(op).factor(lane.ranks)

    @property
    def limit(self) -> str:
        """What is at work for most of the time, if it is for more than half; else latency."""
        most = max(self.busy, key=lambda kind: self.busy[kind])
        return most if self.busy[most] > self.seconds / 2 else LATENCY


def lanes_of(
    machine: Machine,
    protos: Sequence[str],
    piece_bytes: Values,
    channels: Values,
    ctas: Values,
    is_cold: Values,
    factors: Mapping[str, Values],
) -> Lanes:
    """Lanes with these settings, and constants changed by these factors too. is_cold: whether their
    data is in no cache.
    """
    on = machine.costs
    names = sorted(set(protos))
    place = np.array([names.index(proto) for proto in protos])

    def by_proto(numbers: Sequence[float]) -> Values:
        return np.asarray(np.array(numbers)[place])

    def factor(name: str) -> Values:
        return np.asarray(machine.factors.get(name, 1.0) * factors.get(name, np.ones(len(place))))

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
        # launches follow each other, and each begins while the one before it ends
        launch_s=1e-6
        * (
            factor("launch") * np.maximum(0.0, on.launch_us - on.pdl_us + on.cta_us * (ctas - 1))
            + factor("cold") * on.cold_us * is_cold
        ),
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Algorithm:
    """An algorithm on a machine."""

    machine: Machine
    op: OpName
    name: str

    @cached_property
    def _growths(self) -> dict[tuple[int, bool], Growth | WideGrowth]:
        return {}

    def growth(self, hosts: int) -> tuple[Growth | WideGrowth, int]:
        """What prices so many hosts, and how many domains they are."""
        fabric = self.machine.fabric.on(hosts)
        domains = hosts // fabric.hosts
        key = fabric.width, domains > 1 and fabric.width > WIDE
        if key not in self._growths:
            kind = WideGrowth if key[1] else Growth
            self._growths[key] = kind(fabric, self.op, self.name)
        return self._growths[key], domains

    def settings(self, hosts: int, size_bytes: int) -> list[Lane]:
        """The settings that are tried. Raises ScheduleError where the algorithm serves no such
        hosts.
        """
        growth, domains = self.growth(hosts)
        fabric = growth.fabric
        ranks = domains * fabric.width
        parts, widest = growth.parts(domains), growth.widest(domains)
        tracks = growth.tracks(domains)
        block = collective(self.op).block_count(size_bytes, 1, ranks)
        lanes: dict[tuple[str, int, float], Lane] = {}
        for (proto, chunks), channels in product(_CHUNKS.items(), _CHANNELS):
            is_near = domains == 1 and fabric.is_nvlink
            if PROTOCOLS.load(proto).NEEDS_NVLINK and not is_near:
                continue
            share = -(-block // (channels * CHANNEL_GRAIN_BYTES)) * CHANNEL_GRAIN_BYTES
            size = min(share, block)
            used = -(-block // share) if block else 0
            is_spread = channels * tracks <= fabric.ctas and size >= parts * _LEAST_PIECE
            if not size or used < channels or (channels > 1 and not is_spread):
                continue
            for chunk in chunks:
                loops = -(-size // (parts * max(_LEAST_CHUNK, chunk / widest)))
                lane = Lane(
                    hosts=hosts,
                    domains=domains,
                    ranks=ranks,
                    size_bytes=size_bytes,
                    setting=Setting(proto, channels, chunk),
                    piece_bytes=size / parts / loops,
                    loops=loops,
                    used=used,
                    ctas=used * tracks,
                )
                lanes.setdefault((proto, channels, loops), lane)
        return list(lanes.values())

    def points(
        self, hosts: Sequence[int], sizes: Sequence[int]
    ) -> tuple[dict[tuple[int, int], Point], dict[int, str]]:
        """The least price by hosts and size, and why there is none at some numbers of hosts."""
        reasons: dict[int, str] = {}
        best: dict[tuple[int, int], Point] = {}
        by_growth: dict[int, list[Lane]] = {}
        for number in hosts:
            try:
                growth, domains = self.growth(number)
                lanes = [lane for size in sizes for lane in self.settings(number, size)]
                growth.hops(domains)
            except ScheduleError as error:
                reasons[number] = error.message
                continue
            if lanes:
                by_growth.setdefault(id(growth), []).extend(lanes)
            else:
                reasons[number] = "these sizes have less than a byte for each rank"
        for lanes in by_growth.values():
            for point in self._priced(lanes):
                key = point.lane.hosts, point.lane.size_bytes
                if key not in best or point.seconds < best[key].seconds:
                    best[key] = point
        for number in {*hosts} - {*reasons}:
            if not any(there == number for there, _ in best):
                reasons[number] = "its price follows no rule of growth"
        return best, reasons

    def _priced(self, lanes: Sequence[Lane]) -> Iterator[Point]:
        """The prices that are sure."""
        growth, _ = self.growth(lanes[0].hosts)
        values = self.values(lanes)
        price = growth.price(
            values,
            np.array([lane.loops for lane in lanes]),
            np.array([lane.domains for lane in lanes]),
        )
        own_s = values.step_s + values.take_s + values.post_s
        near = "nvlink" if growth.fabric.is_nvlink else "pcie"
        for k in map(int, np.flatnonzero(price.is_sure)):
            hops = growth.hops(lanes[k].domains)
            latency_s = {way: values.hop_s[way][k] + own_s[k] for way in (near, "net")}
            yield Point(
                algo=self.name,
                lane=lanes[k],
                seconds=float(price.seconds[k]),
                busy={kind: float(seconds[k]) for kind, seconds in price.busy.items()},
                hops=hops,
                alpha_beta_s=float(
                    (hops[0] - hops[1]) * latency_s[near]
                    + hops[1] * latency_s["net"]
                    + max(price.busy[rate][k] for rate in RATES)
                ),
            )

    def values(self, lanes: Sequence[Lane], factors: Mapping[str, Values] | None = None) -> Lanes:
        """Lanes with the machine's constants, changed by these factors too."""
        return lanes_of(
            self.machine,
            [lane.setting.proto for lane in lanes],
            np.array([lane.piece_bytes for lane in lanes]),
            np.array([float(lane.used) for lane in lanes]),
            np.array([float(lane.ctas) for lane in lanes]),
            np.array([self._is_cold(lane) for lane in lanes]),
            factors or {},
        )

    def _is_cold(self, lane: Lane) -> bool:
        """Whether its data is in no cache."""
        what, n = collective(self.op), lane.ranks
        blocks = max(
            sum(what.blocks(buffer, n, 0, rank) for buffer in ("in", "out")) for rank in (0, n - 1)
        )
        set_bytes = blocks * lane.size_bytes / (n if what.size_in_blocks else 1)
        return self.machine.costs.is_cold(set_bytes)

    def seconds(self, lane: Lane) -> float:
        """The price of one setting."""
        growth, _ = self.growth(lane.hosts)
        price = growth.price(self.values([lane]), np.array([lane.loops]), np.array([lane.domains]))
        return float(price.seconds[0])

    def ends(self, hosts: int) -> int:
        """Ends of connections of the rank that has most."""
        growth, domains = self.growth(hosts)
        return growth.ends(domains)

    def elasticities(self, lane: Lane) -> dict[str, float]:
        """By how many percent the time changes for one percent more of each constant."""
        growth, _ = self.growth(lane.hosts)
        ups = np.concatenate(
            [np.repeat(1 + _STEP, len(CONSTANTS)), np.repeat(1 - _STEP, len(CONSTANTS))]
        )
        lanes = [lane] * len(ups)
        factors = {
            name: np.where(np.arange(len(ups)) % len(CONSTANTS) == place, ups, 1.0)
            for place, name in enumerate(CONSTANTS)
        }
        price = growth.price(
            self.values(lanes, factors),
            np.full(len(ups), lane.loops),
            np.full(len(ups), lane.domains),
        )
        more, less = np.log(price.seconds).reshape(2, -1)
        slopes = (more - less) / np.log((1 + _STEP) / (1 - _STEP))
        return {name: float(slope) for name, slope in zip(CONSTANTS, slopes, strict=True)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """points: by algorithm, and by hosts and size. reasons: why an algorithm has none at a number
    of hosts.
    """

    machine: Machine
    op: OpName
    algorithms: Mapping[str, Algorithm]
    points: Mapping[str, Mapping[tuple[int, int], Point]]
    reasons: Mapping[str, Mapping[int, str]]

    def at(self, hosts: int, size_bytes: int) -> list[Point]:
        """The prices of all algorithms, the least first."""
        there = [points.get((hosts, size_bytes)) for points in self.points.values()]
        return sorted((one for one in there if one is not None), key=lambda one: one.seconds)

    def ranges(self, hosts: int, sizes: Sequence[int]) -> list[tuple[str, int, int]]:
        """Which algorithm is best from which size to which."""
        ranges: list[tuple[str, int, int]] = []
        for size in sizes:
            best = self.at(hosts, size)
            if not best:
                continue
            if ranges and ranges[-1][0] == best[0].algo:
                ranges[-1] = (*ranges[-1][:2], size)
            else:
                ranges.append((best[0].algo, size, size))
        return ranges

    def elasticities(self, point: Point) -> dict[str, float]:
        """The sensitivity of a point, the largest first."""
        found = self.algorithms[point.algo].elasticities(point.lane)
        return dict(sorted(found.items(), key=lambda item: -abs(item[1])))


def predict(machine: Machine, op: OpName, hosts: Sequence[int], sizes: Sequence[int]) -> Prediction:
    """The prices of a collective by every algorithm. Raises RefusedError for a machine whose links
    have no known rates, or that cannot have so many hosts.
    """
    for number in hosts:
        fabric = machine.fabric.on(number)
        if number > fabric.hosts:
            fabric.nic_gbs(0)
        if number * fabric.width // fabric.hosts < 2:
            raise RefusedError(
                f"one host of {fabric.name} has one GPU: nothing travels", "give more --hosts"
            )
    algorithms = {name: Algorithm(machine=machine, op=op, name=name) for name in algorithms_of(op)}
    found = {name: algorithm.points(hosts, sizes) for name, algorithm in algorithms.items()}
    return Prediction(
        machine=machine,
        op=op,
        algorithms=algorithms,
        points={name: points for name, (points, _) in found.items()},
        reasons={name: reasons for name, (_, reasons) in found.items()},
    )
