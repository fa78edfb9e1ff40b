"""Recordings of all hosts under a launcher: one rank of each host asks it, rank 0 gets all of
them.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from collbench.machine.discovery import _nvml
from collbench.machine.discovery._record import boot_id, record, shown_gpus
from collbench.machine.discovery.recording import Recording


def gather(comm: Any) -> list[Recording] | None:
    """Collective over an mpi4py communicator: on rank 0 one recording of each host, made by the
    host's first rank; None on other ranks.

    Where a launcher shows each rank other GPUs, a recording has those of all ranks, in the order of
    ranks. Cost: one allgather, one gather.
    """
    asked = _nvml.asker()
    asked.errors += (OSError,)
    me = (asked.ask("boot_id", boot_id), socket.gethostname())
    everyone: list[tuple[tuple[str | None, str], tuple[int, ...] | None]] = comm.allgather(
        (me, asked.ask("cuda", shown_gpus))
    )
    near = [rank for rank, (host, _) in enumerate(everyone) if host == me]
    mine = (
        with_gpus_of(record(), [everyone[rank][1] for rank in near])
        if near[0] == comm.Get_rank()
        else None
    )
    recordings: list[Recording | None] | None = comm.gather(mine, root=0)
    return None if recordings is None else [one for one in recordings if one is not None]


def with_gpus_of(recording: Recording, cuda: Sequence[tuple[int, ...] | None]) -> Recording:
    """A host's recording with the GPUs that any of its ranks is shown, in the order of ranks; as it
    is where all are shown the same.
    """
    if len(set(cuda)) == 1 or recording.cuda is None:
        return recording
    return replace(
        recording, cuda=tuple(dict.fromkeys(index for one in cuda for index in one or ()))
    )
