"""NVLink fabrics that are incomplete, unhealthy or divided."""

from dataclasses import replace
from typing import Any

from collbench.machine.discovery import Recording
from tests.support.evidence import machine, planted, with_gpu, with_system


def with_fabric(recording: Recording, *indices: int, **values: Any) -> Recording:
    """A recording with values of the fabric of some GPUs changed; of all, if none is named."""
    for index in indices or range(len(recording.gpus)):
        fabric = recording.gpus[index].fabric
        assert fabric is not None
        recording = with_gpu(recording, index, fabric=replace(fabric, **values))
    return recording


def tray(name: str, clique: int = 1, channels: int = 2048) -> Recording:
    """A host of a rack."""
    recording = with_fabric(machine("hgx_h100", name), cluster="5a" * 16, clique=clique)
    return with_system(recording, imex_channels=channels, has_fabric_manager=False)


def without_manager(name: str) -> Recording:
    """A host that is not virtual, and whose fabric manager does not run."""
    return with_system(machine(name), has_fabric_manager=False)


PLANTS = [
    planted("never registered", with_fabric(machine("hgx_h100"), state=1)).finds(
        "GPUs 0-7", "registration with the NVLink fabric is not started", "fault"
    ),
    planted("one is still registering", with_fabric(machine("hgx_h100"), 5, state=2)).finds(
        "GPU 5", "in progress", "fault"
    ),
    planted("registration failed", with_fabric(machine("h200_vm"), 1, status=999)).finds(
        "GPU 1", "failed: NVML error 999", "fault"
    ),
    *(
        planted(words, with_fabric(machine("h200_vm"), 3, health_mask=mask)).finds(
            "GPU 3", words, severity
        )
        for mask, words, severity in (
            (0x01, "DEGRADED_BW", "fault"),
            (0x06, "ROUTE_RECOVERY", "fault"),
            (0x1A, "ROUTE_UNHEALTHY", "fault"),
            (0x6A, "ACCESS_TIMEOUT_RECOVERY", "fault"),
            (0x5AA, "too few NVLinks", "fault"),
            (0x21AA, "PARTITION_ASSIGNED", "risk"),
            (0x91AA, "GFM_STATE", "risk"),
        )
    ),
    planted("two partitions", with_fabric(machine("hgx_h100"), 6, 7, clique=9)).finds(
        "GPUs 6-7", "in clique 9"
    ),
    planted("no fabric manager on Ampere", without_manager("dgx_a100")).finds(
        "this host", "no fabric manager runs", "fault"
    ),
    planted("the fabric manager ended", without_manager("hgx_h100")).finds(
        "this host", "no fabric manager runs, though the GPUs registered with one"
    ),
    planted(
        "no IMEX channel on one of three", tray("tray1"), tray("tray2", channels=0), tray("tray3")
    ).finds("tray2", "no IMEX channel", "fault"),
    planted(
        "another clique on one of three", tray("tray1"), tray("tray2"), tray("tray3", clique=2)
    ).finds("tray3", "in clique 2"),
]
