"""Recordings: of this host, every value when somebody first asks for it or everything at once, and
in files. Reading a host never raises for what is not there, and changes nothing. Cost of
everything: a tenth of a second for 8 GPUs of 18 links.
"""

import json
import os
import re
import resource
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from collbench.core import host
from collbench.core.codec import decode, encode
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.reading import parse_json
from collbench.machine import gpus
from collbench.machine.discovery import _nvml, _sysfs, _system
from collbench.machine.discovery._sysfs import number, reason_of, text
from collbench.machine.discovery.recording import PciDevice, ProcessRecord, Recording, SystemRecord
from collbench.machine.settings.files import settings
from collbench.machine.topology.model import spans

FORMAT, VERSION = "collbench-recording", 1
_MAX_CHARS = 64 << 20  # eight GPUs of 18 links take 0.2 MB

_MAX_COUNTS = {
    "gpus": 256,
    "numa": 1024,
    "pci": 8192,
    "nics": 8192,
    "pairs": 256 * 255,
    "links": 64,
    "c2c": 64,
    "processes": 8192,
}
_CHOSEN = re.compile(r"\[(\w+)\]")  # of a file that lists all choices
_NAMESPACES = ("ipc", "pid", "user", "net")
# variables that concern one MPI library alone
_OF_MPI = re.compile(r"(OMPI_MCA|MPIR_CVAR|I_MPI)_")
_BUSY = 0.5  # of a core's time, from which on it counts as used
_IPC_LOCK, _SYS_PTRACE = 1 << 14, 1 << 19  # CAP_IPC_LOCK, CAP_SYS_PTRACE
RecordT = TypeVar("RecordT", Recording, SystemRecord, ProcessRecord)
_Readers = dict[str, Callable[[], object]]  # by the names of a record's fields


def record(root: Path = Path("/"), *, is_full: bool = False) -> Recording:
    """The recording of this host; root: the folder of its /sys and /proc. is_full: with what limits
    its processes, this one among them, and with how its GPUs are now; a tenth of a second more.
    """
    found = on_demand(root, is_full=is_full)
    if not is_full:
        return _whole(Recording, found)
    system = found.system and _whole(SystemRecord, found.system)
    processes = tuple(_whole(ProcessRecord, one) for one in found.processes)
    return replace(_whole(Recording, found), system=system, processes=processes)


def on_demand(root: Path = Path("/"), *, is_full: bool = True) -> Recording:
    """The recording of this host, each value of which is read when it is first asked for."""
    unknown: dict[str, str] = {}
    nvml = cache(lambda: _nvml_part(root, unknown, is_full=is_full))
    sysfs, kernel = root / "sys", root / "proc/sys/kernel"
    nics = cache(lambda: _sysfs.nics(root))

    def ends() -> list[str]:
        found = [one.address for one in nvml().gpus if one.address]
        found += [nic.address for nic in nics() if not nic.is_virtual]
        return found + _sysfs.nvidia_gpus(root)

    readers: _Readers = {
        "hostname": lambda: _hostname(root),
        "boot_id": lambda: host.boot_id(root),
        "kernel": lambda: text(kernel / "osrelease"),
        "maker": lambda: text(sysfs / "class/dmi/id/sys_vendor"),
        "product": lambda: text(sysfs / "class/dmi/id/product_name"),
        "cpus": lambda: text(sysfs / "devices/system/cpu/online"),
        "processor": lambda: _sysfs.processor(root),
        "numa": lambda: _sysfs.numa_nodes(root),
        "pci": lambda: _sysfs.pci_devices(root, ends()),
        "nics": nics,
        "rdma": lambda: _sysfs.rdma_support(root),
        "visible_devices": lambda: os.environ.get("CUDA_VISIBLE_DEVICES"),
        "has_driver": lambda: nvml().has_driver,
        "driver": lambda: nvml().driver,
        "cuda": lambda: nvml().cuda,
        "gpus": lambda: nvml().gpus,
        "pairs": lambda: nvml().pairs,
    }
    if is_full:
        readers |= {
            "system": lambda: system(root),
            "processes": lambda: (_process(root, os.environ, lambda: nvml().cuda),),
        }
    return _on_demand(Recording, readers, unknown)


def _on_demand(kind: type[RecordT], readers: _Readers, unknown: dict[str, str]) -> RecordT:
    """A record whose values are read when they are first asked for, and all before `unknown` tells
    why some are missing. Those without a reader have their defaults.
    """

    def read(self: RecordT, name: str) -> object:
        value: object = None
        if name == "unknown":
            for other in readers:
                getattr(self, other)
            value = unknown
        else:
            try:
                value = readers[name]() if name in readers else getattr(kind(), name)
            except (OSError, ValueError) as error:
                unknown[name] = reason_of(error)
        object.__setattr__(self, name, value)  # the next time it is found there
        return value

    lazy = type(kind.__name__, (kind,), {"__slots__": (), "__getattr__": read})
    return cast("RecordT", object.__new__(lazy))


