"""Step 4: uplinks that are wide enough for any two of their GPUs, from copies of all GPUs near a
memory at once, and again without one after the other.

Flows that a link limits have equal rates, the highest of all that pass it, and rise when one of
them is left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collbench.analysis.tomography.contention import LEAST, SURE, confidence
from collbench.analysis.tomography.groups import Component, Edge, components
from collbench.analysis.tomography.model import Evidence, Grouping
from collbench.analysis.tomography.state import State
from collbench.results.flows import FlowSet, flow_set

_HIGHER = 1.1  # than flows that a link limits: such a flow does not pass it
Unit = tuple[int, ...]  # a GPU, or a group that shares an uplink already


@dataclass(frozen=True, slots=True)
class _Rates:
    """What the GPUs of some units reach to a place at once."""

    flows: FlowSet
    of: Mapping[int, float]

    def total(self, unit: Unit) -> float:
        return sum(self.of[gpu] for gpu in unit)


def find_wide_uplinks(state: State) -> None:
    """Groups of units at every place; where no GPU is known to be near one, all at the first."""
    for place in range(len(state.places)):
        members = [gpu for gpu, of in state.near.items() if of == place]
        if not state.near and place == 0:
            members = list(range(state.gpus))
        inner = [
            one.gpus
            for one in state.groupings
            if one.kind == "uplink" and set(one.gpus) <= set(members)
        ]
        alone = [(gpu,) for gpu in members if not any(gpu in unit for unit in inner)]
        if len(units := sorted([*inner, *alone])) > 1:
            _find_at(state, units, place)


def _find_at(state: State, units: Sequence[Unit], place: int) -> None:
    every = _rates(state, units, place)
    single = [_rates(state, [unit], place) for unit in units]
    if every is None:
        return
    contended = [
        number
        for number, (unit, one) in enumerate(zip(units, single, strict=True))
        if one is not None and _rise(state, every, one, unit, len(units)) >= SURE
    ]
    if len(contended) < 2:
        return
    tests = len(contended) * (len(contended) - 1)
    edges: dict[Edge, float] = {}
    without: dict[Edge, _Rates] = {}
    for left in contended:
        fewer = _rates(state, [unit for one, unit in enumerate(units) if one != left], place)
        for other in contended:
            if fewer is None or other == left:
                continue
            sure = _rise(state, every, fewer, units[other], tests)
            edge = min(left, other), max(left, other)
            if sure >= max(SURE, edges.get(edge, 0.0)):
                edges[edge], without[edge] = sure, fewer
    for group in components(edges, contended):
        state.groupings.append(_grouping(state, units, place, every, group, without[group.weakest]))


def _grouping(
    state: State, units: Sequence[Unit], place: int, every: _Rates, group: Component, fewer: _Rates
) -> Grouping:
    gpus = sorted(gpu for number in group.members for gpu in units[number])
    risen = next(units[number] for number in group.weakest if units[number][0] in fewer.of)
    highest = _HIGHER * max(every.of[gpu] for gpu in gpus)
    unknown = {gpu for gpu in range(state.gpus) if gpu not in every.of and gpu not in state.near}
    open_ = {gpu for gpu, rate in every.of.items() if rate <= highest} | unknown
    return Grouping(
        kind="uplink",
        gpus=tuple(gpus),
        confidence=group.confidence,
        evidence=Evidence(
            compares="others",
            flows=_flows(state, [risen], place),
            before=tuple(fewer.of[gpu] for gpu in risen),
            after=tuple(every.of[gpu] for gpu in risen),
        ),
        place=place,
        open=tuple(sorted(open_ - {*gpus} - state.elsewhere.get(place, set()))),
    )


def _flows(state: State, units: Iterable[Unit], place: int) -> FlowSet:
    return flow_set(*((gpu, state.end(place)) for unit in units for gpu in unit))


def _rates(state: State, units: Sequence[Unit], place: int) -> _Rates | None:
    flows = _flows(state, units, place)
    rates = state.bench.rates(flows)
    if rates is None:
        return None
    return _Rates(flows, {gpu: rate for (gpu, _), rate in zip(flows, rates, strict=True)})


def _rise(state: State, every: _Rates, fewer: _Rates, unit: Unit, tests: int) -> float:
    """The confidence that a unit is faster where fewer copy; 0 where it hardly is."""
    effect = math.log(fewer.total(unit) / every.total(unit))
    if effect < LEAST / 2:
        return 0.0
    sure = confidence(effect, max(state.bench.sd(one.flows) for one in (every, fewer)), tests)
    if sure < SURE:
        state.bench.repeat(every.flows)
        state.bench.repeat(fewer.flows)
    return sure
