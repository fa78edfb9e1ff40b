"""The heartbeat between rank 0 and the ranks of other hosts, whose processes this host cannot look
at.

A thread of each sends an empty message every second on a communicator of its own and notes when it
last received one. A cut link or a host that is gone is silent, and TCP gives up on it only after
many minutes.
"""

import threading
from collections.abc import Sequence

from collbench.core.mpi_types import Comm, Request
from collbench.launch.guardian import Page

BEAT_S = 1.0
_STOP_S = 5.0
_LAST = b"."  # a message that is not empty ends the beats


class Heartbeat:
    """Beats between this rank and its partners: all ranks of other hosts for rank 0, rank 0 for
    those. Making it is collective.

    With less than MPI's thread level multiple there are none (see MpiGroup).
    """

    def __init__(self, comm: Comm, hosts: Sequence[str], page: Page) -> None:
        from mpi4py import MPI

        rank = comm.Get_rank()
        others = [other for other in range(len(hosts)) if hosts[other] != hosts[0]]
        self._partners = others if rank == 0 else [0] if rank in others else []
        self._stopped, self._thread = threading.Event(), None
        self._last: list[Request] = []
        self._ended: set[int] = set()  # partners whose last message came
        self._page = page
        if others and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            self._comm = comm.Dup()
            for partner in self._partners:
                page.beat(partner)
            self._fault = MPI.Exception
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """No more beats, before MPI ends. Partners are told which message is the last."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            for rank in self._partners:
                self._page.end_beats(rank)
            self._last = [self._comm.Isend(_LAST, rank) for rank in self._partners]

    def drain(self) -> None:
        """Receive all that partners have sent, once all have stopped: MPI libraries complain of
        messages that nobody received.
        """
        for rank in self._partners if self._thread is not None else ():
            while rank not in self._ended:
                self._receive(rank)
        for request in self._last:
            request.Wait()

    def _receive(self, rank: int) -> None:
        beat = bytearray(len(_LAST))
        self._comm.Recv(beat, rank)
        if beat == _LAST:
            self._ended.add(rank)

    def _beat(self) -> None:
        under_way: dict[int, Request] = {}
        while not self._stopped.wait(BEAT_S):
            for rank in self._partners:
                try:
                    # one that does not leave needs no second
                    if rank not in under_way or under_way[rank].Test():
                        under_way[rank] = self._comm.Isend(bytearray(), rank)
                    while rank not in self._ended and self._comm.Iprobe(rank):
                        self._receive(rank)
                        self._page.beat(rank)
                # MPI itself says that the connection is lost: it will stay silent
                except self._fault:
                    continue
