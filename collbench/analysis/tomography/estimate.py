"""The tree above GPUs from the rates of copies: which GPUs share an uplink to the host, which have
the same memory nearest, and which pairs have links of their own beside it. Pure.

Every step wants the measurements that it needs, so that the caller measures only those: copies of
each GPU to the host's memory (memories.py), to each other (links.py), of two to the host at once
(uplinks.py), of all at once (together.py), and to a third beside one to the host (triples.py).

What is said is that members share a link that limits them. A link that is never the narrowest
leaves no trace: its GPUs look as if each had a way of its own.
"""

import math
from collections.abc import Sequence

from collbench.analysis.tomography.contention import Bench
from collbench.analysis.tomography.links import find_links
from collbench.analysis.tomography.memories import find_memories, find_near
from collbench.analysis.tomography.model import Inference
from collbench.analysis.tomography.state import State
from collbench.analysis.tomography.together import find_wide_uplinks
from collbench.analysis.tomography.triples import find_inner_groups
from collbench.analysis.tomography.uplinks import find_uplinks
from collbench.results.flows import Flow, Repeats

_STEPS = (find_memories, find_near, find_links, find_uplinks, find_wide_uplinks, find_inner_groups)


def estimate(
    repeats: Repeats, gpus: int, blocks: int, peers: frozenset[Flow], own: Sequence[float | None]
) -> Inference:
    """What the measurements say, and which are missing. peers: pairs of GPUs that reach each other
    without the host's memory. own: GB/s after its line code of each GPU's own PCIe link, which
    hypervisors show too; None where it is unknown.
    """
    bench = Bench(repeats)
    state = State(bench=bench, gpus=gpus, blocks=blocks, peers=peers, own=own)
    for step in _STEPS:
        step(state)
        if any(not repeats.get(flows) for flows in bench.wanted):
            break
    is_known = len(state.host) == gpus * blocks
    host = [
        tuple(math.exp(state.to_memory(gpu, memory)) for memory in state.memories)
        for gpu in range(gpus if is_known else 0)
    ]
    return Inference(
        gpus=gpus,
        groupings=tuple(state.groupings),
        undecided=tuple(dict.fromkeys(state.undecided)),
        memories=tuple(map(tuple, state.memories)),
        places=tuple(state.places),
        near=tuple(state.near.get(gpu) for gpu in range(gpus)),
        host_gbs=tuple(host),
        wanted=bench.wanted,
        noise=bench.noise,
    )
