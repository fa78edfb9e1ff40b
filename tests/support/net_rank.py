"""One rank of several under mpirun, whose GPU is made of NumPy arrays (_device): the real lane,
proxy and MPI, and a stand-in for CUDA's queues.

    mpirun -n RANKS python -m tests.support.net_rank OP ALGO PROTO ISOLATED FAULT [CHUNK] [THREADS]

Prints `right` and how many launches were compared, or what the rank raised. FAULT: none; late:RANK;
drop:RANK, whose GPU sets no word after a while; refused, after which all go on.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from collbench.backends.base import Batch, GpuOptions
from collbench.backends.gpu import rank as gpu_rank
from collbench.backends.gpu import timing
from collbench.backends.gpu.rank import DeviceRank, Launches
from collbench.backends.net.gpu_proxy import Outside, net_bytes, slots_offset
from collbench.backends.net.proxy import data_comm_of
from collbench.backends.net.receivers import Receivers
from collbench.core.case import Case
from collbench.core.errors import HangError
from collbench.device.layout import BARRIER_AT
from collbench.launch.watchdog import unlink_segments
from collbench.planning.planner import resolve
from tests.support.device import Gpus, Run

SETS, TIMEOUT_S, LAUNCHES_UNTIL_SILENT = 2, 1.0, 3
BURST = 16  # launches, of 24 in a batch
Kernel = Callable[[], Iterator[bool]]  # yields whether it waits


class Card:
    """A GPU's queue: kernels are coroutines that get on while the host waits."""

    def __init__(self) -> None:
        self.stream = 0
        self.queued: list[Kernel] = []
        self.outside: Outside | None = None

    def queue(self, kernel: Kernel) -> None:
        self.queued.append(kernel)

    def as_cupy(self, stream: int) -> int:
        return stream

    def capture(self, body: Callable[[int], None]) -> Any:
        before, self.queued = self.queued, []
        body(self.stream)
        graph, self.queued = self.queued, before
        return SimpleNamespace(launch=lambda stream: self.queued.extend(graph))

    def event(self) -> int:
        return 0

    def record(self, event: int) -> None:
        assert len(self.queued) <= BURST + 1

    def elapsed_s(self, start: int, stop: int) -> float:
        return 1.0

    def wait(self, deadline_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        assert meanwhile is not None
        assert self.outside is not None
        while self.queued:
            since = time.monotonic()
            for is_waiting in self.queued.pop(0)():
                meanwhile()
                if is_waiting:
                    os.sched_yield()  # there may be more ranks than cores
                since = since if is_waiting else time.monotonic()
                if time.monotonic() - since > TIMEOUT_S:
                    self.outside.words[0] = 1  # as a kernel that gives up does
                if self.outside.is_aborted():
                    self.queued.clear()
                    break


def barrier(outside: Outside) -> Iterator[bool]:
    """As barrier.cu."""
    words, at = outside.words, BARRIER_AT // 8
    count = words[at + 2] + 1
    words[at] = count
    while words[at + 1] < count:
        yield True
    words[at + 2] = count


def main(
    op: str,
    algo: str,
    proto: str,
    isolated: str,
    fault: str,
    chunk: str = "1024",
    threads: str = "0",
) -> None:
    """Serve as one rank."""
    from mpi4py import MPI

    rank, n = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    what, _, who = fault.partition(":")
    is_at_fault = who == str(rank)
    case = Case(
        op=op,  # type: ignore[arg-type]
        backend="cuda",
        algo=algo,
        proto=proto,
        transport="net",
        ranks=n,
        size_bytes=10 * int(chunk),  # of most collectives more pieces than a FIFO has slots
        chunk=int(chunk),
    )
    plan = resolve(case.rounded()).plan
    gpus, card = Gpus(plan, rank), Card()
    words, slots, _ = net_bytes([plan], has_gpu_slots=False)
    memory = np.zeros(slots_offset(words) + slots, np.uint8)
    data_comm = data_comm_of(MPI.COMM_WORLD)
    receivers = Receivers(int(threads), data_comm.fault) if int(threads) else None
    outside = card.outside = Outside(
        data_comm, memory.ctypes.data, words, slots, near=range(n), receivers=receivers
    )
    gpus.nets[rank], gpus.slots[rank] = memory[:words], memory[slots_offset(words) :]
    outside.proxy = outside.proxy_of(plan)
    launched = 0

    def launch(card: Card, *_: object) -> Callable[[int], None]:
        """In the place of card.Launch: of kernels, lanes queue meetings only."""
        return lambda stream: card.queue(lambda: barrier(outside))

    def queue(number: int, stream: int) -> None:
        def kernel() -> Iterator[bool]:
            nonlocal launched
            stream = gpus.stream(rank, [Run(number)])
            live = next(stream)
            while live or (what == "drop" and is_at_fault and launched == LAUNCHES_UNTIL_SILENT):
                is_waiting = True
                for one in list(live):
                    try:
                        is_waiting &= next(one)
                    except StopIteration:
                        is_waiting = False
                        live.remove(one)
                yield is_waiting
                if what == "drop" and is_at_fault and launched == LAUNCHES_UNTIL_SILENT:
                    live.clear()
            next(stream, None)  # compares
            launched += 1

        card.queue(kernel)

    vars(gpu_rank)["Launch"] = launch
    vars(timing)["burst_sizes"] = partial(timing.burst_sizes, burst=BURST)
    gpu: Any = DeviceRank(rank, n, card, is_alone=False)  # type: ignore[arg-type]
    vars(gpu).update(keep=lambda key, data: 0, _barrier=0, timeout_s=TIMEOUT_S, outside=outside)
    MPI.COMM_WORLD.Barrier()
    unlink_segments()  # which a rank that aborts would leave
    try:
        if what == "late" and is_at_fault:
            time.sleep(3 * TIMEOUT_S)
        for _ in range(2):
            if what == "refused":  # what the driver does where a rank answers with an error
                MPI.COMM_WORLD.Barrier()
                outside.abort()
                MPI.COMM_WORLD.Barrier()
            outside.clear(outside.proxy)
            gpus.arenas[rank][: len(gpus.arenas[rank])] = 0
            if what in ("none", "refused"):
                MPI.COMM_WORLD.Barrier()
            launches = Launches(
                gpu=gpu,
                problem=plan.problem,
                queue=queue,
                sets=SETS,
                wait=lambda work_s: gpu.wait(10.0),
                graphs={},
            )
            timing.first(launches, is_checked=False)
            options = GpuOptions(isolated=isolated == "isolated")
            batch = Batch(iterations=3, aggregate=1 if options.isolated else 8, is_checked=False)
            timing.timed(launches, batch, options, 0.0)
        assert outside.close()
        print(f"rank {rank}: right, {launched} launches", flush=True)
    except HangError as error:
        print(f"rank {rank}: {error.message}", flush=True)
        time.sleep(3 * TIMEOUT_S)
        MPI.COMM_WORLD.Abort(4)


if __name__ == "__main__":
    main(*sys.argv[1:])
