"""Whether the window through which others reach a GPU's memory shows all of it."""

from collections.abc import Iterable

from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, Need
from collbench.machine.discovery.links import states
from collbench.machine.topology.model import numbered

TITLE = "Size of the PCIe window to GPU memory (BAR1)"
NEEDS: tuple[Need, ...] = ("condition", "two gpus")
NO_EXPERIMENT = "the BIOS sets the size when the machine starts"
EXPLANATION = """
Other GPUs and NICs reach a GPU's memory over PCIe through a window of addresses, BAR1. Where it is
as large as the memory (Resizable BAR), all of it can be shown at once. A window of 256 MiB must be
moved, large buffers cannot be mapped (`cudaErrorMapBufferObjectFailed`, or registration of memory
that fails), and drivers that need the whole window refuse peer access. NVLinks do not use it.

The check reads the sizes of BAR1 and of the memory by NVML (`nvmlDeviceGetBAR1MemoryInfo`,
`nvmlDeviceGetMemoryInfo`; `nvidia-smi -q -d MEMORY` shows them), and names GPUs without NVLinks
whose window shows less than half of the memory. GeForce cards, which have no peer access over PCIe
anyhow, get a remark.

Switch on `Above 4G Decoding` and `Resizable BAR` (`Re-Size BAR Support`) in the BIOS; both need
UEFI without CSM. Some cards need a newer VBIOS, and some data centre cards a mode that NVIDIA's
`displaymodeselector` sets. After a restart `nvidia-smi -q` must show a BAR1 as large as the memory.
"""


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
            yield Finding(
                subject=evidence.on(numbered("GPU", gpus), host),
                seen=f"BAR1 shows {format_size(window >> 20 << 20)} of"
                f" {format_size(memory >> 20 << 20)} of memory: Resizable BAR is off",
                why="Others reach the memory over PCIe through it: large buffers cannot be mapped,"
                " and peer access may be refused.",
                change="Above 4G Decoding and Resizable BAR in the BIOS",
                severity="remark" if is_geforce else "risk",
            )
