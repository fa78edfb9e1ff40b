"""Whether others compute on the GPUs."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.machine.topology.model import spans

TITLE = "Processes of others on the GPUs"
NEEDS: tuple[Need, ...] = ("condition",)
NO_EXPERIMENT = "processes of others are left alone: measure again when they have ended"
EXPLANATION = """
A GPU that somebody else uses gives a collective a part of its time, its memory bandwidth and its
links. Kernels of two processes take turns, unless MPS runs, and each turn is longer than a small
collective. Measured rates and latencies then say nothing about the machine, and one such GPU slows
all ranks down. A process of an earlier job that was not ended is the most frequent case.

The check asks NVML which processes have a compute context before it starts any of its own, so that
all of them are others (`nvmlDeviceGetComputeRunningProcesses`). In a container numbers of processes
are those of another namespace, or none are shown, and then nothing is found. Programs that draw (X,
a browser) are not counted, nor GPUs that CUDA_VISIBLE_DEVICES hides. How busy a GPU is at the
moment is not judged.

`nvidia-smi` or `nvidia-smi pmon` show who it is, `ps -o user,lstart,cmd -p PID` since when. Wait,
choose other GPUs by `CUDA_VISIBLE_DEVICES`, or ask the owner; ask the batch system for whole
machines (`srun --exclusive`). Look again with `collbench doctor --only busy-gpus`.
"""

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
            yield Finding(
                subject=evidence.on(f"GPU {gpu.index}", host),
                seen=f"{count} of others on it ({numbers})",
                why="It has less time, memory bandwidth and links for a collective, and all ranks"
                " wait for it.",
                change="wait, choose other GPUs by CUDA_VISIBLE_DEVICES, or ask the owner"
                f" (ps -o user,lstart,cmd -p {pids[0]})",
            )
