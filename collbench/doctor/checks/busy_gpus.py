"""Whether others compute on the GPUs."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.topology.model import spans

_NO_PIDS = (0, 0xFFFFFFFF)  # what NVML gives where it does not know a process


def find(evidence: Evidence) -> Iterable[Finding]:
    gpus = [(host, gpu) for host in evidence.hosts for gpu in host.usable_gpus]
    for host, gpu in gpus:
        # of several ranks only one says what CUDA shows it
        is_ours = len(host.processes) > 1 or host.cuda is None or gpu.index in host.cuda
        known = gpu.condition.pids if gpu.condition is not None and is_ours else None
        pids = sorted({pid for pid in known or () if pid not in _NO_PIDS})
        if pids:
            count = f"{len(pids)} process{'es' * (len(pids) > 1)}"
            numbers = f"{spans(pids[:8])}{' and more' * (len(pids) > 8)}"
            yield told(
                "busy-gpus",
                evidence.on(f"GPU {gpu.index}", host),
                f"{count} of others on it ({numbers})",
                change="wait, choose other GPUs by CUDA_VISIBLE_DEVICES, or ask the owner"
                f" (ps -o user,lstart,cmd -p {pids[0]})",
            )
