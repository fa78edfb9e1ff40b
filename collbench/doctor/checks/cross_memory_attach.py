"""Whether MPI can copy from one process of a host to another in one step."""

from collections.abc import Iterable

from collbench.bench.experiment import Experiment
from collbench.doctor.checks._ranks import alike, setting, without_variable
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Finding, Seen, seen

NEEDS: tuple[Need, ...] = ("processes",)

# name: (values that switch it off, value that leaves it to the library)
_SWITCHES: dict[str, tuple[str, ...]] = {
    "OMPI_MCA_btl_vader_single_copy_mechanism": ("none", "emulated"),
    "OMPI_MCA_btl_sm_single_copy_mechanism": ("none", "emulated"),
    "OMPI_MCA_smsc": ("^cma", "^cma,xpmem", "^xpmem,cma"),
    "MPIR_CVAR_CH4_CMA_ENABLE": ("0", "no", "false"),
}


def find(evidence: Evidence) -> Iterable[Seen]:
    for host in evidence.hosts:
        scope = host.system.ptrace_scope if host.system else None
        users = {one.namespaces.get("user") for one in host.processes} - {None}
        if len(users) > 1:
            yield seen("users", evidence.name(host), users=len(users))
        if scope and any(scope > 2 or one.can_trace is False for one in host.processes):
            # UCX and newer Open MPI permit it to all with scope 1
            is_risk = len(host.processes) > 1 < scope
            kind = "scope" if scope < 3 else "nobody"
            yield seen(kind, evidence.name(host), "risk" if is_risk else "remark", scope=scope)
    for subject, host, _, can_copy in alike(evidence, lambda one: one.can_copy):
        if not can_copy:
            yield seen("filter", subject, "risk" if len(host.processes) > 1 else "remark")
    for name, values in _SWITCHES.items():
        for subject, _, _, value in alike(evidence, lambda one, k=name: setting(one, k)):  # type: ignore[misc]
            if value.lower() in values:
                yield seen("switch", subject, name=name, value=value)


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    if finding.kind == "switch":
        return without_variable(evidence, finding.change.removeprefix("unset "))
    return "only an administrator, or whoever starts the container, can allow it"
