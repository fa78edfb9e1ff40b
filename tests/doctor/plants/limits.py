"""Limits of files, processes and stacks."""

from tests.support.evidence import machine, planted, with_ranks, with_system

PLANTS = [
    planted(
        "files of a login shell for many ranks",
        with_ranks(machine("hgx_h100", "node1"), 8, 0, 256, open_files=1024),
        with_ranks(machine("hgx_h100", "node2"), 8, 8, 256),
    ).finds("ranks 0-7 of node1", "may open 1024 files"),
    planted(
        "files of the host", with_system(with_ranks(machine("hgx_h100"), 8), file_max=4096)
    ).finds("this host", "fs.file-max allows 4096"),
    planted(
        "processes of a pod", with_system(with_ranks(machine("hgx_h100"), 8), pids_max=1024)
    ).finds("this host", "allows 1024 processes and threads"),
    planted("processes of the user", with_ranks(machine("dgx1v"), 8, processes=512)).finds(
        "ranks 0-7", "may start 512 processes"
    ),
    planted("an unlimited stack", with_ranks(machine("dgx_a100"), 8, stack_bytes=-1)).finds(
        "ranks 0-7", "the stack is unlimited"
    ),
    planted("a tiny stack", with_ranks(machine("cpus"), 2, stack_bytes=256 << 10)).finds(
        "ranks 0-1", "has 256 KiB"
    ),
]
