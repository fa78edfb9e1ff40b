"""Step 2: which GPUs have links of their own, beside the one to the host."""

import math
from itertools import combinations

from collbench.analysis.tomography.contention import SURE, Contention, confidence
from collbench.analysis.tomography.groups import Edge, components, reached
from collbench.analysis.tomography.state import State


def find_links(state: State) -> None:
    """Copies to a peer and to the host at once: if more leaves a GPU than its own PCIe link
    carries, and neither disturbs the other, they take different links.
    """
    pairs = [(a, b) for a, b in combinations(range(state.gpus), 2) if (a, b) in state.peers]
    proofs: dict[Edge, Contention] = {}
    edges: dict[Edge, float] = {}
    unsure = []
    for a, b in pairs:
        one = state.bench.contention([(a, b), (a, state.end(state.best(a)))], len(pairs))
        if one is None:
            continue
        if one.is_shared:
            state.over_pcie.add((a, b))
            continue
        sure = _beyond_own(state, a, one, len(pairs))
        if sure >= SURE:
            edges[a, b], proofs[a, b] = sure, one
        else:
            unsure.append((a, b))
            state.leave_open(
                f"whether GPU{a} and GPU{b} have a link of their own",
                f"a copy to the host beside theirs takes {one.fall} of both, and the PCIe link of"
                f" GPU{a} may be wide enough for both",
            )
    for group in components(edges, range(state.gpus)):
        place = state.best(group.members[0])
        open_ = reached(group.members, unsure)
        state.add("link", group, proofs[group.weakest], place, open_)


def _beyond_own(state: State, gpu: int, one: Contention, tests: int) -> float:
    """The confidence that more leaves a GPU than its own PCIe link carries."""
    own = state.own[gpu]
    if own is None:
        return 0.0
    return confidence(math.log(sum(one.together) / own), state.bench.sd(one.flows), tests)