def _whole(kind: type[RecordT], found: RecordT) -> RecordT:
    """A record of which everything is read."""
    return kind(**{one.name: getattr(found, one.name) for one in fields(kind)})


def system(root: Path) -> SystemRecord:
    """What limits the host's processes, on demand."""
    memory = cache(lambda: _system.memory(root))
    busy = cache(lambda: _system.busy_cpus(root))
    groups = root / "sys/fs/cgroup", root / "proc/self/cgroup"
    kernel, pages = root / "proc/sys/kernel", root / "sys/kernel/mm/transparent_hugepage"
    shm, net = root / "dev/shm", root / "sys/class/net"
    readers: _Readers = {
        "busy_cpus": lambda: sum(busy().values()) if busy() else None,
        "busy_cpulist": lambda: spans(core for core, share in busy().items() if share >= _BUSY),
        "memory_bytes": lambda: memory().get("MemTotal"),
        "memory_available_bytes": lambda: memory().get("MemAvailable"),
        "shm_bytes": lambda: (found := os.statvfs(shm)).f_frsize * found.f_blocks,
        "shm_free_bytes": lambda: (found := os.statvfs(shm)).f_frsize * found.f_bavail,
        "load": lambda: float(text(root / "proc/loadavg").split()[0]),
        "cgroup_cpus": lambda: host.group_cpus(*groups),
        "cgroup_memory_bytes": lambda: host.memory_limit_bytes(*groups),
        "pids_max": lambda: host.most_processes(*groups),
        "file_max": lambda: number(root / "proc/sys/fs/file-max"),
        "numa_balancing": lambda: number(kernel / "numa_balancing"),
        "ptrace_scope": lambda: number(kernel / "yama/ptrace_scope"),
        "shm_huge": lambda: "".join(_CHOSEN.findall(text(pages / "shmem_enabled"))) or None,
        "governors": lambda: _system.governors(root),
        "is_wsl": lambda: "microsoft" in text(root / "proc/version").lower(),
        "removes_ipc": lambda: _system.removes_ipc(root),
        "has_fabric_manager": lambda: _system.has_fabric_manager(root),
        "interfaces": lambda: tuple(sorted(one.name for one in _sysfs.entries(net))),
        "imex_channels": lambda: _system.imex_channels(root),
        "driver_parameters": lambda: _system.driver_parameters(root),
    }
    return _on_demand(SystemRecord, readers, {})


def process(
    root: Path, environment: Mapping[str, str], cuda: tuple[int, ...] | None = None
) -> ProcessRecord:
    """The calling process. cuda: NVML's numbers of the GPUs that CUDA shows it."""
    return _whole(ProcessRecord, _process(root, environment, lambda: cuda))


def _process(
    root: Path, environment: Mapping[str, str], cuda: Callable[[], tuple[int, ...] | None]
) -> ProcessRecord:
    """The calling process, on demand."""
    unknown: dict[str, str] = {}
    status = cache(lambda: _system.status(root))
    links = {name: root / "proc/self/ns" / name for name in _NAMESPACES}
    readers: _Readers = {
        "cpulist": lambda: spans(sorted(os.sched_getaffinity(0))),
        "mems": lambda: status().get("Mems_allowed_list"),
        "memlock_bytes": lambda: _system.limit(resource.RLIMIT_MEMLOCK),
        "open_files": lambda: _system.limit(resource.RLIMIT_NOFILE),
        "processes": lambda: _system.limit(resource.RLIMIT_NPROC),
        "stack_bytes": lambda: _system.limit(resource.RLIMIT_STACK),
        "can_lock": lambda: _system.has_capability(status(), _IPC_LOCK),
        "can_trace": lambda: _system.has_capability(status(), _SYS_PTRACE),
        "can_copy": _system.can_copy,
        "seccomp": lambda: int(status()["Seccomp"]) if "Seccomp" in status() else None,
        "namespaces": lambda: {
            name: str(link.readlink()) for name, link in links.items() if link.is_symlink()
        },
        "environment": lambda: settings(environment),
        "files": lambda: _system.config_files(root, environment, unknown),
        "cuda": cuda,
        "nccl_version": _system.nccl_version,
        "mpi_library": lambda: (
            _system.mpi_library() if any(map(_OF_MPI.match, environment)) else None
        ),
    }
    return _on_demand(ProcessRecord, readers, unknown)


def _hostname(root: Path) -> str:
    try:
        name = text(root / "proc/sys/kernel/hostname")
    except OSError:
        return host.host_name()
    return host.host_name() if name == socket.gethostname() else name


