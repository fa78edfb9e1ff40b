"""Step 1: which blocks of the host's memory are equally far from all GPUs, and which of these
memories is nearest to each GPU.
"""

import math
from collections.abc import Sequence

from collbench.analysis.tomography.contention import SURE, confidence
from collbench.analysis.tomography.model import Evidence, Grouping
from collbench.analysis.tomography.state import State
from collbench.results.flows import block

_NEARER = math.log(1.03)  # of rates to two memories: less is no distance
_SAME_BLOCK = 1e-4  # that blocks of one memory are taken for two


def find_memories(state: State) -> None:
    """Blocks by memory, and the places that are tried: one of each memory."""
    every = [(gpu, of) for gpu in range(state.gpus) for of in range(state.blocks)]
    rates = {(gpu, of): state.bench.alone((gpu, block(of))) for gpu, of in every}
    state.host = {key: rate for key, rate in rates.items() if rate is not None}
    if len(state.host) < len(every):
        return
    tests = max(1, state.blocks * (state.blocks - 1) // 2)
    for of in range(state.blocks):
        same = next((one for one in state.memories if _are_alike(state, of, one, tests)), None)
        if same is None:
            state.memories.append([of])
        else:
            same.append(of)
    # of one memory its two ends, in case that links between sockets are as fast as any
    ends = [0, state.blocks - 1] if state.blocks > 1 else [0]
    is_one = len(state.memories) == 1
    state.places = ends if is_one else [memory[0] for memory in state.memories]


def _are_alike(state: State, of: int, memory: Sequence[int], tests: int) -> bool:
    """Whether chance explains how the rates to a block differ from those to a memory: the sum of
    squares is that of chi square, whose cube root is nearly normal (Wilson and Hilferty 1931).
    """
    squares = 0.0
    for gpu in range(state.gpus):
        change = math.log(state.host[gpu, of]) - state.to_memory(gpu, memory)
        squares += change**2 / (_sd(state, gpu, [of]) ** 2 + _sd(state, gpu, memory) ** 2)
    spread = 2 / (9 * state.gpus)
    normal = ((squares / state.gpus) ** (1 / 3) - 1 + spread) / math.sqrt(spread)
    return tests * 0.5 * math.erfc(normal / math.sqrt(2)) > _SAME_BLOCK


def _sd(state: State, gpu: int, memory: Sequence[int]) -> float:
    """The standard deviation of the mean of the rates to the blocks of a memory."""
    return math.hypot(*(state.bench.sd(((gpu, block(of)),)) for of in memory)) / len(memory)


def find_near(state: State) -> None:
    """The memory that each GPU reaches fastest, where one is surely faster than all others."""
    if len(state.memories) < 2:
        if state.blocks > 1:
            state.leave_open(
                "which sockets there are, by the distance to memory",
                "every GPU reaches all blocks of the host's memory at one rate: one socket, or"
                " links between sockets that are as fast as those of GPUs",
            )
        return
    sure: dict[int, tuple[float, Evidence]] = {}
    for gpu in range(state.gpus):
        means = [state.to_memory(gpu, memory) for memory in state.memories]
        best, second = sorted(range(len(means)), key=lambda one: -means[one])[:2]
        flows = ((gpu, state.end(best)),)
        effect = means[best] - means[second]
        sd = max(_sd(state, gpu, state.memories[one]) for one in (best, second))
        not_chance = confidence(effect, sd, state.gpus * (len(means) - 1))
        if not_chance >= SURE and effect >= _NEARER:
            state.near[gpu] = best
            rates = (math.exp(means[second]),), (math.exp(means[best]),)
            sure[gpu] = (
                not_chance,
                Evidence(compares="memories", flows=flows, before=rates[0], after=rates[1]),
            )
            continue
        state.leave_open(
            f"the socket of GPU{gpu}",
            f"its rates to memory {best} and memory {second} differ by"
            f" {100 * math.expm1(effect):.1f} %, within the noise",
        )
        for of in (*state.memories[best], *state.memories[second]):
            state.bench.repeat(((gpu, block(of)),))
    if len(set(state.near.values())) == 1:
        state.leave_open(
            "whether GPUs are on one socket",
            "all are fastest to the same memory, which may be faster than others by itself",
        )
        return
    unknown = tuple(gpu for gpu in range(state.gpus) if gpu not in state.near)
    for memory in range(len(state.memories)):
        members = [gpu for gpu, of in state.near.items() if of == memory]
        if len(members) > 1:
            least, evidence = min((sure[gpu] for gpu in members), key=lambda one: one[0])
            state.groupings.append(
                Grouping(
                    kind="socket",
                    gpus=tuple(members),
                    confidence=least,
                    evidence=evidence,
                    place=memory,
                    open=unknown,
                )
            )
