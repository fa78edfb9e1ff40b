"""Whether a GPU reaches the host slower than its link carries, or shares its path to the host."""

from collections.abc import Iterable
from statistics import median

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.topology.paths import path_to_cpu

_SLOW = 0.7  # of the median of its siblings, or of its link
_SHARED = 0.7  # of the rate alone


def find(evidence: Evidence) -> Iterable[Finding]:
    middle = median(evidence.alone.values())
    links = _links(evidence)
    for gpu, rate in evidence.alone.items():
        link = links.get(gpu)
        if rate < _SLOW * middle or (link is not None and rate < _SLOW * link):
            against = (
                f"its link carries {link:.1f}"
                if link is not None and rate < _SLOW * link
                else f"the others reach {middle:.1f}"
            )
            yield told(
                "host-copies-alone",
                f"GPU {gpu}",
                f"{rate:.1f} GB/s to the host and back while nothing else runs; {against}",
            )
    shared = {
        gpu: rate
        for gpu, rate in evidence.together.items()
        if rate < _SHARED * evidence.alone.get(gpu, 0.0)
    }
    if shared:
        gpus = ", ".join(map(str, shared))
        alone = median(evidence.alone[gpu] for gpu in shared)
        yield told(
            "host-copies-together",
            f"GPUs {gpus}",
            f"{alone:.1f} GB/s to the host and back alone, {median(shared.values()):.1f} when"
            " all GPUs copy",
        )


def _links(evidence: Evidence) -> dict[int, float]:
    """GB/s that the path of each GPU to its CPU carries, by CUDA's numbers, where it is known."""
    rates = {}
    for gpu in evidence.topology.gpus:
        near = path_to_cpu(evidence.topology, gpu.id) if gpu.host == 0 else None
        if near is not None and near.usable_gbs is not None:
            rates[gpu.index] = near.usable_gbs
    return rates
