"""Reading everything about a host once. Never raises for what is not there, and changes nothing.
Cost: a tenth of a second for 8 GPUs of 18 links.
"""

import os
import socket
from pathlib import Path
from typing import TypedDict

from collbench.core.errors import UnavailableError
from collbench.core.host import boot_id, host_name
from collbench.machine import gpus
from collbench.machine.discovery import _nvml, _sysfs, _system
from collbench.machine.discovery._sysfs import ValueReader, reason_of
from collbench.machine.discovery.recording import GpuRecord, PairRecord, Recording


class _NvmlPart(TypedDict, total=False):
    """The fields of a recording that come from NVML."""

    has_driver: bool
    driver: str | None
    cuda: tuple[int, ...] | None
    gpus: tuple[GpuRecord, ...]
    pairs: tuple[PairRecord, ...]


def record(root: Path = Path("/"), *, is_full: bool = False) -> Recording:
    """The recording of this host; root: the folder of its /sys and /proc. is_full: with what limits
    its processes, this one among them, and with how its GPUs are now; a tenth of a second more.
    """
    values = ValueReader(OSError, ValueError)
    adapters = _sysfs.nics(root)
    nvml_part = _nvml_part(root, values, is_full=is_full)
    ends = (
        [one.address for one in nvml_part["gpus"] if one.address]
        + [nic.address for nic in adapters if not nic.is_virtual]
        + _sysfs.nvidia_gpus(root)
    )
    return Recording(
        hostname=values.read("hostname", _hostname, root),
        boot_id=values.read("boot_id", boot_id, root),
        kernel=values.read("kernel", _sysfs.text, root / "proc/sys/kernel/osrelease"),
        maker=values.read("maker", _sysfs.text, root / "sys/class/dmi/id/sys_vendor"),
        product=values.read("product", _sysfs.text, root / "sys/class/dmi/id/product_name"),
        cpus=values.read("cpus", _sysfs.text, root / "sys/devices/system/cpu/online"),
        processor=_sysfs.processor(root),
        numa=_sysfs.numa_nodes(root),
        pci=_sysfs.pci_devices(root, ends),
        nics=adapters,
        rdma=_sysfs.rdma_support(root),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        **nvml_part,
        system=_system.system(root) if is_full else None,
        processes=((_system.process(root, os.environ, nvml_part.get("cuda")),) if is_full else ()),
        unknown=values.unknown,
    )


def _hostname(root: Path) -> str:
    try:
        name = _sysfs.text(root / "proc/sys/kernel/hostname")
    except OSError:
        return host_name()
    return host_name() if name == socket.gethostname() else name


def _nvml_part(root: Path, values: ValueReader, *, is_full: bool) -> _NvmlPart:
    refusal = gpus.nvml_refusal()
    if refusal is not None:
        values.unknown["gpus"] = refusal
        return {"has_driver": gpus.has_driver(), "gpus": ()}
    handles = _nvml.handles()
    nvml = _nvml.reader()
    usable = {index: handle for index, handle in handles.items() if not isinstance(handle, str)}
    part: _NvmlPart = {
        "has_driver": True,
        "driver": nvml.read("driver", _nvml.call, "nvmlSystemGetDriverVersion"),
        "cuda": nvml.read("cuda", shown_gpus),
        "gpus": tuple(
            _nvml.gpu(index, handle, root, has_condition=is_full)
            for index, handle in handles.items()
        ),
        "pairs": tuple(
            _nvml.pair(a, b, usable[a], usable[b]) for a in usable for b in usable if a != b
        ),
    }
    values.unknown |= nvml.unknown
    return part


def shown_gpus() -> tuple[int, ...]:
    """NVML's numbers of the GPUs that CUDA shows this process. Raises NVMLError or ValueError."""
    try:
        return tuple(gpu.index for gpu in gpus.visible())
    except UnavailableError as error:
        raise ValueError(reason_of(error)) from None
