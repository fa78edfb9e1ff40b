"""What was inferred of a hidden tree: groups of GPUs with their confidence and evidence, and what
is not decided.
"""

from collbench.analysis.tomography.model import Evidence, Grouping, Inference
from collbench.report.tables.text import NARROW_COLUMNS, table, wrapped
from collbench.report.topology.matrix import runs

_TITLES = {"socket": "near one memory", "uplink": "share an uplink", "link": "own links"}


def lines(inference: Inference, columns: int = NARROW_COLUMNS) -> list[str]:
    """A table of the groups, the evidence of each, and what cannot be told."""
    rows = [
        (_TITLES[one.kind], _members(one), f"{one.confidence:.2%}", evidence(one.evidence))
        for one in inference.groupings
    ]
    text = table(("GPUs that", "", "confidence", "evidence, GB/s"), rows, right=(2,))
    if not rows:
        text = ["no two GPUs share anything that limits their copies"]
    open_ = [f"not decided: {one.what}: {one.why}" for one in inference.undecided]
    missing = len(inference.wanted)
    if missing:
        open_.append(
            f"not measured: {missing} sets of copies, for example"
            f" {flows(next(iter(inference.wanted)))}"
        )
    return [*text, *(line for one in open_ for line in wrapped(one, columns))]


def _members(one: Grouping) -> str:
    perhaps = f", perhaps {gpu_runs(one.open)}" if one.open else ""
    return gpu_runs(one.gpus) + perhaps


def gpu_runs(gpus: tuple[int, ...]) -> str:
    """GPUs in short.

    >>> gpu_runs((0, 1, 2, 5))
    'GPU0-GPU2,GPU5'
    """
    return ",".join(runs([f"GPU{gpu}" for gpu in gpus]))


def flows(some: tuple[tuple[int, int], ...]) -> str:
    """Copies in short.

    >>> flows(((0, 2), (1, -1)))
    '0>2 1>host'
    """
    return " ".join(f"{a}>{'host' if b < 0 else b}" for a, b in some)


def evidence(one: Evidence) -> str:
    """The rates before and after.

    >>> evidence(
    ...     Evidence(
    ...         compares="together", flows=((0, 2), (1, -1)), before=(12.0, 12.0), after=(6.0, 6.0)
    ...     )
    ... )
    '0>2 1>host: alone 12.0+12.0, together 6.0+6.0'
    """
    before, after = ("+".join(f"{rate:.1f}" for rate in rates) for rates in (one.before, one.after))
    words = {
        "together": f"alone {before}, together {after}",
        "others": f"without others {before}, beside them {after}",
        "memories": f"nearest memory {after}, next {before}",
    }
    return f"{flows(one.flows)}: {words[one.compares]}"
