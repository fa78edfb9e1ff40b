"""NVLinks that are down, slow or switched off."""

from dataclasses import replace
from typing import Any

from collbench.machine.discovery import Recording
from tests.support.evidence import machine, planted, with_gpu, with_system


def with_links(recording: Recording, index: int, *numbers: int, **values: Any) -> Recording:
    """A recording with values of some NVLinks of a GPU changed; of all, if none is named."""
    links = tuple(
        replace(one, **values) if not numbers or one.number in numbers else one
        for one in recording.gpus[index].links
    )
    return with_gpu(recording, index, links=links)


def without_links(recording: Recording) -> Recording:
    """All NVLinks are gone, as with NvLinkDisable."""
    for index in range(len(recording.gpus)):
        recording = with_gpu(recording, index, links=(), link_count=None)
    return replace(recording, pairs=tuple(replace(one, nvlink=5) for one in recording.pairs))


PLANTS = [
    planted(
        "two of eighteen are down",
        with_links(machine("hgx_h100"), 3, 4, 7, state=0, is_active=False),
    ).finds(
        "GPU 3", "16 of its NVLinks are up, where others of its kind have 18 (down: 4,7)", "fault"
    ),
    planted("a GPU without any", with_links(machine("dgx_a100"), 6, is_active=False)).finds(
        "GPU 6", "no NVLink that is up, where others of its kind have 12", "fault"
    ),
    planted(
        "a card without a bridge",
        with_gpu(
            replace(
                machine("hgx_h100"),
                gpus=tuple(
                    replace(
                        one,
                        name="NVIDIA A40",
                        arch=86,
                        fabric=None,
                        links=tuple(
                            replace(link, remote_type=0, remote_address="0000:10:00.0")
                            for link in one.links[:4]
                        ),
                    )
                    for one in machine("hgx_h100").gpus
                ),
            ),
            5,
            links=(),
        ),
    ).finds("GPU 5", "no NVLink that is up, where others of its kind have 4"),
    planted(
        "missing", with_gpu(machine("dgx1v"), 1, links=machine("dgx1v").gpus[1].links[:5])
    ).finds("GPU 1", "5 of its NVLinks are up, where others of its kind have 6", "fault"),
    planted("slower", with_links(machine("h200_vm"), 2, 9, speed_mbps=13281)).finds(
        "GPU 2", "NVLink 9 at 13.281 GB/s, where others of its kind run at 26.562 GB/s", "fault"
    ),
    planted(
        "switched off by the driver",
        with_system(without_links(machine("h200_vm")), driver_parameters={"NvLinkDisable": "1"}),
    ).finds("GPUs 0-3", "NvLinkDisable is 1", "fault"),
    planted("none is up", without_links(machine("hgx_h100"))).finds(
        "GPUs 0-7", "none of their NVLinks is up, which all boards", "fault"
    ),
    planted(
        "fewer than on the other host",
        machine("hgx_h100", "node1"),
        with_links(machine("hgx_h100", "node2"), 0, 17, state=0, is_active=False),
    ).finds("GPU 0 of node2", "17 of its NVLinks are up", "fault"),
]
