"""What NVML reports about GPUs, links and pairs, call by call: a call that the driver, the binding
or the GPU lacks gives None and a reason.

Numbers of NVML are stored as they come. Source: NVML API reference 13; nvml.h for the field ids'
scopes and units.
"""

from collections.abc import Sequence
from ctypes import byref
from pathlib import Path
from typing import Any

from collbench.machine import gpus
from collbench.machine.discovery import _sysfs
from collbench.machine.discovery._sysfs import ValueReader
from collbench.machine.discovery.recording import (
    C2c,
    Fabric,
    GpuCondition,
    GpuRecord,
    NvLink,
    PairRecord,
)
from collbench.machine.gpus import as_sysfs
from collbench.machine.topology.model import spans

_MAX_GPU_LINKS = 64  # no GPU has so many; NVML says which is the last one
_AFFINITY_MASKS = 64  # of 64 CPUs each
# Literals: NVML_P2P_CAPS_INDEX_READ of the binding is a tuple, in all versions that we looked at.
_P2P_CAPS = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
# NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT
_ERROR_COUNTERS = {"replay": 0, "recovery": 1, "crc": 2}
# NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC, NVLINK_GET_SPEED, _STATE, _VERSION: of a
# link, which is their scope.
_LINK_FIELD_IDS = {
    "replay": 161,
    "recovery": 162,
    "crc": 163,
    "speed_mbps": 164,
    "state": 165,
    "field_version": 166,
}
_COMMON_SPEED, _LINK_COUNT = 90, 91
_RECOVERY_ACTION = "GET_GPU_RECOVERY_ACTION"  # NVML_FI_DEV_...
# NVML_FI_DEV_...: what rises when a PCIe link or the memory fails.
_GPU_COUNTERS = (
    "PCIE_REPLAY_COUNTER",
    "PCIE_COUNT_CORRECTABLE_ERRORS",
    "PCIE_COUNT_NAKS_RECEIVED",
    "PCIE_COUNT_NAKS_SENT",
    "PCIE_COUNT_RECEIVER_ERROR",
    "PCIE_COUNT_BAD_TLP",
    "PCIE_COUNT_BAD_DLLP",
    "PCIE_COUNT_NON_FATAL_ERROR",
    "PCIE_COUNT_FATAL_ERROR",
    "PCIE_COUNT_LCRC_ERROR",
    "PCIE_COUNT_LANE_ERROR",
    "ECC_SBE_VOL_TOTAL",
    "ECC_DBE_VOL_TOTAL",
)
_C2C_COUNT, _C2C_STATUS, _C2C_MAX_MBPS = 170, 171, 172
# members of nvmlValue_t, by value type
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def reader() -> ValueReader:
    """A reader for NVML's calls."""
    import pynvml

    # ValueError: what ctypes and decoding raise for a malformed result
    return ValueReader(pynvml.NVMLError, ValueError)


def call(function: str, *args: object) -> Any:  # Any: pynvml has no types
    """Call a function of NVML. Raises NVMLError, or ValueError if the binding lacks it."""
    import pynvml

    member = getattr(pynvml, function, None)
    if member is None:
        raise ValueError(f"this nvidia-ml-py has no {function}")
    return member(*args)


def handles() -> dict[int, object]:
    """NVML's handles of all GPUs by number; for one that NVML refuses, the reason as text."""
    values = reader()
    by_number: dict[int, object] = {}
    for index in range(values.read("count", call, "nvmlDeviceGetCount") or 0):
        handle = values.read(str(index), call, "nvmlDeviceGetHandleByIndex", index)
        by_number[index] = values.unknown[str(index)] if handle is None else handle
    return by_number


