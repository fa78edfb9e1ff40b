"""Flows between this machine's GPUs and its memory, as what infers a hidden tree measures them."""

import os
from collections.abc import Sequence
from types import TracebackType

from collbench.device.flow_copies import FlowCopies
from collbench.results.flows import FlowSet

BLOCKS = 8  # of the host's memory, spread over the cores


class GpuFlows:
    """All GPUs that CUDA shows. own: as FlowSource. Use as a context."""

    def __init__(self, own: Sequence[float | None]) -> None:
        self.own = own
        cores = sorted(os.sched_getaffinity(0))
        blocks = min(BLOCKS, len(cores))
        self._copies = FlowCopies(
            [cores[number * len(cores) // blocks] for number in range(blocks)]
        )
        self.blocks = blocks

    def __enter__(self) -> "GpuFlows":
        self._copies.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._copies.close()

    @property
    def gpus(self) -> int:
        return self._copies.gpus

    @property
    def peers(self) -> frozenset[tuple[int, int]]:
        return self._copies.peers

    def rates(self, flows: FlowSet) -> list[float]:
        """GB/s of each flow while all of them run, once. Raises UnavailableError or HangError."""
        return self._copies.rates(flows)
