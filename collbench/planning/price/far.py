"""Closed forms: the price on more hosts than are played, fitted to what a few of them take.

    Far(cluster, op, algo).seconds(plan, domains, size_bytes)

A message of a ring, and a peer of a direct exchange, is one of many that are alike, so the price
grows by as much with every domain of hosts; that of a tree or of halves with every doubling. The
slices are those of the many hosts, also where few are played. What grows by no rule has no price.
A plan of fewer hosts gives the knobs. Where several orders of the ranks are used at once, each of
which begins a domain at another GPU, the first is played: what rank r does in another one, the rank
that many GPUs before it does there, so it loads links as often, and a launch begins once those of
all ranks of a domain are over.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np

from collbench.core.case import Case
from collbench.core.collectives import OpName, collective
from collbench.core.errors import ScheduleError
from collbench.planning.layout import along
from collbench.planning.limits import edges_of
from collbench.planning.plan import Plan
from collbench.planning.price.cluster import Cluster
from collbench.planning.price.gpus import BUSY, Site, busy_seconds, hops_of, work_seconds
from collbench.planning.price.work import Work, work_of
from collbench.schedules.ir import Schedule
from collbench.schedules.passes import traffic
from collbench.schedules.symmetry import symmetry

_EXACT = 1e-9
_FEW = 4  # domains of which orders are those of more
MOST_PLAYED = 16  # ranks over hosts whose plans are proved and played
_SURE = 0.05  # of a price on further domains, as a logarithm
WIDE, WIDTHS = 8, (4, 8)  # ranks of a domain from which on narrower domains are played


class GrowthRule(NamedTuple):
    """fit: the domains that are played; check: others, whose hops must obey the rule. terms: of the
    form, by the number of domains.
    """

    fit: tuple[int, ...]
    check: tuple[int, ...]
    terms: Callable[[int], tuple[float, ...]]

    def at(self, domains: int, values: Mapping[int, float]) -> float:
        """The form through the values of `fit`."""
        basis = np.array([self.terms(one) for one in self.fit])
        weights = np.linalg.solve(basis.T, np.array(self.terms(domains)))
        return float(weights @ np.array([values[one] for one in self.fit]))


LINEAR = GrowthRule((4, 6), (5, 8), lambda domains: (1.0, domains))
DOUBLING, DOUBLING_LATE = (
    GrowthRule(fit, check, lambda domains: (1.0, math.log2(domains), 1 / domains))
    for fit, check in (((2, 4, 8), (16,)), ((4, 8, 16), (32,)))
)


def most_played(width: int) -> int:
    """Domains of so many ranks whose plans are proved and played."""
    return max(2, MOST_PLAYED // width)


class _Domains:
    """An algorithm on a few domains of a cluster, along the orders that four of them have."""

    def __init__(self, cluster: Cluster, op: OpName, algo: str, most_turns: int) -> None:
        self.cluster, self.op, self.algo, self.width = cluster, op, algo, cluster.width
        self._schedules: dict[int, Schedule] = {}
        self._sites: dict[int, Site] = {}
        self._hops: dict[int, tuple[int, int]] = {}
        orders = self._orders(most_played(self.width))
        if orders and most_played(self.width) < _FEW:
            orders = self._orders(_FEW)
        patterns = [order[: self.width] for order in orders]
        patterns, plain = patterns[:most_turns], tuple(range(self.width))
        self.orders, self.places = patterns, plain
        self.turns: tuple[int, ...] = (0,)
        if patterns and collective(op).is_interleaved:
            alike = self._along([plain], 2)
            if symmetry(alike, self.width) is not None:  # each rank does in the others what one
                first = patterns[0]  # before it does in the first, along which ranks are counted
                turns = (turn for turn in plain if first[turn:] + first[:turn] in patterns)
                self.orders, self.places, self.turns = [plain], first, tuple(turns)

    def _orders(self, domains: int) -> tuple[tuple[int, ...], ...]:
        """The orders in which the algorithm uses the links of so many domains best."""
        ranks = domains * self.width
        case = Case(op=self.op, backend="model", algo=self.algo, ranks=ranks, size_bytes=1)
        return self.cluster.links(domains).orders_for(case)

    def schedule(self, domains: int) -> Schedule:
        """The schedule along the orders that are played."""
        if domains not in self._schedules:
            self._schedules[domains] = self._along(self.orders, domains)
        return self._schedules[domains]

    def _along(self, orders: Sequence[tuple[int, ...]], domains: int) -> Schedule:
        """The schedule along orders of each domain."""
        n = domains * self.width
        hosts = tuple(rank // self.width for rank in range(n))
        whole = tuple(
            tuple(rank - rank % self.width + order[rank % self.width] for rank in range(n))
            for order in orders
        )
        return along(self.op, self.algo, n, 0, whole, hosts)

    def site(self, domains: int) -> Site:
        """Where its ranks run."""
        if domains not in self._sites:
            site = self.cluster.links(domains).site
            named = site.wiring.gpus
            gpus = tuple(
                named[first + place]
                for first in range(0, len(named), self.width)
                for place in self.places
            )
            if gpus != named:
                site = replace(site, wiring=replace(site.wiring, gpus=gpus))
            self._sites[domains] = site
        return self._sites[domains]

    def hops(self, domains: int) -> tuple[int, int]:
        """Hops of the longest chain, and of the chain that has most between domains."""
        if domains not in self._hops:
            schedule = self._along(self.orders[:1], domains)
            self._hops[domains] = hops_of(schedule, self.cluster.links(domains).site.wiring)
        return self._hops[domains]

    @cached_property
    def rule(self) -> GrowthRule:
        """The rule that the hops obey. Raises ScheduleError."""
        for rule in (LINEAR, DOUBLING, DOUBLING_LATE):
            hops = {one: self.hops(one)[0] for one in rule.fit}
            if all(
                math.isclose(rule.at(one, hops), self.hops(one)[0], rel_tol=_EXACT)
                for one in rule.check
            ):
                if rule is LINEAR and not self._has_linear_load:
                    raise ScheduleError(f"the load of a rank of {self.algo} grows by no rule")
                return rule
        raise ScheduleError(
            f"the hops of {self.algo} grow neither with every host nor with every doubling"
        )

    @property
    def _has_linear_load(self) -> bool:
        """Whether the busiest rank sends, or receives, as many blocks more with every domain: the
        middle of a star, which sends all blocks to all, does not.
        """
        if not collective(self.op).size_in_blocks:
            return True
        loads = {one: traffic(self.schedule(one)) for one in (*LINEAR.fit, *LINEAR.check)}
        known = {one: one * float(max(load.sent, load.received)) for one, load in loads.items()}
        return all(
            math.isclose(LINEAR.at(one, known), known[one], rel_tol=_SURE) for one in LINEAR.check
        )

    def look(self, domains: int) -> tuple[object, ...]:
        """What is the same on numbers of domains that take as long: hops, and about what the
        busiest rank sends; of a rooted schedule its ranks.
        """
        sent = round(float(traffic(self.schedule(domains)).sent), 1)
        rooted = domains if collective(self.op).is_rooted else 0
        return self.hops(domains), sent, rooted

    def grown(self, domains: int, of: Callable[[int], float]) -> float:
        """A number at so many domains, or at the power of two that is like it, from those of a few.
        Raises ScheduleError where none is.
        """
        known = domains
        if self.rule is not LINEAR and domains & (domains - 1):
            below = 1 << (domains.bit_length() - 1)
            alike = {self.look(16): 2 * below, self.look(8): below}
            if self.look(12) not in alike:
                raise ScheduleError("its price follows no rule of growth")
            known = alike[self.look(12)]
        return self.rule.at(known, {one: of(one) for one in self.rule.fit})


class Far:
    """The prices of an algorithm on many domains of a cluster; those of many ranks are priced by
    narrower ones. Raises ScheduleError where it does not serve them, or grows by no rule.
    """

    def __init__(self, cluster: Cluster, op: OpName, algo: str) -> None:
        self.op, self.width = op, cluster.width
        widths = WIDTHS if self.width > WIDE else (self.width,)
        self.forms = [
            _Domains(cluster.narrow(width), op, algo, most_turns=widths[0]) for width in widths
        ]

    def number(self, domains: int, of: Callable[[_Domains, int], float]) -> float:
        """A number at so many domains, by `of` of an algorithm on a few."""
        values = [form.grown(domains, partial(of, form)) for form in self.forms]
        if len(values) == 1:
            return values[0]
        steps = (self.width - WIDTHS[0]) / (WIDTHS[1] - WIDTHS[0])
        return values[0] + (values[1] - values[0]) * steps

    def hops(self, domains: int) -> tuple[int, int]:
        """Hops of the longest chain, and of the chain that has most between domains."""
        all_ = self.number(domains, lambda form, one: form.hops(one)[0])
        between = self.number(domains, lambda form, one: form.hops(one)[1])
        return round(all_), round(between)

    def ends(self, domains: int) -> int:
        """Ends of connections of the rank that has most, in all orders together."""

        def most(form: _Domains, one: int) -> float:
            programs = form.schedule(one).programs
            return len(form.turns) * max(sum(map(len, edges_of(own))) for own in programs)

        return round(self.number(domains, most))

    def work(self, plan: Plan, domains: int, size_bytes: int) -> Callable[[_Domains, int], Work]:
        """What is played on a few domains for the work of many, with the knobs of a plan."""
        n, base = domains * self.width, work_of(plan)
        count = collective(self.op).block_count(size_bytes, plan.problem.item_bytes, n)
        many = replace(plan.problem, n=n, block_count=count, root=0)
        share = min(many.block_bytes, plan.share_of(many.block_bytes))
        set_bytes = max(many.buffers(rank).total_bytes for rank in (0, n - 1))

        def parts_of(form: _Domains, one: int) -> float:
            chunks = form.schedule(one).chunks["in"] if plan.is_interleaved else 1
            return chunks * len(form.turns)

        parts = self.number(domains, parts_of)

        def work(form: _Domains, one: int) -> Work:
            # by doublings the bytes in all are the same, else those of a slice
            scale = parts / parts_of(form, one) if form.rule is not LINEAR else 1.0
            return replace(
                base,
                schedule=form.schedule(one),
                amount=scale * share / parts / base.piece_bytes,
                spread=many.block_bytes / share,
                set_bytes=set_bytes,
                turns=form.turns,
            )

        return work

    def seconds(self, plan: Plan, domains: int, size_bytes: int) -> float:
        """Seconds of one launch with the knobs of a plan of fewer domains."""
        work = self.work(plan, domains, size_bytes)

        @cache
        def played(form: _Domains, one: int) -> float:
            return work_seconds(work(form, one), form.site(one))

        for form in self.forms:
            if form.rule is LINEAR:
                *few, most = (played(form, one) for one in (*LINEAR.fit, LINEAR.check[0]))
                there = LINEAR.at(LINEAR.check[0], dict(zip(LINEAR.fit, few, strict=True)))
                if abs(math.log(there / most)) > _SURE:
                    raise ScheduleError("its price follows no rule of growth")
        busy = self.busy(plan, domains, size_bytes)
        return max(self.number(domains, played), *busy.values())

    def busy(self, plan: Plan, domains: int, size_bytes: int) -> dict[str, float]:
        """Seconds that what is busiest of each kind is at work."""
        work = self.work(plan, domains, size_bytes)

        @cache
        def few(form: _Domains, one: int) -> dict[str, float]:
            return busy_seconds(work(form, one), form.site(one))

        def of(kind: str) -> float:
            return self.number(domains, lambda form, one: few(form, one)[kind])

        return {kind: of(kind) for kind in BUSY}
