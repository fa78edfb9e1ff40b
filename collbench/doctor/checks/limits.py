"""Whether open files, processes and stacks are limited too tightly for the ranks of a host."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.checks._ranks import alike
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Seen, seen
from collbench.machine.discovery.recording import UNLIMITED, ProcessRecord, Recording
from collbench.machine.topology.model import members

NEEDS: tuple[Need, ...] = ("processes",)

_OWN_FILES, _FILES_OF_GPU, _FILES_OF_RANK = 256, 64, 8
_OWN_THREADS = 32
_LEAST_STACK = 1 << 20


def find(evidence: Evidence) -> Iterable[Seen]:
    yield from _files(evidence)
    yield from _processes(evidence)
    for subject, _, _, limit in alike(evidence, lambda one: one.stack_bytes):
        if limit == UNLIMITED:
            yield seen("unlimited-stack", subject)
        elif limit < _LEAST_STACK:
            yield seen("small-stack", subject, kib=limit >> 10)


def _files(evidence: Evidence) -> Iterable[Seen]:
    for subject, host, processes, limit in alike(evidence, lambda one: one.open_files):
        needed = max(_files_of(one, host) for one in processes)
        if limit != UNLIMITED and limit < needed:
            ranks, gpus = counted(processes[0].ranks, "rank"), counted(len(host.gpus), "GPU")
            yield seen("files", subject, limit=limit, ranks=ranks, gpus=gpus, needed=needed)
    for host in evidence.hosts:
        most = host.system.file_max if host.system else None
        needed = sum(_files_of(one, host) for one in host.processes)
        if most is not None and most < needed:
            yield seen("files-of-host", evidence.name(host), limit=most, needed=needed)


def _processes(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        needed = sum(_OWN_THREADS + _threads(one, host) for one in host.processes)
        most = host.system.pids_max if host.system else None
        if most is not None and most < needed:
            name, ranks = evidence.name(host), counted(len(host.processes), "rank")
            yield seen("threads-of-host", name, limit=most, ranks=ranks, needed=needed)
    for subject, host, processes, limit in alike(evidence, lambda one: one.processes):
        needed = sum(_OWN_THREADS + _threads(one, host) for one in processes)
        if limit != UNLIMITED and limit < needed:
            yield seen("threads", subject, limit=limit, needed=needed)


def _files_of(process: ProcessRecord, host: Recording) -> int:
    gpus = len(host.gpus if process.cuda is None else process.cuda)
    return _OWN_FILES + _FILES_OF_GPU * gpus + _FILES_OF_RANK * process.ranks


def _threads(process: ProcessRecord, host: Recording) -> int:
    """Of OpenMP and BLAS: as many as the rank is told, or has cores."""
    told = process.environment.get("OMP_NUM_THREADS", "").partition(",")[0]
    if told.isdecimal():
        return int(told)
    return len(members(process.cpulist or host.cpus or ""))
