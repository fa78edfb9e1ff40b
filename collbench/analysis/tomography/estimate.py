"""The tree above GPUs from the rates of copies: which GPUs share an uplink to the host, which have
the same memory nearest, and which pairs have links of their own beside it. Pure.

Steps, each of which wants the measurements that it needs, so that the caller measures only those:

1. Copies of each GPU to each block of the host's memory, alone. Blocks to which all GPUs have equal
   rates are one memory. The memory that a GPU reaches fastest is near it.
2. Copies between GPUs alone, and each together with a copy of its sender to the host. Where both
   keep their rates, the pair has a link of its own (NVLink, xGMI).
3. Copies of two GPUs to a memory near both, together. Where the total falls, they share an uplink.
   Where no memory is nearer than others, two are tried: GPUs that share the way to one and not to
   the other are beyond a link between sockets.
4. Copies of all GPUs of a memory together, and again without one after the other: several that fit
   in pairs may still share an uplink.
5. Inside of a group, a copy from A to C with one from B to the host: they meet on the link above A
   and B if C is not below it, so that such triples tell smaller groups (Aho et al. 1981, BUILD).

What is said is that members share a link that limits them. A link that is never the narrowest leaves
no trace: its GPUs look as if each had a way of its own.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Literal

from collbench.analysis.tomography.contention import LEAST, SURE, Bench, Contention, confidence
from collbench.analysis.tomography.groups import Component, Edge, components
from collbench.results.flows import Flow, FlowSet, Repeats, block, flow_set

Kind = Literal["socket", "uplink", "link"]
_NEARER = math.log(1.03)  # of rates to two memories: less is no distance
_SAME_BLOCK = 1e-4  # that blocks of one memory are taken for two
# A copy so many times as fast as the fastest to the host does not pass a GPU's uplink: no switch is
# so much wider than its port.
_FAR_WIDER = 3.0
_THIRDS = 3  # GPUs that are tried as the third of a pair's triples


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Rates in GB/s of flows before and after what is compared: alone and all together, without
    others and beside them, or to the memory that is next nearest and to the nearest.
    """

    compares: Literal["together", "others", "memories"]
    flows: FlowSet
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """GPUs that belong together.

    kind: they have the same memory nearest (socket), share an uplink to the host (uplink), or are
    joined by links of their own (link). confidence: that chance does not explain the weakest pair
    that holds them together, whose rates are the evidence. memory: the number of that memory.
    """

    kind: Kind
    gpus: tuple[int, ...]
    confidence: float
    evidence: Evidence
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """What cannot be told, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What the measurements say.

    memories: the blocks of each memory that can be told from others. near: the memory near each
    GPU, None where that is not decided.
    linked: pairs with links of their own, with the rate of each. host_gbs: what each GPU reaches
    to each memory alone. wanted: measurements that are missing, with the number of repeats. noise: the
    standard deviation of the logarithm of a rate.
    """

    gpus: int
    groupings: tuple[Grouping, ...]
    undecided: tuple[Undecided, ...]
    memories: tuple[tuple[int, ...], ...]
    near: tuple[int | None, ...]
    linked: Mapping[Edge, float]
    host_gbs: tuple[tuple[float, ...], ...]
    wanted: Mapping[FlowSet, int]
    noise: float


