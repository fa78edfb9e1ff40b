"""What NVML reports about this host's GPUs: which of them CUDA shows, and what may have disturbed
a measurement on them.

Nothing here opens a CUDA context. pynvml is imported inside functions, so that a host without GPUs
pays nothing. Source: NVML API reference 13; CUDA programming guide, environment variables; what is
marked as measured was read on one H200 of a virtual machine, driver 580.159.
"""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from collbench.core.errors import UnavailableError

GPU_IDLE = 0x1  # nvmlClocksEventReasonGpuIdle
# nvmlClocksEventReasonApplicationsClocksSetting: clocks that a user has set
CLOCKS_SETTING = 0x2
# Why a working GPU runs slower than requested. Not included: idle 0x1; what a user has set, 0x2,
# 0x10 (sync boost) and 0x100 (display clocks); and 0x200 (board limit) and 0x400 (reliability), at
# which a boosting GPU may stop with nothing wrong.
_THROTTLES = {
    0x4: "throttled:power-cap",
    0x8: "throttled:hw-slowdown",
    0x20: "throttled:sw-thermal",
    0x40: "throttled:hw-thermal",
    0x80: "throttled:power-brake",
}
# An idle clock is a sixth of the maximum (345 of 1980 MHz measured) and a hardware slowdown halves
# it; desktop cards at work stay up to a fifth below the maximum that NVML names, with nothing
# wrong. Between them:
LOW_CLOCK = 0.75
_NO_PIDS = frozenset({0, 0xFFFFFFFF})  # what NVML gives where it does not know a process id
# The function's name, and the one that older drivers have.
THROTTLE_BITS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as NVML names it."""

    index: int
    uuid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU at one moment; None is what the driver or the GPU does not report."""

    uuid: str
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    throttle_bits: int | None = None
    foreign_pids: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Some GPUs at one moment."""

    readings: tuple[GpuReading, ...]


def visible() -> tuple[Gpu, ...]:
    """The GPUs that CUDA shows to this process, in CUDA's order: entry i is CUDA's device i. None
    of them where there is no driver.

    Raises UnavailableError if there is a driver but NVML does not start. Parts of GPUs (MIG) are
    not GPUs here: a list of them shows none.
    """
    import pynvml

    refusal = _refusal()
    if refusal is not None:
        if not has_driver():
            return ()
        # GPUs that do not work are not the same as no GPUs
        raise UnavailableError(
            f"NVML, the driver's library that lists GPUs, does not start: {refusal}",
            "see what nvidia-smi reports about it",
        )
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            gpus.append(_gpu(index))
        # not for this user, or fallen off the bus: CUDA does not count it either
        except pynvml.NVMLError:
            continue
    # NVML goes by PCI address, CUDA by CUDA_DEVICE_ORDER: by address too if that is PCI_BUS_ID,
    # else the fastest first. Among identical GPUs both are the same order. A host that mixes models
    # has to set PCI_BUS_ID: CUDA does not report its order by speed, so nothing is sorted here.
    return _shown(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))


def has_driver() -> bool:
    """Whether this host has an NVIDIA driver, whatever state it is in."""
    import pynvml

    missing = (
        pynvml.NVMLError_LibraryNotFound,
        pynvml.NVMLError_DriverNotLoaded,
        pynvml.NVMLError_NotFound,
    )
    return not isinstance(_refusal(), missing)


def nvml_refusal() -> str | None:
    """Why NVML does not start; None if it does. Starts it, once a process."""
    refusal = _refusal()
    return None if refusal is None else str(refusal)


def conditions(uuids: Sequence[str], own_pids: Collection[int]) -> Conditions:
    """The GPUs of these ids, in this order, as they are now.

    A compute process is foreign if its id is not in `own_pids`. NVML gives ids as this process's
    namespace sees them. In containers it may list nothing, and then nothing is foreign, or name our
    own ranks by ids of another namespace, and then they count as foreign: a note too many is better
    than a neighbour missed. An id of 0 has no meaning and is ignored. Never raises for what NVML
    cannot report. Cost: NVML's calls took 0.02 to 0.21 ms a GPU where measured, and 4 ms the first
    time.
    """
    own = frozenset(own_pids)
    return Conditions(readings=tuple(_reading(uuid, own) for uuid in uuids))


def disturbances(before: Conditions, after: Conditions) -> tuple[str, ...]:
    """What may have disturbed the work between two moments: short notes without spaces, each once,
    in a fixed order.

    `throttled:REASON` if a GPU that did not idle was held back at either moment. `clocks-low` if a
    GPU's SM clock was under three quarters of its maximum after the work, unless it idled by then
    or its clocks are set by somebody. The clock before counts for nothing: GPUs ramp up when work
    comes, and one that stays low stays low until after. `other-processes` if somebody else computed
    at either moment.

    >>> idle, work = (
    ...     GpuReading(uuid="GPU-1", sm_mhz=345, sm_max_mhz=1980, throttle_bits=0x1),
    ...     GpuReading(uuid="GPU-1", throttle_bits=0x4),
    ... )
    >>> disturbances(Conditions(readings=(idle,)), Conditions(readings=(work,)))
    ('throttled:power-cap',)
    """
    readings = before.readings + after.readings
    bits = 0
    for reading in readings:
        if reading.throttle_bits is not None and not reading.throttle_bits & GPU_IDLE:
            bits |= reading.throttle_bits
    notes = [note for bit, note in _THROTTLES.items() if bits & bit]
    if any(_has_low_clock(reading) for reading in after.readings):
        notes.append("clocks-low")
    if any(reading.foreign_pids for reading in readings):
        notes.append("other-processes")
    return tuple(notes)


def _has_low_clock(reading: GpuReading) -> bool:
    """Whether its SM clock is low with neither idleness nor a setting to explain it."""
    if (
        reading.sm_mhz is None
        or reading.sm_max_mhz is None
        or (reading.throttle_bits or 0) & (GPU_IDLE | CLOCKS_SETTING)
    ):
        return False
    return reading.sm_mhz < LOW_CLOCK * reading.sm_max_mhz


def _shown(gpus: Sequence[Gpu], devices: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA shows if CUDA_VISIBLE_DEVICES is `devices`; None: not set.

    The first entry says whether all are indices or all are UUIDs; the first invalid one ends the
    list; one that comes twice is CUDA's error 101 and shows none. How entries are read was measured
    with one GPU, their order is the guide's.

    >>> a, b = (
    ...     Gpu(index=i, uuid=uuid, name="H200") for i, uuid in enumerate(("GPU-aa-1", "GPU-ab-2"))
    ... )
    >>> [
    ...     [gpu.index for gpu in _shown((a, b), devices)]
    ...     for devices in (None, "", "1,0", " +1,-1,0", "0,0", "0,GPU-ab", "GPU-AB,GPU-a")
    ... ]
    [[0, 1], [], [1, 0], [1], [], [0], [1]]
    """
    if devices is None:
        return tuple(gpus)
    entry_gpu = _by_uuid if devices.startswith("GPU-") else _by_index
    shown: list[Gpu] = []
    for entry in devices.split(","):
        gpu = entry_gpu(gpus, entry)
        if gpu is None:
            break
        if gpu in shown:
            return ()
        shown.append(gpu)
    return tuple(shown)


