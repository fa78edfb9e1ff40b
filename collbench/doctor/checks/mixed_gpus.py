"""Whether the GPUs that work together are of one kind."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from collbench.core.text import listed
from collbench.core.units import format_size
from collbench.doctor.check import Evidence, Finding, Severity, told
from collbench.doctor.checks._siblings import odd_ones
from collbench.machine.discovery.recording import GpuRecord
from collbench.machine.topology.model import numbered

_Value = Callable[[GpuRecord], str | None]


def _name(gpu: GpuRecord) -> str | None:
    return gpu.name


def _memory(gpu: GpuRecord) -> str | None:
    size = None if gpu.condition is None else gpu.condition.memory_bytes
    return None if size is None else f"{format_size(size >> 20 << 20)}B of memory"


def _vbios(gpu: GpuRecord) -> str | None:
    version = None if gpu.condition is None else gpu.condition.vbios
    return None if version is None else f"VBIOS {version}"


def _pcie(gpu: GpuRecord) -> str | None:
    if not gpu.pcie_max_generation or not gpu.pcie_max_width:
        return None
    return f"PCIe {gpu.pcie_max_generation} x{gpu.pcie_max_width} at most"


# What is compared among GPUs of one name, what to change, and how bad it is.
_VALUES: tuple[tuple[_Value, str, Severity], ...] = (
    (_memory, "choose equal GPUs by CUDA_VISIBLE_DEVICES, or equal hosts", "risk"),
    (_vbios, "update it with what the vendor of the machine offers", "remark"),
    (_pcie, "look at the generation and width of the slots in the BIOS", "risk"),
)
_CHOOSE = "choose equal GPUs by CUDA_VISIBLE_DEVICES, or equal hosts by the batch system"


def find(evidence: Evidence) -> Iterable[Finding]:
    gpus = [gpu for host in evidence.hosts for gpu in host.usable_gpus]
    comparisons: list[tuple[_Value, str, Severity, str | None]] = [(_name, _CHOOSE, "risk", None)]
    for model in dict.fromkeys(gpu.name for gpu in gpus if gpu.name):
        comparisons += [(*compared, model) for compared in _VALUES]
    for value, change, severity, name in comparisons:
        for subject, words in _differing(evidence, value, name):
            yield told("mixed-gpus", subject, words, severity=severity, change=change)


def _differing(evidence: Evidence, value: _Value, name: str | None) -> Iterable[tuple[str, str]]:
    """Among the GPUs of each host, then between hosts whose GPUs are equal."""
    of_hosts: dict[int, str | None] = {}
    for number, host in enumerate(evidence.hosts):
        of_gpus = {
            gpu.index: value(gpu)
            for gpu in host.usable_gpus
            if not gpu.has_mig and name in (None, gpu.name)
        }
        for indices, words in odd_ones(of_gpus, partial(numbered, "GPU")):
            yield evidence.on(indices, host), words
        values = set(of_gpus.values())
        of_hosts[number] = values.pop() if len(values) == 1 else None

    def call(numbers: Sequence[int]) -> str:
        return f"GPUs of {listed([evidence.name(evidence.hosts[number]) for number in numbers])}"

    yield from odd_ones(of_hosts, call)
