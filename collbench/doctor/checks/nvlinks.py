"""Whether all NVLinks of the GPUs are up, and equal to those of their siblings."""

from collections.abc import Iterable, Sequence

from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.discovery.links import has_switch, speeds_gbs, states
from collbench.machine.discovery.recording import GpuRecord, Recording
from collbench.machine.topology.gpu_models import has_links
from collbench.machine.topology.model import numbered, spans

_NVLINK_OK = 0  # of the P2P status of a pair


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        yield from _all_down(evidence, host)
    groups: dict[tuple[str, int], list[tuple[Recording, GpuRecord]]] = {}
    for host in evidence.hosts:
        for gpu in host.usable_gpus:
            if gpu.name and not gpu.has_mig and None not in states(gpu).values():
                groups.setdefault((gpu.name, len(host.gpus)), []).append((host, gpu))
    for group in groups.values():
        yield from _unequal(evidence, group)


def _all_down(evidence: Evidence, host: Recording) -> Iterable[Finding]:
    """GPUs that always have NVLinks, none of which works."""
    gpus = [
        gpu
        for gpu in host.usable_gpus
        if not gpu.has_mig and has_links(gpu.name or "", str(gpu.arch or ""), None) == "always"
    ]
    is_known = bool(host.pairs) and all(pair.nvlink is not None for pair in host.pairs)
    works = any(pair.nvlink == _NVLINK_OK for pair in host.pairs) or any(
        state is not False for gpu in gpus for state in states(gpu).values()
    )
    if len(gpus) < 2 or works or not is_known:
        return
    parameters = {} if host.system is None else host.system.driver_parameters
    is_disabled = parameters.get("NvLinkDisable") == "1"
    seen = "none of their NVLinks is up" + (
        ": NvLinkDisable is 1 (/proc/driver/nvidia/params)"
        if is_disabled
        else ", which all boards of their kind have"
    )
    subject = evidence.on(numbered("GPU", [gpu.index for gpu in gpus]), host)
    yield told("nvlinks-disabled" if is_disabled else "nvlinks-down", subject, seen)


def _unequal(evidence: Evidence, group: Sequence[tuple[Recording, GpuRecord]]) -> Iterable[Finding]:
    """Siblings with fewer or slower links than others."""
    most = max(sum(states(gpu).values()) for _, gpu in group)  # type: ignore[arg-type]  # all known
    fastest = max((speed for _, gpu in group for speed in speeds_gbs(gpu).values()), default=0.0)
    for host, gpu in group:
        name, of_links = evidence.on(f"GPU {gpu.index}", host), states(gpu)
        up = sum(map(bool, of_links.values()))
        down = [number for number, state in of_links.items() if not state]
        slow = {number: speed for number, speed in speeds_gbs(gpu).items() if speed < fastest}
        row, more = "nvlink-unequal", ""
        if not up and most:
            always = has_links(gpu.name or "", str(gpu.arch or ""), None) == "always"
            row = "nvlink-none" if always or has_switch(host) else "nvlink-no-bridge"
            seen = f"it has no NVLink that is up, where others of its kind have {most}"
        elif up < most:
            which = f" (down: {spans(down)})" if down else ""
            seen = f"{up} of its NVLinks are up, where others of its kind have {most}{which}"
            more = f" {up} of {most} links carry {100 * up // most} % of their rate."
        elif slow:
            seen = (
                f"{numbered('NVLink', slow)} at {min(slow.values()):g} GB/s, where others of its"
                f" kind run at {fastest:g} GB/s"
            )
        else:
            continue
        yield told(row, name, seen, more=more)
