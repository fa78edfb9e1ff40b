"""Whether the network interfaces that variables name exist, and lead to other hosts."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._ranks import alike
from collbench.machine.discovery.recording import Recording

_LOCAL = ("docker", "virbr", "br-", "veth", "cni", "flannel", "podman", "lxc")


_BY_BEGINNING = ("NCCL_SOCKET_IFNAME", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME")
_WITH_PORTS = "UCX_NET_DEVICES"  # behind a colon; it names RDMA devices as well
_VARIABLES = (
    *_BY_BEGINNING,
    "GLOO_SOCKET_IFNAME",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "FI_TCP_IFACE",
    _WITH_PORTS,
)


def find(evidence: Evidence) -> Iterable[Finding]:
    for name in _VARIABLES:
        for subject, host, _, text in alike(evidence, lambda one, k=name: one.environment.get(k)):  # type: ignore[misc]
            if text and host.system is not None and host.system.interfaces:
                yield from _judged(subject, host, name, text, len(evidence.hosts) > 1)


def _judged(
    subject: str, host: Recording, variable: str, text: str, has_hosts: bool
) -> Iterable[Finding]:
    assert host.system is not None
    here = list(host.system.interfaces)
    if variable == _WITH_PORTS:
        here += [nic.name for nic in host.nics if nic.is_rdma]
    is_begin = variable in _BY_BEGINNING
    is_exact = text.startswith("=") or not is_begin
    is_exclusion = is_begin and text.startswith("^")
    names = [one.strip() for one in text.lstrip("^=" if is_begin else "").split(",")]
    if variable == _WITH_PORTS:
        names = [one.partition(":")[0] for one in names]
    names = [one for one in names if one and "/" not in one and one != "all"]
    chosen = {
        name: [one for one in here if one == name or (not is_exact and one.startswith(name))]
        for name in names
    }
    known = {one for some in chosen.values() for one in some}
    missing = [name for name, some in chosen.items() if not some]
    row = "interface-missing"
    if is_exclusion and not set(here) - known:
        seen, is_fault = "it leaves no interface", True
    elif not is_exclusion and missing:
        seen = f"there is no {' and no '.join(missing)} here ({', '.join(sorted(here)[:8])})"
        is_fault = len(missing) == len(names)
    elif not is_exclusion and has_hosts and names and not _useful(sorted(known)):
        seen, is_fault = f"{' and '.join(sorted(known))} cannot reach other hosts", known == {"lo"}
        row = "interface-local"
    else:
        return
    yield told(
        row,
        subject,
        f"{variable}={text}: {seen}",
        severity="fault" if is_fault else "risk",
        change=f"unset {variable}, or give it one of {', '.join(_useful(here)[:6]) or 'lo'}",
    )


def _useful(names: list[str]) -> list[str]:
    """Interfaces that may reach other hosts."""
    return [one for one in names if one != "lo" and not one.startswith(_LOCAL)]
