"""Launchers: what the environment says about being under one, and how to start one.

A process under mpirun, mpiexec or srun finds its rank and the number of ranks in variables of its
launcher. They are read here, before MPI is loaded, because a library of another vendor than its
launcher gives one lonely world a process, or aborts inside MPI_Init.
"""

import os
import re
import shutil
import signal
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from collbench.core.errors import UnavailableError
from collbench.core.mpi_types import MpiModule
from collbench.core.units import parse_whole

# (vendor, number of ranks, rank, number of ranks of this host): Open MPI's mpirun, Hydra (MPICH,
# Intel MPI), Slurm's srun
_VARIABLES = (
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPICH", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE"),
)
_LAUNCHER_PREFIXES = (
    "OMPI_",
    "PMI_",
    "PMIX_",
    "PRTE_",
    "HYDRA_",
    "HYDI_",
    "MPI_LOCAL",
    "MPIR_",
    "SLURM_",
)
# What changes how messages go: variables of either library, of what both are built on, and the
# thread level, from which on MPI takes locks.
_SWITCHES = {
    "Open MPI": (
        "OMPI_MCA_btl",
        "OMPI_MCA_pml",
        "OMPI_MCA_mtl",
        "OMPI_MCA_coll",
        "UCX_",
        "FI_",
        "MPI4PY_RC_THREAD_LEVEL",
    ),
    "MPICH": ("MPIR_CVAR_", "UCX_", "FI_", "MPI4PY_RC_THREAD_LEVEL"),
}
# what users, terminals and schedulers end a program with
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OF_HYDRA = "MPI_LOCALNRANKS"
_NETWORK = "MPIR_CVAR_CH4_NETMOD"  # what MPICH sends messages between hosts with
INSTALL_HINT = "install it with: pip install 'collbench[mpi]'"

# Open MPI 5 as root with more ranks than cores needs all of these; they mean nothing to MPICH. The
# fourth stops it from pinning ranks, the last two from sleeping a second at start-up and from a
# warning at every window.
OPEN_MPI_VARIABLES = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_btl": "^ofi",
    "OMPI_MCA_osc": "^ucx",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Who started this process as one of several ranks. local_size: how many of them on this host,
    0 if it does not say.
    """

    vendor: str
    size: int
    rank: int
    local_size: int = 0


def launcher(environment: Mapping[str, str] = os.environ) -> Launcher | None:
    """The launcher above this process, or None if it started a single rank or there is none.

    >>> launcher({"PMI_SIZE": "4", "PMI_RANK": "2"}), launcher({"PMI_SIZE": "4", "PMI_RANK": "x"})
    (Launcher(vendor='MPICH', size=4, rank=2, local_size=0), None)
    """
    return next((started for started in _launchers(environment) if started.size > 1), None)


def is_first_rank() -> bool:
    """Whether this process speaks for all: it is rank 0 of its launcher, or there is none."""
    under = launcher()
    return under is None or under.rank == 0


def is_only_rank(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher started this process as a single rank, which launcher() takes for none.

    >>> is_only_rank({"PMI_SIZE": "1"}), is_only_rank({"PMI_SIZE": "4"}), is_only_rank({})
    (True, False, False)
    """
    return {started.size for started in _launchers(environment)} == {1}


def _launchers(environment: Mapping[str, str]) -> list[Launcher]:
    """Every kind of launcher that the environment names, if its numbers are numbers."""
    values = [
        (vendor, *(environment.get(name, "") for name in names)) for vendor, *names in _VARIABLES
    ]
    launchers = [
        (vendor, parse_whole(size), parse_whole(rank or "0"), parse_whole(here))
        for vendor, size, rank, here in values
    ]
    return [
        Launcher(vendor=vendor, size=size, rank=rank, local_size=here or 0)
        for vendor, size, rank, here in launchers
        if size is not None and rank is not None
    ]


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is no rank of the launcher above this one, whatever MPI
    library it may come to load.

    >>> without_launcher({"PMI_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "NCCL_DEBUG": "WARN"})
    {'NCCL_DEBUG': 'WARN'}
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_LAUNCHER_PREFIXES)
    }


@contextmanager
def default_signals() -> Iterator[None]:
    """Let Ctrl-C and its like end this process without a word: mpi4py keeps Python's lock over
    MPI_Init and MPI_Finalize, so that no handler of ours could.
    """
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _takes_short_addresses(version: str, environment: Mapping[str, str]) -> bool:
    """Whether MPICH must take libfabric for messages between hosts: over UCX it sends 4096 bytes
    from where the address of a rank begins, and with what then lies behind it in the heap, lines
    of its PMI are longer than the 1024 characters that Slurm reads. MPI_Init fails in most starts
    ("mpi/pmi2: value not properly terminated", seen with MPICH 5.0.2 and Slurm 22.05).

    >>> by_srun = {"PMI_FD": "9", "SLURM_PROCID": "0"}
    >>> _takes_short_addresses("MPICH Version: 5.0.2 MPICH Device: ch4:ucx ofi", by_srun)
    True
    """
    is_of_srun = {"PMI_FD", "SLURM_PROCID"} <= {*environment} and _OF_HYDRA not in environment
    has_both = re.search(r"ch4:ucx\W+ofi", version) is not None
    return is_of_srun and has_both and _NETWORK not in environment


