"""One rank's part in measuring pairs of GPUs over NCCL, under a launcher: sends and receives on the
path that NCCL takes for the jobs of these ranks. Ranks of one host have a communicator of their
own, split from that of all: in one that spans hosts NCCL gives a pair as few channels as the
network needs.
"""

import time

from collbench.backends.nccl.backend import NCCL_TYPES, load_nccl, refusal
from collbench.bench.pair_gpus import PairRankOnGpu
from collbench.bench.pair_links import waited
from collbench.bench.pair_rank import HEADER_BYTES
from collbench.core.dtypes import Array
from collbench.core.group import RankContext
from collbench.device.cupy_types import Nccl

_JOIN_S = 60.0  # all ranks to make a communicator, which loads NCCL
_NAP_S = 20e-6


class NcclPairRank(PairRankOnGpu):
    """A rank with a GPU of its own."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        assert context.watchdog is not None
        self._nccl = load_nccl()
        self._refusals = self._nccl.NCCLError, RuntimeError
        known = context.comm.bcast(bytes(self._nccl.get_unique_id()) if self.rank == 0 else b"")
        hosts = [host for host, _ in self._everyone]
        here = [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]
        self._comms: list[Nccl] = []  # of all ranks, then of this host's
        self._places = {rank: place for place, rank in enumerate(here)}  # in the latter
        try:
            with context.watchdog.limit("all ranks to make a communicator of NCCL", _JOIN_S):
                self._comms.append(
                    self._nccl.comm_init_rank(
                        context.n, self._nccl.UniqueId.from_buffer(known), self.rank
                    )
                )
                self._comms.append(self._nccl.comm_split(self._comms[0], here[0], self.rank, 0))
        except self._refusals as error:
            raise refusal("make a communicator", error) from None
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._sent = self._received = self._cupy.empty(0, self._cupy.uint8)

    def _fit(self, size_bytes: int) -> None:
        super()._fit(size_bytes)
        if len(self._sent) != len(self._out):
            self._sent = self._cupy.asarray(self._out)
            self._received = self._cupy.asarray(self._into)

    def _poison(self) -> None:
        super()._poison()
        self._received.set(self._into)

    def _exchange(
        self, peer: int, out: "Array | None", into: "Array | None", deadline_s: float
    ) -> None:
        nccl, stream, kind = self._nccl, self._stream, NCCL_TYPES["uint8"]
        comm, place = self._comms[peer in self._places], self._places.get(peer, peer)
        if out is not None:
            self._sent[:HEADER_BYTES].set(out[:HEADER_BYTES], stream)
        try:
            nccl.group_start()
            for is_wanted, call, buffer in (
                (out is not None, nccl.send, self._sent),
                (into is not None, nccl.recv, self._received),
            ):
                if is_wanted:
                    call(buffer.data.ptr, len(buffer), kind, place, comm, stream.ptr)
            nccl.group_end()
        except self._refusals as error:
            raise refusal("exchange messages", error) from None
        end = time.monotonic() + deadline_s
        while not stream.done:
            if time.monotonic() > end:
                self.close()
                raise waited(self.rank, peer, deadline_s)
            time.sleep(_NAP_S)
        if into is not None:
            into[:HEADER_BYTES] = self._received[:HEADER_BYTES].get(stream)

    def _wrong(self, expected: "Array", number: int) -> int:
        self._received.get(out=self._into)
        return super()._wrong(expected, number)

    def close(self) -> None:
        """Abort the communicators: a message that hangs has no other end."""
        while self._comms:
            self._nccl.comm_abort(self._comms.pop())
        super().close()
