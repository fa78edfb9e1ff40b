"""Matrix multiplications (GEMM) that a GPU computes while it communicates: bfloat16 with float32
accumulation, by cuBLAS, on a stream of their own.

The inputs are random, because a GPU draws less power for constant ones and then runs at higher
clocks. Nothing here reads the result.
"""

import numpy as np

from collbench.core.dtypes import Array
from collbench.core.errors import UnavailableError
from collbench.device.card import Card
from collbench.device.cupy_types import Cublas

ITEM_BYTES = 2
CUBLAS_INSTALL_HINT = (
    "install it with: pip install 'cuda-toolkit[cublas]==13.*' (or ==12.* for a driver of CUDA 12)"
)
# library_types.h, cublas_api.h
_CUDA_R_16BF, _CUBLAS_COMPUTE_32F, _CUBLAS_GEMM_DEFAULT, _CUBLAS_OP_N = 14, 68, -1, 0
_PERIOD = 1048573  # of the random values; a prime, so that no two rows are equal
_FIRST_S = 60.0  # limit to load cuBLAS's kernels and run one


def load_cublas() -> Cublas:
    """CuPy's binding of cuBLAS, a library that its wheel lacks. Raises UnavailableError."""
    try:
        from cupy.cuda import cublas
    except ImportError:
        raise UnavailableError(
            "CuPy finds no cuBLAS, which computes the matrix multiplications", CUBLAS_INSTALL_HINT
        ) from None
    return cublas


class Gemm:
    """Square matrices of a size on a GPU, and a stream of the lowest priority. The constructor runs
    the first multiplication.

    Raises UnavailableError if there is no cuBLAS, or not enough memory.
    """

    def __init__(self, card: Card, size: int) -> None:
        self.card, self.size = card, size
        self._cublas = load_cublas()
        self.stream: int = card.runtime.streamCreateWithFlags(card.runtime.streamNonBlocking)
        self._on = card.as_cupy(self.stream)
        try:
            self._a, self._b, self._c = (card.allocate(size * size * ITEM_BYTES) for _ in range(3))
        except UnavailableError as error:
            raise UnavailableError(error.message, "use a smaller --gemm") from error
        for seed, matrix in enumerate((self._a, self._b)):
            self._fill(matrix, seed)
        # in host memory, where a new handle expects scalars
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        self._handle: int = self._cublas.create()
        # the first launch of a kernel loads it and may wait for all running work: not while other
        # ranks wait for this one
        self.queue(1)
        done = card.event()
        card.runtime.eventRecord(done, self.stream)
        card.runtime.streamWaitEvent(card.stream, done)
        card.wait(_FIRST_S)

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
        """Queue matrix multiplications in the stream."""
        size = self.size
        # as the binding takes a matrix: address, type and leading dimension
        a, b, c = ((matrix, _CUDA_R_16BF, size) for matrix in (self._a, self._b, self._c))
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
        """Free the matrices, which no other process has open, and cuBLAS's own memory, which the
        card does not know.
        """
        self._cublas.destroy(self._handle)
        for matrix in (self._a, self._b, self._c):
            self.card.free(matrix)


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
