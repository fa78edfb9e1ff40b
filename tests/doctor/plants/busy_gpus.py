"""GPUs on which others compute."""

from tests.support.evidence import Plant, evidence, machine, with_gpu

PLANTS = [
    Plant(
        name="one",
        evidence=evidence(with_gpu(machine("h200_vm"), 1, pids=(4711, 0))),
        subject="GPU 1",
        words="1 process of others on it (4711)",
    ),
    Plant(
        name="several on one of two hosts",
        evidence=evidence(
            machine("hgx_h100", "node1"), with_gpu(machine("hgx_h100", "node2"), 6, pids=(7, 8, 9))
        ),
        subject="GPU 6 of node2",
        words="3 processes of others on it (7-9)",
    ),
]
