"""GPUs that the driver does not show."""

from dataclasses import replace

from collbench.machine.discovery import Recording
from collbench.machine.discovery.recording import GpuRecord
from tests.support.evidence import machine, planted


def refused(recording: Recording, index: int, reason: str) -> Recording:
    """A GPU that NVML lists, and gives no handle of."""
    gpus = list(recording.gpus)
    gpus[index] = GpuRecord(index=index, unknown={"handle": reason})
    pairs = tuple(one for one in recording.pairs if index not in (one.a, one.b))
    shown = tuple(one for one in recording.cuda or () if one != index)
    return replace(recording, gpus=tuple(gpus), pairs=pairs, cuda=shown)


HGX = machine("hgx_h100")
NONE = replace(HGX, gpus=(), pairs=(), cuda=None)
PLANTS = [
    planted("lost", refused(HGX, 5, "GPU is lost")).finds(
        "GPU 5", "refuses it: GPU is lost", "fault"
    ),
    planted("not for this user", refused(HGX, 5, "Insufficient Permissions")).finds(
        "GPU 5", "refuses it: Insufficient Permissions"
    ),
    planted("mismatch", replace(NONE, unknown={"gpus": "Driver/library version mismatch"})).finds(
        "this host", "the driver does not start: Driver/library version mismatch", "fault"
    ),
    planted("no driver", replace(NONE, has_driver=False)).finds(
        "this host", "8 NVIDIA GPUs are on the PCI bus, and no driver was found"
    ),
    planted(
        "a part in a container",
        replace(
            HGX,
            gpus=HGX.gpus[:7],
            cuda=tuple(range(7)),
            pairs=tuple(one for one in HGX.pairs if 7 not in (one.a, one.b)),
        ),
    ).finds("this host", "GPUs 0-6 of 8 on the PCI bus are shown, without 0000:83:00.0", "remark"),
]
