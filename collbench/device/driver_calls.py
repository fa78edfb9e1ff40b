"""Calls of the CUDA driver that CuPy's bindings lack: launches of thread block clusters, and events
that graphs record.

The CTAs of a cluster run on one GPC at the same time (sm_90 and later). Source of structures and
numbers: cuda.h, unchanged since CUDA 12.0.
"""

import ctypes
from functools import cache

from collbench.util.errors import UnavailableError

_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_RECORD_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("cluster", ctypes.c_uint * 3),
        ("unused", ctypes.c_char * 52),
    )


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


def _check(status: int, call: str) -> None:
    if status:
        raise UnavailableError(
            f"{call} of a kernel in clusters fails with CUDA error {status}", "use --cluster 1"
        )


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


class ClusterLaunch:
    """A grid of a kernel in clusters. Raises UnavailableError if the driver refuses it."""

    def __init__(self, function: int, grid: tuple[int, int], block: int, cluster: int) -> None:
        self._function = ctypes.c_void_p(function)
        self._attribute = _Attribute(id=_CLUSTER_DIMENSION, cluster=(cluster, 1, 1))
        self._config = _Config(
            grid=(*grid, 1),
            block=(block, 1, 1),
            attributes=ctypes.pointer(self._attribute),
            count=1,
        )
        self._cluster = cluster

    def queue(self, stream: int, arguments: int) -> None:
        """Queue it on a stream; `arguments` is the address of the table of argument pointers."""
        self._config.stream = stream
        _check(
            _driver().cuLaunchKernelEx(
                ctypes.byref(self._config), self._function, ctypes.c_void_p(arguments), None
            ),
            "the launch",
        )

    def resident_ctas(self) -> int:
        """CTAs that can be resident at once."""
        clusters = ctypes.c_int()
        _check(
            _driver().cuOccupancyMaxActiveClusters(
                ctypes.byref(clusters), self._function, ctypes.byref(self._config)
            ),
            "the occupancy",
        )
        return clusters.value * self._cluster
