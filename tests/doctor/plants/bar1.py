"""Windows that show a part of the memory."""

from tests.doctor.plants.gpu_modes import with_all
from tests.doctor.plants.peer_access import A_CARD, denied
from tests.support.evidence import Plant, evidence, machine, with_gpu

PLANTS = [
    Plant(
        name="one card",
        evidence=evidence(with_gpu(denied(A_CARD, lambda a, b: False), 6, bar1_bytes=256 << 20)),
        subject="GPU 6",
        words="BAR1 shows 256M of 141G",
    ),
    Plant(
        name="all GeForce cards",
        evidence=evidence(with_all(machine("pcie_box"), bar1_bytes=256 << 20)),
        subject="GPUs 0-7",
        words="BAR1 shows 256M of 141G",
        severity="remark",
    ),
]
