"""What NVML reports about GPUs, links and pairs, call by call: a call that the driver, the binding
or the GPU lacks gives None and a reason.

Numbers of NVML are stored as they come. Source: NVML API reference 13; nvml.h for the field ids'
scopes and units.
"""

from collections.abc import Callable, Sequence
from ctypes import byref
from pathlib import Path
from typing import Any

from collbench.machine.discovery import _sysfs
from collbench.machine.discovery._ask import Asker
from collbench.machine.discovery.recording import C2c, Fabric, GpuRecord, NvLink, PairRecord
from collbench.machine.gpus import as_sysfs
from collbench.machine.topology.model import spans

_MOST_LINKS = 64  # no GPU has so many; NVML says where the last one is
_AFFINITY_WORDS = 64  # of 64 CPUs each
# Literals: NVML_P2P_CAPS_INDEX_READ of the binding is a tuple, in all versions looked at.
_P2P_CODES = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
# NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT
_ERROR_COUNTERS = {"replay": 0, "recovery": 1, "crc": 2}
# Field ids: NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC, NVLINK_GET_SPEED, _STATE,
# _VERSION: of a link, which is their scope.
_LINK_FIELDS = {
    "replay": 161,
    "recovery": 162,
    "crc": 163,
    "speed_mbps": 164,
    "state": 165,
    "field_version": 166,
}
_COMMON_SPEED, _LINK_COUNT = 90, 91
_C2C_COUNT, _C2C_STATUS, _C2C_MAX_MBPS = 170, 171, 172
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by value type


def asker() -> Asker:
    """For NVML's calls."""
    import pynvml

    # ValueError: what ctypes and decoding make of an answer that is none
    return Asker((pynvml.NVMLError, ValueError))


def call(function: str, *args: Any) -> Any:
    """A function of NVML. Raises NVMLError, also if the binding lacks it."""
    import pynvml

    known = getattr(pynvml, function, None)
    if known is None:
        raise ValueError(f"this nvidia-ml-py has no {function}")
    return known(*args)


def handles() -> dict[int, Any]:
    """NVML's handles of all GPUs by number; one that it refuses is the reason, as text."""
    asked = asker()
    devices: dict[int, Any] = {}
    for index in range(asked.ask("count", call, "nvmlDeviceGetCount") or 0):
        handle = asked.ask(str(index), call, "nvmlDeviceGetHandleByIndex", index)
        devices[index] = asked.unknown[str(index)] if handle is None else handle
    return devices


