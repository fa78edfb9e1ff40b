"""Whether the window through which others reach a GPU's memory shows all of it."""

from collections.abc import Iterable

from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, told
from collbench.machine.discovery.links import states
from collbench.machine.topology.model import numbered


def find(evidence: Evidence) -> Iterable[Finding]:
    for host in evidence.hosts:
        small: dict[tuple[int, int, bool], list[int]] = {}
        for gpu in host.usable_gpus:
            window = None if gpu.condition is None else gpu.condition.bar1_bytes
            memory = None if gpu.condition is None else gpu.condition.memory_bytes
            is_linked = any(state is not False for state in states(gpu).values())
            if window and memory and 2 * window < memory and not is_linked and not gpu.has_mig:
                key = window, memory, "GeForce" in (gpu.name or "")
                small.setdefault(key, []).append(gpu.index)
        for (window, memory, is_geforce), gpus in small.items():
            yield told(
                "bar1",
                evidence.on(numbered("GPU", gpus), host),
                f"BAR1 shows {format_size(window >> 20 << 20)} of"
                f" {format_size(memory >> 20 << 20)} of memory: Resizable BAR is off",
                severity="remark" if is_geforce else "risk",
            )
