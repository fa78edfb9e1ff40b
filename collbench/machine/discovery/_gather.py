"""Recordings of all hosts under a launcher: a rank of each host records, rank 0 has all."""

import ctypes
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collbench.core.launcher import memory_id
from collbench.machine.discovery import _nvml, _system
from collbench.machine.discovery._record import process, record, shown_gpus
from collbench.machine.discovery.recording import ProcessRecord, Recording


def gather(comm: Any, *, is_full: bool = False) -> list[Recording] | None:  # Any: untyped mpi4py
    """Collective over an mpi4py communicator: on rank 0 one recording of each host, written by the
    host's first rank; None on other ranks. is_full: as of record(), with every rank's process.

    Where a launcher shows each rank other GPUs, a recording has those of all ranks, in the order of
    ranks. Cost: one allgather, one gather.
    """
    values = _nvml.reader()
    values.errors += (OSError,)
    own_host = memory_id(), socket.gethostname()
    cuda = values.read("cuda", shown_gpus)
    own_rank = own_process(comm, cuda) if is_full else None
    everyone: list[tuple[tuple[str, str], tuple[int, ...] | None, ProcessRecord | None]] = (
        comm.allgather((own_host, cuda, own_rank))
    )
    local_ranks = [rank for rank, (host, *_) in enumerate(everyone) if host == own_host]
    own = None
    if local_ranks[0] == comm.Get_rank():
        own = with_gpus_of(record(is_full=is_full), [everyone[rank][1] for rank in local_ranks])
        processes = [one for rank in local_ranks if (one := everyone[rank][2])]
        own = replace(own, processes=tuple(processes))
    recordings: list[Recording | None] | None = comm.gather(own, root=0)
    return None if recordings is None else [one for one in recordings if one is not None]


def own_process(comm: Any, cuda: tuple[int, ...] | None) -> ProcessRecord:  # Any: untyped mpi4py
    """The calling rank, with the MPI that joins it to others."""
    from mpi4py import MPI

    return replace(
        process(Path("/"), os.environ, cuda),
        rank=comm.Get_rank(),
        ranks=comm.Get_size(),
        mpi_library=_system.mpi_library(),
        mpi_thread_level=MPI.Query_thread(),
        mpi_has_cuda=_has_cuda(MPI.__file__),
    )


def _has_cuda(file: str) -> bool | None:
    """Whether the MPI library that a module is linked with says that it takes memory of GPUs.

    Open MPI's function answers; MPICH's writes to an address, for a kind of GPU (0: CUDA).
    """
    loaded = ctypes.CDLL(file)
    if (query := getattr(loaded, "MPIX_Query_cuda_support", None)) is not None:
        return bool(query())
    if (query := getattr(loaded, "MPIX_GPU_query_support", None)) is not None:
        answer = ctypes.c_int(0)
        return bool(answer.value) if query(0, ctypes.byref(answer)) == 0 else None
    return None


def with_gpus_of(recording: Recording, cuda: Sequence[tuple[int, ...] | None]) -> Recording:
    """A host's recording with the GPUs that any of its ranks is shown, in the order of ranks; the
    recording itself where all are shown the same.
    """
    if len(set(cuda)) == 1 or recording.cuda is None:
        return recording
    return replace(
        recording, cuda=tuple(dict.fromkeys(index for one in cuda for index in one or ()))
    )