def gpu(index: int, handle: object, root: Path, *, has_condition: bool = False) -> GpuRecord:
    """One GPU; handle: NVML's, or the reason why there is none. has_condition: how it is
    now, too.
    """
    if isinstance(handle, str):
        return GpuRecord(index=index, unknown={"handle": handle})
    values = reader()

    def value(name: str, function: str, *args: int) -> Any:  # Any: as call()
        return values.read(name, call, function, handle, *args)

    capability = value("arch", "nvmlDeviceGetCudaComputeCapability")
    mig = value("has_mig", "nvmlDeviceGetMigMode")
    affinity = value("cpu_affinity", "nvmlDeviceGetCpuAffinity", _AFFINITY_MASKS)
    fields = fields_of(handle, [(_LINK_COUNT, None), (_COMMON_SPEED, None), (_C2C_COUNT, None)])
    count, speed, c2c = _numbers(values, ("link_count", "common_speed_mbps", "c2c"), fields)
    return GpuRecord(
        index=index,
        uuid=value("uuid", "nvmlDeviceGetUUID"),
        name=value("name", "nvmlDeviceGetName"),
        address=values.read("address", _address, "nvmlDeviceGetPciInfo", handle),
        arch=None if capability is None else capability[0] * 10 + capability[1],
        has_mig=None if mig is None else bool(mig[0]),
        pcie_generation=value("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_width=value("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_max_generation=value("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_max_width=value("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
        gpu_max_pcie_generation=value(
            "gpu_max_pcie_generation", "nvmlDeviceGetGpuMaxPcieLinkGeneration"
        ),
        cpu_affinity=(
            None
            if affinity is None
            else spans(k for k in range(64 * _AFFINITY_MASKS) if affinity[k // 64] >> k % 64 & 1)
        ),
        numa_node=value("numa_node", "nvmlDeviceGetNumaNodeId"),
        link_count=count,
        common_speed_mbps=speed,
        links=_links(handle, count, root, values),
        c2c=_c2c(handle, c2c or 0),
        fabric=values.read("fabric", _fabric, handle),
        condition=condition(handle) if has_condition else None,
        unknown=values.unknown,
    )


def condition(handle: object) -> GpuCondition:
    """How a GPU is set up and what it does now."""
    import pynvml

    values = reader()

    def value(name: str, function: str, *args: int) -> Any:  # Any: as call()
        return values.read(name, call, function, handle, *args)

    bits = next(
        (one for name in gpus.THROTTLE_BITS if (one := value("throttle_bits", name)) is not None),
        None,
    )
    ecc, rows = value("ecc", "nvmlDeviceGetEccMode"), value("remap", "nvmlDeviceGetRemappedRows")
    memory = value("memory_bytes", "nvmlDeviceGetMemoryInfo")
    bar1 = value("bar1_bytes", "nvmlDeviceGetBAR1MemoryInfo")
    processes = value("pids", "nvmlDeviceGetComputeRunningProcesses_v3")
    ids = {
        name: getattr(pynvml, f"NVML_FI_DEV_{name}", None)
        for name in (*_GPU_COUNTERS, _RECOVERY_ACTION)
    }
    known = {name: id_ for name, id_ in ids.items() if isinstance(id_, int)}
    numbers = dict(
        zip(known, fields_of(handle, [(id_, None) for id_ in known.values()]), strict=True)
    )
    recovery = numbers.pop(_RECOVERY_ACTION, "this nvidia-ml-py does not know it")
    return GpuCondition(
        persistence=value("persistence", "nvmlDeviceGetPersistenceMode"),
        compute_mode=value("compute_mode", "nvmlDeviceGetComputeMode"),
        performance_state=value("performance_state", "nvmlDeviceGetPerformanceState"),
        throttle_bits=bits,
        sm_mhz=value("sm_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        sm_max_mhz=value("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
        app_sm_mhz=value("app_sm_mhz", "nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_SM),
        app_default_sm_mhz=value(
            "app_default_sm_mhz", "nvmlDeviceGetDefaultApplicationsClock", pynvml.NVML_CLOCK_SM
        ),
        memory_mhz=value("memory_mhz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
        memory_max_mhz=value("memory_max_mhz", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
        power_mw=value("power_mw", "nvmlDeviceGetPowerUsage"),
        power_limit_mw=value("power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit"),
        power_default_mw=value("power_default_mw", "nvmlDeviceGetPowerManagementDefaultLimit"),
        temperature_c=value(
            "temperature_c", "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU
        ),
        slowdown_c=value(
            "slowdown_c",
            "nvmlDeviceGetTemperatureThreshold",
            pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        ),
        ecc=None if ecc is None else ecc[0],
        ecc_pending=None if ecc is None else ecc[1],
        ecc_corrected=value("ecc_corrected", "nvmlDeviceGetTotalEccErrors", 0, 0),
        ecc_uncorrected=value("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", 1, 0),
        remap_pending=None if rows is None else rows[2],
        remap_failed=None if rows is None else rows[3],
        retired_pending=value("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus"),
        recovery_action=_numbers(values, ("recovery_action",), [recovery])[0],
        memory_bytes=None if memory is None else memory.total,
        bar1_bytes=None if bar1 is None else bar1.bar1Total,
        virtualization=value("virtualization", "nvmlDeviceGetVirtualizationMode"),
        vbios=value("vbios", "nvmlDeviceGetVbiosVersion"),
        pids=None if processes is None else tuple(one.pid for one in processes),
        counters={name.lower(): one for name, one in numbers.items() if not isinstance(one, str)},
        unknown=values.unknown,
    )


def pair(a: int, b: int, first: object, second: object) -> PairRecord:
    """What NVML reports of a GPU and another, from the first one's side."""
    values = reader()
    ancestor = values.read("ancestor", call, "nvmlDeviceGetTopologyCommonAncestor", first, second)
    status = {
        name: values.read(name, call, "nvmlDeviceGetP2PStatus", first, second, code)
        for name, code in _P2P_CAPS.items()
    }
    return PairRecord(a=a, b=b, ancestor=ancestor, **status, unknown=values.unknown)


def link_count(handle: object) -> int:
    """The NVLinks of a GPU: as many as NVML reports, or as answer."""
    (count,) = fields_of(handle, [(_LINK_COUNT, None)])
    known = None if isinstance(count, str) else count
    return len(_numbers_of_links(handle, known, reader()))


def _links(
    handle: object, count: int | None, root: Path, gpu_values: ValueReader
) -> tuple[NvLink, ...]:
    """All links up to the number that NVML reports, or up to the first that does not exist."""
    links = _numbers_of_links(handle, count, gpu_values)
    fields = fields_of(handle, [(id_, link) for link in links for id_ in _LINK_FIELD_IDS.values()])
    width = len(_LINK_FIELD_IDS)
    return tuple(
        _link(handle, link, fields[place * width : (place + 1) * width], root)
        for place, link in enumerate(links)
    )


def _numbers_of_links(handle: object, count: int | None, gpu_values: ValueReader) -> list[int]:
    """The links up to the number that NVML reports, or up to the first that does not exist."""
    import pynvml

    links: list[int] = []
    past_the_end = (
        pynvml.NVMLError_InvalidArgument,
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
    )
    for link in range(_MAX_GPU_LINKS if count is None else min(count, _MAX_GPU_LINKS)):
        try:
            call("nvmlDeviceGetNvLinkState", handle, link)
        except past_the_end as error:
            if count is None:  # with a count the link exists, and only this call is not supported
                gpu_values.unknown.setdefault("links", f"link {link}: {error}")
                break
        except pynvml.NVMLError:
            pass
        links.append(link)
    return links


def _link(handle: object, link: int, fields: Sequence[int | str], root: Path) -> NvLink:
    import pynvml

    values = reader()

    def value(name: str, function: str, *args: int) -> Any:  # Any: as call()
        return values.read(name, call, function, handle, link, *args)

    numbers = dict(
        zip(_LINK_FIELD_IDS, _numbers(values, tuple(_LINK_FIELD_IDS), fields), strict=True)
    )
    for name, counter in _ERROR_COUNTERS.items():
        if numbers[name] is None:
            numbers[name] = value(name, "nvmlDeviceGetNvLinkErrorCounter", counter)
            if numbers[name] is not None:
                values.unknown.pop(name, None)
    is_active = value("is_active", "nvmlDeviceGetNvLinkState")
    can_p2p = value(
        "can_p2p", "nvmlDeviceGetNvLinkCapability", pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED
    )
    remote = values.read(
        "remote_address", _address, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link
    )
    return NvLink(
        number=link,
        is_active=None if is_active is None else bool(is_active),
        nvml_version=value("nvml_version", "nvmlDeviceGetNvLinkVersion"),
        can_p2p=None if can_p2p is None else bool(can_p2p),
        remote_type=value("remote_type", "nvmlDeviceGetNvLinkRemoteDeviceType"),
        remote_address=remote,
        remote_class=None if remote is None else _sysfs.pci_class(root, remote),
        **numbers,
        unknown=values.unknown,
    )


def _address(function: str, *args: object) -> str:
    """The PCI address that a function of NVML reports, as sysfs spells it."""
    return as_sysfs(call(function, *args).busId)


def _c2c(handle: object, count: int) -> tuple[C2c, ...]:
    links = []
    for link in range(min(count, _MAX_GPU_LINKS)):
        values = reader()
        fields = fields_of(handle, [(_C2C_STATUS, link), (_C2C_MAX_MBPS, link)])
        status, speed = _numbers(values, ("status", "max_mbps"), fields)
        links.append(C2c(number=link, status=status, max_mbps=speed, unknown=values.unknown))
    return tuple(links)


def _numbers(
    values: ValueReader, names: Sequence[str], fields: Sequence[int | str]
) -> list[int | None]:
    """The values of fields; None, with the reason kept, for one that is text."""
    reasons = {name: one for name, one in zip(names, fields, strict=True) if isinstance(one, str)}
    values.unknown |= reasons
    return [None if isinstance(one, str) else one for one in fields]


def fields_of(handle: object, requests: Sequence[tuple[int, int | None]]) -> list[int | str]:
    """The values of fields, each of a link or of the GPU; a reason where one is missing."""
    import pynvml

    if not requests:
        return []
    ids = [field if scope is None else (field, scope) for field, scope in requests]
    reply = reader()
    structures = reply.read("fields", call, "nvmlDeviceGetFieldValues", handle, ids)
    if structures is None:
        return [reply.unknown["fields"]] * len(requests)
    values: list[int | str] = []
    for one in structures:
        if one.nvmlReturn != 0:
            values.append(str(pynvml.NVMLError(one.nvmlReturn)))
        elif not 0 <= one.valueType < len(_VALUE_MEMBERS):
            values.append(f"a value of type {one.valueType}")
        else:
            values.append(int(getattr(one.value, _VALUE_MEMBERS[one.valueType])))
    return values


def _fabric(handle: object) -> Fabric:
    """The fabric, by the newest structure that binding and driver share. Raises NVMLError."""
    import pynvml

    values = reader()
    for function, name in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        structure = getattr(pynvml, name, None)
        if structure is None:
            continue
        fabric = structure()
        if values.read(name, call, function, handle, byref(fabric)) is not None:
            return Fabric(
                state=fabric.state,
                status=fabric.status,
                cluster=bytes(fabric.clusterUuid).hex(),
                clique=fabric.cliqueId,
                health_mask=getattr(fabric, "healthMask", None),
            )
    raise ValueError(next(iter(values.unknown.values()), "this nvidia-ml-py has no form of it"))