def memory_id() -> str:
    """Whom this process can share memory and signals with: those of the same kernel, /dev/shm and
    process numbers. Containers of one machine may have one name and none of these in common.
    """
    parts = []
    for path, read in (
        ("/proc/sys/kernel/random/boot_id", lambda path: Path(path).read_text().strip()),
        ("/dev/shm", lambda path: str(Path(path).stat().st_dev)),
        ("/proc/self/ns/pid", os.readlink),
    ):
        with suppress(OSError):
            parts.append(read(path))
    return " ".join(parts)


def load_mpi(started: Launcher | None) -> MpiModule:
    """mpi4py's MPI module, initialised. Raises UnavailableError if MPI is missing, is not the
    launcher's, cannot start so, or sees another world.
    """
    try:
        import mpi4py
    except ImportError:
        raise UnavailableError("mpi4py is not installed", INSTALL_HINT) from None
    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise UnavailableError(
            f"mpi4py finds no MPI library: {str(error).splitlines()[0]}", INSTALL_HINT
        ) from None
    level: int | None = getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}", None)
    if level is None:
        raise UnavailableError(
            f"MPI has no thread level {mpi4py.rc.thread_level!r}",
            "unset MPI4PY_RC_THREAD_LEVEL, or give single, funneled, serialized or multiple",
        )
    version = MPI.Get_library_version()
    vendor, library = library_vendor(version), library_name(version)
    if started is not None and started.vendor not in ("Slurm", vendor):
        raise UnavailableError(
            f"the launcher is of {started.vendor}, the MPI library of mpi4py is {library}",
            f"start with the mpirun of {vendor}, or give mpi4py the library of the launcher:"
            " MPI4PY_LIBMPI=/path/to/libmpi.so",
        )
    if _takes_short_addresses(version, os.environ):
        os.environ[_NETWORK] = "ofi"
    if not MPI.Is_initialized():
        with default_signals():
            MPI.Init_thread(level)
    # to be raised; or else MPI ends the process, by SELF for errors that are of no communicator
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):
        comm.Set_errhandler(MPI.ERRORS_RETURN)
    size = MPI.COMM_WORLD.Get_size()
    if started is not None and size != started.size:
        leave_mpi(MPI)  # the same on every rank; without it MPICH leaves its memory behind
        raise UnavailableError(
            f"the launcher of {started.vendor} started {started.size} ranks, {library} sees {size}",
            f"use the mpirun of {vendor}, or srun --mpi=pmi2 or pmix as it needs",
        )
    return MPI


def leave_mpi(mpi: MpiModule) -> None:
    """MPI_Finalize, which waits for all ranks."""
    with default_signals():
        mpi.Finalize()


def library_vendor(version: str) -> str:
    """MPICH (and what shares its launcher) or Open MPI, from MPI_Get_library_version."""
    return "Open MPI" if "Open MPI" in version else "MPICH"


def library_name(version: str) -> str:
    """A short name and version from MPI_Get_library_version.

    >>> library_name("MPICH Version:      5.0.2"), library_name("Open MPI v5.0.11, package: ...")
    ('MPICH 5.0.2', 'Open MPI v5.0.11')
    """
    first = version.splitlines()[0].replace("Version:", "").replace(",", " ").split()
    return " ".join(first[: 3 if first[:1] == ["Open"] else 2]).rstrip("\0")


def described_library(version: str, environment: Mapping[str, str] = os.environ) -> str:
    """The name, and what the environment sets that changes how it moves messages, ours for Open MPI
    (OPEN_MPI_VARIABLES) included.

    >>> described_library(
    ...     "Open MPI v4.1.6, package: ...", {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_ess": "env"}
    ... )
    'Open MPI v4.1.6 with OMPI_MCA_btl=self,tcp'
    >>> described_library(
    ...     "MPICH Version:      5.0.2", {"OMPI_MCA_btl": "^ofi", "FI_PROVIDER": "tcp"}
    ... )
    'MPICH 5.0.2 with FI_PROVIDER=tcp'
    """
    return with_switches(library_name(version), _SWITCHES[library_vendor(version)], environment)


def with_switches(
    text: str, prefixes: tuple[str, ...], environment: Mapping[str, str] = os.environ
) -> str:
    """What is so described, with the variables of the environment that begin like that."""
    found = [
        f"{name}={one}" for name, one in sorted(environment.items()) if name.startswith(prefixes)
    ]
    return f"{text} with {' '.join(found)}" if found else text


def find_mpirun() -> str:
    """The mpirun of this Python environment, or else of the PATH. Raises UnavailableError."""
    own = str(Path(sysconfig.get_path("scripts")) / "mpirun")
    path = own if os.access(own, os.X_OK) else shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        raise UnavailableError("there is no mpirun", INSTALL_HINT)
    return path


def find_local_mpirun() -> str:
    """What starts ranks on this host alone: of MPICH the launcher that listens on no socket, where
    it is built. Raises UnavailableError.
    """
    mpirun = find_mpirun()
    forker = str(Path(mpirun).with_name("mpiexec.gforker"))
    return forker if os.access(forker, os.X_OK) else mpirun
