"""Step 5: smaller groups inside of one that shares an uplink, from copies to a third of them.

A copy from A to C and one from B to the host meet above A and B if C is not below the link that
these share; then one from A to B does not meet one from C to the host. Such triples tell a tree
(Aho, Sagiv, Szymanski and Ullman 1981).
"""

from collections.abc import Sequence
from itertools import combinations

from collbench.analysis.tomography.contention import Contention
from collbench.analysis.tomography.groups import Edge, components
from collbench.analysis.tomography.state import FILLED, State, outside

_THIRDS = 3  # GPUs that are tried as the third of a pair


def find_inner_groups(state: State) -> None:
    """Groups inside of every group of more than two in which none is known yet."""
    uplinks = [one for one in state.groupings if one.kind == "uplink"]
    for one in uplinks:
        if len(one.gpus) < 3 or any(set(other.gpus) < set(one.gpus) for other in uplinks):
            continue
        if any(pair in state.over_pcie for pair in combinations(one.gpus, 2)):
            _find_inside(state, one.gpus, one.place, one.open)
        else:
            state.leave_open(
                _smaller(one.gpus),
                "copies between them do not surely pass their PCIe links, and those to the host"
                " share one link at once",
            )


def _smaller(gpus: Sequence[int]) -> str:
    return f"smaller switches above {', '.join(f'GPU{gpu}' for gpu in gpus)}"


def _find_inside(state: State, gpus: tuple[int, ...], place: int, around: tuple[int, ...]) -> None:
    """around: other GPUs that may belong to the group."""
    triples = [
        (a, b, c)
        for a, b in combinations(gpus, 2)
        for c in _thirds(gpus, a, b)
        if {(a, b), (min(a, c), max(a, c))} <= state.over_pcie
    ]
    tried: list[tuple[tuple[int, int, int], Contention]] = []
    for a, b, c in triples:
        one = _meet(state, a, c, b, place, len(triples))
        if one is not None:
            tried.append(((a, b, c), one))
    shared = [(triple, one) for triple, one in tried if one.is_shared]
    edges: dict[Edge, float] = {}
    proofs: dict[Edge, Contention] = {}
    is_redirected = False
    for (a, b, c), one in shared:
        inside = _meet(state, a, b, c, place, len(shared))
        if inside is None:
            continue
        is_redirected |= inside.is_shared
        is_filled = sum(inside.alone) > FILLED * sum(one.together)
        sure = min(one.shared, inside.apart)
        if inside.is_clear and is_filled and sure > edges.get((a, b), 0.0):
            edges[a, b], proofs[a, b] = sure, one
    if is_redirected:
        state.leave_open(
            _smaller(gpus),
            "copies between them meet those of others to the host in every order: they pass the"
            " uplink too (peer traffic is redirected)",
        )
        return
    for group in components(edges, gpus):
        members = group.members
        beyond = _beyond(members, [triple for triple, _ in shared])
        if len(beyond) == 0 and len(members) == len(gpus):
            state.leave_open(_smaller(gpus), "triples of them contradict each other")
            continue
        about = [((a, b), one) for (a, b, c), one in tried if c in beyond]
        far = beyond | (outside(members, about) if about else set())
        open_ = {*gpus, *around} - far - {*members}
        state.add("uplink", group, proofs[group.weakest], place, open_)
        if len(members) > 2:
            _find_inside(state, members, place, tuple(open_))


def _beyond(members: Sequence[int], shared: Sequence[tuple[int, int, int]]) -> set[int]:
    """GPUs that are not below the link above all members: as the third, they alone show that all
    members belong together.

    >>> _beyond((0, 1, 2), [(0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 1, 4)])
    {3}
    """
    found = set()
    for third in {c for _, _, c in shared} - {*members}:
        edges = {(a, b): 1.0 for a, b, c in shared if c == third and {a, b} <= {*members}}
        if any(group.members == tuple(members) for group in components(edges, members)):
            found.add(third)
    return found


def _meet(
    state: State, source: int, target: int, beside: int, place: int, tests: int
) -> Contention | None:
    """A copy from a GPU to another one, beside that of a third to the host."""
    return state.bench.contention([(source, target), (beside, state.end(place))], tests)


def _thirds(gpus: Sequence[int], a: int, b: int) -> list[int]:
    """Some other GPUs, spread over all."""
    others = [gpu for gpu in gpus if gpu not in (a, b)]
    count = min(_THIRDS, len(others))
    step = max(1, len(others) // _THIRDS)
    return [others[(a + b + number * step) % len(others)] for number in range(count)]
