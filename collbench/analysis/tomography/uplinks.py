"""Step 3: which GPUs share the way to a memory, from copies of two at once; those that share the
way to one memory and not to another are beyond a link between sockets.
"""

from collections.abc import Mapping
from itertools import combinations

from collbench.analysis.tomography.contention import Contention
from collbench.analysis.tomography.groups import Component, Edge, components
from collbench.analysis.tomography.state import State, outside

Pairs = Mapping[Edge, Mapping[int, Contention]]  # by place


def find_uplinks(state: State) -> None:
    """Groups of GPUs that share the way to every memory that is tried: to the one near them, or to
    all where none is known to be near.
    """
    pairs = _pairs(state)
    _find_sockets(state, pairs)
    edges = {}
    for (a, b), at in pairs.items():
        unsure = [one for one in at.values() if not one.is_shared and not one.is_clear]
        if all(one.is_shared for one in at.values()):
            edges[a, b] = min(one.shared for one in at.values())
        elif unsure:
            state.leave_open(
                f"whether GPU{a} and GPU{b} share an uplink",
                f"their total falls by {unsure[0].fall} when both copy, within the noise",
            )
    for group in components(edges, range(state.gpus)):
        at = pairs[group.weakest]
        place = min(at, key=lambda one: at[one].shared)
        near = {state.near.get(gpu) for gpu in group.members}
        far = {gpu for gpu, of in state.near.items() if None not in near and of not in near}
        tried = [(pair, one) for pair, at in pairs.items() for one in at.values()]
        gone = far | outside(group.members, tried) | {*group.members}
        state.add("uplink", group, at[place], place, {*range(state.gpus)} - gone)


def _pairs(state: State) -> Pairs:
    """The contention of pairs that may share an uplink, of which every place is measured."""
    every = [
        (a, b)
        for a, b in combinations(range(state.gpus), 2)
        if a not in state.near or b not in state.near or state.near[a] == state.near[b]
    ]
    pairs: dict[Edge, dict[int, Contention]] = {}
    for a, b in every:
        both = state.near[a] if a in state.near and b in state.near else None
        places = range(len(state.places)) if both is None else (both,)
        tried = {
            place: state.bench.contention(
                [(a, state.end(place)), (b, state.end(place))], len(every) * len(places)
            )
            for place in places
        }
        known = {place: one for place, one in tried.items() if one is not None}
        if len(known) == len(places):
            pairs[a, b] = known
    return pairs


def _find_sockets(state: State, pairs: Pairs) -> None:
    """GPUs that share the way to all memories but one, which is near them."""
    edges: dict[int, dict[Edge, float]] = {}
    for pair, at in pairs.items():
        shared = [one.shared for one in at.values() if one.is_shared]
        clear = [place for place, one in at.items() if one.is_clear]
        if shared and len(clear) == 1 and len(shared) == len(at) - 1:
            edges.setdefault(clear[0], {})[pair] = min(shared)
    for place, of_place in edges.items():
        found = components(of_place, range(state.gpus))
        least = min(found, key=lambda one: one.confidence)
        near = {gpu for gpu, of in state.near.items() if of == place}
        gpus = sorted(near.union(*(one.members for one in found)))
        known = [one for one in state.groupings if one.kind == "socket" and one.place == place]
        state.groupings = [one for one in state.groupings if one not in known]
        whole = Component(
            tuple(gpus), least.weakest, min([least.confidence, *(one.confidence for one in known)])
        )
        tried = [(pair, one) for pair, at in pairs.items() for of, one in at.items() if of != place]
        far = outside(gpus, tried)
        state.elsewhere.setdefault(place, set()).update(far)
        state.near |= dict.fromkeys(gpus, place)
        at = pairs[least.weakest]
        one = min((one for one in at.values() if one.is_shared), key=lambda one: one.shared)
        state.add("socket", whole, one, place, {*range(state.gpus)} - {*state.near, *far})
