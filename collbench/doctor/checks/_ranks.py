"""What several checks ask of the ranks of a host: whose value is the same, and their MPI."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from collbench.bench.experiment import Arm, Experiment
from collbench.core.grouping import grouped
from collbench.doctor.check import Evidence
from collbench.machine.discovery.recording import ProcessRecord, Recording
from collbench.machine.topology.model import members, numbered

T = TypeVar("T")

_OF_VENDOR = {"OMPI_": "Open MPI", "MPIR_": "MPICH", "I_MPI_": "Intel"}
CPU_SIZES = (1 << 10, 64 << 10, 1 << 20)
MOST_RANKS = 8


def alike(
    evidence: Evidence, value: Callable[[ProcessRecord], T | None]
) -> Iterator[tuple[str, Recording, list[ProcessRecord], T]]:
    """The ranks of each host by their value, with what people call them; without those whose value
    is unknown.
    """
    for host in evidence.hosts:
        groups = grouped((value(process), process) for process in host.processes)
        for one, processes in groups.items():
            if one is not None:
                yield named(evidence, host, processes), host, processes, one


def named(evidence: Evidence, host: Recording, processes: Sequence[ProcessRecord]) -> str:
    """Ranks of a host as people call them."""
    if processes[0].ranks < 2:
        return evidence.on("this process", host)
    return evidence.on(numbered("rank", (one.rank for one in processes)), host)


def cores_of(host: Recording) -> set[int]:
    """The cores that any rank of the host may run on; all of them where that is unknown."""
    lists = [one.cpulist for one in host.processes if one.cpulist]
    return {core for one in lists or [host.cpus or ""] for core in members(one)}


def setting(process: ProcessRecord, name: str) -> str | None:
    """The value of a variable, if it concerns the MPI library of the process."""
    vendor = next((one for prefix, one in _OF_VENDOR.items() if name.startswith(prefix)), "")
    if vendor and process.mpi_library and vendor not in process.mpi_library:
        return None
    return process.environment.get(name) or None


def without_variable(evidence: Evidence, name: str) -> Experiment | str:
    """MPI's allreduce with a variable as a rank of this host has it, and without it."""
    processes = evidence.hosts[0].processes
    for process in processes:
        if name in process.environment:
            return Experiment(
                backend="mpi",
                ranks=max(2, min(len(processes), MOST_RANKS)),
                sizes=CPU_SIZES,
                found=Arm(environment={name: process.environment[name]}),
                changed=Arm(environment={name: None}),
            )
    return "the rank is on another host than the doctor"
