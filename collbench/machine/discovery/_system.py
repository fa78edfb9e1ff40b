"""What limits a host's processes: kernel settings, control groups, shared memory, and what the
calling process may do. Only reads; a value that cannot be read is None with a reason.

Source: the kernel's Documentation/admin-guide (sysctl, cgroup-v2, mm/transhuge), proc(5),
getrlimit(2), namespaces(7), capabilities(7).
"""

import ctypes
import os
import pwd
import re
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from collbench.core import host
from collbench.machine.discovery._sysfs import ValueReader, entries, number, text
from collbench.machine.discovery.recording import UNLIMITED, ConfigFile, ProcessRecord, SystemRecord
from collbench.machine.settings.files import paths, settings
from collbench.machine.topology.model import spans

_IPC_LOCK, _SYS_PTRACE = 1 << 14, 1 << 19  # CAP_IPC_LOCK, CAP_SYS_PTRACE
_FIRST_USER = 1000  # logind leaves shared memory of users below it alone
_NAMESPACES = ("ipc", "pid", "user", "net")
_SAMPLE_S = 0.1  # of the host's busy cores
_BUSY = 0.5  # of a core's time, from which on it counts as used
_MOST_TEXT = 1 << 16  # of a configuration file
_CHOSEN = re.compile(r"\[(\w+)\]")
# variables that concern one MPI library alone
_OF_MPI = re.compile(r"(OMPI_MCA|MPIR_CVAR|I_MPI)_")


def system(root: Path) -> SystemRecord:
    """The host. Takes a tenth of a second, of which it counts how busy the cores are."""
    values = ValueReader(OSError, ValueError)
    busy = values.read("busy_cpus", _busy_cpus, root)
    kernel = root / "proc/sys/kernel"
    memory = {
        line.partition(":")[0]: int(line.split()[1]) << 10
        for line in (values.read("memory_bytes", text, root / "proc/meminfo") or "").splitlines()
        if line.endswith("kB")
    }
    shm = values.read("shm_bytes", os.statvfs, root / "dev/shm")
    load = values.read("load", text, root / "proc/loadavg")
    huge = values.read("shm_huge", text, root / "sys/kernel/mm/transparent_hugepage/shmem_enabled")
    chosen = _CHOSEN.search(huge or "")
    groups = root / "sys/fs/cgroup", root / "proc/self/cgroup"
    version = values.read("is_wsl", text, root / "proc/version")
    return SystemRecord(
        memory_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        shm_bytes=None if shm is None else shm.f_frsize * shm.f_blocks,
        shm_free_bytes=None if shm is None else shm.f_frsize * shm.f_bavail,
        load=None if load is None else float(load.split()[0]),
        busy_cpus=None if busy is None else sum(busy.values()),
        busy_cpulist=None
        if busy is None
        else spans(core for core, share in busy.items() if share >= _BUSY),
        cgroup_cpus=host.group_cpus(*groups),
        cgroup_memory_bytes=host.memory_limit_bytes(*groups),
        pids_max=host.most_processes(*groups),
        file_max=values.read("file_max", number, root / "proc/sys/fs/file-max"),
        numa_balancing=values.read("numa_balancing", number, kernel / "numa_balancing"),
        ptrace_scope=values.read("ptrace_scope", number, kernel / "yama/ptrace_scope"),
        shm_huge=chosen[1] if chosen else None,
        governors=_governors(root),
        is_wsl=None if version is None else "microsoft" in version.lower(),
        removes_ipc=_removes_ipc(root),
        has_fabric_manager=_has_fabric_manager(root),
        interfaces=tuple(sorted(one.name for one in entries(root / "sys/class/net"))),
        imex_channels=_imex_channels(root),
        driver_parameters=_driver_parameters(root),
        unknown=values.unknown,
    )


def process(
    root: Path, environment: Mapping[str, str], cuda: tuple[int, ...] | None = None
) -> ProcessRecord:
    """The calling process. cuda: NVML's numbers of the GPUs that CUDA shows it."""
    values = ValueReader(OSError, ValueError)
    status = {
        key: value.strip()
        for key, _, value in (
            line.partition(":")
            for line in (values.read("status", text, root / "proc/self/status") or "").splitlines()
        )
    }
    capabilities = status.get("CapEff")
    seccomp = status.get("Seccomp")
    return ProcessRecord(
        cpulist=spans(sorted(os.sched_getaffinity(0))),
        mems=status.get("Mems_allowed_list"),
        memlock_bytes=_limit(resource.RLIMIT_MEMLOCK),
        open_files=_limit(resource.RLIMIT_NOFILE),
        processes=_limit(resource.RLIMIT_NPROC),
        stack_bytes=_limit(resource.RLIMIT_STACK),
        can_lock=None if capabilities is None else bool(int(capabilities, 16) & _IPC_LOCK),
        can_trace=None if capabilities is None else bool(int(capabilities, 16) & _SYS_PTRACE),
        can_copy=values.read("can_copy", _can_copy),
        seccomp=int(seccomp) if seccomp and seccomp.isdecimal() else None,
        namespaces={
            name: str(link.readlink())
            for name in _NAMESPACES
            if (link := root / "proc/self/ns" / name).is_symlink()
        },
        environment=settings(environment),
        files=_config_files(root, environment, values),
        cuda=cuda,
        nccl_version=_nccl_version(),
        mpi_library=mpi_library() if any(map(_OF_MPI.match, environment)) else None,
        unknown=values.unknown,
    )


