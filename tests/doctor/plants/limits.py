"""Limits of files, processes and stacks."""

from tests.support.evidence import Plant, evidence, machine, with_ranks, with_system

PLANTS = [
    Plant(
        name="files of a login shell for many ranks",
        evidence=evidence(
            with_ranks(machine("hgx_h100", "node1"), 8, 0, 256, open_files=1024),
            with_ranks(machine("hgx_h100", "node2"), 8, 8, 256),
        ),
        subject="ranks 0-7 of node1",
        words="may open 1024 files",
    ),
    Plant(
        name="files of the host",
        evidence=evidence(with_system(with_ranks(machine("hgx_h100"), 8), file_max=4096)),
        words="fs.file-max allows 4096",
    ),
    Plant(
        name="processes of a pod",
        evidence=evidence(with_system(with_ranks(machine("hgx_h100"), 8), pids_max=1024)),
        words="allows 1024 processes and threads",
    ),
    Plant(
        name="processes of the user",
        evidence=evidence(with_ranks(machine("dgx1v"), 8, processes=512)),
        subject="ranks 0-7",
        words="may start 512 processes",
    ),
    Plant(
        name="an unlimited stack",
        evidence=evidence(with_ranks(machine("dgx_a100"), 8, stack_bytes=-1)),
        subject="ranks 0-7",
        words="the stack is unlimited",
    ),
    Plant(
        name="a tiny stack",
        evidence=evidence(with_ranks(machine("cpus"), 2, stack_bytes=256 << 10)),
        subject="ranks 0-1",
        words="has 256 KiB",
    ),
]
