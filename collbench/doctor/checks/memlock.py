"""Whether processes may lock as much memory as an RDMA device needs."""

from collections.abc import Iterable

from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import alike
from collbench.machine.discovery.recording import UNLIMITED, ProcessRecord

TITLE = "Limit of locked memory for buffers of RDMA devices"
NEEDS: tuple[Need, ...] = ("processes", "nics")
NO_EXPERIMENT = "it decides whether buffers can be registered at all, not how fast they are"
EXPLANATION = """
An RDMA device (InfiniBand, RoCE, EFA) reads and writes the memory of a process without asking the
kernel, so that the pages must stay where they are: they are registered, and thereby locked. The
kernel counts them against the limit of locked memory (`RLIMIT_MEMLOCK`) of the process. Beyond the
limit, `ibv_reg_mr` and the creation of queues fail with `Cannot allocate memory`: NCCL stops, and
MPI stops or falls back to TCP.

The check reads the soft limit of every rank (`getrlimit`) on hosts with RDMA devices, and whether
the process has the capability `CAP_IPC_LOCK`, for which there is no limit. A limit below 16 MiB is
a fault: the buffers of a single connection are about as large. Below 1 GiB it is a risk, which
grows with the number of ranks. GPUs need no such limit: the NVIDIA driver locks pages for CUDA
itself, and does not count them. Without RDMA devices the check therefore says nothing.

Set `memlock` to unlimited, soft and hard, in `/etc/security/limits.conf`. A service has a setting
of its own (`LimitMEMLOCK=infinity` in the unit of slurmd, sshd or the container runtime), Slurm
must not take the limit of the login host along (`PropagateResourceLimitsExcept=MEMLOCK`), and a
container is started with `--ulimit memlock=-1`. To be sure, run `ulimit -l` through the launcher
itself, such as `srun bash -c 'ulimit -l'`: the limit of your login shell is another one.
"""

_FAULT_BYTES = 16 << 20
_ENOUGH_BYTES = 1 << 30
_INITIAL_USERS = "user:[4026531837]"  # the host's own user namespace (PROC_USER_INIT_INO)


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, _, limit in alike(evidence, _limit):
        devices = [nic.name for nic in host.nics if nic.is_rdma and not nic.is_virtual]
        if not devices or limit >= _ENOUGH_BYTES:
            continue
        yield Finding(
            subject=subject,
            seen=f"may lock {format_size(limit)} of memory, and {devices[0]} is an RDMA device",
            why="Buffers that an RDMA device reads and writes are locked memory: beyond the limit"
            " NCCL and MPI cannot register them, and stop or fall back to TCP.",
            change="ulimit -l unlimited, by memlock in /etc/security/limits.conf, LimitMEMLOCK="
            "infinity of slurmd or sshd, or docker run --ulimit memlock=-1",
            risk="A process may then lock all memory of the host.",
            severity="fault" if limit < _FAULT_BYTES else "risk",
        )


def _limit(process: ProcessRecord) -> int | None:
    """In bytes; None if there is none, or if it is unknown."""
    is_free = process.can_lock and process.namespaces.get("user", _INITIAL_USERS) == _INITIAL_USERS
    return None if is_free or process.memlock_bytes == UNLIMITED else process.memlock_bytes