def _nvml_part(root: Path, unknown: dict[str, str], *, is_full: bool) -> Recording:
    """The fields of a recording that come from NVML; unknown: gets why some are missing."""
    refusal = gpus.nvml_refusal()
    if refusal is not None:
        unknown["gpus"] = refusal
        return Recording(has_driver=gpus.has_driver())
    handles = _nvml.handles()
    nvml = _nvml.reader()
    usable = {index: handle for index, handle in handles.items() if not isinstance(handle, str)}
    part = Recording(
        has_driver=True,
        driver=nvml.read("driver", _nvml.call, "nvmlSystemGetDriverVersion"),
        cuda=nvml.read("cuda", shown_gpus),
        gpus=tuple(
            _nvml.gpu(index, handle, root, has_condition=is_full)
            for index, handle in handles.items()
        ),
        pairs=tuple(
            _nvml.pair(a, b, usable[a], usable[b]) for a in usable for b in usable if a != b
        ),
    )
    unknown |= nvml.unknown
    return part


def shown_gpus() -> tuple[int, ...]:
    """NVML's numbers of the GPUs that CUDA shows this process. Raises NVMLError or ValueError."""
    try:
        return tuple(gpu.index for gpu in gpus.visible())
    except UnavailableError as error:
        raise ValueError(reason_of(error)) from None


def dumps(recordings: Sequence[Recording]) -> str:
    """One host or several as a file."""
    return (
        json.dumps(
            {"format": FORMAT, "version": VERSION, "hosts": encode(tuple(recordings))}, indent=1
        )
        + "\n"
    )


def loads(text: str, name: str) -> list[Recording]:
    """The hosts of a file, one at least; `name` is for messages. Raises UsageError with the place
    if it is broken.

    >>> hosts = '[{"gpus": [{"index": "0"}]}]'
    >>> loads(f'{{"format": "collbench-recording", "version": 1, "hosts": {hosts}}}', "bug.json")
    Traceback (most recent call last):
    collbench.core.errors.UsageError: bug.json: hosts[0].gpus[0].index is '0', not a whole number
    """
    data = parse_json(text, name, _MAX_CHARS)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(
            f"{name}: not a recording: its format is not {FORMAT}",
            "collbench topo --record FILE writes one",
        )
    if data.get("version") != VERSION:
        raise UsageError(
            f"{name}: version {str(data.get('version'))[:20]} of {FORMAT}; this collbench reads"
            f" {VERSION}"
        )
    hosts = data.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        raise UsageError(f"{name}: hosts is not a list of at least one host")
    for one in hosts:
        if isinstance(one, dict):
            one.pop("switch_links", None)  # of an earlier version
    return [
        _checked(decode(Recording, one, f"{name}: hosts[{place}]"), f"{name}: hosts[{place}]")
        for place, one in enumerate(hosts)
    ]


def _is_at_its_address(device: PciDevice) -> bool:
    parts = device.path.split("/")
    return parts[-1] == device.address and len(set(parts)) == len(parts)


def _checked(recording: Recording, place: str) -> Recording:
    """The recording, if it fulfils what types cannot express: it names only GPUs that it has, each
    part comes once, and no count is more than a host can have.
    """
    counts = {
        what: len(getattr(recording, what)) for what in _MAX_COUNTS if hasattr(recording, what)
    }
    counts["links"] = max((len(gpu.links) for gpu in recording.gpus), default=0)
    counts["c2c"] = max((len(gpu.c2c) for gpu in recording.gpus), default=0)
    for what, count in counts.items():
        if count > _MAX_COUNTS[what]:
            raise UsageError(
                f"{place}.{what}: {count} are more than a host has ({_MAX_COUNTS[what]})"
            )
    for device in recording.pci:
        if not _is_at_its_address(device):
            raise UsageError(
                f"{place}.pci: {device.address[:40]} is not at the end of its path, or a part of"
                " that comes twice"
            )
    keys: dict[str, list[object]] = {
        "gpus": [gpu.index for gpu in recording.gpus],
        "numa": [node.index for node in recording.numa],
        "pci": [device.address for device in recording.pci],
        "cuda": list(recording.cuda or ()),
    }
    for what, of_what in keys.items():
        twice = next((key for key, times in Counter(of_what).items() if times > 1), None)
        if twice is not None:
            raise UsageError(f"{place}.{what}: {twice} comes twice")
    references = [("cuda", index) for index in recording.cuda or ()] + [
        ("pairs", end) for pair in recording.pairs for end in (pair.a, pair.b)
    ]
    known = set(keys["gpus"])
    for what, index in references:
        if index not in known:
            raise UsageError(f"{place}.{what}: {index} is the number of no GPU")
    return recording
