"""A driver's library as a Python object: the real binding calls it, so struct sizes, out-parameters
and error classes are the real ones.

It answers with C's ways about GPUs that are data. What a test wants to fail, it names.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Array, c_void_p, cast, pointer
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pynvml
import pytest

from collbench.machine import gpus

NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
INVALID = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
HIDDEN = "FFFFFFFF:FF:FF.0"  # what virtual machines say of a switch


@dataclass(kw_only=True)
class FakeLink:
    """An NVLink: remote is a bus id, remote_type NVML's."""

    remote: str = HIDDEN
    remote_type: int = 2
    is_active: bool = True
    replay: int = 0
    crc: int = 0
    # kibibytes that left by it and came in: of data, and of all
    data: tuple[int, int] | None = None
    raw: tuple[int, int] | None = None
    can_p2p: bool = True


@dataclass(kw_only=True)
class FakeGpu:
    name: str
    address: str  # as sysfs spells it
    arch: int
    links: list[FakeLink] = field(default_factory=list)
    c2c_mbps: list[int] = field(default_factory=list)
    mig: int | None = None
    pcie: tuple[int, int, int, int] = (5, 16, 5, 16)  # current generation and width, most
    affinity: range = range(64)
    link_mbps: int | None = None
    version: int = 6
    cluster: bytes = bytes(16)
    fabric_state: int | None = None
    # (function, what is asked) -> numbers; and values of fields of the GPU
    answers: dict[tuple[str | int, ...], tuple[int, ...]] = field(default_factory=dict)
    fields: dict[int, int] = field(default_factory=dict)
    uuid: str = ""  # by the address unless given

    @property
    def bus_id(self) -> str:
        domain, _, rest = self.address.upper().partition(":")
        return f"{int(domain, 16):08X}:{rest}"

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"GPU-{self.address.replace(':', '').replace('.', '')}-5a07-4b39"


class FakeNvml:
    """ancestor and status: of two GPUs by number (and what is asked of them). errors: function ->
    its error; missing: what the driver lacks.
    """

    def __init__(
        self,
        gpus_: list[FakeGpu],
        ancestor: Callable[[int, int], int] = lambda a, b: 10,
        status: Callable[[int, int, int], int] = lambda a, b, what: 0,
    ) -> None:
        self.gpus, self.ancestor, self.status = gpus_, ancestor, status
        self.calls: list[str] = []
        self.errors: dict[str, int] = {}
        self.missing: set[str] = set()
        self.refused: dict[int, int] = {}  # GPU -> error of its handle
        self.bad_fields: set[int] = set()

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(type(self), f"_{name}", SAID.get(name))
        if function is None and any(key[0] == name for gpu in self.gpus for key in gpu.answers):
            return partial(self._answer, name)
        if function is None or name in self.missing:
            raise AttributeError(name)

        def call(*args: Any) -> int:
            self.calls.append(name)
            return int(self.errors.get(name) or function(self, *args) or 0)

        return call

    def _answer(self, name: str, handle: Any, *args: Any) -> int:
        """Numbers of a GPU: what is asked comes by value, where they go by reference."""
        asked = (name, *(arg.value for arg in args if not hasattr(arg, "_obj")))
        numbers = self._of(handle).answers.get(asked)
        outs = [arg._obj for arg in args if hasattr(arg, "_obj")]
        for out, number in zip(outs, numbers or (), strict=numbers is not None):
            out.value = number
        return NOT_SUPPORTED if numbers is None else 0

    def _of(self, handle: Any) -> FakeGpu:
        return self.gpus[index_of(handle)]

    def _link(self, handle: Any, link: int) -> FakeLink | None:
        links = self._of(handle).links
        return links[link] if 0 <= link < len(links) else None

    def _nvmlInitWithFlags(self, flags: int) -> None:
        return None

    def _nvmlSystemGetDriverVersion(self, out: Array[Any], size: Any) -> None:
        out.value = b"580.159.03"

    def _nvmlDeviceGetCount_v2(self, out: Any) -> None:
        out._obj.value = len(self.gpus)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        put(out._obj, index.value)
        return self.refused.get(index.value, 0)

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, out: Any) -> None:
        out._obj.busId = self._of(handle).bus_id.encode()

    def _nvmlDeviceGetMigMode(self, handle: Any, now: Any, later: Any) -> int:
        mode = self._of(handle).mig
        now._obj.value = later._obj.value = mode or 0
        return NOT_SUPPORTED if mode is None else 0

    def _nvmlDeviceGetCpuAffinity(self, handle: Any, size: Any, out: Any) -> None:
        for one in self._of(handle).affinity:
            out._obj[one // 64] |= 1 << one % 64

    def _nvmlDeviceGetNumaNodeId(self, handle: Any, out: Any) -> int:
        return NOT_SUPPORTED

    def _nvmlDeviceGetNvLinkVersion(self, handle: Any, link: int, out: Any) -> None:
        out._obj.value = self._of(handle).version

    def _nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle: Any, link: int, out: Any) -> int:
        found = self._link(handle, link)
        if found is None or not found.is_active:
            return NOT_SUPPORTED
        out._obj.busId = found.remote.encode()
        return 0

    def _nvmlDeviceGetFieldValues(self, handle: Any, count: Any, out: Any) -> None:
        gpu = self._of(handle)
        for value in out._obj:
            link = self._link(handle, value.scopeId)
            told = {
                90: None,
                91: len(gpu.links) or None,
                170: len(gpu.c2c_mbps),
                171: 1,
                172: gpu.c2c_mbps[value.scopeId] if value.scopeId < len(gpu.c2c_mbps) else None,
            }
            if link is not None and gpu.arch >= 90:
                told |= {
                    161: link.replay,
                    162: 0,
                    163: link.crc,
                    164: gpu.link_mbps,
                    165: int(link.is_active),
                    166: gpu.version,
                }
            if link is not None and link.data is not None:
                told |= {138: link.data[0], 139: link.data[1]}
            if link is not None and link.raw is not None:
                told |= {140: link.raw[0], 141: link.raw[1]}
            told |= gpu.fields
            answer = None if value.fieldId in self.bad_fields else told.get(value.fieldId)
            value.nvmlReturn = NOT_SUPPORTED if answer is None else 0
            value.valueType = 1
            value.value.uiVal = answer or 0

    def _nvmlDeviceGetGpuFabricInfoV(self, handle: Any, out: Any) -> int:
        gpu = self._of(handle)
        if gpu.fabric_state is None:
            return NOT_SUPPORTED
        out._obj.state, out._obj.cliqueId = gpu.fabric_state, 7
        for place, byte in enumerate(gpu.cluster):
            out._obj.clusterUuid[place] = byte
        return 0

    def _nvmlDeviceGetTopologyCommonAncestor(self, first: Any, second: Any, out: Any) -> None:
        out._obj.value = self.ancestor(index_of(first), index_of(second))

    def _nvmlDeviceGetP2PStatus(self, first: Any, second: Any, what: int, out: Any) -> None:
        out._obj.value = self.status(index_of(first), index_of(second), what)


