"""Whether MPI takes memory of GPUs."""

from collections.abc import Iterable

from collbench.doctor.check import Evidence, Finding, Need
from collbench.doctor.checks._ranks import alike

TITLE = "MPI and memory of GPUs"
NEEDS: tuple[Need, ...] = ("gpus", "ranks")
NO_EXPERIMENT = "a library cannot be built again from here"
EXPLANATION = """
An MPI library that was built for CUDA takes addresses of GPU memory in its calls, and sends from
one GPU to another by peer access or RDMA. One that was not built so either crashes on such an
address, or is never given one: the program copies everything to the host first, sends it, and
copies it back, which is several times slower for large messages. The packages of most
distributions, and those that pip installs, are built without CUDA.

The check asks the library that the ranks have loaded (`MPIX_Query_cuda_support` of Open MPI,
`MPIX_GPU_query_support` of MPICH) on hosts with GPUs. It is a remark, because a program that sends
GPU data by NCCL alone needs no such MPI. A library that has neither function says nothing.

Load a module of MPI that was built with CUDA (Open MPI `--with-cuda` or UCX with `cuda_copy` and
`cuda_ipc`, MVAPICH-Plus, Cray MPICH with `MPICH_GPU_SUPPORT_ENABLED=1`), and let mpi4py use it
(`MPI4PY_LIBMPI`). To be sure, run `ompi_info --parsable --all` and look for
`mpi_built_with_cuda_support:value:true`, or `collbench sweep --backend mpi` under the launcher.
"""


def find(evidence: Evidence) -> Iterable[Finding]:
    for subject, host, processes, has_cuda in alike(evidence, lambda one: one.mpi_has_cuda):
        if host.gpus and not has_cuda:
            library = processes[0].mpi_library or "MPI"
            yield Finding(
                subject=subject,
                seen=f"{' '.join(library.split())} takes no memory of GPUs",
                why="Programs that send GPU data by MPI must copy it to the host and back.",
                change="load an MPI that was built with CUDA, and give it to mpi4py by"
                " MPI4PY_LIBMPI",
                severity="remark",
            )
