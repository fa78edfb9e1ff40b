"""NVLinks of a recording: which are up, what is at the far end, bundled by neighbour; and which are
down that should not be.

The generation follows from the compute capability, else from NVML's version code: NVML's version is
a code of its own (6 is NVLink 4.0).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from collbench.machine.discovery.recording import GpuRecord, NvLink, Recording
from collbench.machine.topology.model import Link
from collbench.machine.topology.rates import nvlink_generation, nvlink_link

# nvml.h, nvmlNvlinkVersion_enum: code -> (as NVIDIA writes it, generation)
VERSIONS = {
    1: ("1.0", 1),
    2: ("2.0", 2),
    3: ("2.2", 2),
    4: ("3.0", 3),
    5: ("3.1", 3),
    6: ("4.0", 4),
    7: ("5.0", 5),
    8: ("6.0", 6),
}
FAR_SWITCH, FAR_CPU = "switch", "processor"  # far ends that are no GPU's address
_GPU, _NPU, _SWITCH = 0, 1, 2  # NVML_NVLINK_DEVICE_TYPE_GPU, _IBMNPU, _SWITCH
_ARCH_BY_FIELDS = 90  # from Hopper on the state of a link is a field value
# The tolerance between NVML's speed and the table of rates: NVML's includes the line code (26.562
# for 25 GB/s). Beyond, it is another kind of link (A40's).
_TOLERANCE = 0.15


@dataclass(slots=True, kw_only=True)
class Bundle:
    """Links of a GPU to one neighbour that are up; down: numbers of those that are not."""

    up: list[NvLink] = field(default_factory=list)
    down: list[int] = field(default_factory=list)


def is_up(link: NvLink, arch: int | None) -> bool | None:
    """Whether a link is active; None if NVML does not report it."""
    by_field = None if link.state is None else link.state == 1
    first, second = (
        (by_field, link.is_active) if (arch or 0) >= _ARCH_BY_FIELDS else (link.is_active, by_field)
    )
    return second if first is None else first


def generation(gpu: GpuRecord, link: NvLink | None = None) -> int:
    """The generation of a GPU's NVLinks; 0: unknown."""
    of_arch = nvlink_generation(gpu.arch or 0)
    return of_arch or (VERSIONS.get(version_of(link) or 0, ("", 0))[1] if link is not None else 0)


def version_of(link: NvLink) -> int | None:
    """NVML's version code."""
    return link.nvml_version if link.nvml_version is not None else link.field_version


def far_end(link: NvLink, recording: Recording) -> str:
    """What a link leads to: a GPU's address, FAR_SWITCH, FAR_CPU, or empty if NVML does not report
    it.

    An address that no machine has (all ones, as in virtual machines) is taken for a hidden switch,
    as NCCL does.
    """
    address, class_ = link.remote_address or "", link.remote_class or ""
    if link.remote_type == _SWITCH:
        return FAR_SWITCH
    if link.remote_type == _NPU:
        return FAR_CPU
    is_gpu = link.remote_type == _GPU or any(one.address == address for one in recording.gpus)
    if is_gpu and address:
        return address
    if class_.startswith("0x0680"):  # a bridge of no other kind: NVSwitches
        return FAR_SWITCH
    if class_.startswith("0x0604"):  # the CPU's side on POWER
        return FAR_CPU
    if class_.startswith("0x03"):
        return address
    is_hidden = address.startswith("ffff") and address.rpartition(":")[0].endswith(":ff")
    return FAR_SWITCH if is_hidden else ""


def bundles(gpu: GpuRecord, recording: Recording) -> dict[str, Bundle]:
    """Links of a GPU by their far ends; links without a known far end have the empty name."""
    by_far_end: dict[str, Bundle] = {}
    for link in gpu.links:
        bundle = by_far_end.setdefault(far_end(link, recording), Bundle())
        if is_up(link, gpu.arch) and link.can_p2p is not False:
            bundle.up.append(link)
        elif is_up(link, gpu.arch) is False:
            bundle.down.append(link.number)
    return by_far_end


def dead(gpu: GpuRecord, recording: Recording) -> list[int]:
    """Links that are down here but up on another GPU of that name, if this GPU uses NVLink."""
    if not any(is_up(link, gpu.arch) for link in gpu.links):
        return []
    elsewhere = {
        link.number
        for one in recording.gpus
        if one.name == gpu.name
        for link in one.links
        if is_up(link, one.arch)
    }
    return [
        link.number
        for link in gpu.links
        if is_up(link, gpu.arch) is False and link.number in elsewhere
    ]


def bundle_link(a: str, b: str, gpu: GpuRecord, links: Sequence[NvLink], note: str = "") -> Link:
    """A bundle as a link of the graph. Its rates are scaled where NVML reports another speed than
    the generation has.
    """
    of_all = generation(gpu, links[0] if links else None)
    bundle = nvlink_link(a, b, of_all, len(links), note, arch=gpu.arch or 0)
    speeds = [speed for speed in (speed_mbps(gpu, link) for link in links) if speed and speed > 0]
    if bundle.raw_gbs is None or not speeds:
        return bundle
    raw, usable = bundle.raw_gbs, bundle.usable_gbs or 0.0
    share = min(speeds) / 1000 * len(links) / raw
    if abs(share - 1) <= _TOLERANCE:
        return bundle
    source = f"NVML: {min(speeds) / 1000:g} GB/s a link; {bundle.source}"
    return replace(bundle, raw_gbs=raw * share, usable_gbs=usable * share, source=source)


def speed_mbps(gpu: GpuRecord, link: NvLink) -> int | None:
    """The speed of a link, or that of all links of the GPU, as NVML reports it."""
    return link.speed_mbps if link.speed_mbps is not None else gpu.common_speed_mbps
