"""GPUs that are divided, closed or asleep, and ranks that share one."""

from collbench.machine.discovery import Recording
from tests.support.evidence import machine, planted, with_gpu, with_ranks


def with_all(recording: Recording, **values: object) -> Recording:
    """A recording with values of all GPUs changed."""
    for index in range(len(recording.gpus)):
        recording = with_gpu(recording, index, **values)
    return recording


PLANTS = [
    planted("one is divided", with_gpu(machine("dgx_a100"), 3, has_mig=True)).finds(
        "GPU 3", "divided (MIG is on), where others of this host are not", "fault"
    ),
    planted("all are divided", with_all(machine("dgx_a100"), has_mig=True)).finds(
        "GPUs 0-7", "divided (MIG is on)"
    ),
    planted("prohibited", with_gpu(machine("dgx1v"), 1, compute_mode=2)).finds(
        "GPU 1", "prohibited", "fault"
    ),
    planted("exclusive", with_all(machine("dgx1v"), compute_mode=3)).finds(
        "GPUs 0-7", "exclusive: one process at a time", "remark"
    ),
    planted(
        "exclusive, with two ranks on one",
        with_ranks(with_all(machine("h200_vm"), compute_mode=3), 8, cuda=lambda rank: (rank // 2,)),
    ).finds("GPUs 0-3", "exclusive, and 2 ranks see no other GPU", "fault"),
    planted("asleep", with_all(machine("hgx_h100"), persistence=0)).finds(
        "GPUs 0-7", "persistence mode is off", "remark"
    ),
    planted("all ranks on the first", with_ranks(machine("h200_vm"), 4, cuda=(0,))).finds(
        "ranks 0-3", "4 ranks share GPU 0, while GPUs 1-3 are free", "fault"
    ),
    planted("more ranks than GPUs", with_ranks(machine("h200_vm"), 8, cuda=(0, 1, 2, 3))).finds(
        "ranks 0-7", "8 ranks share GPUs 0-3"
    ),
]
