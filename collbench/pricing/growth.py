"""How a price grows with the number of hosts: played on a few domains, it follows a rule of two or
three terms, and a larger number of domains, which had no part in the terms, must obey it.

A message of a ring, and a peer of a direct exchange, is one of many that are alike, so the price
grows by as much with every domain (`linear`, with a slice of the same size). An exchange of halves
(`halves`) and a tree (`doubling`) grow with every doubling, with the same bytes in all. What grows
by no rule has no price at many hosts. And nothing takes less than the busiest link, CTA or memory
is at work, which grows by the same rule.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from collbench.planning.limits import edges_of
from collbench.planning.plan import along
from collbench.pricing.events import Events, events_of
from collbench.pricing.fabric import Fabric
from collbench.pricing.lanes import MORE, Lanes, Links, Values, links_of, play, probes
from collbench.schedules.algorithms import needs_hosts
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import pair_traffic, symmetry, widest_message
from collbench.schedules.verify.check import check
from collbench.spec.collectives import OpName, collective
from collbench.util.errors import ScheduleError

SLOTS = 4  # that a sender counts on
FEW = 4  # domains up to which the schedule itself is played
_LAUNCHES = 3  # of which the last one's share is the price
_MOST_PROVED = 32  # ranks of a schedule that is proved before it is played
_MOST_TURNS = 8
TOLERANCE = 0.01  # of a price at the domains that had no part in the rule
_EXACT = 1e-9
WIDE = 16  # ranks of a domain from which on narrower domains are played
_WIDTHS = (4, 6, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """fit: the domains whose prices give the terms; check: those that must obey them. between: none
    of the rule, whose price must not be above that of the next one, the first of `check`, where
    domains are asked for that are none of the rule.
    """

    name: str
    fit: tuple[int, ...]
    check: tuple[int, ...]
    between: int
    terms: Callable[[Values], list[Values]]
    has_same_bytes: bool  # in all, rather than in a slice

    def weights(self, domains: Values) -> Values:
        """For each of `fit`, how much its price counts at each number of domains."""
        basis = np.array(self.terms(np.asarray(self.fit, dtype=float)))
        return np.linalg.solve(basis, np.array(self.terms(np.asarray(domains, dtype=float))))

    def next(self, domains: int) -> int:
        """The least number of the rule that is no smaller."""
        if not self.between:
            return domains
        other = self.fit[0] % 2  # a root is beside the tree
        return int(1 << (domains - other - 1).bit_length()) + other


LINEAR = Rule(
    name="linear",
    fit=(4, 6),
    check=(5, 8),
    between=0,
    terms=lambda domains: [np.ones_like(domains), domains],
    has_same_bytes=False,
)
# What holds up a root changes with the number of those that it waits for, past eight of them, too.
LINEAR_TO_ROOT = replace(LINEAR, check=(5, 16))
HALVES = Rule(
    name="halves",
    fit=(2, 4, 8),
    check=(16,),
    between=12,
    terms=lambda domains: [np.ones_like(domains), np.log2(domains), 1 / domains],
    has_same_bytes=True,
)
DOUBLING = Rule(
    name="doubling",
    fit=(4, 8),
    check=(16,),
    between=12,
    terms=lambda domains: [np.ones_like(domains), np.log2(domains)],
    has_same_bytes=True,
)
DOUBLING_OTHERS = replace(
    DOUBLING,
    fit=(5, 9),
    check=(17,),
    between=13,
    terms=lambda domains: [np.ones_like(domains), np.log2(domains - 1)],
)
DOUBLING_LATE = replace(DOUBLING, fit=(8, 16), check=(32,), between=24)
RULES = (LINEAR, HALVES, DOUBLING, DOUBLING_OTHERS, DOUBLING_LATE)


class Price(NamedTuple):
    """Of each lane: seconds; seconds that what is busiest of each kind is at work; whether the
    rule holds where it was checked.
    """

    seconds: Values
    busy: dict[str, Values]
    is_sure: Values


def _at_least(seconds: Values, busy: Mapping[str, Values]) -> Values:
    """Nothing takes less time than what it keeps at work."""
    return np.asarray(np.max([seconds, *busy.values()], axis=0))


class Growth:
    """The prices of an algorithm on any number of domains of a fabric. Raises ScheduleError where
    it does not serve them.
    """

    def __init__(
        self, fabric: Fabric, op: OpName, algo: str, most_turns: int = _MOST_TURNS
    ) -> None:
        self.fabric, self.op, self.algo, self.root = fabric, op, algo, 0
        self.most_turns = most_turns
        self._schedules: dict[int, Schedule] = {}
        self._links: dict[int, Links] = {}
        self._hops: dict[int, tuple[float, float]] = {}

    # ------------------------------------------------------------------------------ one world

    def schedule(self, domains: int) -> Schedule:
        """The schedule on so many domains, proved if they are few."""
        if domains not in self._schedules:
            width = self.fabric.width
            n = domains * width
            hosts = tuple(rank // width for rank in range(n)) if domains > 1 else ()
            orders = (tuple(range(n)),) if domains > 1 else ()
            schedule = along(self.op, self.algo, n, self.root, orders, hosts)
            if n <= _MOST_PROVED:
                check(schedule, slots=SLOTS)
            self._schedules[domains] = schedule
        return self._schedules[domains]

    def few(self, domains: int) -> int:
        """The ranks that stand for all; 0: each for itself."""
        schedule, width = self.schedule(domains), self.fabric.width
        if domains == 1:
            return int(schedule.is_symmetric and self.fabric.is_uniform)
        return width if symmetry(schedule, width) is not None else 0

    def events(self, domains: int, loops: int) -> Events:
        return events_of(
            self.schedule(domains),
            slices=1,
            loops=loops,
            launches=_LAUNCHES,
            slots=SLOTS,
            few=self.few(domains),
            together=self.fabric.width if len(self.turns_on(domains)) > 1 else 1,
        )

    def links(self, domains: int) -> Links:
        if domains not in self._links:
            ports, is_folded = self.events(domains, 1).ports, bool(self.few(domains))
            turns = self.turns_on(domains)
            self._links[domains] = links_of(ports, self.fabric, turns, is_folded=is_folded)
        return self._links[domains]

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """The orders of ranks that are used at once over hosts, each of which begins a domain at
        another GPU: where the vector can be cut and one order would leave NICs idle, one for each
        NIC. Only the first is played. What rank r does in another one, the rank that many GPUs
        before it does in the first: so it loads links there as often, and a launch, which begins
        once those of all orders are over, begins once those of all ranks of a domain are.
        """
        fabric, what = self.fabric, collective(self.op)
        if not what.is_interleaved or what.is_rooted or needs_hosts(self.algo):
            return (0,)
        seen: dict[str, int] = {}
        for turn in range(fabric.width):
            rail = fabric.rails.get((turn - 1) % fabric.width)
            if rail is not None:
                seen.setdefault(rail.nic, turn)
        turns = tuple(sorted(seen.values()))[: self.most_turns]
        order = tuple(range(2 * fabric.width))
        hosts = tuple(rank // fabric.width for rank in order)
        traffic = pair_traffic(along(self.op, self.algo, len(order), self.root, (order,), hosts))
        loads = [Fraction(0)] * fabric.width
        for (source, target), share in traffic.items():
            if source // fabric.width != target // fabric.width:
                loads[source % fabric.width] += share
        return turns if max(loads) > min(loads) else (0,)

    def turns_on(self, domains: int) -> tuple[int, ...]:
        return self.turns if domains > 1 else (0,)

    def tracks(self, domains: int) -> int:
        """Tracks of the rank that has most."""
        most = max(map(len, self.schedule(min(domains, FEW)).programs))
        return most * len(self.turns_on(domains))

    def parts(self, domains: int) -> int:
        """Chunks that a loop cuts from the range of a channel."""
        if not collective(self.op).is_interleaved:
            return 1
        chunks = self._grown(domains, lambda schedule: schedule.chunks["in"])
        return chunks * len(self.turns_on(domains))

    def widest(self, domains: int) -> int:
        """Chunks of the largest message."""
        return max(1, self._grown(domains, widest_message))

    def ends(self, domains: int) -> int:
        """Ends of connections of the rank that has most, in all orders together."""
        ends = self._grown(
            domains, lambda one: max(sum(map(len, edges_of(program))) for program in one.programs)
        )
        return ends * len(self.turns_on(domains))

    def _grown(self, domains: int, count: Callable[[Schedule], int]) -> int:
        """A number that is the same on any number of domains, or grows with each of them."""
        if domains <= FEW:
            return count(self.schedule(domains))
        a, b = self.rule.fit[0], self.rule.fit[-1]
        few, more = count(self.schedule(a)), count(self.schedule(b))
        return few + (more - few) * (self.rule.next(domains) - a) // (b - a)

    # ------------------------------------------------------------------------------ many worlds

    @cached_property
    def rule(self) -> Rule:
        """The rule that the hops of the longest chain obey, exactly. Raises ScheduleError."""
        for rule in RULES:
            fit, there = (
                np.array([self._hops_played(one) for one in worlds])
                for worlds in (rule.fit, rule.check)
            )
            predicted = rule.weights(np.array(rule.check)).T @ fit
            if np.allclose(predicted, there, rtol=_EXACT, atol=_EXACT):
                is_rooted = collective(self.op).is_rooted
                return LINEAR_TO_ROOT if rule is LINEAR and is_rooted else rule
        raise ScheduleError(
            f"the hops of {self.algo} grow neither with every host nor with every doubling"
        )

    def hops(self, domains: int) -> tuple[int, int]:
        """Hops of the longest chain, and how many of them are between domains."""
        if domains <= FEW:
            all_, net = self._hops_played(domains)
        else:
            fit = np.array([self._hops_played(one) for one in self.rule.fit])
            known = np.array([self.rule.next(domains)])
            all_, net = (self.rule.weights(known).T @ fit)[0]
        return round(all_), round(net)

    def _hops_played(self, domains: int) -> tuple[float, float]:
        if domains not in self._hops:
            played = play(self.events(domains, 1), self.links(domains), probes(), 1)
            hops = float(played.ends[0][0])
            self._hops[domains] = math.floor(hops), hops % 1 / MORE
        return self._hops[domains]

    def price(self, lanes: Lanes, loops: Values, domains: Values) -> Price:
        """loops, domains: of each lane. Raises ScheduleError for domains that the algorithm does
        not serve, or whose price nothing is known of.
        """
        seconds = np.zeros(len(lanes))
        busy: dict[str, Values] = {}
        is_sure = np.ones(len(lanes), dtype=bool)
        for number in sorted({int(one) for one in domains if one <= FEW}):
            own = np.flatnonzero(domains == number)
            here, at_work = self.played(number, lanes.taken(own), loops[own])
            seconds[own] = here
            for key, value in at_work.items():
                busy.setdefault(key, np.zeros(len(lanes)))[own] = value
        own = np.flatnonzero(domains > FEW)
        if len(own):
            many = self._by_rule(lanes.taken(own), loops[own], domains[own])
            seconds[own], is_sure[own] = many.seconds, many.is_sure
            for key, value in many.busy.items():
                busy.setdefault(key, np.zeros(len(lanes)))[own] = value
        return Price(_at_least(seconds, busy), busy, is_sure)

    def _by_rule(self, lanes: Lanes, loops: Values, domains: Values) -> Price:
        rule = self.rule
        known = np.array([rule.next(int(one)) for one in domains])
        is_between = known != domains
        worlds = [*rule.fit, *rule.check, *([rule.between] if is_between.any() else [])]
        wanted = np.array([self.parts(int(one)) for one in known])
        is_interleaved = collective(self.op).is_interleaved
        prices = {}
        for one in worlds:
            here = lanes
            if rule.has_same_bytes:
                parts = self.schedule(one).chunks["in"] * len(self.turns) if is_interleaved else 1
                here = replace(lanes, piece_bytes=lanes.piece_bytes * wanted / parts)
            prices[one] = self.played(one, here, loops)
        weights, checks = rule.weights(known), rule.weights(np.array(rule.check))
        first = rule.check[0]

        def grown(values: dict[int, Values]) -> tuple[Values, Values]:
            """At the domains of each lane, and how far off where it was checked."""
            fit = np.array([values[one] for one in rule.fit])
            there = np.array([values[one] for one in rule.check])
            off = np.abs(checks.T @ fit / np.maximum(there, 1e-15) - 1).max(axis=0)
            return (weights * fit).sum(axis=0), off

        times = {one: price[0] for one, price in prices.items()}
        seconds, off = grown(times)
        is_sure = off <= TOLERANCE
        if is_between.any():
            is_sure &= ~is_between | (times[rule.between] <= times[first] * (1 + TOLERANCE))
        busy = {}
        for key in prices[first][1]:
            value, off = grown({one: price[1][key] for one, price in prices.items()})
            busy[key] = np.where(off <= _EXACT, value, 0.0)
        return Price(seconds, busy, is_sure)

    def played(self, domains: int, lanes: Lanes, loops: Values) -> tuple[Values, dict[str, Values]]:
        """Seconds of one more launch, and of what is at work."""
        links, orders = self.links(domains), len(self.turns_on(domains))
        few, alike = lanes.distinct()
        one = play(self.events(domains, 1), links, few, orders)
        seconds = (one.ends[-1] - one.ends[-2])[alike]
        many = np.flatnonzero(loops > 1)
        if len(many):
            needed, again = np.unique(alike[many], return_inverse=True)
            two = play(self.events(domains, 2), links, few.taken(needed), orders)
            both = (two.ends[-1] - two.ends[-2])[again]
            more = np.maximum(0.0, both - seconds[many])
            seconds[many] = both + (loops[many] - 2) * more
        return seconds, {key: value[alike] * loops for key, value in one.busy.items()}


class WideGrowth:
    """The same for domains of many ranks: a price grows by as much with every rank of a domain. It
    is played on narrow ones, and one that had no part in the rule must obey it.
    """

    def __init__(self, fabric: Fabric, op: OpName, algo: str) -> None:
        self.fabric = fabric
        self._narrow = [
            Growth(replace(fabric, most=width), op, algo, most_turns=_WIDTHS[0])
            for width in _WIDTHS
        ]

    def _grown(self, values: Sequence[Values | int], width: int = 0) -> Values:
        """At the width of the domains, from what there is at the narrow ones."""
        few, more = np.asarray(values[0], dtype=float), np.asarray(values[1], dtype=float)
        steps = ((width or self.fabric.width) - _WIDTHS[0]) / (_WIDTHS[1] - _WIDTHS[0])
        return np.asarray(few + (more - few) * steps)

    def parts(self, domains: int) -> int:
        return self._whole([one.parts(domains) for one in self._narrow])

    def widest(self, domains: int) -> int:
        return self._whole([one.widest(domains) for one in self._narrow])

    def tracks(self, domains: int) -> int:
        return max(one.tracks(domains) for one in self._narrow)

    def ends(self, domains: int) -> int:
        return self._whole([one.ends(domains) for one in self._narrow])

    def hops(self, domains: int) -> tuple[int, int]:
        """Raises ScheduleError where the hops do not grow with every rank of a domain."""
        all_, net = zip(*(one.hops(domains) for one in self._narrow), strict=True)
        for hops in (all_, net):
            if round(float(self._grown(hops, _WIDTHS[2]))) != hops[2]:
                raise ScheduleError("its hops do not grow with every rank of a domain")
        return self._whole(all_), self._whole(net)

    def _whole(self, values: Sequence[int]) -> int:
        return round(float(self._grown(values)))

    def price(self, lanes: Lanes, loops: Values, domains: Values) -> Price:
        prices = [one.price(lanes, loops, domains) for one in self._narrow]
        seconds = [one.seconds for one in prices]
        off = np.abs(self._grown(seconds, _WIDTHS[2]) / seconds[2] - 1)
        busy = {
            key: np.maximum(0.0, self._grown([one.busy[key] for one in prices]))
            for key in prices[0].busy
        }
        is_sure = np.all([one.is_sure for one in prices], axis=0) & (off <= TOLERANCE)
        return Price(_at_least(self._grown(seconds), busy), busy, is_sure)
