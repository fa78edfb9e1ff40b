"""The wire ledger: what passed the links while a row was measured, held against what its schedule
must move there.

    ledger_of(moved, plan) -> Ledger

Messages between ranks that share memory pass the NVLinks of their GPUs, or their PCIe links where
the memory is the host's or there are no NVLinks. Messages of MPI between hosts pass the network
interfaces, and those of one host its loopback interface if they go through sockets at all. What a
library must move is not known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.errors import ScheduleError
from collbench.core.world import World
from collbench.machine.discovery.counters import CountedLink, Moved, Passed
from collbench.machine.topology.model import spans
from collbench.planning.layout import registered
from collbench.planning.plan import Plan
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.selection import algorithms_of
from collbench.planning.traffic import Pair, Sent, traffic
from collbench.schedules.passes import pair_traffic

# Of a TCP segment over IPv4: what a packet of the interface's MTU has beside data (IP 20, TCP with
# time stamps 32), and what the interface counts of it beside data (and Ethernet 14).
_IN_PACKET_BYTES, _HEADER_BYTES = 52, 66
_SLOT_BYTES = 1 << 20  # large enough for whole lines
_ALIKE = 0.02  # by which bytes of a library may differ from a schedule's that is named
_FIRST = "ring"  # of algorithms that send as much, what libraries take most
_OVER_SOCKETS = 0.5  # of what must be sent, that sockets carry if they carry it


class WirePlace(NamedTuple):
    """Links that the ledger counts together. kind: "nvlink" or "pcie" of a GPU, "lo", or "nic" for
    all network interfaces and InfiniBand ports of a host. device: the GPU's UUID, or nothing.
    """

    host: str
    kind: str
    device: str = ""


class Entry(NamedTuple):
    """Bytes of a launch at a place. expected: None if it is not known. raw: with all that the
    protocol of the link adds, None if there is no such counter. links: the NVLinks that carried
    more than their part of what was expected, where more passed than that.
    """

    place: WirePlace
    label: str
    seen: Passed
    expected: Passed | None
    raw: Passed | None = None
    links: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Of one row, bytes of a launch. unread: why links have no counter, by the name of what reads
    them. sent: what the GPU of each rank sent, or the mean of all ranks if only that is known.
    """

    entries: tuple[Entry, ...]
    unread: Mapping[str, str]
    sent: tuple[int, ...]

    @property
    def wire_bytes(self) -> int:
        """What all links sent."""
        return sum(entry.seen.out for entry in self.entries)

    @property
    def wire_expected(self) -> int | None:
        """What the schedule must send over them."""
        known = [entry.expected.out for entry in self.entries if entry.expected is not None]
        return sum(known) if len(known) == len(self.entries) else None

    @property
    def wire_foreign(self) -> int | None:
        """What they sent or, if that is more, received beyond it."""
        known = [entry for entry in self.entries if entry.expected is not None]
        if len(known) < len(self.entries):
            return None
        out, into = (
            sum(entry.seen[way] - entry.expected[way] for entry in known if entry.expected)
            for way in (0, 1)
        )
        return max(out, into)