def _by_index(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    """The GPU of CUDA's number: what starts the entry, as C's strtol reads it."""
    number = re.match(r"\s*[+-]?[0-9]+", entry)
    place = int(number[0]) if number else -1
    return gpus[place] if 0 <= place < len(gpus) else None


def _by_uuid(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    """The only GPU whose UUID starts so: digits in either case, the prefix in capitals; what
    follows a whole UUID is skipped.
    """
    if not entry.startswith("GPU-") or entry == "GPU-":
        return None
    matches = [gpu for gpu in gpus if gpu.uuid.lower().startswith(entry[: len(gpu.uuid)].lower())]
    return matches[0] if len(matches) == 1 else None


@lru_cache(maxsize=1)
def _refusal() -> Exception | None:
    """Start NVML, once a process; its error if it does not start."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return cast("Exception", error)
    return None


def _gpu(index: int) -> Gpu:
    """The GPU of that NVML index; NVML's error if it does not answer."""
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=index, uuid=pynvml.nvmlDeviceGetUUID(handle), name=pynvml.nvmlDeviceGetName(handle)
    )


def as_sysfs(bus_id: str) -> str:
    """A PCI address of NVML, whose domain has eight digits, as sysfs spells it: with four, or as
    many as needed.

    >>> as_sysfs("00000000:1A:06.0"), as_sysfs("00010001:00:00.0")
    ('0000:1a:06.0', '10001:00:00.0')
    """
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def uuid_at(bus_id: str) -> str:
    """The UUID of the GPU at a PCI address; the address itself where NVML does not know it."""
    import pynvml

    if _refusal() is not None:
        return bus_id
    try:
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)))
    except pynvml.NVMLError:
        return bus_id


@lru_cache(maxsize=64)
def _device(uuid: str) -> tuple[object, int | None]:
    """NVML's handle, None if there is none, and the highest SM clock in MHz: what does not change
    while a process lives.
    """
    import pynvml

    if _refusal() is not None:
        return None, None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None, None
    return handle, _number(handle, ["nvmlDeviceGetMaxClockInfo"], pynvml.NVML_CLOCK_SM)


def _reading(uuid: str, own_pids: frozenset[int]) -> GpuReading:
    """The GPU now."""
    import pynvml

    handle, sm_max_mhz = _device(uuid)
    if handle is None:
        return GpuReading(uuid=uuid)
    return GpuReading(
        uuid=uuid,
        sm_mhz=_number(handle, ["nvmlDeviceGetClockInfo"], pynvml.NVML_CLOCK_SM),
        sm_max_mhz=sm_max_mhz,
        throttle_bits=_number(handle, THROTTLE_BITS),
        foreign_pids=_foreign_pids(handle, own_pids),
    )


def _foreign_pids(handle: object, own_pids: frozenset[int]) -> frozenset[int] | None:
    """Processes that compute on the GPU and are not ours."""
    import pynvml

    # by its version: the name without one raises, where the driver lacks it, an error that is no
    # NVMLError
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except pynvml.NVMLError:
        return None
    return frozenset(process.pid for process in processes) - own_pids - _NO_PIDS


def _number(handle: object, functions: Sequence[str], *args: int) -> int | None:
    """The result of the first of NVML's functions that does not fail; None if this binding, driver
    or GPU has none of them.
    """
    import pynvml

    for function in functions:
        call = getattr(pynvml, function, None)
        try:
            if call is not None:
                return int(call(handle, *args))
        except pynvml.NVMLError:
            continue
    return None
