"""What NCCL would take for a collective on hosts that are all alike, in closed forms.

The time of an algorithm with a protocol is a latency and bytes over a rate, as in NCCL's tuning
model (graph/tuning.cc), by which the algorithm is chosen. What it then takes is of the machine's
links, with shares and latencies that were fitted to published figures:

- A ring carries the lesser of what GPUs of a host pass on and of all NICs of a host.
- A tree, and NVLSTree, which sums within hosts in the switch, carry S once over the network between
  two hosts, and twice between more. So allreduce on two hosts may exceed its NICs.
- Alltoall sends what leaves the host by the NIC of each GPU.

Not in it: congestion, placement on switches, SHARP, PAT, several communicators at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.units import rate_gbs
from collbench.planning.nccl.constants import PROTOCOLS, Constants, constants
from collbench.planning.nccl.machine import NcclMachine
from collbench.planning.price.errors import errors_of

_ROOTED: tuple[OpName, ...] = ("broadcast", "reduce")
OPS: tuple[OpName, ...] = ("allreduce", "allgather", "reducescatter", "alltoall", *_ROOTED)
_PLATEAU = {True: 1.9, False: 1.4}  # of a Simple ring over hosts: on Volta and older, and later
_PLATEAU_BYTES = 64  # of a rank and channel, from which on that is so
_CHANNELS = 16
_LL_OF_TREE = 3.8
_AS_GOOD = 1.1  # times the least by NCCL's tables, whose rates are not known so well
_LL128_OF_RING, _LL128_OF_TREE, _LL128_OF_TREE_HERE = 0.92, 15 / 16, 7 / 9


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclPrice:
    """low_us, high_us: between them nine of ten published rows of such a size would be."""

    op: OpName
    hosts: int
    ranks: int
    size_bytes: int
    algo: str
    proto: str
    time_us: float
    low_us: float
    high_us: float

    @property
    def busbw_gbs(self) -> float:
        return self.busbw_at(self.time_us)

    @property
    def low_gbs(self) -> float:
        return self.busbw_at(self.high_us)

    @property
    def high_gbs(self) -> float:
        return self.busbw_at(self.low_us)

    def busbw_at(self, time_us: float) -> float:
        """Bus bandwidth in such a time."""
        return rate_gbs(self.size_bytes, time_us * 1e-6) * collective(self.op).factor(self.ranks)


class _Term(NamedTuple):
    """by_tables_us: by NCCL's own tables, which decide what it chooses."""

    algo: str
    proto: str
    time_us: float
    by_tables_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """A machine's domain, how many of them, and what links, rings and all NICs carry."""

    machine: NcclMachine
    domains: int
    near_gbs: float
    ring_gbs: float
    net_gbs: float
    all: Constants

    @property
    def ranks(self) -> int:
        return self.machine.gpus * self.domains

    @property
    def more_us(self) -> float:
        """What a launch takes longer than in NCCL's tables."""
        return self.all.fitted.get(f"{self.machine.arch}_us", 0.0)

    def wire_us(self, algo: str) -> float:
        """What a hop over the network takes longer than in NCCL's tables, of InfiniBand."""
        fabric, fitted = self.machine.fabric, self.all.fitted
        return fitted.get(f"wire_{fabric}_{algo}_us", fitted.get(f"wire_{fabric}_us", 0.0))

    def hop_us(self, algo: str, proto: int) -> tuple[float, float]:
        """Of a step inside a domain, and over the network, by NCCL's tables."""
        tables = self.all.hop_us
        near = "pcie" if self.machine.near == "pcie" else "nvlink"
        return tables[near][algo][proto], tables["net"][algo][proto]

    def ll_gbs(self) -> float:
        """The most that NCCL's tables give LL."""
        return self.all.ll_gbs[self.machine.arch][min(self.domains, 3) - 1]

    def protocols(self) -> Iterator[tuple[int, str]]:
        """LL128 is for NVLinks; the first EFA has neither it nor LL between hosts."""
        for number, name in enumerate(PROTOCOLS):
            is_old = self.machine.fabric == "efa1" and self.domains > 1
            is_plain = self.machine.near == "pcie" or self.machine.fabric == "tcp"
            if name == "simple" or not (is_old or (name == "ll128" and is_plain)):
                yield number, name


