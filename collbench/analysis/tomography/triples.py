"""Step 5: smaller groups inside of one that shares an uplink, from copies to a third of them.

A copy from A to C and one from B to the host meet above A and B if C is not below the link that
these share. Such triples tell a tree (Aho, Sagiv, Szymanski and Ullman 1981).
"""

from collections.abc import Sequence
from itertools import combinations

from collbench.analysis.tomography.contention import Contention
from collbench.analysis.tomography.groups import Edge, components
from collbench.analysis.tomography.state import State, outside

_THIRDS = 3  # GPUs that are tried as the third of a pair


def find_inner_groups(state: State) -> None:
    """Groups inside of every group of more than two in which none is known yet."""
    uplinks = [one for one in state.groupings if one.kind == "uplink"]
    for one in uplinks:
        if len(one.gpus) < 3 or any(set(other.gpus) < set(one.gpus) for other in uplinks):
            continue
        if set(one.gpus) <= state.over_pcie:
            _find_inside(state, one.gpus, one.place, one.open)
        else:
            state.leave_open(
                _smaller(one.gpus),
                "copies between them do not pass the uplink, and those to the host share it at"
                " once",
            )


def _smaller(gpus: Sequence[int]) -> str:
    return f"smaller switches above {', '.join(f'GPU{gpu}' for gpu in gpus)}"


def _find_inside(state: State, gpus: tuple[int, ...], place: int, around: tuple[int, ...]) -> None:
    """around: other GPUs that may belong to the group."""
    triples = [
        (a, b, c)
        for a, b in combinations(gpus, 2)
        for c in _thirds(gpus, a, b)
        if (a, c) in state.peers
    ]
    edges: dict[Edge, float] = {}
    proofs: dict[Edge, Contention] = {}
    tried: list[tuple[Edge, Contention]] = []
    for a, b, c in triples:
        one = state.bench.contention([(a, c), (b, state.end(place))], len(triples))
        if one is None:
            continue
        tried.append(((a, b), one))
        if one.is_shared and one.shared > edges.get((a, b), 0.0):
            edges[a, b], proofs[a, b] = one.shared, one
    for group in components(edges, gpus):
        if group.members == gpus:
            state.leave_open(
                _smaller(gpus),
                "copies between any two of them meet copies of others to the host: they pass the"
                " uplink too (peer traffic is redirected)",
            )
            continue
        open_ = {*gpus, *around} - outside(group.members, tried) - {*group.members}
        state.add("uplink", group, proofs[group.weakest], place, open_)
        if len(group.members) > 2:
            _find_inside(state, group.members, place, tuple(open_))


def _thirds(gpus: Sequence[int], a: int, b: int) -> list[int]:
    """Some other GPUs, spread over all."""
    others = [gpu for gpu in gpus if gpu not in (a, b)]
    count = min(_THIRDS, len(others))
    step = max(1, len(others) // _THIRDS)
    return [others[(a + b + number * step) % len(others)] for number in range(count)]
