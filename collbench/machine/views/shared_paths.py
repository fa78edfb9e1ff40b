"""Which GPUs share a path to the host, with confidence and evidence, and what is not decided."""

from collbench.core.text import NARROW_COLUMNS, paragraphs, table
from collbench.machine.shared_paths import Contention, FlowSet, SharedPaths
from collbench.machine.views.matrix import runs


def lines(found: SharedPaths, columns: int = NARROW_COLUMNS) -> list[str]:
    """A table of the groups, the evidence of each, and what cannot be told."""
    rows = [
        (_gpus(one.gpus), f"{one.confidence:.2%}", evidence(one.weakest)) for one in found.paths
    ]
    heads = ("GPUs that share a path", "confidence", "evidence, GB/s")
    text = table(heads, rows, (1,), columns) if rows else ["no two GPUs are known to share a path"]
    open_ = [
        f"not decided: whether GPU{a} and GPU{b} share a path: their total falls by {one.fall:.1%}"
        " when both copy, within the noise"
        for (a, b), one in found.undecided
    ]
    if found.wanted:
        open_.append(
            f"not measured: {len(found.wanted)} sets of copies, for example"
            f" {_flows(next(iter(found.wanted)))}"
        )
    return [*text, *paragraphs(open_, columns)]


def _gpus(gpus: tuple[int, ...]) -> str:
    return ",".join(runs([f"GPU{gpu}" for gpu in gpus]))


def _flows(flows: FlowSet) -> str:
    return " ".join(f"{gpu}>host" for gpu, _ in flows)


def evidence(one: Contention) -> str:
    """The rates alone and together."""
    alone, together = (
        "+".join(f"{rate:.1f}" for rate in rates) for rates in (one.alone, one.together)
    )
    return f"{_flows(one.flows)}: alone {alone}, together {together}"
