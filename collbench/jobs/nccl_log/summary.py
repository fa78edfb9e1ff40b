"""What a log says, in the few rows that people read. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from collbench.jobs.nccl_log.model import REDUCTIONS, Communicator, LogReport

# NCCL's numbers of element types, with their bytes, and of reductions
DTYPES = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8),
    ("float16", 2), ("float32", 4), ("float64", 8), ("bfloat16", 2), ("fp8e4m3", 1),
    ("fp8e5m2", 1),
)  # fmt: skip
REDOPS = ("sum", "prod", "max", "min", "avg")
# NCCL counts the elements of a block, we the bytes of all
_BLOCKED = ("AllGather", "ReduceScatter", "AllToAll", "AlltoAll", "Gather", "Scatter")
_NIC = re.compile(r"NET/(.+?)/(\d+)(\(\d+\))?((?:/\w[\w()]*)*)\Z")
WITHIN, BETWEEN, UNKNOWN = "within a host", "between hosts", "host not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What a log calls a transport, in parts: P2P, SHM, NET, COLLNET; of a network its name, its
    NIC, and whether the NIC reads and writes GPU memory.
    """

    kind: str
    name: str
    nic: int | None = None
    has_gdr: bool = False


def transport(via: str) -> Transport:
    """The parts of a transport.

    >>> transport("NET/IB/3/GDRDMA"), transport("direct shared memory").kind
    (Transport(kind='NET', name='NET/IB', nic=3, has_gdr=True), 'SHM')
    """
    if match := _NIC.match(via):
        return Transport(
            kind="NET", name=f"NET/{match[1]}", nic=int(match[2][:6]), has_gdr="GDRDMA" in match[4]
        )
    if via.startswith("direct shared"):
        return Transport(kind="SHM", name="SHM (direct shared memory)")
    if via.startswith("P2P/indirect"):
        return Transport(kind="P2P", name="P2P/indirect")
    return Transport(kind=via.partition("/")[0].upper(), name=via)


class JoinedRanks(NamedTuple):
    """Pairs of ranks that one transport joins, over all communicators. pairs: how many, and a few
    of them; channels: the fewest and the most of a pair.
    """

    where: str
    transport: str
    kind: str
    has_gdr: bool
    nics: tuple[int, ...]
    pairs: int
    examples: tuple[str, ...]
    channels: tuple[int, int]


def joined(communicators: Iterable[Communicator]) -> list[JoinedRanks]:
    """How ranks are joined: a row for each transport, within a host and between hosts."""
    masks: dict[tuple[str, str, str, bool], dict[tuple[int, int, int], int]] = {}
    nics: dict[tuple[str, str, str, bool], set[int]] = {}
    for number, known in enumerate(communicators):
        for (source, target, via), mask in known.links.items():
            same = known.is_same_host(source, target)
            parts = transport(via)
            if same is None and parts.kind == "SHM":
                same = True  # hosts share no memory
            elif same is None and parts.kind == "NET" and len(known.link_places[via].hosts) > 1:
                same = False  # several hosts say that they are joined so
            where = UNKNOWN if same is None else WITHIN if same else BETWEEN
            key = (where, parts.name, parts.kind, parts.has_gdr)
            pairs = masks.setdefault(key, {})
            pair = (number, source, target)
            pairs[pair] = pairs.get(pair, 0) | mask
            if parts.nic is not None:
                nics.setdefault(key, set()).add(parts.nic)
    rows = []
    for key, pairs in sorted(masks.items(), key=lambda item: item[0]):
        counts = [mask.bit_count() for mask in pairs.values()]
        some = [f"{source}->{target}" for _, source, target in list(pairs)[:4]]
        nics_of = tuple(sorted(nics.get(key, ())))
        channels = min(counts), max(counts)
        rows.append(JoinedRanks(*key, nics_of, len(counts), tuple(some), channels))
    return rows


def orders(known: Communicator) -> list[tuple[tuple[int, ...], int]]:
    """The different rings, with the number of channels that have each.

    >>> orders(Communicator(name="a", nranks=2, rings={0: (0, 1), 1: (0, 1)}))
    [((0, 1), 2)]
    """
    return Counter(known.rings.values()).most_common()


def depth(parents: dict[int, int]) -> int | None:
    """Steps from the deepest rank of a tree to its root; None if ranks are missing.

    >>> depth({0: -1, 1: 0, 2: 1})
    2
    """
    deepest = 0
    for first in parents.values():
        steps, above = 0, first
        while above >= 0:
            steps += 1
            if above not in parents or steps > len(parents):
                return None
            above = parents[above]
        deepest = max(deepest, steps)
    return deepest


