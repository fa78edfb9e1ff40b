"""Calls of the CUDA driver that CuPy's bindings lack: launches with attributes, and events that
graphs record.

The CTAs of a thread block cluster run on one GPC at the same time. A dependent launch may take its
place on the GPU before the launch in front of it has ended, and waits inside the kernel for its end
(programmatic dependent launch). Both exist from sm_90 on. Source of structures and numbers: cuda.h,
unchanged since CUDA 12.0.
"""

import ctypes
from functools import cache

from collbench.core.errors import UnavailableError

_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_DEPENDENT = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_RECORD_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def record_by_graph(event: int, stream: int) -> None:
    """Capture an event record that every launch of the graph executes and that the host can read.
    Raises UnavailableError.
    """
    status = _driver().cuEventRecordWithFlags(
        ctypes.c_void_p(event), ctypes.c_void_p(stream), ctypes.c_uint(_RECORD_EXTERNAL)
    )
    if status:
        raise UnavailableError(
            f"an event of a graph fails with CUDA error {status}", "use --launch stream"
        )


class AttributedLaunch:
    """A grid of a kernel in clusters of so many CTAs, or dependent on the launch in front of it.
    Raises UnavailableError if the driver refuses it.
    """

    def __init__(
        self,
        function: int,
        grid: tuple[int, int],
        block: int,
        *,
        cluster: int = 1,
        is_dependent: bool = False,
    ) -> None:
        values = [(_CLUSTER_DIMENSION, (cluster, 1, 1))] if cluster > 1 else []
        values += [(_DEPENDENT, (1, 0, 0))] if is_dependent else []
        self._function = ctypes.c_void_p(function)
        self._attributes = (_Attribute * len(values))(
            *(_Attribute(id=number, value=value) for number, value in values)
        )
        self._config = _Config(
            grid=(*grid, 1),
            block=(block, 1, 1),
            attributes=ctypes.cast(self._attributes, ctypes.POINTER(_Attribute)),
            count=len(values),
        )
        self._cluster = cluster

    def queue(self, stream: int, arguments: int) -> None:
        """Queue it on a stream; `arguments` is the address of the table of argument pointers."""
        self._config.stream = stream
        self._check(
            _driver().cuLaunchKernelEx(
                ctypes.byref(self._config), self._function, ctypes.c_void_p(arguments), None
            ),
            "the launch",
        )

    def resident_ctas(self) -> int:
        """CTAs that can be resident at once, of a kernel in clusters."""
        clusters = ctypes.c_int()
        self._check(
            _driver().cuOccupancyMaxActiveClusters(
                ctypes.byref(clusters), self._function, ctypes.byref(self._config)
            ),
            "the occupancy",
        )
        return clusters.value * self._cluster

    def _check(self, status: int, call: str) -> None:
        if status:
            flag = "--cluster 1" if self._cluster > 1 else "--pdl off"
            raise UnavailableError(
                f"{call} of a kernel fails with CUDA error {status}", f"use {flag}"
            )
