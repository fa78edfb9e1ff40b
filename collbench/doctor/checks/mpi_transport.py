"""Whether the environment makes MPI send by TCP, or leave shared memory out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from collbench.bench.experiment import Experiment
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike, setting, without_variable
from collbench.machine.discovery.recording import Recording

_ON = ("1", "yes", "true", "on", "enable")
_NO_MEMORY = "leaves shared memory out"
_TRANSPORTS_OF_MEMORY = {"sm", "shm", "shared_memory", "mm", "posix", "sysv", "xpmem", "all"}
_RDMA_OF_UCX = {
    "rc",
    "rc_x",
    "rc_v",
    "rc_mlx5",
    "rc_verbs",
    "ud",
    "ud_x",
    "ud_v",
    "dc",
    "dc_x",
    "ib",
    "all",
    "srd",
}


def _btl(value: str) -> str:
    names = set(value.lstrip("^").split(","))
    if value.startswith("^"):
        return _NO_MEMORY if names & {"sm", "vader"} else ""
    return "" if names & {"sm", "vader"} else _NO_MEMORY


def _ucx(value: str) -> str:
    names = {one.strip().lstrip("\\") for one in value.lstrip("^").split(",")}
    if value.startswith("^"):
        is_without = names & {"sm", "shm", "mm"} or {"posix", "sysv"} <= names
        return _NO_MEMORY if is_without else ""
    return "" if names & _TRANSPORTS_OF_MEMORY else _NO_MEMORY


def _on(words: str) -> Callable[[str], str]:
    return lambda value: words if value.lower() in _ON else ""


def _off(words: str) -> Callable[[str], str]:
    return lambda value: words if value.lower() in ("0", "no", "false", "off", "disable") else ""


# What a variable's value does to messages of the same host, in words; nothing if it does not.
_LOCAL: Mapping[str, Callable[[str], str]] = {
    "OMPI_MCA_btl": _btl,
    "UCX_TLS": _ucx,
    "I_MPI_FABRICS": lambda value: "" if "shm" in value.lower() else _NO_MEMORY,
    "I_MPI_SHM": _off("switches shared memory off"),
    "MPIR_CVAR_NOLOCAL": _on("switches shared memory off"),
    "MPIR_CVAR_ODD_EVEN_CLIQUES": _on("treats every other rank as one of another host"),
}


def find(evidence: Evidence) -> Iterable[Finding]:
    for name, words_of in _LOCAL.items():
        for subject, _, _, value in alike(evidence, lambda one, k=name: setting(one, k)):  # type: ignore[misc]
            if words := words_of(value):
                yield _finding(subject, name, value, words)
    for subject, host, _, value in alike(evidence, lambda one: setting(one, "FI_PROVIDER")):
        if value in ("tcp", "sockets", "udp", "net"):
            is_costly = len(evidence.hosts) > 1 and _has_rdma(host)
            found = _finding(subject, "FI_PROVIDER", value, "forces TCP", "tcp-forced")
            yield found if is_costly else replace(found, severity="remark")
    if len(evidence.hosts) > 1:
        for subject, host, _, value in alike(evidence, lambda one: setting(one, "UCX_TLS")):
            names = {one.strip().lstrip("\\") for one in value.split(",")}
            if not value.startswith("^") and not names & _RDMA_OF_UCX and _has_rdma(host):
                yield _finding(subject, "UCX_TLS", value, "leaves RDMA out", "tcp-forced")


def _has_rdma(host: Recording) -> bool:
    return any(nic.is_rdma for nic in host.nics)


def _finding(
    subject: str, name: str, value: str, words: str, row: str = "shared-memory-off"
) -> Finding:
    return told(row, subject, f"{name}={value} {words}", change=f"unset {name}")


def experiment(finding: Finding, evidence: Evidence) -> Experiment | str:
    if finding.seen.endswith(("forces TCP", "leaves RDMA out")):
        return "what goes between hosts cannot be measured by ranks of one host"
    return without_variable(evidence, finding.change.removeprefix("unset "))
