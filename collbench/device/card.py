"""One GPU as a thread or a process uses it: memory, streams, events, graphs, modules and launches,
through CuPy's bindings.

Pointers are plain integers. Nothing here knows ranks, plans or collectives. Only the thread that
created a Card may call it.
"""

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from collbench.core.errors import HangError, UnavailableError
from collbench.device import driver_calls, host_memory
from collbench.device.cupy_types import Cupy, Stream
from collbench.device.host_memory import Handle, HostMemory

NOT_READY = 600  # cudaErrorNotReady
_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled
_CLUSTER_LAUNCH = 120  # cudaDevAttrClusterLaunch
_POLL_S = 20e-6  # between two queries of a stream
_HIGHEST = -128  # priority of a stream; CUDA clamps it to the highest one that it has
# Allocations are multiples of this. An IPC handle names a whole block of the driver, which smaller
# allocations would share. If the size is not a multiple, copies from another process are slower.
_GRAIN_BYTES = 2 << 20


class Graph(Protocol):
    """A captured graph, as CuPy has it."""

    def upload(self, stream: Stream) -> None: ...

    def launch(self, stream: Stream) -> None: ...


def load_cupy() -> Cupy:
    """CuPy, or UnavailableError with what to install."""
    try:
        import cupy
    except ImportError:
        raise UnavailableError(
            "this host has GPUs, but CuPy is not installed",
            "install it with: pip install 'collbench[cuda13]' (or [cuda12])",
        ) from None
    return cupy


def device_count() -> int:
    """The number of GPUs that CUDA shows this process; 0 without a driver."""
    runtime = load_cupy().cuda.runtime
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


def cuda_errors() -> tuple[type[Exception], ...]:
    """The exceptions that CUDA's functions raise."""
    cuda = load_cupy().cuda
    return cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError


def least_multiprocessors() -> int:
    """Multiprocessors of the GPU that has fewest; 0 without a GPU. Creates no context."""
    runtime = load_cupy().cuda.runtime
    return min(
        (
            int(runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, index))
            for index in range(device_count())
        ),
        default=0,
    )


def model_of_all() -> str:
    """The name of the GPUs as the driver gives it; empty if they differ. Creates no context."""
    runtime = load_cupy().cuda.runtime
    names = {runtime.getDeviceProperties(index)["name"].decode() for index in range(device_count())}
    return str(names.pop()) if len(names) == 1 else ""


def archs() -> set[str]:
    """The compute capabilities of the GPUs, 90 for 9.0. Creates no context."""
    runtime = load_cupy().cuda.runtime
    known = map(runtime.getDeviceProperties, range(device_count()))
    return {f"{facts['major']}{facts['minor']}" for facts in known}


def all_reach_each_other() -> bool:
    """Whether every GPU can access the memory of every other. Creates no context."""
    runtime = load_cupy().cuda.runtime
    return all(
        runtime.deviceCanAccessPeer(a, b)
        for a in range(device_count())
        for b in range(device_count())
        if a != b
    )


def all_have_clusters() -> bool:
    """Whether every GPU runs thread block clusters. Creates no context."""
    runtime = load_cupy().cuda.runtime
    return all(
        runtime.deviceGetAttribute(_CLUSTER_LAUNCH, index) for index in range(device_count())
    )


def _uuid(raw: bytes) -> str:
    """A UUID as drivers spell it; empty if a binding has cut it at a zero byte.

    >>> _uuid(bytes(range(1, 17))), _uuid(b"cut")
    ('GPU-01020304-0506-0708-090a-0b0c0d0e0f10', '')
    """
    digits = raw.hex()
    return (
        "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        if len(raw) == 16
        else ""
    )


class Launch:
    """A kernel with its grid and arguments, ready to be queued any number of times. cluster: CTAs
    of a thread block cluster, a divisor of the grid. is_dependent: it takes its place on the GPU
    before the launch in front of it has ended; the kernel itself waits for that.
    """

    def __init__(
        self,
        card: "Card",
        function: int,
        grid: tuple[int, int],
        block: int,
        args: Sequence[bytes],
        *,
        cluster: int = 1,
        is_dependent: bool = False,
    ) -> None:
        self._launch = card.cupy.cuda.driver.launchKernel
        self._buffers = [ctypes.create_string_buffer(arg, len(arg)) for arg in args]
        self._pointers = (ctypes.c_void_p * len(args))(*map(ctypes.addressof, self._buffers))
        self._shape = (function, *grid, 1, block, 1, 1, 0)
        self._attributed = (
            driver_calls.AttributedLaunch(
                function, grid, block, cluster=cluster, is_dependent=is_dependent
            )
            if cluster > 1 or is_dependent
            else None
        )

    def __call__(self, stream: int) -> None:
        if self._attributed:
            self._attributed.queue(stream, ctypes.addressof(self._pointers))
        else:
            self._launch(*self._shape, stream, ctypes.addressof(self._pointers), 0)


