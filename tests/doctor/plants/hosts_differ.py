"""Hosts of which one, or each, is another."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collbench.machine.discovery import Recording
from collbench.machine.discovery.recording import CpuRecord
from tests.support.evidence import GIB, Plant, machine, planted, with_ranks, with_system


def hosts(count: int = 4) -> list[Recording]:
    """Equal hosts with two ranks each."""
    return [
        with_ranks(machine("hgx_h100", f"node{place}"), 2, 2 * place, 2 * count)
        for place in range(count)
    ]


def plant(name: str, words: str, changed: Recording, count: int = 4) -> Plant:
    """The second host is another."""
    first, _, *rest = hosts(count)
    both = "node0 and node1" if count == 2 else "node1"
    return planted(name, first, changed, *rest).finds(both, words)


def with_environment(recording: Recording, *by_rank: Mapping[str, str]) -> Recording:
    """Ranks with these variables."""
    return replace(
        recording,
        processes=tuple(
            replace(one, environment=some)
            for one, some in zip(recording.processes, by_rank, strict=True)
        ),
    )


def with_process(recording: Recording, **values: Any) -> Recording:
    """Ranks with these values."""
    return replace(
        recording, processes=tuple(replace(one, **values) for one in recording.processes)
    )


NODE = hosts()[1]
OF_RANK = [{"UCX_NET_DEVICES": f"mlx5_{rank}:1", "NCCL_DEBUG": "WARN"} for rank in range(2)]
PLANTS = [
    plant(
        "driver",
        "driver 570.86, where 3 others have driver 580.159.03",
        replace(NODE, driver="570.86"),
    ),
    plant(
        "of two",
        "node0: driver 580.159.03; node1: driver 570.86",
        replace(hosts(2)[1], driver="570.86"),
        2,
    ),
    plant("kernel", "kernel 6.9.0", replace(NODE, kernel="6.9.0")),
    plant(
        "processor",
        "processor Other CPU, where 3 others have processor Some CPU",
        replace(NODE, processor=CpuRecord(name="Other CPU", has_hypervisor=False)),
    ),
    plant(
        "fewer GPUs",
        "7 GPUs, where 3 others have 8 GPUs",
        replace(
            NODE,
            gpus=NODE.gpus[:7],
            cuda=None,
            pairs=tuple(one for one in NODE.pairs if 7 not in (one.a, one.b)),
        ),
    ),
    plant("fewer NICs", "7 NICs, where 3 others have 8 NICs", replace(NODE, nics=NODE.nics[:7])),
    plant(
        "memory",
        "480 GiB of memory, where 3 others have 512 GiB of memory",
        with_system(NODE, memory_bytes=480 * GIB),
    ),
    plant(
        "setting",
        "numa_balancing 1, where 3 others have numa_balancing 0",
        with_system(NODE, numa_balancing=1),
    ),
    plant("limit", "524288, where 3 others have", with_process(NODE, open_files=524_288)),
    plant(
        "governor",
        "governor powersave of the cores' clocks",
        with_system(NODE, governors=("powersave",)),
    ),
    planted(
        "MPI library",
        *(
            with_process(one, mpi_library=f"Open MPI {5 + (place == 3)}.0")
            for place, one in enumerate(hosts())
        ),
    ).finds("node3", "Open MPI 6.0, where 3 others have Open MPI 5.0"),
    planted(
        "variable of one host",
        *(
            with_environment(
                one, *({**some, "NCCL_DEBUG": "INFO"} if place == 2 else some for some in OF_RANK)
            )
            for place, one in enumerate(hosts())
        ),
    ).finds("node2", "NCCL_DEBUG: 'INFO', where 3 others have NCCL_DEBUG: 'WARN'"),
    planted(
        "variable of one rank",
        *(
            with_environment(one, *([OF_RANK[0], {}] if place == 0 else OF_RANK))
            for place, one in enumerate(hosts())
        ),
    ).finds("node0", "NCCL_DEBUG: 'WARN', not set, where"),
    planted(
        "parameter of the driver",
        *(
            with_system(one, driver_parameters={"EnablePCIeGen3": str(place // 3)})
            for place, one in enumerate(hosts())
        ),
    ).finds("node3", "EnablePCIeGen3=1, where 3 others have EnablePCIeGen3=0", "remark"),
]