def gpu(index: int, handle: Any, root: Path) -> GpuRecord:
    """One GPU; handle: NVML's, or why there is none."""
    if isinstance(handle, str):
        return GpuRecord(index=index, unknown={"handle": handle})
    asked = asker()

    def tell(name: str, function: str, *args: Any) -> Any:
        return asked.ask(name, call, function, handle, *args)

    capability = tell("arch", "nvmlDeviceGetCudaComputeCapability")
    mig = tell("has_mig", "nvmlDeviceGetMigMode")
    affinity = tell("cpu_affinity", "nvmlDeviceGetCpuAffinity", _AFFINITY_WORDS)
    fields = _fields(handle, [(_LINK_COUNT, None), (_COMMON_SPEED, None), (_C2C_COUNT, None)])
    count, speed, c2c = (
        _answer(asked, name, value)
        for name, value in zip(("link_count", "common_speed_mbps", "c2c"), fields, strict=True)
    )
    return GpuRecord(
        index=index,
        uuid=tell("uuid", "nvmlDeviceGetUUID"),
        name=tell("name", "nvmlDeviceGetName"),
        address=asked.ask("address", lambda: as_sysfs(call("nvmlDeviceGetPciInfo", handle).busId)),
        arch=None if capability is None else capability[0] * 10 + capability[1],
        has_mig=None if mig is None else bool(mig[0]),
        pcie_generation=tell("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_width=tell("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_max_generation=tell("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_max_width=tell("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth"),
        gpu_max_pcie_generation=tell(
            "gpu_max_pcie_generation", "nvmlDeviceGetGpuMaxPcieLinkGeneration"
        ),
        cpu_affinity=(
            None
            if affinity is None
            else spans(k for k in range(64 * _AFFINITY_WORDS) if affinity[k // 64] >> k % 64 & 1)
        ),
        numa_node=tell("numa_node", "nvmlDeviceGetNumaNodeId"),
        link_count=count,
        common_speed_mbps=speed,
        links=_links(handle, count, root, asked),
        c2c=_c2c(handle, c2c or 0),
        fabric=asked.ask("fabric", _fabric, handle),
        unknown=asked.unknown,
    )


def pair(a: int, b: int, first: Any, second: Any) -> PairRecord:
    """What NVML says of a GPU and another, from the first one's side."""
    asked = asker()
    ancestor = asked.ask("ancestor", call, "nvmlDeviceGetTopologyCommonAncestor", first, second)
    status = {
        name: asked.ask(name, call, "nvmlDeviceGetP2PStatus", first, second, literal)
        for name, literal in _P2P_CODES.items()
    }
    return PairRecord(a=a, b=b, ancestor=ancestor, **status, unknown=asked.unknown)


def _links(handle: Any, count: int | None, root: Path, asked_of_gpu: Asker) -> tuple[NvLink, ...]:
    """All links up to the number that NVML reports, or up to the first that does not exist."""
    import pynvml

    numbers: list[int] = []
    past_the_end = (
        pynvml.NVMLError_InvalidArgument,
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
    )
    for link in range(_MOST_LINKS if count is None else min(count, _MOST_LINKS)):
        try:
            call("nvmlDeviceGetNvLinkState", handle, link)
        except past_the_end as error:
            if count is None:  # else it is this question that has no answer here, not the link
                asked_of_gpu.unknown.setdefault("links", f"link {link}: {error}")
                break
        except pynvml.NVMLError:
            pass
        numbers.append(link)
    answers = _fields(
        handle, [(field, link) for link in numbers for field in _LINK_FIELDS.values()]
    )
    width = len(_LINK_FIELDS)
    return tuple(
        _link(handle, link, answers[place * width : (place + 1) * width], root)
        for place, link in enumerate(numbers)
    )


def _link(handle: Any, link: int, answers: Sequence[int | str], root: Path) -> NvLink:
    import pynvml

    asked = asker()

    def tell(name: str, function: str, *args: int) -> Any:
        return asked.ask(name, call, function, handle, link, *args)

    values = {
        name: _answer(asked, name, value) for name, value in zip(_LINK_FIELDS, answers, strict=True)
    }
    for name, counter in _ERROR_COUNTERS.items():
        if values[name] is None:
            values[name] = tell(name, "nvmlDeviceGetNvLinkErrorCounter", counter)
            if values[name] is not None:
                asked.unknown.pop(name, None)
    is_active = tell("is_active", "nvmlDeviceGetNvLinkState")
    can_p2p = tell("can_p2p", "nvmlDeviceGetNvLinkCapability", pynvml.NVML_NVLINK_CAP_P2P_SUPPORTED)
    remote = asked.ask(
        "remote_address",
        lambda: as_sysfs(call("nvmlDeviceGetNvLinkRemotePciInfo", handle, link).busId),
    )
    return NvLink(
        number=link,
        is_active=None if is_active is None else bool(is_active),
        nvml_version=tell("nvml_version", "nvmlDeviceGetNvLinkVersion"),
        can_p2p=None if can_p2p is None else bool(can_p2p),
        remote_type=tell("remote_type", "nvmlDeviceGetNvLinkRemoteDeviceType"),
        remote_address=remote,
        remote_class=None if remote is None else _sysfs.pci_class(root, remote),
        **values,
        unknown=asked.unknown,
    )


def _c2c(handle: Any, count: int) -> tuple[C2c, ...]:
    links = []
    for link in range(min(count, _MOST_LINKS)):
        asked = asker()
        status, speed = _fields(handle, [(_C2C_STATUS, link), (_C2C_MAX_MBPS, link)])
        links.append(
            C2c(
                number=link,
                status=_answer(asked, "status", status),
                max_mbps=_answer(asked, "max_mbps", speed),
                unknown=asked.unknown,
            )
        )
    return tuple(links)


def _answer(asked: Asker, name: str, value: int | str) -> int | None:
    """A field's value; None, with the reason kept, if it is text."""
    if isinstance(value, str):
        asked.unknown[name] = value
        return None
    return value


def _fields(handle: Any, wanted: Sequence[tuple[int, int | None]]) -> list[int | str]:
    """Values of fields, with the link that each belongs to; a reason where a value is missing."""
    import pynvml

    if not wanted:
        return []
    asked = asker()
    values = asked.ask(
        "fields",
        call,
        "nvmlDeviceGetFieldValues",
        handle,
        [field if scope is None else (field, scope) for field, scope in wanted],
    )
    if values is None:
        return [asked.unknown["fields"]] * len(wanted)
    results: list[int | str] = []
    for value in values:
        if value.nvmlReturn != 0:
            results.append(str(pynvml.NVMLError(value.nvmlReturn)))
        elif not 0 <= value.valueType < len(_VALUES):
            results.append(f"a value of type {value.valueType}")
        else:
            results.append(int(getattr(value.value, _VALUES[value.valueType])))
    return results


def _fabric(handle: Any) -> Fabric:
    """The newest form of the answer that binding and driver share. Raises NVMLError or
    ValueError.
    """
    import pynvml

    forms = (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    )
    asked = asker()
    for function, form in forms:
        info: Callable[[], Any] | None = getattr(pynvml, form, None)
        if info is None:
            continue
        fabric = info()
        if asked.ask(form, call, function, handle, byref(fabric)) is not None:
            mask = getattr(fabric, "healthMask", None)
            return Fabric(
                state=fabric.state,
                status=fabric.status,
                cluster=bytes(fabric.clusterUuid).hex(),
                clique=fabric.cliqueId,
                health_mask=mask,
            )
    raise ValueError(next(iter(asked.unknown.values()), "this nvidia-ml-py has no form of it"))
