"""What sets variables: the environment, and NCCL's files of settings, as NCCL reads them. Nothing
here opens a file.

Every line is NAME=VALUE. Nothing is trimmed: a blank in front of a name belongs to the name, and a
blank or a quotation mark of a value to the value. A line without = says nothing, nor (from 2.26 on)
one that begins with #. What is set already stays: the environment wins over files, a line over
later lines of its name, and the user's file over /etc/nccl.conf.

Source: initEnv and setEnvFile of NCCL, 2.23 to 2.30 (src/misc/param.cc).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

ENVIRONMENT = "environment"
SYSTEM_FILE = "/etc/nccl.conf"
USER_FILE = ".nccl.conf"
_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "CUDA_",
    "TORCH_NCCL_",
    "OFI_NCCL_",
    "UCX_",
    "UCC_",
    "FI_",
    "OMPI_MCA_",
    "PRTE_MCA_",
    "PMIX_MCA_",
    "MPICH_",
    "MPIR_CVAR_",
    "MPIR_PARAM_",
    "I_MPI_",
    "MPI4PY_RC_",
    "GLOO_",
    "NVSHMEM_",
    "OMP_NUM_THREADS",
)
_LAUNCHERS_OWN = re.compile(
    r"(OMPI|PMIX|PRTE)_MCA_(orte|ess|initial|shmem|gds|psec|mpi_yield|ptl|prte|pmix)"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable that is set; source: "environment", or a file's name and line."""

    name: str
    value: str
    source: str = ENVIRONMENT

    @property
    def is_of_a_file(self) -> bool:
        """Whether a file sets it."""
        return self.source != ENVIRONMENT


def paths(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The files that NCCL reads, the first wins: that of NCCL_CONF_FILE or else the one in the home
    folder, and the machine's.

    >>> paths({"HOME": "/home/a"})
    ('/home/a/.nccl.conf', '/etc/nccl.conf')
    >>> paths({"HOME": "/home/a", "NCCL_CONF_FILE": "/job/nccl.conf"})
    ('/job/nccl.conf', '/etc/nccl.conf')
    """
    if named := environment.get("NCCL_CONF_FILE"):
        return named, SYSTEM_FILE
    home = environment.get("HOME")
    return (SYSTEM_FILE,) if home is None else (f"{home}/{USER_FILE}", SYSTEM_FILE)


def parse(text: str, file: str) -> Iterator[Setting]:
    r"""The settings of a file's text, in the order of its lines.

    >>> list(parse("# site\nNCCL_DEBUG=WARN\n", "/etc/nccl.conf"))
    [Setting(name='NCCL_DEBUG', value='WARN', source='/etc/nccl.conf line 2')]
    """
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.removesuffix("\r").partition("=")
        if equals and name and not line.startswith("#"):
            yield Setting(name, value, f"{file} line {number}")


def gather(
    environment: Mapping[str, str], files: Iterable[tuple[str, str]] = ()
) -> tuple[Setting, ...]:
    """All that is set, what wins first: the environment, then files as (name, text) in the order of
    `paths`.
    """
    of_files = (setting for name, text in files for setting in parse(text, name))
    return (*(Setting(name, value) for name, value in environment.items()), *of_files)


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of libraries that somebody has set, sorted.

    >>> settings(
    ...     {"OMPI_MCA_btl": "tcp", "OMPI_MCA_orte_hnp_uri": "1", "NCCL_DEBUG": "INFO", "A": "1"}
    ... )
    {'NCCL_DEBUG': 'INFO', 'OMPI_MCA_btl': 'tcp'}
    """
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIXES) and not _LAUNCHERS_OWN.match(name)
    }
