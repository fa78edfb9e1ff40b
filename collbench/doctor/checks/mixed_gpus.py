"""Whether the GPUs that work together are of one kind."""

from collections.abc import Callable, Iterable, Sequence

from collbench.core.units import format_size
from collbench.doctor.checks._siblings import named, numbered, odd_ones, usable
from collbench.doctor.evidence import Evidence, Need
from collbench.doctor.finding import Finding, Severity
from collbench.machine.discovery.recording import GpuRecord, Recording

TITLE = "GPUs of different models, firmware, memory or PCIe maximum"
NEEDS: tuple[Need, ...] = ("two gpus",)
NO_EXPERIMENT = "leave these GPUs out by CUDA_VISIBLE_DEVICES and measure again: collbench sweep"
EXPLANATION = """
A collective runs at the pace of its slowest rank. GPUs of different models have different clocks,
links and memory; libraries choose algorithms for all of them by one, and some need equal ones: NCCL
uses NVLink SHARP and its fastest protocol only where every GPU has them. Different firmware (VBIOS)
may mean other power limits, clocks and repaired faults.

The check compares by NVML the names, memory sizes, VBIOS versions and the most that the PCIe link
of each GPU can do (`nvmlDeviceGetName`, `nvmlDeviceGetMemoryInfo`, `nvmlDeviceGetVbiosVersion`,
`nvmlDeviceGetMaxPcieLinkGeneration` and `Width`): among the GPUs of a host, and between hosts. The
last three are compared among GPUs of one name. Divided GPUs (MIG) are left out.

Choose equal GPUs (`CUDA_VISIBLE_DEVICES=0,1`, with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, so that the
numbers are nvidia-smi's), or equal hosts of the batch system (`--constraint`, `--gres=gpu:h100:8`).
The vendor of the machine has updates of the VBIOS. A lower PCIe maximum is that of the slot: look
at its generation and width in the BIOS. `collbench topo --measure` shows what each pair reaches.
"""

_Value = Callable[[GpuRecord], str | None]
_WHY = "A collective waits for its slowest GPU, and libraries choose for all of them by one."


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
    gpus = [gpu for host in evidence.hosts for gpu in usable(host)]
    comparisons: list[tuple[_Value, str, Severity, str | None]] = [(_name, _CHOOSE, "risk", None)]
    for model in dict.fromkeys(gpu.name for gpu in gpus if gpu.name):
        comparisons += [(*compared, model) for compared in _VALUES]
    for value, change, severity, name in comparisons:
        for host in evidence.hosts:
            of_gpus = {gpu.index: value(gpu) for gpu in _whole(host, name)}

            def call(indices: Sequence[int], host: Recording = host) -> str:
                return evidence.on(numbered("GPU", indices), host)

            for subject, words in odd_ones(of_gpus, call):
                yield _finding(subject, words, change, severity)
        of_hosts = {
            number: _common(host, value, name) for number, host in enumerate(evidence.hosts)
        }

        def call_hosts(numbers: Sequence[int]) -> str:
            names = [evidence.name(evidence.hosts[number]) for number in numbers]
            return f"GPUs of {named(names)}"

        for subject, words in odd_ones(of_hosts, call_hosts):
            yield _finding(subject, words, change, severity)


def _whole(host: Recording, name: str | None) -> list[GpuRecord]:
    """The GPUs of a host that are not divided, and of this name; None: of any."""
    return [gpu for gpu in usable(host) if not gpu.has_mig and name in (None, gpu.name)]


def _common(host: Recording, value: _Value, name: str | None) -> str | None:
    """The value of all GPUs of a host; None if they have several, or none."""
    values = {value(gpu) for gpu in _whole(host, name)}
    return values.pop() if len(values) == 1 else None


def _finding(subject: str, words: str, change: str, severity: Severity) -> Finding:
    return Finding(subject=subject, seen=words, why=_WHY, change=change, severity=severity)
