"""Which ranks share memory, and which transports they so have."""

from collbench.core.case import Case
from collbench.core.errors import ScheduleError
from collbench.planning.limits import Limits
from collbench.planning.transports import net, p2p, shm

# p2p: peer access or CUDA IPC, which rows do not tell apart; shm: host memory that both ends map;
# net: messages of MPI
GPU_TRANSPORTS = ("p2p", "shm", "net")
CPU_TRANSPORTS = ("shm", "net")


def cpu_domains(case: Case, hosts: tuple[int, ...]) -> net.Domains:
    """The shared-memory domain of every rank on CPU cores, () for one. Raises ScheduleError for a
    transport that the ranks do not have.
    """
    if case.transport not in ("auto", *CPU_TRANSPORTS):
        raise ScheduleError(
            f"ranks on CPUs pass data by {' or '.join(CPU_TRANSPORTS)}, not by {case.transport}",
            "leave --transport out",
        )
    host_of = hosts or (0,) * case.ranks
    if case.transport == "shm" and (why := shm.why_not(host_of)):
        raise ScheduleError(why, "use --transport net, or auto for both")
    return net.domains(case.transport, host_of)


def gpu_domains(case: Case, limits: Limits) -> net.Domains:
    """The domain of every GPU, whose members reach each other's memory or share their host's; ()
    for one.
    """
    return net.domains(
        case.transport, limits.hosts if len(limits.hosts) == case.ranks else (0,) * case.ranks
    )


def refuse_transport(case: Case, limits: Limits) -> None:
    """Raise ScheduleError for a transport that GPUs, or the kernels of these GPUs, do not have."""
    name = case.transport
    if name not in ("auto", *GPU_TRANSPORTS):
        raise ScheduleError(
            f"GPUs pass data by {', '.join(GPU_TRANSPORTS)} or ce, not by {name}",
            "leave --transport out",
        )
    if name in ("p2p", "shm") and (why := p2p.why_not(limits.hosts)):
        raise ScheduleError(why, "use --transport net, or auto")
    if name == "p2p" and not limits.has_peers:
        raise ScheduleError(
            "not every GPU can reach the memory of every other",
            "use --transport shm, or see `collbench topo --p2p`",
        )
