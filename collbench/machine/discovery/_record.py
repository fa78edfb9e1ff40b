"""Asking a host everything once. Never raises for what is not there, and changes nothing. Cost: a
tenth of a second for 8 GPUs of 18 links.
"""

import os
import socket
from pathlib import Path
from typing import Any

from collbench.machine import gpus
from collbench.machine.discovery import _nvml, _sysfs
from collbench.machine.discovery._ask import Asker, why
from collbench.machine.discovery.recording import GpuRecord, PairRecord, Recording
from collbench.util.errors import UnavailableError


def record(root: Path = Path("/")) -> Recording:
    """What this host says of itself; root: where its /sys and /proc are."""
    asked = Asker((OSError, ValueError))
    adapters = _sysfs.nics(root)
    gpus = _gpus(root, asked)
    ends = (
        [one.address for one in gpus["gpus"] if one.address]
        + [nic.address for nic in adapters if not nic.is_virtual]
        + _sysfs.nvidia_gpus(root)
    )
    links = _sysfs.switch_links(root)
    return Recording(
        hostname=asked.ask("hostname", _hostname, root),
        boot_id=asked.ask("boot_id", boot_id, root),
        kernel=asked.ask("kernel", _sysfs.text, root / "proc/sys/kernel/osrelease"),
        maker=asked.ask("maker", _sysfs.text, root / "sys/class/dmi/id/sys_vendor"),
        product=asked.ask("product", _sysfs.text, root / "sys/class/dmi/id/product_name"),
        cpus=asked.ask("cpus", _sysfs.text, root / "sys/devices/system/cpu/online"),
        processor=_sysfs.processor(root),
        numa=_sysfs.numa_nodes(root),
        pci=_sysfs.pci_devices(root, ends),
        nics=adapters,
        switch_links=links,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        **gpus,
        unknown=asked.unknown,
    )


def boot_id(root: Path = Path("/")) -> str:
    """What distinguishes hosts of one name. Raises OSError."""
    return _sysfs.text(root / "proc/sys/kernel/random/boot_id")


def _hostname(root: Path) -> str:
    try:
        return _sysfs.text(root / "proc/sys/kernel/hostname")
    except OSError:
        return socket.gethostname()


def _gpus(root: Path, asked: Asker) -> dict[str, Any]:
    """The part of a recording that comes from NVML."""
    refusal = gpus.nvml_refusal()
    if refusal is not None:
        asked.unknown["gpus"] = refusal
        return {"has_driver": gpus.has_driver(), "gpus": ()}
    handles = _nvml.handles()
    nvml = _nvml.asker()
    driver = nvml.ask("driver", _nvml.call, "nvmlSystemGetDriverVersion")
    records: tuple[GpuRecord, ...] = tuple(
        _nvml.gpu(index, handle, root) for index, handle in handles.items()
    )
    usable = {index: handle for index, handle in handles.items() if not isinstance(handle, str)}
    pairs: tuple[PairRecord, ...] = tuple(
        _nvml.pair(a, b, usable[a], usable[b]) for a in usable for b in usable if a != b
    )
    shown = nvml.ask("cuda", shown_gpus)
    asked.unknown.update(nvml.unknown)
    return {"has_driver": True, "driver": driver, "cuda": shown, "gpus": records, "pairs": pairs}


def shown_gpus() -> tuple[int, ...]:
    """NVML's numbers of the GPUs that CUDA shows to this process. Raises NVMLError or
    ValueError.
    """
    try:
        return tuple(gpu.index for gpu in gpus.visible())
    except UnavailableError as error:
        raise ValueError(why(error)) from None