def nccl_price(
    machine: NcclMachine,
    op: OpName,
    hosts: int,
    size_bytes: int,
    *,
    algo: str | None = None,
    proto: str | None = None,
    uses_nvls: bool = True,
    is_tuned: bool = False,
    own: Constants | None = None,
) -> NcclPrice:
    """The price of what NCCL would choose, or of an algorithm or a protocol that it was told.

    is_tuned: with enough CTAs and queue pairs. Raises RefusedError for hosts that the machine
    cannot have, KeyError for an operation that is not in OPS.
    """
    known = constants() if own is None else own
    domain, domains = machine.on(hosts)
    fitted = known.fitted
    more = fitted.get(f"tuned_{domain.arch}", 1.0) if is_tuned else fitted["ring"]
    where = _Where(
        machine=domain,
        domains=domains,
        near_gbs=domain.near_gbs or math.inf,
        ring_gbs=(domain.near_gbs or math.inf) * more,
        net_gbs=domain.network_gbs * fitted[f"nic_{domain.fabric}"] if domains > 1 else math.inf,
        all=known,
    )
    terms = list(_terms(where, op, float(size_bytes), uses_nvls=uses_nvls))
    chosen = [one for one in terms if one.algo == (algo or one.algo)] or terms
    chosen = [one for one in chosen if one.proto == (proto or one.proto)] or chosen
    limit_us = _AS_GOOD * min(one.by_tables_us for one in chosen)
    near = [one for one in chosen if one.by_tables_us <= limit_us]
    best = min(near, key=lambda one: one.time_us)
    scope: Literal["host", "hosts", "racks"] = "hosts" if domains > 1 else "host"
    error = errors_of(known.errors, "racks" if machine.hosts > 1 else scope, size_bytes)
    return NcclPrice(
        op=op,
        hosts=hosts,
        ranks=where.ranks,
        size_bytes=size_bytes,
        algo=best.algo,
        proto=best.proto,
        time_us=best.time_us,
        low_us=best.time_us * (error.low if error else 1.0),
        high_us=best.time_us * (error.high if error else 1.0),
    )


def _terms(where: _Where, op: OpName, size: float, *, uses_nvls: bool) -> Iterator[_Term]:
    if op == "alltoall":
        yield _alltoall(where, size)
        return
    yield from _rings(where, op, size)
    if op == "allreduce":
        yield from _trees(where, size)
        if where.machine.has_nvls and uses_nvls:
            yield _nvls(where, size)


def _rings(where: _Where, op: OpName, size: float) -> Iterator[_Term]:
    """Steps one behind the other; the bytes of a rank's share at each."""
    n, domains, fitted = where.ranks, where.domains, where.all.fitted
    steps = 2 * (n - 1) if op == "allreduce" else n if op in _ROOTED else n - 1
    between = 0 if domains == 1 else 2 * domains if op == "allreduce" else domains
    between = min(between, steps)
    bytes_ = size * (1.0 if op in _ROOTED else steps / n)
    bus = min(where.ring_gbs, where.net_gbs)
    ll_gbs = where.ll_gbs() * (fitted["ll_share"] if domains > 1 else 1.0)
    table_gbs = (min(where.ll_gbs(), bus / 2), _LL128_OF_RING * bus, bus)
    rates_gbs = (min(ll_gbs, bus / 2), *table_gbs[1:])
    for number, name in where.protocols():
        near_us, net_us = where.hop_us("ring", number)
        base_us = where.all.base_us["ring"][number]
        hops_us = (steps - between) * near_us + between * net_us
        table_us = base_us + hops_us
        if op == "allreduce" and domains > 1 and name == "simple":
            is_large = size / (_CHANNELS * n) >= _PLATEAU_BYTES
            table_us *= _PLATEAU[where.machine.arch == "volta"] if is_large else 1.0
        hops_us += between * where.wire_us("ring")
        bytes_us = bytes_ / rates_gbs[number] / 1e3
        # all links of a ring are at work from its first step on
        fill_us = min(fitted["ring_fill"] * _fill_us(hops_us, bytes_us), hops_us)
        time_us = where.more_us + base_us + hops_us + bytes_us + fill_us
        yield _Term("ring", name, time_us, table_us + bytes_ / table_gbs[number] / 1e3)