def ledger_of(moved: Moved, plan: Plan | None, *, is_gpu: bool) -> Ledger:
    """The ledger of the launches of a plan; of a library's, whose plan is None, only what was
    seen.
    """
    seen, raw = _seen(moved), _seen(moved, raw=True)
    expected = {} if plan is None else _expected(moved, traffic(plan), plan, is_gpu=is_gpu)
    gpus = [gpu for _, gpu in moved.ranks]

    def wanted(place: WirePlace) -> Passed | None:
        """What must pass a place; of a library, nothing passes the GPUs that have no rank."""
        is_open = plan is None and (not place.device or place.device in gpus)
        return None if is_open else expected.get(place, Passed(0, 0))

    kinds = _kinds(moved, expected, is_gpu=is_gpu)
    entries = tuple(
        Entry(
            place,
            _label(moved, place),
            passed,
            wanted(place),
            raw.get(place),
            _links(moved, place, wanted(place)),
        )
        for place, passed in sorted(seen.items(), key=lambda one: _order(moved, one[0]))
        if place.kind in kinds
    )
    by_gpu = {entry.place.device: entry.seen.out for entry in entries if entry.place.device}
    total = sum(entry.seen.out for entry in entries)
    n = len(moved.ranks)
    sent = tuple(by_gpu[gpu] for gpu in gpus) if {*gpus} <= {*by_gpu} else (total // n,)
    return Ledger(entries=entries, unread=moved.unread, sent=sent)


def _seen(moved: Moved, *, raw: bool = False) -> dict[WirePlace, Passed]:
    """Bytes of a launch at each place."""
    total: dict[WirePlace, Passed] = {}
    for (host, link), passed in moved.passed.items():
        if (link.source == "nvlink-raw") == raw:
            place = _place(host, link)
            before = total.get(place, Passed(0, 0))
            total[place] = Passed(before.out + passed.out, before.into + passed.into)
    return {
        place: Passed(*(round(number / moved.launches) for number in passed))
        for place, passed in total.items()
    }


def _order(moved: Moved, place: WirePlace) -> tuple[str, str, int, str]:
    """By host and kind, and GPUs by their numbers."""
    label = moved.labels.get(place.device, place.device)
    return place.host, place.kind, len(label), label


def _place(host: str, link: CountedLink) -> WirePlace:
    if link.source in ("nvlink", "nvlink-raw"):
        return WirePlace(host, "nvlink", link.device)
    if link.source == "pcie":
        return WirePlace(host, "pcie", link.device)
    return WirePlace(host, "lo" if link.source == "lo" else "nic")


def _label(moved: Moved, place: WirePlace) -> str:
    if place.device:
        kind = {"nvlink": "NVLink", "pcie": "PCIe"}[place.kind]
        return f"{moved.labels.get(place.device, place.device)} {kind}"
    names = [link.device for host, link in moved.passed if _place(host, link) == place]
    return names[0] if len(names) == 1 else f"{len(names)} interfaces"


def _kinds(moved: Moved, expected: Mapping[WirePlace, Passed], *, is_gpu: bool) -> set[str]:
    """The kinds of links that count: of CPUs the network interfaces; of GPUs their NVLinks, or PCIe
    where they have none, and whatever else the schedule needs.
    """
    used = {place.kind for place in expected}
    if not is_gpu:
        return {"lo", "nic"}
    has_nvlinks = any(link.source == "nvlink" for _, link in moved.passed)
    hosts = {host for host, _ in moved.ranks}
    return used | {"nvlink" if has_nvlinks else "pcie"} | ({"nic"} if len(hosts) > 1 else set())


def _expected(
    moved: Moved, sent: Mapping[Pair, Sent], plan: Plan, *, is_gpu: bool
) -> dict[WirePlace, Passed]:
    """What a launch must move at each place."""
    remote = {pair: one for pair, one in sent.items() if plan.is_remote(*pair)}
    has_sockets = moved.sockets > _OVER_SOCKETS * moved.launches * sum(
        one.wire for one in remote.values()
    )
    with_nvlinks = {link.device for _, link in moved.passed if link.source == "nvlink"}
    if with_nvlinks and "nvlink" in moved.unread:  # the GPUs whose counters were not answered
        with_nvlinks |= {gpu for _, gpu in moved.ranks}
    total: dict[WirePlace, Passed] = {}
    for pair, one in sent.items():
        (host, gpu), (other_host, other_gpu) = (moved.ranks[rank] for rank in pair)
        if pair in remote:
            if host == other_host and not has_sockets:
                continue
            kind = "lo" if host == other_host else "nic"
            ends = WirePlace(host, kind), WirePlace(other_host, kind)
            number = one.wire + _headers(moved, one, kind) * has_sockets
        elif is_gpu:
            is_direct = plan.transport[:3] != "shm"
            if is_direct and (host, gpu) == (other_host, other_gpu):
                continue  # ranks that share a GPU
            is_nvlink = is_direct and {gpu, other_gpu} <= with_nvlinks
            kind = "nvlink" if is_nvlink else "pcie"
            ends = WirePlace(host, kind, gpu), WirePlace(other_host, kind, other_gpu)
            number = one.total
        else:
            continue
        for place, passed in zip(ends, (Passed(number, 0), Passed(0, number)), strict=True):
            before = total.get(place, Passed(0, 0))
            total[place] = Passed(before.out + passed.out, before.into + passed.into)
    return total


def _headers(moved: Moved, sent: Sent, kind: str) -> int:
    """Bytes of the headers of TCP segments that carry so many messages."""
    mtus = [mtu for name, mtu in moved.mtus.items() if (name == "lo") == (kind == "lo")]
    if not mtus or not sent.messages:
        return 0
    size = sent.wire / sent.messages
    return sent.messages * max(1, ceil(size / (min(mtus) - _IN_PACKET_BYTES))) * _HEADER_BYTES


def _links(moved: Moved, place: WirePlace, expected: Passed | None) -> str:
    """The NVLinks that carried most of what was not expected, by their numbers."""
    if place.kind != "nvlink" or expected is None:
        return ""
    of_place = {
        link.number: passed
        for (host, link), passed in moved.passed.items()
        if link.source == "nvlink" and _place(host, link) == place
    }
    beyond = {
        number: max(passed[way] - moved.launches * expected[way] / len(of_place) for way in (0, 1))
        for number, passed in of_place.items()
    }
    most = max(beyond.values())
    return spans(number for number, one in beyond.items() if most > 0 and one > most / 2)


# ------------------------------------------------------------- what a library's bytes look like


def likenesses(case: Case, ledger: Ledger) -> list[str]:
    """What sends as much as was seen: the algorithms of ours, by the protocol, and sums in the
    switch.
    """
    if not case.size_bytes:
        return []
    seen = [Fraction(number, case.size_bytes) for number in ledger.sent]
    is_gpu = any(entry.place.device for entry in ledger.entries)
    protos = PROTOCOLS.names() if is_gpu else ("simple",)  # messages of MPI carry no flags
    alike = [name for name, shares in _shares(case, protos) if _is_alike(seen, shares)]
    return sorted(alike, key=lambda name: not name.startswith(_FIRST))


def _shares(case: Case, protos: Sequence[str]) -> Iterator[tuple[str, list[Fraction]]]:
    """What each rank would send, as parts of S, by algorithm and protocol."""
    for proto in sorted(protos, key=lambda name: name != "simple"):
        facts = PROTOCOLS.load(proto)
        scale = Fraction(_SLOT_BYTES, facts.payload_bytes(_SLOT_BYTES))
        if scale == 1 and proto != "simple":
            continue  # as simple
        with_proto = "" if proto == "simple" else f" by {proto}"
        for algo in algorithms_of(case.op, has_hosts=False):
            try:
                of_pair = pair_traffic(
                    registered(collective(case.op).even, algo, World(n=case.ranks, root=case.root))
                )
            except ScheduleError:
                continue
            sent = [Fraction(0)] * case.ranks
            for (source, _), share in of_pair.items():
                sent[source] += share * scale
            yield algo + with_proto, sent
    if case.op == "allreduce" and case.ranks > 2:
        in_switch = [1 + Fraction(1, case.ranks)] * case.ranks
        yield "sums in the switch (NVLS)", in_switch


def _is_alike(seen: list[Fraction], shares: list[Fraction]) -> bool:
    """Whether ranks sent as much as these, each or in the mean."""
    wanted = shares if len(seen) == len(shares) else [sum(shares, Fraction(0)) / len(shares)]
    # a library may begin its ring, or its tree, at any rank
    pairs = zip(sorted(seen), sorted(wanted), strict=True)
    return all(abs(one - other) <= _ALIKE * max(other, Fraction(1, 100)) for one, other in pairs)
