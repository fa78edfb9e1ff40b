"""GPUs on which others compute."""

from tests.support.evidence import machine, planted, with_gpu

PLANTS = [
    planted("one", with_gpu(machine("h200_vm"), 1, pids=(4711, 0))).finds(
        "GPU 1", "1 process of others on it (4711)"
    ),
    planted(
        "several on one of two hosts",
        machine("hgx_h100", "node1"),
        with_gpu(machine("hgx_h100", "node2"), 6, pids=(7, 8, 9)),
    ).finds("GPU 6 of node2", "3 processes of others on it (7-9)"),
]
