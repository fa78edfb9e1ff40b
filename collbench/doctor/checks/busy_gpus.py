"""Whether others compute on the GPUs."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.topology.model import spans

NEEDS: tuple[Need, ...] = ("condition",)

_NO_PIDS = (0, 0xFFFFFFFF)  # what NVML gives where it does not know a process


def find(evidence: Evidence) -> Iterable[Seen]:
    gpus = [(host, gpu) for host in evidence.hosts for gpu in host.usable_gpus]
    for host, gpu in gpus:
        # of several ranks only one says what CUDA shows it
        is_ours = len(host.processes) > 1 or host.cuda is None or gpu.index in host.cuda
        known = gpu.condition.pids if gpu.condition is not None and is_ours else None
        pids = sorted({pid for pid in known or () if pid not in _NO_PIDS})
        if pids:
            yield seen(
                "foreign",
                evidence.on(f"GPU {gpu.index}", host),
                count=counted(len(pids), "process", "es"),
                numbers=f"{spans(pids[:8])}{' and more' * (len(pids) > 8)}",
                pid=pids[0],
            )
