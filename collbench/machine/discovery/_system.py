"""What limits a host's processes: kernel settings, control groups, shared memory, and what the
calling process may do. Only reads; a value that cannot be read is None with a reason.

Source: the kernel's Documentation/admin-guide (sysctl, cgroup-v2, mm/transhuge), proc(5),
getrlimit(2), namespaces(7), capabilities(7).
"""

import ctypes
import os
import pwd
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from collbench.machine.discovery._sysfs import ValueReader, entries, text
from collbench.machine.discovery.recording import UNLIMITED, ConfigFile
from collbench.machine.others import busy_seconds
from collbench.machine.settings.files import paths

_FIRST_USER = 1000  # logind leaves shared memory of users below it alone
_SAMPLE_S = 0.1  # of the host's busy cores
_MOST_TEXT = 1 << 16  # of a configuration file


def memory(root: Path) -> dict[str, int]:
    """The numbers of /proc/meminfo in bytes. Raises OSError."""
    return {
        line.partition(":")[0]: int(line.split()[1]) << 10
        for line in text(root / "proc/meminfo").splitlines()
        if line.endswith("kB")
    }


def status(root: Path) -> dict[str, str]:
    """What /proc/self/status says. Raises OSError."""
    lines = text(root / "proc/self/status").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key: value.strip() for key, _, value in pairs}


def has_capability(status: Mapping[str, str], bit: int) -> bool | None:
    """Whether a process has a capability; None if its status does not say."""
    return bool(int(status["CapEff"], 16) & bit) if "CapEff" in status else None


def mpi_library() -> str | None:
    """The MPI library that ranks load, which need not be started for that; a tenth of a second."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # RuntimeError: there is no library
        return None
    return MPI.Get_library_version().splitlines()[0].strip(" \0")


def nccl_version() -> str | None:
    """The version of the first package of NCCL that is installed."""
    from importlib import metadata  # here: it takes a tenth of the time of `topo`

    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def limit(kind: int) -> int:
    """The soft limit of a resource."""
    soft, _ = resource.getrlimit(kind)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def can_copy() -> bool:
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


def config_files(
    root: Path, environment: Mapping[str, str], unknown: dict[str, str]
) -> tuple[ConfigFile, ...]:
    """NCCL's configuration files, what wins first; unknown: gets why some cannot be read."""
    files, values = [], ValueReader(OSError)
    for name in paths(environment):
        path = root / name.lstrip("/")
        if values.read(name, path.is_file):
            content = values.read(name, text, path)
            if content is not None:
                files.append(ConfigFile(path=name, text=content[:_MOST_TEXT]))
    unknown |= values.unknown
    return tuple(files)


def busy_cpus(root: Path) -> dict[int, float]:
    """The share of its time that each core is in use, during a short while. Raises OSError or
    ValueError.
    """
    start, first = time.monotonic(), _busy_seconds(root)
    time.sleep(_SAMPLE_S)
    elapsed_s, last = time.monotonic() - start, _busy_seconds(root)
    return {core: max(0.0, last.get(core, was) - was) / elapsed_s for core, was in first.items()}


def _busy_seconds(root: Path) -> dict[int, float]:
    lines = map(str.split, text(root / "proc/stat").splitlines())
    return {
        int(name[3:]): busy_seconds(fields)
        for name, *fields in lines
        if name.startswith("cpu") and name[3:].isdecimal()
    }


def governors(root: Path) -> tuple[str, ...]:
    """Of the cores' clocks."""
    values = ValueReader(OSError)
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return tuple(sorted({one for file in files if (one := values.read("governor", text, file))}))


def removes_ipc(root: Path, user: int | None = None) -> bool | None:
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


def has_fabric_manager(root: Path) -> bool | None:
    """Whether its process runs; None where processes of others are hidden."""
    values = ValueReader(OSError)
    names = {
        values.read("comm", text, folder / "comm") for folder in (root / "proc").glob("[0-9]*")
    } - {None}
    if any((name or "").startswith("nv-fabricmanage") for name in names):
        return True
    return False if any(name in ("systemd", "init", "kthreadd") for name in names) else None


def imex_channels(root: Path) -> int | None:
    """How many there are; None where the driver has no device file at all."""
    folder = root / "dev/nvidia-caps-imex-channels"
    if folder.is_dir():
        return len(list(entries(folder)))
    return 0 if (root / "dev/nvidiactl").exists() else None


def driver_parameters(root: Path) -> dict[str, str]:
    """Of NVIDIA's kernel module."""
    values = ValueReader(OSError)
    lines = (values.read("params", text, root / "proc/driver/nvidia/params") or "").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs if key}