class _ForeignStream:
    """One of our streams for other libraries, by the CUDA stream protocol."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer  # version of the protocol, stream


class Card:
    """The GPU with a CUDA index."""

    def __init__(self, index: int) -> None:
        self.cupy = load_cupy()
        self.index, self.runtime, self.driver = index, self.cupy.cuda.runtime, self.cupy.cuda.driver
        self.runtime.setDevice(index)
        facts = self.runtime.getDeviceProperties(index)
        self.name: str = facts["name"].decode()
        self.arch = 10 * facts["major"] + facts["minor"]
        self.multiprocessors: int = facts["multiProcessorCount"]
        self.cache_bytes: int = facts["l2CacheSize"]
        self.uuid = _uuid(bytes(facts["uuid"]))
        self._priority = 0  # of new streams
        self.stream = self.new_stream()
        # for copies that overtake the work in the main stream
        self.side_stream: int = self.runtime.streamCreateWithFlags(self.runtime.streamNonBlocking)
        self._allocated: list[int] = []
        self._is_exported = False
        self._opened: list[int] = []
        self._host: list[HostMemory] = []
        self._modules: dict[bytes, int] = {}

    def take_highest_priority(self) -> None:
        """Give the stream, and all new ones, the highest priority: their kernels get
        multiprocessors before those of other streams.
        """
        self.runtime.streamDestroy(self.stream)
        self._priority = _HIGHEST
        self.stream = self.new_stream()

    def new_stream(self) -> int:
        """A stream with the priority of the card's main stream."""
        return int(
            self.runtime.streamCreateWithPriority(self.runtime.streamNonBlocking, self._priority)
        )

    def as_cupy(self, stream: int) -> Stream:
        """CuPy's object for a stream; it does not own the stream."""
        return self.cupy.cuda.Stream.from_external(_ForeignStream(stream))

    def allocate(self, size: int) -> int:
        """Zeroed memory. Raises UnavailableError if there is not enough."""
        whole = max(1, -(-size // _GRAIN_BYTES)) * _GRAIN_BYTES
        try:
            pointer = int(self.runtime.malloc(whole))
        except self.runtime.CUDARuntimeError as error:
            free, total = self.runtime.memGetInfo()
            raise UnavailableError(
                f"GPU {self.index} has no {size >> 20}M of memory: {free >> 20}M of {total >> 20}M"
                " are free",
                "use smaller sizes",
            ) from error
        self._allocated.append(pointer)
        self.runtime.memsetAsync(pointer, 0, whole, self.side_stream)
        # of the whole GPU it would break a graph that another thread captures
        self.runtime.streamSynchronize(self.side_stream)
        return pointer

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self._allocated.remove(pointer)
        self.runtime.free(pointer)

    def export(self, pointer: int, *, to_processes: bool) -> tuple[int, int, int, bytes]:
        """What other ranks need to open an allocation: process, device, address, handle."""
        self._is_exported |= to_processes
        return (
            os.getpid(),
            self.index,
            pointer,
            self.runtime.ipcGetMemHandle(pointer) if to_processes else b"",
        )

    def open(self, exported: tuple[int, int, int, bytes]) -> int:
        """The address at which this GPU accesses an allocation that another process, or another GPU
        of this process, exported.
        """
        process, device, pointer, handle = exported
        if process == os.getpid():
            if device != self.index:
                self._enable_peer(device)
            return pointer
        address = int(
            self.runtime.ipcOpenMemHandle(handle, self.runtime.cudaIpcMemLazyEnablePeerAccess)
        )
        self._opened.append(address)
        return address

    def allocate_host(self, size: int) -> Handle:
        """Allocate zeroed host memory that several GPUs use; returns what they need to open it.
        Raises UnavailableError.
        """
        self._host.append(host_memory.make(self.runtime, self.index, size))
        return self._host[-1].handle()

    def own_host(self, size: int) -> HostMemory:
        """Zeroed host memory for this GPU and its process, in huge pages. The caller closes it.
        Raises UnavailableError.
        """
        return host_memory.make(self.runtime, self.index, size, is_shared=False)

    def open_host(self, handle: Handle) -> int:
        """The address of host memory that a rank has allocated."""
        if (memory := host_memory.reach(self.runtime, handle)) is None:
            return handle[3]
        self._host.append(memory)
        return memory.address

    def _enable_peer(self, device: int) -> None:
        if not self.runtime.deviceCanAccessPeer(self.index, device):
            raise UnavailableError(
                f"GPU {self.index} cannot reach the memory of GPU {device}",
                "see `nvidia-smi topo -p2p r`",
            )
        try:
            self.runtime.deviceEnablePeerAccess(device)
        except self.runtime.CUDARuntimeError as error:
            if error.status != _ALREADY_ENABLED:
                raise

    def upload(self, pointer: int, data: bytes) -> None:
        """Copy to the GPU and wait for the copy."""
        buffer = ctypes.create_string_buffer(data, len(data))
        kind = self.runtime.memcpyHostToDevice
        self._copy_now(pointer, ctypes.addressof(buffer), len(data), kind)

    def download(self, pointer: int, size: int) -> bytes:
        """Copy from the GPU without waiting for the main stream."""
        buffer = ctypes.create_string_buffer(size)
        self._copy_now(ctypes.addressof(buffer), pointer, size, self.runtime.memcpyDeviceToHost)
        return buffer.raw

    def _copy_now(self, target: int, source: int, size: int, kind: int) -> None:
        self.runtime.memcpyAsync(target, source, size, kind, self.side_stream)
        self.runtime.streamSynchronize(self.side_stream)

    def clear(self, pointer: int, size: int, byte: int = 0) -> None:
        """Queue a memset."""
        self.runtime.memsetAsync(pointer, byte, size, self.stream)

    def function(self, cubin: bytes, name: str) -> int:
        """A kernel of a module, which is fully loaded when this returns."""
        if cubin not in self._modules:
            self._modules[cubin] = self.driver.moduleLoadData(cubin)
        function = int(self.driver.moduleGetFunction(self._modules[cubin], name))
        self.driver.funcGetAttribute(self.driver.CU_FUNC_ATTRIBUTE_NUM_REGS, function)
        return function

    def resident_ctas(self, function: int, threads: int, cluster: int = 1) -> int:
        """CTAs of a kernel that can be resident at once."""
        if cluster > 1:
            return driver_calls.AttributedLaunch(
                function, (cluster, 1), threads, cluster=cluster
            ).resident_ctas()
        return (
            int(self.driver.occupancyMaxActiveBlocksPerMultiprocessor(function, threads, 0))
            * self.multiprocessors
        )

    def capture(self, body: Callable[[int], None]) -> Graph:
        """The commands that the body queues in the stream, as a graph."""
        stream = self.as_cupy(self.stream)
        with stream:
            stream.begin_capture()
            try:
                body(self.stream)
            except BaseException:
                # else it says only that the capture is invalid
                with suppress(self.runtime.CUDARuntimeError):
                    stream.end_capture()
                raise
            graph: Graph = stream.end_capture()
        graph.upload(stream)
        return graph

    def event(self) -> int:
        """A new event with timing."""
        return int(self.runtime.eventCreate())

    def record(self, event: int) -> None:
        """Record an event on the main stream."""
        self.runtime.eventRecord(event, self.stream)

    def record_by_graph(self, event: int) -> None:
        """As record, during a capture: every launch of the graph records the event."""
        driver_calls.record_by_graph(event, self.stream)

    def elapsed_s(self, start: int, stop: int) -> float:
        """Seconds between two events that have completed."""
        return float(self.runtime.eventElapsedTime(start, stop)) * 1e-3

    def wait(self, deadline_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until the stream is empty. Raises HangError after the deadline, UnavailableError for
        a fault of the GPU. meanwhile: called between two queries.
        """
        end = time.monotonic() + deadline_s
        while (status := self.runtime.streamQuery(self.stream)) == NOT_READY:
            if time.monotonic() > end:
                raise HangError(f"GPU {self.index} has not finished after {deadline_s:.0f} s")
            if meanwhile is None:
                time.sleep(_POLL_S)
            else:
                meanwhile()
        if status:
            raise UnavailableError(
                f"GPU {self.index}: CUDA error {status}:"
                f" {self.cupy.cuda.runtime.CUDARuntimeError(status)}",
                "see dmesg for an Xid",
            )

    def close(self) -> None:
        """Free all memory that other processes cannot have open. Exported memory is freed with this
        process.
        """
        for address in self._opened:
            self.runtime.ipcCloseMemHandle(address)
        for memory in self._host:
            memory.close()
        for pointer in () if self._is_exported else self._allocated:
            self.runtime.free(pointer)
        self._opened.clear()
        self._host.clear()
        self._allocated.clear()
