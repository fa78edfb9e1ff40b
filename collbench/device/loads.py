"""What a GPU does while it communicates, on a stream of its own: matrix multiplications (GEMM) in
bfloat16 with float32 accumulation by cuBLAS, which multiprocessors bound, or copies within its
memory, which the bandwidth of that memory bounds.

The inputs are random, because a GPU draws less power for constant ones and then runs at higher
clocks. Nothing here reads the result.
"""

from abc import ABC, abstractmethod

import numpy as np

from collbench.core.dtypes import Array
from collbench.core.errors import UnavailableError
from collbench.device.card import Card
from collbench.device.copies import queue_copy
from collbench.device.cupy_types import Cublas

ITEM_BYTES = 2
CUBLAS_INSTALL_HINT = (
    "install it with: pip install 'cuda-toolkit[cublas]==13.*' (or ==12.* for a driver of CUDA 12)"
)
# library_types.h, cublas_api.h
_CUDA_R_16BF, _CUBLAS_COMPUTE_32F, _CUBLAS_GEMM_DEFAULT, _CUBLAS_OP_N = 14, 68, -1, 0
_PERIOD = 1048573  # of the random values; a prime, so that no two rows are equal
_FIRST_S = 60.0  # limit to load cuBLAS's kernels and run one
_COPY_BYTES = 256 << 20  # several times the cache of any GPU


def load_cublas() -> Cublas:
    """CuPy's binding of cuBLAS, a library that its wheel lacks. Raises UnavailableError."""
    try:
        from cupy.cuda import cublas
    except ImportError:
        raise UnavailableError(
            "CuPy finds no cuBLAS, which computes the matrix multiplications", CUBLAS_INSTALL_HINT
        ) from None
    return cublas


class Load(ABC):
    """Work in some memory of a GPU, on a stream of the lowest priority. Raises UnavailableError if
    there is not enough memory.
    """

    def __init__(self, card: Card, buffers: int, size_bytes: int, hint: str) -> None:
        self.card = card
        self.stream: int = card.runtime.streamCreateWithFlags(card.runtime.streamNonBlocking)
        try:
            self._memory = [card.allocate(size_bytes) for _ in range(buffers)]
        except UnavailableError as error:
            raise UnavailableError(error.message, hint) from error

    @abstractmethod
    def queue(self, count: int) -> None:
        """Queue so many pieces of the work in the stream."""

    def _first(self) -> None:
        """Run a piece: the first launch of a kernel loads it and may wait for all running work,
        which must not be while other ranks wait for this one.
        """
        self.queue(1)
        done = self.card.event()
        self.card.runtime.eventRecord(done, self.stream)
        self.card.runtime.streamWaitEvent(self.card.stream, done)
        self.card.wait(_FIRST_S)

    def close(self) -> None:
        """Free the memory, which no other process has open."""
        for pointer in self._memory:
            self.card.free(pointer)


class Copies(Load):
    """Copies from one buffer to another."""

    def __init__(self, card: Card) -> None:
        super().__init__(card, 2, _COPY_BYTES, "use smaller sizes")
        self._first()

    def queue(self, count: int) -> None:
        source, target = self._memory
        for _ in range(count):
            queue_copy(self.card.runtime, target, source, _COPY_BYTES, self.stream)


class Gemm(Load):
    """Products of square matrices of a size. Raises UnavailableError if there is no cuBLAS."""

    def __init__(self, card: Card, size: int) -> None:
        self.size, self._cublas = size, load_cublas()
        super().__init__(card, 3, size * size * ITEM_BYTES, "use a smaller --gemm")
        self._on = card.as_cupy(self.stream)
        for seed, matrix in enumerate(self._memory[:2]):
            self._fill(matrix, seed)
        # in host memory, where a new handle expects scalars
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        self._handle: int = self._cublas.create()
        self._first()

    def _fill(self, matrix: int, seed: int) -> None:
        """Fill a matrix with random values, doubled on the GPU until they fill it."""
        card, size = self.card, self.size * self.size * ITEM_BYTES
        block = random_bfloat16(min(_PERIOD, self.size * self.size), seed).tobytes()
        card.upload(matrix, block)
        done = len(block)
        while done < size:
            more = min(done, size - done)
            card.runtime.memcpyAsync(
                matrix + done, matrix, more, card.runtime.memcpyDeviceToDevice, card.stream
            )
            done += more
        card.wait(_FIRST_S)

    def queue(self, count: int) -> None:
        size = self.size
        # as the binding takes a matrix: address, type and leading dimension
        a, b, c = ((matrix, _CUDA_R_16BF, size) for matrix in self._memory)
        with self._on:  # the binding takes the current stream, whatever stream the handle has
            for _ in range(count):
                self._cublas.gemmEx(
                    self._handle,
                    _CUBLAS_OP_N,
                    _CUBLAS_OP_N,
                    size,
                    size,
                    size,
                    self._one.ctypes.data,
                    *a,
                    *b,
                    self._zero.ctypes.data,
                    *c,
                    _CUBLAS_COMPUTE_32F,
                    _CUBLAS_GEMM_DEFAULT,
                )

    def close(self) -> None:
        """As of all loads; cuBLAS's own memory the card does not know."""
        self._cublas.destroy(self._handle)
        super().close()


def random_bfloat16(count: int, seed: int) -> "Array":
    """Normal random numbers as bfloat16, in 16-bit words: the upper halves of float32.

    >>> (
    ...     random_bfloat16(3, 0).dtype.name,
    ...     len(set(random_bfloat16(100, 1)) & set(random_bfloat16(100, 2))) < 10,
    ... )
    ('uint16', True)
    """
    values: Array = (
        np.random.default_rng(seed).standard_normal(count, np.float32).view(np.uint32)
        >> np.uint32(16)
    ).astype(np.uint16)
    return values
