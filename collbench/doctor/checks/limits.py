"""Whether open files, processes and stacks are limited too tightly for the ranks of a host."""

from collections.abc import Iterable

from collbench.core.text import counted
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike
from collbench.machine.discovery.recording import UNLIMITED, ProcessRecord, Recording
from collbench.machine.topology.model import members

_OWN_FILES, _FILES_OF_GPU, _FILES_OF_RANK = 256, 64, 8
_OWN_THREADS = 32
_LEAST_STACK = 1 << 20


def find(evidence: Evidence) -> Iterable[Finding]:
    yield from _files(evidence)
    yield from _processes(evidence)
    yield from _stacks(evidence)


def _files(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, processes, limit in alike(evidence, lambda one: one.open_files):
        needed = max(_files_of(one, host) for one in processes)
        if limit != UNLIMITED and limit < needed:
            yield told(
                "open-files",
                subject,
                f"may open {limit} files; {counted(processes[0].ranks, 'rank')} and"
                f" {counted(len(host.gpus), 'GPU')} may need {needed}",
            )
    for host in evidence.hosts:
        most = host.system.file_max if host.system else None
        needed = sum(_files_of(one, host) for one in host.processes)
        if most is not None and most < needed:
            yield told(
                "file-max",
                evidence.name(host),
                f"fs.file-max allows {most} open files; its ranks may need {needed}",
            )


def _processes(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        needed = sum(_OWN_THREADS + _threads(one, host) for one in host.processes)
        most = host.system.pids_max if host.system else None
        if most is not None and most < needed:
            yield told(
                "pids-max",
                evidence.name(host),
                f"the control group allows {most} processes and threads; its"
                f" {counted(len(host.processes), 'rank')} may need {needed}",
            )
    for subject, host, processes, limit in alike(evidence, lambda one: one.processes):
        needed = sum(_OWN_THREADS + _threads(one, host) for one in processes)
        if limit != UNLIMITED and limit < needed:
            yield told(
                "processes",
                subject,
                f"may start {limit} processes and threads of the user; may need {needed}",
            )


def _stacks(evidence: Evidence) -> Iterable[Finding]:
    for subject, _, _, limit in alike(evidence, lambda one: one.stack_bytes):
        if limit == UNLIMITED:
            seen = "the stack is unlimited, and so threads get 2 MiB"
        elif limit < _LEAST_STACK:
            seen = f"the stack, and that of threads, has {limit >> 10} KiB"
        else:
            continue
        yield told("stack", subject, seen)


def _files_of(process: ProcessRecord, host: Recording) -> int:
    gpus = len(host.gpus if process.cuda is None else process.cuda)
    return _OWN_FILES + _FILES_OF_GPU * gpus + _FILES_OF_RANK * process.ranks


def _threads(process: ProcessRecord, host: Recording) -> int:
    """Of OpenMP and BLAS: as many as the rank is told, or has cores."""
    asked = process.environment.get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdecimal():
        return int(asked)
    return len(members(process.cpulist or host.cpus or ""))
