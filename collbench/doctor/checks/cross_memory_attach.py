"""Whether MPI can copy from one process of a host to another in one step."""

from collections.abc import Iterable

from collbench.bench.experiment import Experiment
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike, setting, without_variable

# name: (values that switch it off, value that leaves it to the library)
_SWITCHES: dict[str, tuple[str, ...]] = {
    "OMPI_MCA_btl_vader_single_copy_mechanism": ("none", "emulated"),
    "OMPI_MCA_btl_sm_single_copy_mechanism": ("none", "emulated"),
    "OMPI_MCA_smsc": ("^cma", "^cma,xpmem", "^xpmem,cma"),
    "MPIR_CVAR_CH4_CMA_ENABLE": ("0", "no", "false"),
}


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, seen, change, is_risk in _refused(evidence):
        yield told(
            "copies-refused", subject, seen, severity="risk" if is_risk else "remark", change=change
        )
    for name, values in _SWITCHES.items():
        for subject, _, _, value in alike(evidence, lambda one, k=name: setting(one, k)):  # type: ignore[misc]
            if value.lower() in values:
                yield told(
                    "copies-off", subject, f"{name}={value} switches it off", change=f"unset {name}"
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
