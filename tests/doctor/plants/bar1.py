"""Windows that show a part of the memory."""

from tests.doctor.plants.gpu_modes import with_all
from tests.doctor.plants.peer_access import A_CARD, denied
from tests.support.evidence import machine, planted, with_gpu

PLANTS = [
    planted(
        "one card", with_gpu(denied(A_CARD, lambda a, b: False), 6, bar1_bytes=256 << 20)
    ).finds("GPU 6", "BAR1 shows 256M of 141G"),
    planted("all GeForce cards", with_all(machine("pcie_box"), bar1_bytes=256 << 20)).finds(
        "GPUs 0-7", "BAR1 shows 256M of 141G", "remark"
    ),
]
