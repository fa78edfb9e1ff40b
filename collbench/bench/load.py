"""Recordings of all hosts under the load of our own traffic and after it: PCIe links and clocks are
down at rest, and error counters say something only if they rise.

Each rank copies through pinned host memory on its GPUs, which loads their PCIe links, while the
caller runs collectives, which load the links between GPUs.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from collbench.core.errors import CollbenchError
from collbench.core.group import Group, Rank, RankContext
from collbench.device.card import device_count
from collbench.device.copies import copy_rate
from collbench.machine.discovery import dumps, loads, record
from collbench.machine.discovery.recording import Recording

LOAD_S = 2.0
_RECORDED_AFTER_S = 0.7 * LOAD_S  # clocks and links take a moment to come up
_COPY_BYTES = 64 << 20
_PATIENCE_S = 30.0


class Observer(Rank):
    """A rank that loads its GPUs; the first one of each host records the host."""

    def __init__(self, context: RankContext) -> None:
        self._local_rank = context.local_rank
        self._threads: list[threading.Thread] = []
        self._recording: Recording | None = None
        self._rates: dict[int, float] = {}

    def alone(self, gpus: Sequence[int]) -> dict[int, float]:
        """GB/s of each GPU through the host, one after the other."""
        rates = {}
        for gpu in gpus:
            with suppress(CollbenchError):  # no memory is left, for example
                rate = copy_rate(gpu, gpu, _COPY_BYTES, is_both=False, through_host=True)
                rates[gpu] = rate.gbs
        return rates

    def begin(self, gpus: Sequence[int]) -> None:
        """Start to copy on GPUs of these CUDA numbers, or on the one of this rank's number on its
        host, and to record after a while.
        """
        gpus = gpus or (self._local_rank % max(1, device_count()),)
        self._threads = [
            threading.Thread(target=self._copy, args=(gpu, time.monotonic() + LOAD_S), daemon=True)
            for gpu in gpus
        ]
        if self._local_rank == 0:
            self._threads.append(threading.Thread(target=self._record, daemon=True))
        for thread in self._threads:
            thread.start()

    def _copy(self, gpu: int, until: float) -> None:
        try:
            while time.monotonic() < until:
                rate = copy_rate(gpu, gpu, _COPY_BYTES, is_both=False, through_host=True)
                self._rates[gpu] = max(rate.gbs, self._rates.get(gpu, 0.0))
        except CollbenchError:
            return  # no memory is left, for example: the recording is at rest then

    def _record(self) -> None:
        time.sleep(_RECORDED_AFTER_S)
        self._recording = record(is_full=True)

    def loaded(self) -> tuple[str, dict[int, float]]:
        """The recording under load, if this rank records, and GB/s of each GPU through the host."""
        for thread in self._threads:
            thread.join(_PATIENCE_S)
        return (dumps([self._recording]) if self._recording else ""), self._rates

    def now(self) -> str:
        """A recording of this moment, if this rank records."""
        return dumps([record(is_full=True)]) if self._local_rank == 0 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Recordings of all hosts under load and after it, in the order of their first ranks.
    alone, together: GB/s that GPUs of the first host reached through the host, one after the other
    and all at once, by CUDA's numbers; empty under a launcher.
    """

    loaded: tuple[Recording, ...]
    after: tuple[Recording, ...]
    alone: dict[int, float]
    together: dict[int, float]


def observe(
    group: Group, ranks: int, gpus: Sequence[int], work: Callable[[float], None]
) -> Observation:
    """Load the machine and record it. gpus: what this process loads, by CUDA's numbers; under a
    launcher each rank loads one. work(seconds): the caller's own load.
    """
    workers = group.gpu_workers(Observer, ranks)
    is_local = group.kind == "local"
    try:
        alone = (
            workers.call(Observer.alone, tuple(gpus), timeout_s=_PATIENCE_S)[0] if is_local else {}
        )
        workers.call(Observer.begin, tuple(gpus) if is_local else (), timeout_s=_PATIENCE_S)
        work(LOAD_S)
        loaded = workers.call(Observer.loaded, timeout_s=2 * _PATIENCE_S)
        after = workers.call(Observer.now, timeout_s=_PATIENCE_S)
    finally:
        workers.close()
    return Observation(
        loaded=_recordings([text for text, _ in loaded]),
        after=_recordings(after),
        alone=alone,
        together=loaded[0][1] if is_local else {},
    )


def _recordings(texts: Sequence[str]) -> tuple[Recording, ...]:
    return tuple(recording for text in texts if text for recording in loads(text, "a rank"))