def says(values: Callable[[FakeGpu], tuple[object, ...]]) -> Callable[..., int | None]:
    """A function of the library that tells these values of a GPU by reference."""

    def call(nvml: FakeNvml, handle: Any, *args: Any) -> None:
        outs = [getattr(arg, "_obj", arg) for arg in args if hasattr(arg, "_obj") or arg is args[0]]
        for out, value in zip(outs, values(nvml._of(handle)), strict=True):
            out.value = value

    return call


def link_says(value_of: Callable[..., int | None]) -> Callable[..., int]:
    """A function of the library that tells a value of a GPU's link by reference, or none."""

    def call(nvml: FakeNvml, handle: Any, number: int, *args: Any) -> int:
        *asked, out = args
        link = nvml._link(handle, number)
        value = None if link is None else value_of(link, *asked)
        out._obj.value = value or 0
        return INVALID if link is None else NOT_SUPPORTED if value is None else 0

    return call


SAID: dict[str, Callable[..., int | None]] = {
    f"nvmlDeviceGet{name}": says(values)
    for name, values in {
        "UUID": lambda gpu: (gpu.uuid.encode(),),
        "Name": lambda gpu: (gpu.name.encode(),),
        "CudaComputeCapability": lambda gpu: divmod(gpu.arch, 10),
        "CurrPcieLinkGeneration": lambda gpu: gpu.pcie[:1],
        "CurrPcieLinkWidth": lambda gpu: gpu.pcie[1:2],
        "MaxPcieLinkGeneration": lambda gpu: gpu.pcie[2:3],
        "MaxPcieLinkWidth": lambda gpu: gpu.pcie[3:],
        "GpuMaxPcieLinkGeneration": lambda gpu: gpu.pcie[2:3],
    }.items()
}
OF_LINKS: dict[str, Callable[..., int | None]] = {
    "State": lambda link: link.is_active,
    "Capability": lambda link, what: link.can_p2p,
    "RemoteDeviceType": lambda link: link.remote_type if link.is_active else None,
    "ErrorCounter": lambda link, counter: {0: link.replay, 2: link.crc}.get(counter, 0),
}
SAID |= {f"nvmlDeviceGetNvLink{name}": link_says(value) for name, value in OF_LINKS.items()}


def put(handle: Any, index: int) -> None:
    """Make a handle, which is a pointer to something hidden, say which GPU it is; index 0 is not
    null.
    """
    cast(pointer(handle), POINTER(c_void_p))[0] = 0x1000 + index


def index_of(handle: Any) -> int:
    return int(cast(handle, c_void_p).value or 0) - 0x1000


def forget() -> None:
    """What the module and the binding remember of a library."""
    gpus._refusal.cache_clear()
    gpus._device.cache_clear()
    pynvml._nvmlGetFunctionPointer_cache.clear()


@contextmanager
def driver(library: object) -> Iterator[None]:
    """Make the binding believe in a library, and forget it after; None: there is none."""

    def no_library(name: str) -> None:
        raise OSError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", library)
        patch.setattr(pynvml, "_nvmlLib_refcount", 0)
        if library is None:
            patch.setattr(pynvml, "CDLL", no_library)
        forget()
        yield
    forget()
