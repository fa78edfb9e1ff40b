"""Whether pairs of GPUs are slower than others like them, and whether that is a GPU or a link."""

from collections import Counter
from collections.abc import Iterable
from statistics import median

from collbench.bench.pairs import RankPair
from collbench.core.grouping import grouped
from collbench.doctor.check import Evidence, Finding
from collbench.machine.topology.paths import path

_SLOW = 0.9  # of the median of its like
_LEAST_LIKE = 3  # pairs of a kind, below which the median may be the slow one


def find(evidence: Evidence) -> Iterable[Finding]:
    rates = {
        (pair.a, pair.b): pair
        for pair in evidence.pairs
        if pair.way == "stores" and not pair.is_both and pair.value
    }
    kinds = grouped((_kind(evidence, pair), pair) for pair in rates.values())
    for kind, pairs in kinds.items():
        middle = median(pair.value or 0.0 for pair in pairs)
        slow = [pair for pair in pairs if (pair.value or 0.0) < _SLOW * middle]
        if len(pairs) >= _LEAST_LIKE and slow:
            yield from _named(kind, middle, slow, pairs)


def _kind(evidence: Evidence, pair: RankPair) -> str:
    """The path between two GPUs, by CUDA's numbers."""
    ids = {gpu.index: gpu.id for gpu in evidence.topology.gpus if gpu.host == 0}
    if not {pair.a, pair.b} <= ids.keys():
        return ""
    return path(evidence.topology, ids[pair.a], ids[pair.b]).label


def _named(
    kind: str, middle: float, slow: list[RankPair], pairs: list[RankPair]
) -> Iterable[Finding]:
    """A GPU all of whose pairs are slow in a direction, and then what is left."""
    left = list(slow)
    for direction, end in (("sending", "a"), ("receiving", "b")):
        slow_of = Counter(getattr(pair, end) for pair in slow)
        all_of = Counter(getattr(pair, end) for pair in pairs)
        for gpu, count in slow_of.most_common():
            own = [pair for pair in left if getattr(pair, end) == gpu]
            # with one partner a GPU cannot be told from the link
            if count < all_of[gpu] or count < 2 or not own:
                continue
            left = [pair for pair in left if pair not in own]
            rate = median(pair.value or 0.0 for pair in own)
            yield _finding(
                f"GPU {gpu}",
                f"all its {count} pairs are slow, {direction}: {rate:.1f} GB/s where others like"
                f" them ({kind}) reach {middle:.1f}",
            )
    for pair in left:
        yield _finding(
            f"GPU {pair.a} to GPU {pair.b}",
            f"{pair.value:.1f} GB/s where other pairs like it ({kind}) reach {middle:.1f}",
        )


def _finding(subject: str, seen: str) -> Finding:
    return Finding(
        subject=subject,
        seen=seen,
        why="A ring or a tree over all GPUs is as slow as its slowest link.",
        change="look at its links and their errors with collbench topo --links; reseat the GPU,"
        " bridge or cable",
        severity="fault",
    )
