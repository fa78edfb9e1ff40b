"""One rank's part in measuring pairs of GPUs over NCCL, under a launcher: sends and receives of one
communicator of all ranks, on the path that NCCL takes for the jobs of these ranks.
"""

import time

from collbench.backends.nccl.backend import NCCL_TYPES, load_nccl, refusal
from collbench.bench.pair_gpus import PairRankOnGpu
from collbench.bench.pair_links import waited
from collbench.bench.pair_rank import HEADER_BYTES
from collbench.core.dtypes import Array
from collbench.core.group import RankContext

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
        try:
            with context.watchdog.limit("all ranks to make a communicator of NCCL", _JOIN_S):
                self._comm = self._nccl.comm_init_rank(
                    context.n, self._nccl.UniqueId.from_buffer(known), self.rank
                )
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
        if out is not None:
            self._sent[:HEADER_BYTES].set(out[:HEADER_BYTES], stream)
        try:
            nccl.group_start()
            for is_wanted, call, buffer in (
                (out is not None, nccl.send, self._sent),
                (into is not None, nccl.recv, self._received),
            ):
                if is_wanted:
                    call(buffer.data.ptr, len(buffer), kind, peer, self._comm, stream.ptr)
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
        """Abort the communicator: a message that hangs has no other end."""
        comm, self._comm = self._comm, None
        if comm is not None:
            self._nccl.comm_abort(comm)
        super().close()
