"""GPUs of several kinds."""

from dataclasses import replace

from collbench.machine.discovery import Recording
from tests.doctor.plants.gpu_modes import with_all
from tests.support.evidence import GIB, machine, planted, with_gpu


def renamed(recording: Recording, name: str) -> Recording:
    """All its GPUs are of another model."""
    return replace(recording, gpus=tuple(replace(one, name=name) for one in recording.gpus))


PLANTS = [
    planted("two models", with_gpu(machine("pcie_box"), 3, name="NVIDIA GeForce RTX 3090")).finds(
        "GPU 3", "NVIDIA GeForce RTX 3090, where 7 others have NVIDIA GeForce RTX 4090"
    ),
    planted(
        "half and half",
        *(
            with_gpu(with_gpu(one, 0, memory_bytes=80 * GIB), 1, memory_bytes=80 * GIB)
            for one in [machine("h200_vm")]
        ),
    ).finds("GPUs 0-3", "GPUs 0-1: 80GB of memory; GPUs 2-3: 141GB of memory"),
    planted("firmware", with_gpu(machine("hgx_h100"), 5, vbios="96.00.30.00.01")).finds(
        "GPU 5", "VBIOS 96.00.30.00.01, where 7 others have VBIOS 96.00.A5.00.1A", "remark"
    ),
    planted(
        "a slot of a lower generation", with_gpu(machine("dgx_a100"), 2, pcie_max_generation=3)
    ).finds("GPU 2", "PCIe 3 x16 at most, where 7 others have PCIe 4 x16 at most"),
    planted(
        "another model in each of two hosts",
        machine("hgx_h100", "node1"),
        renamed(machine("hgx_h100", "node2"), "NVIDIA H200"),
    ).finds(
        "GPUs of node1 and node2",
        "GPUs of node1: NVIDIA H100 80GB HBM3; GPUs of node2: NVIDIA H200",
    ),
    planted(
        "firmware of one of three hosts",
        machine("hgx_h100", "node1"),
        with_all(machine("hgx_h100", "node2"), vbios="1"),
        machine("hgx_h100", "node3"),
    ).finds("GPUs of node2", "VBIOS 1, where 2 others have VBIOS 96.00.A5.00.1A", "remark"),
]
