"""GPUs that are divided, closed or asleep, and ranks that share one."""

from collbench.machine.discovery import Recording
from tests.support.evidence import Plant, evidence, machine, with_gpu, with_ranks


def with_all(recording: Recording, **values: object) -> Recording:
    """A recording with values of all GPUs changed."""
    for index in range(len(recording.gpus)):
        recording = with_gpu(recording, index, **values)
    return recording


PLANTS = [
    Plant(
        name="one is divided",
        evidence=evidence(with_gpu(machine("dgx_a100"), 3, has_mig=True)),
        subject="GPU 3",
        words="divided (MIG is on), where others of this host are not",
        severity="fault",
    ),
    Plant(
        name="all are divided",
        evidence=evidence(with_all(machine("dgx_a100"), has_mig=True)),
        subject="GPUs 0-7",
        words="divided (MIG is on)",
    ),
    Plant(
        name="prohibited",
        evidence=evidence(with_gpu(machine("dgx1v"), 1, compute_mode=2)),
        subject="GPU 1",
        words="prohibited",
        severity="fault",
    ),
    Plant(
        name="exclusive",
        evidence=evidence(with_all(machine("dgx1v"), compute_mode=3)),
        subject="GPUs 0-7",
        words="exclusive: one process at a time",
        severity="remark",
    ),
    Plant(
        name="exclusive, with two ranks on one",
        evidence=evidence(
            with_ranks(
                with_all(machine("h200_vm"), compute_mode=3), 8, cuda=lambda rank: (rank // 2,)
            )
        ),
        subject="GPUs 0-3",
        words="exclusive, and 2 ranks see no other GPU",
        severity="fault",
    ),
    Plant(
        name="asleep",
        evidence=evidence(with_all(machine("hgx_h100"), persistence=0)),
        subject="GPUs 0-7",
        words="persistence mode is off",
        severity="remark",
    ),
    Plant(
        name="all ranks on the first",
        evidence=evidence(with_ranks(machine("h200_vm"), 4, cuda=(0,))),
        subject="ranks 0-3",
        words="4 ranks share GPU 0, while GPUs 1-3 are free",
        severity="fault",
    ),
    Plant(
        name="more ranks than GPUs",
        evidence=evidence(with_ranks(machine("h200_vm"), 8, cuda=(0, 1, 2, 3))),
        subject="ranks 0-7",
        words="8 ranks share GPUs 0-3",
    ),
]
