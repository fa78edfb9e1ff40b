"""Whether /dev/shm is large enough for libraries that put their buffers there."""

from collections.abc import Iterable

from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.experiment import Experiment
from collbench.doctor.finding import Finding
from collbench.util.units import format_size

TITLE = "Size of the shared memory file system /dev/shm"
NEEDS: tuple[Need, ...] = ("system",)
EXPLANATION = """
`/dev/shm` is a file system in memory. NCCL, MPI and PyTorch's data loaders place the buffers there
that the processes of one host share. Docker gives a container 64 MiB unless it is told otherwise,
and NCCL needs about 10 MiB for each pair of GPUs that cannot use peer access, for each channel
group. When it is full, NCCL stops with `Error while creating shared memory segment` and other
programs die of SIGBUS.

The check reads `statvfs("/dev/shm")`. It is a fault below 64 MiB of free space, and a risk below
256 MiB for every rank of the host.

Start the container with `--shm-size=1g` or `--ipc=host`; in Kubernetes mount an `emptyDir` with
`medium: Memory` at `/dev/shm`. Both take memory only as it is used.
"""

_FAULT_BYTES = 64 << 20
_PER_RANK_BYTES = 256 << 20


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        system = host.system
        if system is None or system.shm_free_bytes is None or system.shm_bytes is None:
            continue
        ranks = max(len(host.processes), len(host.gpus), 1)
        is_fault = system.shm_free_bytes < _FAULT_BYTES
        if is_fault or system.shm_free_bytes < min(_PER_RANK_BYTES * ranks, system.shm_bytes):
            if not is_fault and system.shm_bytes >= _PER_RANK_BYTES * ranks:
                seen = "is in use"
            else:
                seen = "is small"
            yield Finding(
                check="shm-size",
                subject=evidence.name(host),
                seen=f"/dev/shm {seen}: {format_size(system.shm_free_bytes >> 20 << 20)} of"
                f" {format_size(system.shm_bytes >> 20 << 20)} are free",
                why="Libraries place the buffers there that ranks of a host share: NCCL fails to"
                " start, or programs die of SIGBUS, when it is full.",
                change="docker run --shm-size=1g (or --ipc=host); in Kubernetes an emptyDir with"
                " medium: Memory at /dev/shm",
                risk="It takes memory only as it is used.",
                severity="fault" if is_fault else "risk",
            )


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    return "it decides whether programs start, not how fast they are"