class LoggedTraffic(NamedTuple):
    """Operations of one kind on communicators of one size. calls: of a rank, on the mean;
    sizes: the smallest and the largest in bytes; bytes: of a rank, of all calls.
    """

    op: str
    dtype: str
    redop: str
    nranks: int
    calls: float
    sizes: tuple[int, int]
    bytes: float


def dtype_name(number: int) -> str:
    """The name of NCCL's number of an element type."""
    return DTYPES[number][0] if 0 <= number < len(DTYPES) else f"type {number}"


def redop_name(number: int) -> str:
    """The name of NCCL's number of a reduction, of which a program may make others."""
    return REDOPS[number] if number < len(REDOPS) else "custom"


def size_of(op: str, count: int, dtype: int, nranks: int) -> int:
    """The bytes of an operation, as our rows count them: of all blocks.

    >>> size_of("AllGather", 256, 7, 4), size_of("AllReduce", 256, 7, 4)
    (4096, 1024)
    """
    bytes_each = DTYPES[dtype][1] if 0 <= dtype < len(DTYPES) else 1
    return count * bytes_each * (nranks if op in _BLOCKED else 1)


def traffic(report: LogReport) -> list[LoggedTraffic]:
    """Operations by kind, those with the most bytes first."""
    totals: dict[tuple[str, str, str, int], Counter[int]] = {}
    members: dict[tuple[str, str, str, int], set[object]] = {}
    for known in report.communicators:
        for member, calls in known.calls.items():
            for number, times in Counter(chain(calls.signatures, calls.p2p)).items():
                one = report.signatures[number]
                redop = redop_name(one.redop) if one.op in REDUCTIONS else ""
                key = (one.op, dtype_name(one.dtype), redop, known.nranks)
                size = size_of(one.op, one.count, one.dtype, known.nranks)
                totals.setdefault(key, Counter())[size] += times
                members.setdefault(key, set()).add((member.host, member.pid, member.device))
    rows = [
        LoggedTraffic(
            *key,
            calls=sum(sizes.values()) / len(members[key]),
            sizes=(min(sizes), max(sizes)),
            bytes=sum(size * times for size, times in sizes.items()) / len(members[key]),
        )
        for key, sizes in totals.items()
    ]
    return sorted(rows, key=lambda row: -row.bytes)


class ChosenRange(NamedTuple):
    """Sizes that follow each other and for which NCCL took the same; channels: the fewest and the
    most.
    """

    op: str
    sizes: tuple[int, int]
    algo: str
    proto: str
    channels: tuple[int, int] | None


def chosen(report: LogReport) -> list[ChosenRange]:
    """What NCCL took, by operation and range of sizes."""
    rows: list[ChosenRange] = []
    for (op, size), one in sorted(report.choices.items(), key=lambda item: item[0]):
        last, first = rows[-1] if rows else None, size
        count = (one.channels, one.channels) if one.channels is not None else None
        if last and (last.op, last.algo, last.proto) == (op, one.algo, one.proto):
            if count and last.channels:
                count = (min(last.channels[0], count[0]), max(last.channels[1], count[1]))
            first = rows.pop().sizes[0]
        rows.append(ChosenRange(op, (first, size), one.algo, one.proto, count))
    return rows


def crossings(
    known: Communicator, order: Sequence[int], numa: dict[tuple[str, str], str]
) -> tuple[int, int] | None:
    """How often a ring goes from one NUMA node of a host to another, and how often it must; None
    if the log does not say on which node a GPU is.
    """
    nodes = []
    for rank in order:
        member = known.ranks.get(rank)
        node = numa.get((member.host, member.bus)) if member else None
        if member is None or node is None:
            return None
        nodes.append((member.host, node))
    if len(nodes) < 2:
        return None
    steps = list(zip(nodes, nodes[1:] + nodes[:1], strict=True))
    crossed = sum(a[0] == b[0] and a[1] != b[1] for a, b in steps)
    hosts = {host for host, _ in nodes}
    least = 0
    for host in hosts:
        count = len({node for name, node in nodes if name == host})
        # alone it closes its circle; with others it is entered and left once
        least += (count if count > 1 else 0) if len(hosts) == 1 else count
    return crossed, least
