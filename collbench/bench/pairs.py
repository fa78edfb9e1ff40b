"""The bandwidth and latency of every pair of ranks: one transfer at a time, in one and in both
directions, measured as a sweep measures.

Stores and loads are schedules of one message (a broadcast of two ranks, and their exchange), and
are verified like every case. Copies by copy engines and through pinned host memory are plain
copies, which are compared byte by byte. The latency is that of an exchange of 8 bytes by ll,
including its launch in a graph: by stores to the peer, and through host memory, as without P2P.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from collbench.bench.pairwise import Pairs
from collbench.bench.points import plan_points
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.errors import UnavailableError
from collbench.core.group import Group
from collbench.core.knobs import DirectMode
from collbench.core.options import Settings
from collbench.core.pairwise import PairSample
from collbench.core.record import Record
from collbench.core.units import to_us
from collbench.device.copies import copy_rate
from collbench.machine.topology.model import Link, Topology
from collbench.machine.topology.paths import GPU_CLASSES, path, path_to_cpu

SIZE_BYTES = 256 << 20  # of a GPU's transfer
CPU_SIZE_BYTES = 16 << 20
WAYS = ("stores", "loads", "copies", "host")
MESSAGES = "messages"  # under a launcher
LATENCIES = {"latency": "", "host latency": "through host memory (P2P off), "}  # and how
OUT_OF_TIME = "no time was left to measure it"
_SMALL_BYTES = 8
_REPEATS = 3  # of messages
_BEHIND = 0.9  # of the median of pairs of the same class; pairs below it are named
# Of the line rate of an NVLink: the share that copy engines reach with packets of 256 bytes.
_COPY_PACKETS = 0.87


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPair:
    """A measurement from rank a to rank b, or of both directions at once.

    way: one of WAYS or LATENCIES, or messages. value: GB/s per direction, or us; None if it was
    refused, or came out wrong, for the reason. record: the row of the launches; None of plain
    copies and of messages.
    """

    a: int
    b: int
    way: str
    is_both: bool = False
    value: float | None = None
    reason: str = ""
    record: Record | None = None


def measure(
    group: Group,
    backend: str,
    ranks: Sequence[int],
    settings: Settings,
    ways: Sequence[str] = WAYS,
    pairs: Sequence[tuple[int, int]] = (),
    end_s: float = math.inf,
) -> Iterator[RankPair]:
    """Every pair of some GPUs (by their CUDA numbers), or of two ranks on CPUs, as each is
    measured. ways: of GPUs; the latency is always measured, with "host" through the host too.
    pairs: these places of `ranks` alone. end_s: of the monotonic clock; what is not measured then
    is OUT_OF_TIME.
    """
    for a, b in pairs or combinations(range(len(ranks)), 2):
        yield from _by_schedules(
            group,
            backend,
            (a, b),
            replace(settings, gpus=(ranks[a], ranks[b]) if backend == "cuda" else ()),
            ways,
            end_s,
        )
        if backend == "cuda":
            copies = [way for way in ("copies", "host") if way in ways]
            yield from _by_copies((a, b), (ranks[a], ranks[b]), copies)


def _by_schedules(
    group: Group,
    backend: str,
    pair: tuple[int, int],
    settings: Settings,
    ways: Sequence[str],
    end_s: float,
) -> Iterator[RankPair]:
    cases: dict[Case, RankPair] = {}
    a, b = pair
    is_gpu = backend == "cuda"
    direct: DirectMode = "on" if is_gpu else "auto"
    base = Case(
        op="sendrecv",
        backend=backend,
        proto="simple" if is_gpu else "auto",
        ranks=2,
        size_bytes=SIZE_BYTES if is_gpu else CPU_SIZE_BYTES,
    )
    of_gpus = [(way, p2p) for way, p2p in (("stores", "push"), ("loads", "pull")) if way in ways]
    for way, p2p in of_gpus if is_gpu else [("loads", "auto")]:
        one_way = replace(
            base, op="broadcast", algo="chain", direct=direct, p2p=p2p, placement="in"
        )
        cases[one_way] = RankPair(a=a, b=b, way=way)
        cases[replace(one_way, root=1)] = RankPair(a=b, b=a, way=way)
        both_ways = replace(base, algo="direct", direct=direct, p2p=p2p)
        cases[both_ways] = RankPair(a=a, b=b, way=way, is_both=True)
    small = replace(base, algo="direct", proto="ll" if is_gpu else "auto", size_bytes=8)
    cases[small] = RankPair(a=a, b=b, way="latency", is_both=True)
    if is_gpu and "host" in ways:
        cases[replace(small, transport="shm")] = replace(cases[small], way="host latency")
    left = {_key(case): pair for case, pair in cases.items()}
    if time.monotonic() < end_s:
        points = plan_points(list(cases), group, settings.max_memory)
        left = {_key(one.case): left[_key(case)] for one, case in zip(points, cases, strict=True)}
        measurement = Measurement(points, group, settings)
        measurement.end_s = end_s
        try:
            measurement.open()
            for record in measurement.records_within(end_s):
                measured = left.pop(_key(record))
                value = record.time_us if measured.way in LATENCIES else record.busbw_gbs
                yield replace(measured, value=value, reason=record.reason, record=record)
        finally:
            measurement.close()
    yield from (replace(pair, reason=OUT_OF_TIME) for pair in left.values())


def by_messages(pairs: Pairs) -> Iterator[RankPair]:
    """Every pair of a launcher's ranks, each alone: messages of one direction, of the other, of
    both at once, then the time of 8 bytes both ways. Each is the median of some repeats.
    """
    large = pairs.settings
    both = replace(large, is_both=True)
    for pair in combinations(range(pairs.world.n), 2):
        for settings in (large, both, replace(both, size_bytes=_SMALL_BYTES)):
            pairs.settings = settings
            repeats = [list(pairs.measure([pair], "alone")) for _ in range(_REPEATS)]
            yield from (_median(same) for same in zip(*repeats, strict=True))


def _median(samples: Sequence[PairSample]) -> RankPair:
    """Repeats of a direction as one measurement; the first that came out wrong, if one did."""
    one = next((one for one in samples if one.gbs is None), samples[0])
    rate = median(one.gbs or 0.0 for one in samples) if one.gbs is not None else None
    is_small = one.size_bytes == _SMALL_BYTES
    time_us = to_us(one.size_bytes / (rate * 1e9)) if rate is not None else None
    return RankPair(
        a=one.a,
        b=one.b,
        way="latency" if is_small else MESSAGES,
        is_both=one.is_both,
        value=time_us if is_small else rate,
        reason=one.reason,
    )


def _key(of: Case | Record) -> tuple[str, str, int, int, bool]:
    """What distinguishes the cases of a pair."""
    return of.op, of.p2p, of.root, of.size_bytes, of.transport == "shm"


def _by_copies(
    pair: tuple[int, int], gpus: tuple[int, int], ways: Sequence[str]
) -> Iterator[RankPair]:
    for way in ways:
        for first, second, is_both in ((0, 1, False), (1, 0, False), (0, 1, True)):
            unmeasured = RankPair(a=pair[first], b=pair[second], way=way, is_both=is_both)
            try:
                rate = copy_rate(
                    gpus[first],
                    gpus[second],
                    SIZE_BYTES,
                    is_both=is_both,
                    through_host=way == "host",
                )
            except UnavailableError as error:
                yield replace(unmeasured, reason=error.message)
                continue
            if rate.wrong:
                yield replace(unmeasured, reason=f"{rate.wrong} bytes came out wrong")
            else:
                yield replace(unmeasured, value=rate.gbs)


def expected_gbs(topology: Topology, a: str, b: str, way: str) -> float | None:
    """The rate that a way between two GPUs should reach, or None if it is not known."""
    between = path(topology, a, b)
    if way in ("stores", "loads") or (way == "copies" and between.kind not in GPU_CLASSES):
        return between.usable_gbs
    if way == "copies":
        raw = [link.raw_gbs for link in between.links if link.raw_gbs is not None]
        return min(raw) * _COPY_PACKETS if len(raw) == len(between.links) else None
    rates = [
        near.usable_gbs
        for gpu in (a, b)
        if (near := path_to_cpu(topology, gpu)) is not None and near.usable_gbs is not None
    ]
    return min(rates) if len(rates) == 2 else None


def behind(
    pairs: Sequence[RankPair], topology: Topology, gpus: Sequence[str]
) -> list[tuple[RankPair, float]]:
    """Pairs that are slower than others of the same way and class, with the median of the class."""
    groups: dict[tuple[str, bool, str], list[RankPair]] = {}
    for pair in pairs:
        if pair.value is not None:
            label = path(topology, gpus[pair.a], gpus[pair.b]).label if gpus else ""
            groups.setdefault((pair.way, pair.is_both, label), []).append(pair)
    slow: list[tuple[RankPair, float]] = []
    for same in groups.values():
        middle = median(pair.value or 0.0 for pair in same)
        is_late = same[0].way in LATENCIES
        slow += [
            (pair, middle)
            for pair in same
            if pair.value is not None
            and (pair.value * _BEHIND > middle if is_late else pair.value < _BEHIND * middle)
        ]
    return slow


def with_rates(
    topology: Topology, gpus: Sequence[str], pairs: Sequence[RankPair], source: str
) -> Topology:
    """The topology with the rates that stores reached as usable rates, on every link that is the
    narrowest of a measured path.

    Where a path stays below that, one of its other links is narrower than it was taken to be: it
    gets the highest rate that any pair reached over it.
    """
    measured = [
        (path(topology, gpus[pair.a], gpus[pair.b]), pair.value)
        for pair in pairs
        if pair.way == "stores" and not pair.is_both and pair.value
    ]
    reached: dict[Link, float] = {}
    passed: dict[Link, float] = {}
    for way, value in measured:
        for link in way.links:
            passed[link] = max(value, passed.get(link, 0.0))
            if link.usable_gbs is None or link.usable_gbs == way.usable_gbs:
                reached[link] = max(value, reached.get(link, 0.0))
    narrower: dict[Link, float] = {}
    for way, value in measured:
        if value < _BEHIND * min(
            (reached[link] for link in way.links if link in reached), default=0.0
        ):
            narrower |= {
                link: passed[link]
                for link in way.links
                if link not in reached and passed[link] < (link.usable_gbs or 0.0)
            }
    rates = reached | narrower
    return replace(
        topology,
        links=tuple(
            replace(link, usable_gbs=rates[link], source=source) if link in rates else link
            for link in topology.links
        ),
    )