def _fill_us(hops_us: float, bytes_us: float) -> float:
    """How long a pipeline of chunks of the best size fills: hops, bytes and this are together the
    square of the root of hops plus the root of bytes.
    """
    return 2 * math.sqrt(hops_us * bytes_us)


def _trees(where: _Where, size: float) -> Iterator[_Term]:
    """Up and down two trees, of which the network carries each vector once or twice."""
    fitted, domains = where.all.fitted, where.domains
    near = fitted["tree"] * where.near_gbs / 2
    net = where.net_gbs if domains <= 2 else where.net_gbs / 2 * fitted["tree_many"]
    rate = min(near, net)
    own = _LL128_OF_TREE_HERE if domains == 1 else _LL128_OF_TREE
    rates = (min(where.ll_gbs() / 2, rate / _LL_OF_TREE), own * rate, rate)
    for number, name in where.protocols():
        near_us, net_us = where.hop_us("tree", number)
        base_us = where.all.base_us["tree"][number]
        levels = math.log2(domains)
        table_us = base_us + 2 * ((where.machine.gpus - 1) * near_us + levels * net_us)
        table_us += size / (rates[number] * _tree_factor(where, name, size)) / 1e3
        hops_us = 2 * (where.machine.gpus - 1) * near_us
        hops_us += 2 * levels * (net_us + where.wire_us("tree"))
        bytes_us = size / rates[number] / 1e3
        fill_us = fitted["tree_fill"] * _fill_us(hops_us, bytes_us)
        time_us = where.more_us + base_us + hops_us + bytes_us + fill_us
        yield _Term("tree", name, time_us, table_us)


def _tree_factor(where: _Where, proto: str, size: float) -> float:
    factors = where.all.tree_factors[proto]
    place = int(math.log2(max(size / 64, 1)))
    return factors[place] if place < len(factors) else 1.0


def _nvls(where: _Where, size: float) -> _Term:
    """Sums in the switch, with a tree between domains."""
    fitted, domains, tables = where.all.fitted, where.domains, where.all.nvls_us
    levels = math.log2(domains)
    table_us = tables["nvlink"] + 2 * levels * tables["net"]
    kind = "nvls" if domains == 1 else "nvls_tree"
    share = fitted[f"{kind}_{where.machine.arch}"]
    net = where.net_gbs if domains <= 2 else where.net_gbs / 2
    bytes_us = size / min(share * where.near_gbs, net) / 1e3
    hops_us = table_us * fitted["nvls_us"] + 2 * levels * where.wire_us("tree")
    own_us = fitted["nvls_fill_us"] * (1 + levels * where.wire_us("tree") / hops_us)
    fill_us = min(own_us, _fill_us(hops_us, bytes_us))
    time_us = where.more_us + hops_us + bytes_us + fill_us
    return _Term("nvls" if domains == 1 else "nvlstree", "simple", time_us, table_us + bytes_us)


def _alltoall(where: _Where, size: float) -> _Term:
    """Each GPU sends by the NIC that serves it what leaves its domain."""
    fitted, n, gpus = where.all.fitted, where.ranks, where.machine.gpus
    spread = where.domains ** -fitted["alltoall_hosts"] if where.domains > 2 else 1.0
    nic = where.net_gbs / gpus * fitted["alltoall"] * spread
    bytes_us = max(size * (n - gpus) / n / nic, size * (gpus - 1) / n / where.near_gbs) / 1e3
    latency = where.all.base_us["ring"][0] + fitted["alltoall_us"] * math.log2(n)
    latency += (n - gpus) * where.hop_us("ring", 0)[0] / 2 + where.more_us
    time_us = latency + bytes_us
    return _Term("p2p", "simple", time_us, time_us)
