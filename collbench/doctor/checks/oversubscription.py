"""Whether a host has more ranks than cores."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.machine.topology.model import members

TITLE = "More ranks than cores"
NEEDS: tuple[Need, ...] = ("ranks",)
NO_EXPERIMENT = "the same ranks cannot have more cores here"
EXPLANATION = """
Every rank of a collective waits for others most of the time, and does so by looking at memory again
and again, because the kernel would take longer to wake it than a message takes. With more ranks
than cores, a rank that waits keeps the core from the rank it waits for, until the kernel lets
the other one run. A step of microseconds then takes milliseconds.

The check compares the ranks of each host with its cores (`/sys/devices/system/cpu/online`), and
with the time of cores that the control group allows. Two threads of a core (hyper-threading) count
as two cores here. Ranks that share few of many cores, because they are bound to them, are the
matter of the check `binding`.

Start fewer ranks on each host: `mpirun --map-by ppr:N:node` (Open MPI), `mpirun -ppn N` (MPICH,
Intel MPI), `srun --ntasks-per-node=N`. If there must be more ranks than cores, Open MPI can yield
the core while it waits (`--mca mpi_yield_when_idle 1`). To be sure, measure with as many ranks as
cores and with twice as many: `collbench sweep --ranks`.
"""


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        ranks, cores = len(host.processes), len(members(host.cpus or ""))
        time = host.system.cgroup_cpus if host.system else None
        if not cores or ranks < 2:
            continue
        if ranks > cores:
            seen = f"{ranks} ranks run on {cores} core{'s' * (cores > 1)}"
        elif time is not None and ranks > time:
            seen = f"{ranks} ranks have {time:g} CPUs' worth of time, as the control group allows"
        else:
            continue
        yield Finding(
            subject=evidence.name(host),
            seen=seen,
            why="A rank that waits keeps the core from the one that it waits for.",
            change="start fewer ranks on each host: mpirun --map-by ppr:N:node (Open MPI), mpirun"
            " -ppn N (MPICH), srun --ntasks-per-node=N",
            severity="fault",
        )