@dataclass(slots=True)
class _Estimator:
    bench: Bench
    gpus: int
    blocks: int
    peers: frozenset[Flow]
    groupings: list[Grouping] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    memories: list[list[int]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # blocks that are tried: one of each memory
    near: dict[int, int] = field(default_factory=dict)
    host: dict[Edge, float] = field(default_factory=dict)  # of a GPU to a block
    linked: dict[Edge, float] = field(default_factory=dict)
    by_host_links: set[int] = field(default_factory=set)  # GPUs whose copies to peers pass theirs

    def run(self) -> None:
        """Every step whose measurements are there."""
        for step in (
            self.find_memories,
            self.find_near,
            self.find_links,
            self.find_uplinks,
            self.find_wide_uplinks,
            self.find_inner_groups,
        ):
            step()
            if any(len(self.bench.repeats.get(one, ())) == 0 for one in self.bench.wanted):
                return

    # 1

    def find_memories(self) -> None:
        every = [(gpu, of) for gpu in range(self.gpus) for of in range(self.blocks)]
        rates = {(gpu, of): self.bench.alone((gpu, block(of))) for gpu, of in every}
        self.host = {key: rate for key, rate in rates.items() if rate is not None}
        if len(self.host) < len(every):
            return
        tests = self.blocks * (self.blocks - 1) // 2
        for of in range(self.blocks):
            same = next((one for one in self.memories if self.are_alike(of, one, tests)), None)
            if same is None:
                self.memories.append([of])
            else:
                same.append(of)
        # of one memory its two ends, in case that links between sockets are as fast as any
        ends = [0, self.blocks - 1] if self.blocks > 1 else [0]
        self.places = [memory[0] for memory in self.memories] if len(self.memories) > 1 else ends

    def are_alike(self, of: int, memory: Sequence[int], tests: int) -> bool:
        """Whether chance explains how the rates to a block differ from those to a memory: the sum
        of squares is that of chi square, whose cube root is nearly normal (Wilson and Hilferty).
        """
        squares = 0.0
        for gpu in range(self.gpus):
            sd = self.bench.sd(((gpu, block(of)),))
            change = math.log(self.host[gpu, of]) - self.to_memory(gpu, memory)
            squares += change**2 / (sd**2 * (1 + 1 / len(memory)))
        spread = 2 / (9 * self.gpus)
        normal = ((squares / self.gpus) ** (1 / 3) - 1 + spread) / math.sqrt(spread)
        return tests * 0.5 * math.erfc(normal / math.sqrt(2)) > _SAME_BLOCK

    def to_memory(self, gpu: int, memory: Sequence[int]) -> float:
        """The mean of the logarithms of the rates to the blocks of a memory."""
        return fmean(math.log(self.host[gpu, of]) for of in memory)

    def find_near(self) -> None:
        if len(self.memories) < 2:
            if self.blocks > 1:
                self.undecided.append(
                    Undecided(
                        what="which sockets there are, by the distance to memory",
                        why="every GPU reaches all blocks of the host's memory at one rate: one"
                        " socket, or links between sockets that are as fast as those of GPUs",
                    )
                )
            return
        sure: dict[int, tuple[float, Evidence]] = {}
        for gpu in range(self.gpus):
            means = [self.to_memory(gpu, memory) for memory in self.memories]
            best, second = sorted(range(len(means)), key=lambda one: -means[one])[:2]
            sd = self.bench.sd(((gpu, block(self.memories[best][0])),)) / math.sqrt(
                min(len(self.memories[best]), len(self.memories[second]))
            )
            effect = means[best] - means[second]
            of_chance = confidence(effect, sd, self.gpus * (len(means) - 1))
            if of_chance >= SURE and effect >= _NEARER:
                self.near[gpu] = best
                sure[gpu] = (
                    of_chance,
                    Evidence(
                        compares="memories",
                        flows=flow_set((gpu, self.end(best))),
                        before=(math.exp(means[second]),),
                        after=(math.exp(means[best]),),
                    ),
                )
            else:
                self.undecided.append(
                    Undecided(
                        what=f"the socket of GPU{gpu}",
                        why=f"its rates to memory {best} and memory {second} differ by"
                        f" {100 * math.expm1(effect):.1f} %, within the noise",
                    )
                )
                for memory in (best, second):
                    self.bench.repeat(((gpu, self.end(memory)),))
        for memory in range(len(self.memories)):
            members = [gpu for gpu, of in self.near.items() if of == memory]
            if len(members) > 1:
                least, evidence = min((sure[gpu] for gpu in members), key=lambda one: one[0])
                self.groupings.append(
                    Grouping(
                        kind="socket",
                        gpus=tuple(members),
                        confidence=least,
                        evidence=evidence,
                        memory=memory,
                    )
                )

    def end(self, place: int) -> int:
        """The end of flows to a place that is tried."""
        return block(self.places[place])

    # 2

    def find_links(self) -> None:
        pairs = [(a, b) for a, b in combinations(range(self.gpus), 2) if (a, b) in self.peers]
        widest = math.log(_FAR_WIDER * max(self.host.values()))
        proofs: dict[Edge, Contention] = {}
        edges: dict[Edge, float] = {}
        for a, b in pairs:
            alone = self.bench.alone((a, b))
            one = self.bench.contention([(a, b), (a, self.end(self.best(a)))], len(pairs))
            if alone is None or one is None:
                continue
            if one.is_shared:
                self.by_host_links |= {a, b}
                continue
            wider = confidence(math.log(alone) - widest, self.bench.sd(((a, b),)), len(pairs))
            sure = max(wider, one.apart)
            if sure >= SURE:
                edges[a, b], proofs[a, b], self.linked[a, b] = sure, one, alone
            else:
                self.undecided.append(
                    Undecided(
                        what=f"whether GPU{a} and GPU{b} have a link of their own",
                        why=f"together with a copy to the host the total falls by {_fall(one)},"
                        " within the noise",
                    )
                )
        for group in components(edges, range(self.gpus)):
            self.add("link", group, proofs[group.weakest], self.best(group.members[0]))

    def best(self, gpu: int) -> int:
        """The place to which a GPU is fastest."""
        return max(range(len(self.places)), key=lambda one: self.host[gpu, self.places[one]])

    def add(self, kind: Kind, group: Component, one: Contention, memory: int) -> None:
        self.groupings.append(
            Grouping(
                kind=kind,
                gpus=group.members,
                confidence=group.confidence,
                evidence=Evidence(
                    compares="together", flows=one.flows, before=one.alone, after=one.together
                ),
                memory=memory,
            )
        )

    # 3

    def find_uplinks(self) -> None:
        every = [
            (a, b)
            for a, b in combinations(range(self.gpus), 2)
            if a not in self.near or b not in self.near or self.near[a] == self.near[b]
        ]
        pairs: dict[Edge, dict[int, Contention]] = {}
        for a, b in every:
            both = self.near.get(a) if a in self.near and b in self.near else None
            places = range(len(self.places)) if both is None else (both,)
            tests = len(every) * len(places)
            at = {
                place: self.bench.contention([(a, self.end(place)), (b, self.end(place))], tests)
                for place in places
            }
            known = {place: one for place, one in at.items() if one is not None}
            if len(known) == len(places):
                pairs[a, b] = known
        self.find_sockets(pairs)
        edges = {}
        for (a, b), at in pairs.items():
            unsure = [one for one in at.values() if not one.is_shared and not one.is_clear]
            if all(one.is_shared for one in at.values()):
                edges[a, b] = min(one.shared for one in at.values())
            elif unsure:
                self.undecided.append(
                    Undecided(
                        what=f"whether GPU{a} and GPU{b} share an uplink",
                        why=f"their total falls by {_fall(unsure[0])}, within the noise",
                    )
                )
        for group in components(edges, range(self.gpus)):
            at = pairs[group.weakest]
            place = min(at, key=lambda one: at[one].shared)
            self.add("uplink", group, at[place], self.near.get(group.members[0], place))

    def find_sockets(self, pairs: Mapping[Edge, Mapping[int, Contention]]) -> None:
        """GPUs that share the way to one memory, and not to another, which is near them."""
        edges: dict[int, dict[Edge, float]] = {}
        for pair, at in pairs.items():
            shared = [one.shared for one in at.values() if one.is_shared]
            clear = [place for place, one in at.items() if one.is_clear]
            if shared and len(clear) == 1 and len(shared) == len(at) - 1:
                edges.setdefault(clear[0], {})[pair] = min(shared)
        for place, of_place in edges.items():
            for group in components(of_place, range(self.gpus)):
                at = pairs[group.weakest]
                one = min((one for one in at.values() if one.is_shared), key=lambda one: one.shared)
                self.add("socket", group, one, place)
                self.near |= dict.fromkeys(group.members, place)

    # 4

    def find_wide_uplinks(self) -> None:
        for place in range(len(self.places)):
            members = [gpu for gpu, of in self.near.items() if of == place]
            if not self.near and place == 0:
                members = list(range(self.gpus))
            inner = [
                one.gpus
                for one in self.groupings
                if one.kind == "uplink" and set(one.gpus) <= set(members)
            ]
            alone = [(gpu,) for gpu in members if not any(gpu in unit for unit in inner)]
            units = sorted([*inner, *alone])
            if len(units) > 1:
                self.find_wide_uplinks_of(units, place)

    def find_wide_uplinks_of(self, units: Sequence[tuple[int, ...]], place: int) -> None:
        """Units that fall when all copy, and which of them rise when another one is left out."""
        everything = self.total(units, place)
        refs = [self.total([unit], place) for unit in units]
        if everything is None or None in refs:
            return
        contended = [
            number
            for number, unit in enumerate(units)
            if self.rise(everything, refs[number] or everything, unit, len(units)) >= SURE
        ]
        without = {
            left: self.total([unit for one, unit in enumerate(units) if one != left], place)
            for left in contended
            if len(contended) > 1
        }
        tests = len(contended) * (len(contended) - 1)
        edges: dict[Edge, float] = {}
        for left, totals in without.items():
            for other in contended:
                if totals is None or other == left:
                    continue
                sure = self.rise(everything, totals, units[other], tests)
                if sure >= SURE:
                    edge = min(left, other), max(left, other)
                    edges[edge] = max(sure, edges.get(edge, 0.0))
        for group in components(edges, contended):
            gpus = tuple(sorted(gpu for number in group.members for gpu in units[number]))
            left, other = group.weakest
            after = without[left]
            assert after is not None
            self.groupings.append(
                Grouping(
                    kind="uplink",
                    gpus=gpus,
                    confidence=group.confidence,
                    evidence=Evidence(
                        compares="others",
                        flows=self.flows([units[other]], place),
                        before=tuple(after[1][gpu] for gpu in units[other]),
                        after=tuple(everything[1][gpu] for gpu in units[other]),
                    ),
                    memory=place,
                )
            )

    def flows(self, units: Iterable[Sequence[int]], place: int) -> FlowSet:
        return flow_set(*((gpu, self.end(place)) for unit in units for gpu in unit))

    def total(
        self, units: Sequence[Sequence[int]], place: int
    ) -> tuple[FlowSet, dict[int, float]] | None:
        """The rate of every GPU of some units that copy to a place at once."""
        flows = self.flows(units, place)
        rates = self.bench.rates(flows)
        if rates is None:
            return None
        return flows, {gpu: rate for (gpu, _), rate in zip(flows, rates, strict=True)}

    def rise(
        self,
        all_: tuple[FlowSet, dict[int, float]],
        fewer: tuple[FlowSet, dict[int, float]],
        unit: Sequence[int],
        tests: int,
    ) -> float:
        """The confidence that a unit is faster where fewer copy; 0 where it hardly is."""
        effect = math.log(sum(fewer[1][gpu] for gpu in unit) / sum(all_[1][gpu] for gpu in unit))
        sd = max(self.bench.sd(all_[0]), self.bench.sd(fewer[0]))
        sure = confidence(effect, sd, tests)
        if effect >= LEAST / 2 and sure < SURE:
            self.bench.repeat(all_[0])
            self.bench.repeat(fewer[0])
        return sure if effect >= LEAST / 2 else 0.0

    # 5

    def find_inner_groups(self) -> None:
        for one in [one for one in self.groupings if one.kind == "uplink" and len(one.gpus) > 2]:
            known = {group.gpus for group in self.groupings if group.kind == "uplink"}
            if any(set(gpus) < set(one.gpus) for gpus in known):
                continue
            if not set(one.gpus) <= self.by_host_links:
                self.undecided.append(
                    Undecided(
                        what=f"smaller switches above {gpu_names(one.gpus)}",
                        why="copies between them do not pass their uplinks to the host, and copies"
                        " to the host share the same link at once",
                    )
                )
                continue
            self.find_inner_groups_of(one.gpus, one.memory)

    def find_inner_groups_of(self, gpus: tuple[int, ...], place: int) -> None:
        triples = [
            (a, b, c)
            for a, b in combinations(gpus, 2)
            for c in _thirds(gpus, a, b)
            if (a, c) in self.peers
        ]
        edges: dict[Edge, float] = {}
        proofs: dict[Edge, Contention] = {}
        for a, b, c in triples:
            one = self.bench.contention([(a, c), (b, self.end(place))], len(triples))
            if one is not None and one.is_shared and one.shared > edges.get((a, b), 0.0):
                edges[a, b] = one.shared
                proofs[a, b] = one
        for group in components(edges, gpus):
            if group.members == gpus:
                self.undecided.append(
                    Undecided(
                        what=f"smaller switches above {gpu_names(gpus)}",
                        why="copies between any two of them meet copies of others to the host: they"
                        " pass the uplink too (peer traffic is redirected)",
                    )
                )
                continue
            self.add("uplink", group, proofs[group.weakest], place)
            if len(group.members) > 2:
                self.find_inner_groups_of(group.members, place)


def gpu_names(gpus: Iterable[int]) -> str:
    """GPUs by their numbers.

    >>> gpu_names([0, 1, 5])
    'GPU0, GPU1, GPU5'
    """
    return ", ".join(f"GPU{gpu}" for gpu in gpus)


def _thirds(gpus: Sequence[int], a: int, b: int) -> list[int]:
    """Some other GPUs, spread over all."""
    others = [gpu for gpu in gpus if gpu not in (a, b)]
    step = max(1, len(others) // _THIRDS)
    return [
        others[(a + b + number * step) % len(others)] for number in range(min(_THIRDS, len(others)))
    ]


def _fall(one: Contention) -> str:
    return f"{100 * -math.expm1(-one.effect):.1f} %"


def estimate(repeats: Repeats, gpus: int, blocks: int, peers: frozenset[Flow]) -> Inference:
    """What the measurements say, and which are missing. peers: pairs of GPUs that reach each other
    without the host's memory.
    """
    one = _Estimator(Bench(repeats), gpus, blocks, peers)
    one.run()
    host = [
        tuple(math.exp(one.to_memory(gpu, memory)) for memory in one.memories)
        for gpu in range(gpus)
    ]
    return Inference(
        gpus=gpus,
        groupings=tuple(one.groupings),
        undecided=tuple(dict.fromkeys(one.undecided)),
        memories=tuple(map(tuple, one.memories)),
        near=tuple(one.near.get(gpu) for gpu in range(gpus)),
        linked=one.linked,
        host_gbs=tuple(host),
        wanted=one.bench.wanted,
        noise=one.bench.noise,
    )
