"""NVLinks that are down, slow or switched off."""

from dataclasses import replace
from typing import Any

from collbench.machine.discovery import Recording
from tests.support.evidence import Plant, evidence, machine, with_gpu, with_system


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
    Plant(
        name="two of eighteen are down",
        evidence=evidence(with_links(machine("hgx_h100"), 3, 4, 7, state=0, is_active=False)),
        subject="GPU 3",
        words="16 of its NVLinks are up, where others of its kind have 18 (down: 4,7)",
        severity="fault",
    ),
    Plant(
        name="a GPU without any",
        evidence=evidence(with_links(machine("dgx_a100"), 6, is_active=False)),
        subject="GPU 6",
        words="no NVLink that is up, where others of its kind have 12",
        severity="fault",
    ),
    Plant(
        name="a card without a bridge",
        evidence=evidence(
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
            )
        ),
        subject="GPU 5",
        words="no NVLink that is up, where others of its kind have 4",
    ),
    Plant(
        name="missing",
        evidence=evidence(with_gpu(machine("dgx1v"), 1, links=machine("dgx1v").gpus[1].links[:5])),
        subject="GPU 1",
        words="5 of its NVLinks are up, where others of its kind have 6",
        severity="fault",
    ),
    Plant(
        name="slower",
        evidence=evidence(with_links(machine("h200_vm"), 2, 9, speed_mbps=13281)),
        subject="GPU 2",
        words="NVLink 9 at 13.281 GB/s, where others of its kind run at 26.562 GB/s",
        severity="fault",
    ),
    Plant(
        name="switched off by the driver",
        evidence=evidence(
            with_system(without_links(machine("h200_vm")), driver_parameters={"NvLinkDisable": "1"})
        ),
        subject="GPUs 0-3",
        words="NvLinkDisable is 1",
        severity="fault",
    ),
    Plant(
        name="none is up",
        evidence=evidence(without_links(machine("hgx_h100"))),
        subject="GPUs 0-7",
        words="none of their NVLinks is up, which all boards",
        severity="fault",
    ),
    Plant(
        name="fewer than on the other host",
        evidence=evidence(
            machine("hgx_h100", "node1"),
            with_links(machine("hgx_h100", "node2"), 0, 17, state=0, is_active=False),
        ),
        subject="GPU 0 of node2",
        words="17 of its NVLinks are up",
        severity="fault",
    ),
]
