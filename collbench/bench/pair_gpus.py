"""One rank's part in measuring pairs of GPUs, under a launcher: copies by the copy engine of the
sender's GPU on one host; between hosts messages of MPI from and to GPU memory, through the host.
"""

import socket

from collbench.bench.pair_rank import HEADER_BYTES, PairJob, PairRank, PairTime
from collbench.core.dtypes import Array
from collbench.core.errors import UnavailableError
from collbench.core.group import RankContext
from collbench.device.card import cuda_errors, device_count, load_cupy
from collbench.device.copies import copy_rates

_COPY_LIMIT_S = 30.0  # of what the copies of one round may take at most


class PairRankOnGpu(PairRank):
    """A rank with a GPU of its own: that of its number on its host, or the only one it is shown."""

    def __init__(self, context: RankContext) -> None:
        count = device_count()
        if count == 0 or context.local_rank >= count > 1:
            raise UnavailableError(
                f"rank {context.rank} has no GPU: its host shows {count}", "start one rank a GPU"
            )
        super().__init__(context)
        self.faults = cuda_errors()
        self._cupy = load_cupy()
        runtime = self._cupy.cuda.runtime
        index = context.local_rank if count > 1 else 0
        runtime.setDevice(index)
        bus_ids = [runtime.deviceGetPCIBusId(device) for device in range(count)]
        self._everyone: list[tuple[str, str]] = context.comm.allgather(
            (socket.gethostname(), bus_ids[index])
        )
        self._index_of = {bus_id: device for device, bus_id in enumerate(bus_ids)}


class GpuPairRank(PairRankOnGpu):
    """A rank that copies by copy engines, and between hosts by MPI."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self._sent = self._received = self._cupy.empty(0, self._cupy.uint8)

    def exchange(self, job: PairJob) -> PairTime | None:
        pair = next((pair for pair in job.pairs if self.rank in pair), None)
        if pair is None or self._host(pair[0]) != self._host(pair[1]):
            return super().exchange(job)
        patience_s = 3 * job.deadline_s + job.window_s + _COPY_LIMIT_S
        times = PairTime(seconds=0.0, messages=0, wrong=0)
        if self.rank == pair[0]:  # the other rank's GPU is used from here
            a, b = map(self._device, pair)
            rates = copy_rates(
                [(a, b), (b, a)] if job.is_both else [(a, b)],
                job.size_bytes,
                job.window_s,
                lambda: self.link.barrier(patience_s),
            )
            times = PairTime(
                seconds=max(rate.seconds for rate in rates),
                messages=1,
                wrong=sum(rate.wrong for rate in rates),
            )
        else:
            self.link.barrier(patience_s)
        self.link.barrier(patience_s)
        return times

    def _host(self, rank: int) -> str:
        return self._everyone[rank][0]

    def _device(self, rank: int) -> int:
        """The CUDA number, here, of the GPU of a rank of this host."""
        bus_id = self._everyone[rank][1]
        if bus_id not in self._index_of:
            raise UnavailableError(
                f"rank {self.rank} is not shown the GPU of rank {rank} ({bus_id})",
                "show every rank all GPUs of its host: leave CUDA_VISIBLE_DEVICES unset",
            )
        return self._index_of[bus_id]

    def _fit(self, size_bytes: int) -> None:
        super()._fit(size_bytes)
        if len(self._sent) != size_bytes:
            self._sent = self._cupy.asarray(self._out[HEADER_BYTES:])
            self._received = self._cupy.zeros_like(self._sent)

    def _exchange(
        self, peer: int, out: "Array | None", into: "Array | None", deadline_s: float
    ) -> None:
        if out is not None:
            self._sent.get(out=out[HEADER_BYTES:])
        super()._exchange(peer, out, into, deadline_s)
        if into is not None:
            self._received.set(into[HEADER_BYTES:])
            self._cupy.cuda.get_current_stream().synchronize()
