"""Variables of the environment that communication libraries read, and those that launchers set by
themselves: names, addresses and keys of a job, which say nothing about its settings.
"""

import re
from collections.abc import Mapping

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
