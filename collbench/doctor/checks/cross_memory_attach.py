"""Whether MPI can copy from one process of a host to another in one step."""

from collections.abc import Iterable

from collbench.bench.experiment import Experiment
from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import alike, setting, without_variable

TITLE = "Copies between processes in one step (cross-memory attach)"
NEEDS: tuple[Need, ...] = ("processes",)
EXPLANATION = """
Two processes of a host can exchange data in two ways. The sender writes it to shared memory and the
receiver reads it from there: two copies. Or the receiver asks the kernel to copy it from the memory
of the sender (`process_vm_readv`, cross-memory attach): one copy, which is about twice as fast for
large messages. MPI libraries choose the second one for large messages where it works.

The kernel allows it to processes that may debug each other. The check reads Yama's
`/proc/sys/kernel/yama/ptrace_scope` (1: only children, unless a process permits it, as UCX does; 2:
with the capability `CAP_SYS_PTRACE`; 3: nobody), the capability, and the user namespaces of the
ranks, and tries the call on the process itself: a filter of system calls (seccomp), as Docker has,
refuses it even there. It also reads the variables of MPI that switch it off; what these cost is
measured with and without them, in MPI's own allreduce.

Start the container with `--cap-add SYS_PTRACE` or `--security-opt seccomp=unconfined`, and run all
ranks as one user. As root, `sysctl kernel.yama.ptrace_scope=0`. Where neither is possible, tell
Open MPI not to try (`OMPI_MCA_btl_vader_single_copy_mechanism=none`), which ends the error messages
`Read -1, expected N, errno = 1`. To be sure, measure `collbench sweep --backend mpi` at 1 MiB.
"""

_WHY = "MPI then copies large messages of the same host twice, through shared memory."
# name: (values that switch it off, value that leaves it to the library)
_SWITCHES: dict[str, tuple[str, ...]] = {
    "OMPI_MCA_btl_vader_single_copy_mechanism": ("none", "emulated"),
    "OMPI_MCA_btl_sm_single_copy_mechanism": ("none", "emulated"),
    "OMPI_MCA_smsc": ("^cma", "^cma,xpmem", "^xpmem,cma"),
    "MPIR_CVAR_CH4_CMA_ENABLE": ("0", "no", "false"),
}


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, seen, change, is_risk in _refused(evidence):
        yield Finding(
            subject=subject,
            seen=seen,
            why=_WHY,
            change=change,
            risk="Processes of one user can then read each other's memory.",
            severity="risk" if is_risk else "remark",
        )
    for name, values in _SWITCHES.items():
        for subject, _, _, value in alike(evidence, lambda one, k=name: setting(one, k)):  # type: ignore[misc]
            if value.lower() in values:
                yield Finding(
                    subject=subject,
                    seen=f"{name}={value} switches it off",
                    why=_WHY,
                    change=f"unset {name}",
                    risk="Where the kernel refuses the copies, messages may fail.",
                )


def _refused(evidence: Evidence) -> Iterable[tuple[str, str, str, bool]]:
    """Who is refused the copies: subject, what was seen, what to change, whether it is a risk."""
    for host in evidence.hosts:
        scope = host.system.ptrace_scope if host.system else None
        users = {one.namespaces.get("user") for one in host.processes} - {None}
        has_ranks = len(host.processes) > 1
        if len(users) > 1:
            seen = f"its ranks are in {len(users)} user namespaces"
            yield evidence.name(host), seen, "run all ranks in one container, as one user", True
        if scope and any(scope > 2 or one.can_trace is False for one in host.processes):
            change = "sysctl kernel.yama.ptrace_scope=0, as root"
            change += ", or docker run --cap-add SYS_PTRACE" if scope < 3 else ""
            seen = f"kernel.yama.ptrace_scope is {scope}"
            # UCX and newer Open MPI permit it to all with scope 1
            yield evidence.name(host), seen, change, has_ranks and scope > 1
    for subject, host, _, can_copy in alike(evidence, lambda one: one.can_copy):
        if not can_copy:
            seen = "process_vm_readv is refused (a filter of system calls, seccomp)"
            change = "docker run --cap-add SYS_PTRACE or --security-opt seccomp=unconfined"
            yield subject, seen, change, len(host.processes) > 1


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    name = finding.change.removeprefix("unset ")
    if name in _SWITCHES:
        return without_variable(evidence, name)
    return "only an administrator, or whoever starts the container, can allow it"