def mpi_library() -> str | None:
    """The MPI library that ranks load, which need not be started for that; a tenth of a second."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # RuntimeError: there is no library
        return None
    return MPI.Get_library_version().splitlines()[0].strip(" \0")


def _nccl_version() -> str | None:
    """The version of the first package of NCCL that is installed."""
    from importlib import metadata  # here: it takes a tenth of the time of `topo`

    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _limit(kind: int) -> int:
    soft, _ = resource.getrlimit(kind)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _can_copy() -> bool:
    """Whether process_vm_readv works here: a filter of system calls refuses even a process's own
    memory. Raises OSError where the C library has no such function.
    """
    read = getattr(ctypes.CDLL(None), "process_vm_readv", None)
    if read is None:
        raise OSError("the C library has no process_vm_readv")
    source, target = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
    vectors = [
        (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 1)  # struct iovec
        for buffer in (target, source)
    ]
    one = ctypes.c_ulong(1)
    read.restype = ctypes.c_ssize_t
    return bool(read(os.getpid(), vectors[0], one, vectors[1], one, ctypes.c_ulong(0)) == 1)


def _config_files(
    root: Path, environment: Mapping[str, str], values: ValueReader
) -> tuple[ConfigFile, ...]:
    """NCCL's configuration files that are there, what wins first."""
    files = []
    for name in paths(environment):
        path = root / name.lstrip("/")
        if values.read(name, path.is_file):
            content = values.read(name, text, path)
            if content is not None:
                files.append(ConfigFile(path=name, text=content[:_MOST_TEXT]))
    return tuple(files)


def _busy_cpus(root: Path) -> dict[int, float]:
    """The share of its time that each core is in use, during a short while. Raises OSError or
    ValueError.
    """
    file = root / "proc/stat"
    start, first = time.monotonic(), _busy_ticks(file)
    time.sleep(_SAMPLE_S)
    ticks = os.sysconf("SC_CLK_TCK") * (time.monotonic() - start)
    return {
        core: max(0, last - first.get(core, last)) / ticks
        for core, last in _busy_ticks(file).items()
    }


def _busy_ticks(file: Path) -> dict[int, int]:
    """Of each core: all but the idle time and what waits for a disk."""
    ticks = {}
    for line in text(file).splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            numbers = [int(field) for field in fields[:8]]
            ticks[int(name[3:])] = sum(numbers) - sum(numbers[3:5])
    return ticks


def _governors(root: Path) -> tuple[str, ...]:
    values = ValueReader(OSError)
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({one for file in files if (one := values.read("governor", text, file))}))


def _removes_ipc(root: Path, user: int | None = None) -> bool | None:
    """RemoveIPC of systemd-logind, which is on where its files leave it out, and touches neither
    system users nor those that linger.
    """
    values = ValueReader(OSError, KeyError)
    user = os.getuid() if user is None else user
    if not (root / "run/systemd/system").is_dir():
        return None
    name = values.read("name", _user_name, user)
    if user < _FIRST_USER or (name and (root / "var/lib/systemd/linger" / name).exists()):
        return False
    files = [root / "etc/systemd/logind.conf"]
    files += sorted((root / "etc/systemd/logind.conf.d").glob("*.conf"))
    lines = [line for one in files for line in (values.read("f", text, one) or "").splitlines()]
    set_to = [line.partition("=")[2].strip() for line in lines if line.startswith("RemoveIPC=")]
    return not set_to or set_to[-1].lower() in ("yes", "true", "1", "on")


def _user_name(user: int) -> str:
    """Raises KeyError if nobody has the number, as in many containers."""
    return pwd.getpwuid(user).pw_name


def _has_fabric_manager(root: Path) -> bool | None:
    """Whether its process runs; None where processes of others are hidden."""
    values = ValueReader(OSError)
    names = {
        values.read("comm", text, folder / "comm") for folder in (root / "proc").glob("[0-9]*")
    } - {None}
    if any((name or "").startswith("nv-fabricmanage") for name in names):
        return True
    return False if any(name in ("systemd", "init", "kthreadd") for name in names) else None


def _imex_channels(root: Path) -> int | None:
    """How many there are; None where the driver has no device file at all."""
    folder = root / "dev/nvidia-caps-imex-channels"
    if folder.is_dir():
        return len(list(entries(folder)))
    return 0 if (root / "dev/nvidiactl").exists() else None


def _driver_parameters(root: Path) -> dict[str, str]:
    values = ValueReader(OSError)
    lines = (values.read("params", text, root / "proc/driver/nvidia/params") or "").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs if key}
