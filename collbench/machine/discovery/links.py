"""NVLinks one by one, as topo --links shows them."""

from dataclasses import dataclass

from collbench.machine.discovery import _nvlinks
from collbench.machine.discovery.recording import GpuRecord, Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One NVLink; gpu: CUDA's number. None: no source gives it; speed_gbs: as NVML reports it, line
    code included, per direction.
    """

    gpu: int
    link: int
    is_active: bool | None
    version: str | None
    generation: int | None
    remote: str | None
    speed_gbs: float | None
    replay: int | None
    recovery: int | None
    crc: int | None


def links_table(recording: Recording) -> list[LinkRow]:
    """All NVLinks of the GPUs that CUDA shows, in CUDA's order; of all GPUs if that is unknown."""
    shown = recording.shown_gpus
    names = {gpu.address or "": f"GPU {number}" for number, gpu in enumerate(shown)}
    names |= {_nvlinks.FAR_SWITCH: "NVSwitch", _nvlinks.FAR_CPU: "CPU"}
    rows = []
    for number, gpu in enumerate(shown):
        for link in gpu.links:
            end = _nvlinks.far_end(link, recording)
            speed = _nvlinks.speed_mbps(gpu, link)
            rows.append(
                LinkRow(
                    gpu=number,
                    link=link.number,
                    is_active=_nvlinks.is_up(link, gpu.arch),
                    version=_nvlinks.VERSIONS.get(_nvlinks.version_of(link) or 0, (None, 0))[0],
                    generation=_nvlinks.generation(gpu, link) or None,
                    remote=names.get(end, end) or None,
                    speed_gbs=None if speed is None else speed / 1000,
                    replay=link.replay,
                    recovery=link.recovery,
                    crc=link.crc,
                )
            )
    return rows


def states(gpu: GpuRecord) -> dict[int, bool | None]:
    """Whether each NVLink of a GPU is up, by number; None: NVML does not report it."""
    return {link.number: _nvlinks.is_up(link, gpu.arch) for link in gpu.links}


def speeds_gbs(gpu: GpuRecord) -> dict[int, float]:
    """The speed of each NVLink that is up and whose speed NVML reports, as it reports it."""
    return {
        link.number: speed / 1000
        for link in gpu.links
        if _nvlinks.is_up(link, gpu.arch) and (speed := _nvlinks.speed_mbps(gpu, link))
    }


def has_switch(recording: Recording) -> bool:
    """Whether an NVLink of the host leads to an NVSwitch, shown or hidden."""
    return any(
        _nvlinks.far_end(link, recording) == _nvlinks.FAR_SWITCH
        for gpu in recording.gpus
        for link in gpu.links
    )
