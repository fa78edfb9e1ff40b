"""Recordings of all hosts under a launcher: one rank of each host records it, rank 0 receives all
of them.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from collbench.machine.discovery import _nvml
from collbench.machine.discovery._record import boot_id, record, shown_gpus
from collbench.machine.discovery.recording import Recording


def gather(comm: Any) -> list[Recording] | None:  # Any: mpi4py has no types
    """Collective over an mpi4py communicator: on rank 0 one recording of each host, written by the
    host's first rank; None on other ranks.

    Where a launcher shows each rank other GPUs, a recording has those of all ranks, in the order of
    ranks. Cost: one allgather, one gather.
    """
    values = _nvml.reader()
    values.errors += (OSError,)
    own_host = (values.read("boot_id", boot_id), socket.gethostname())
    everyone: list[tuple[tuple[str | None, str], tuple[int, ...] | None]] = comm.allgather(
        (own_host, values.read("cuda", shown_gpus))
    )
    local_ranks = [rank for rank, (host, _) in enumerate(everyone) if host == own_host]
    own = (
        with_gpus_of(record(), [everyone[rank][1] for rank in local_ranks])
        if local_ranks[0] == comm.Get_rank()
        else None
    )
    recordings: list[Recording | None] | None = comm.gather(own, root=0)
    return None if recordings is None else [one for one in recordings if one is not None]


def with_gpus_of(recording: Recording, cuda: Sequence[tuple[int, ...] | None]) -> Recording:
    """A host's recording with the GPUs that any of its ranks is shown, in the order of ranks; the
    recording itself where all are shown the same.
    """
    if len(set(cuda)) == 1 or recording.cuda is None:
        return recording
    return replace(
        recording, cuda=tuple(dict.fromkeys(index for one in cuda for index in one or ()))
    )
