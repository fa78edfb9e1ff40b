"""Machines that are well, drawn at random within what is healthy: no finding that costs."""

import random
from dataclasses import replace

from collbench.doctor.check import Evidence, find
from collbench.machine.discovery import Recording
from collbench.machine.discovery.recording import UNLIMITED
from collbench.machine.topology.model import members, spans
from tests.support.evidence import GIB, MACHINES, awake, machine, with_gpu, with_ranks, with_system
from tests.support.tiers import tiered

_ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {},
    {"NCCL_SOCKET_IFNAME": "eth"},
    {"NCCL_SOCKET_IFNAME": "^docker0,lo"},
    {"GLOO_SOCKET_IFNAME": "eth0"},
    {"OMPI_MCA_btl": "^openib"},
    {"OMPI_MCA_btl": "self,vader,tcp"},
    {"UCX_TLS": "all"},
    {"UCX_TLS": "self,sm,rc,cuda_copy,cuda_ipc"},
    {"I_MPI_FABRICS": "shm:ofi"},
    {"OMP_NUM_THREADS": "4"},
)


def _drawn(name: str, draw: random.Random, hosts: int) -> Recording:
    """A machine with healthy values of its own: sizes, limits, settings, bindings and loads."""
    host = machine(name)
    cores = len(members(host.cpus or ""))
    ranks = max(len(host.gpus), draw.choice((1, 2, 4))) if draw.random() < 0.8 else 1
    ranks = max(ranks, 2) if hosts > 1 else ranks
    memory = draw.randrange(64, 2048) * GIB
    shm = max(GIB * ranks, int(memory * draw.uniform(0.1, 0.5)))
    own = draw.uniform(0, 0.4)
    host = with_system(
        host,
        memory_bytes=memory,
        memory_available_bytes=int(memory * draw.uniform(0.5, 1)),
        shm_bytes=shm,
        shm_free_bytes=int(shm * draw.uniform(0.9, 1)),
        load=draw.uniform(0, ranks),
        # ranks wait in MPI while one of them records
        busy_cpus=ranks - 1 + own,
        busy_cpulist=spans(draw.sample(range(cores), min(cores, ranks - 1))),
        cgroup_cpus=draw.choice((None, float(cores), 2.0 * cores)),
        cgroup_memory_bytes=draw.choice((None, memory, 2 * memory)),
        pids_max=draw.choice((None, 1 << 22, ranks * (cores + 64))),
        file_max=draw.choice((1 << 20, 9223372036854775807)),
        ptrace_scope=draw.choice((None, 0)),
        shm_huge=draw.choice(("advise", "always", "within_size", None)),
        governors=draw.choice(((), ("performance",))),
        removes_ipc=draw.choice((None, False)),
        interfaces=("docker0", "eth0", "lo", *draw.choice(((), ("ib0",), ("veth12",)))),
    )
    library = draw.choice(("MPICH Version: 5.0.2", "Open MPI v5.0.7", None))
    host = with_ranks(
        host,
        ranks,
        0,
        ranks * hosts,
        cpulist=_bindings(host, ranks, draw).__getitem__,
        open_files=draw.choice((4096, 65536, 1048576)),
        processes=draw.choice((UNLIMITED, 1 << 20)),
        stack_bytes=draw.choice((8 << 20, 64 << 20)),
        memlock_bytes=draw.choice((UNLIMITED, 64 * GIB)),
        can_copy=True,
        environment=draw.choice(_ENVIRONMENTS),
        mpi_library=library,
        mpi_thread_level=None if library is None else 3,
        mpi_has_cuda=None if library is None else True,
    )
    for gpu in range(len(host.gpus)):
        host = with_gpu(
            host,
            gpu,
            temperature_c=draw.randrange(25, 75),
            power_mw=draw.randrange(60_000, 600_000),
            counters={"pcie_replay_counter": draw.randrange(3)},
        )
    return host


def _bindings(host: Recording, ranks: int, draw: random.Random) -> list[str | None]:
    """Of each rank: all cores, or those of the node that its GPU is at."""
    if not host.gpus or ranks < 2 or draw.random() < 0.5:
        return [host.cpus] * ranks
    near = {one.address: one.numa_node for one in host.pci}
    nodes = {node.index: node.cpulist for node in host.numa}
    own = [near.get(gpu.address or "") for gpu in host.gpus]
    return [nodes.get(-1 if (node := own[rank % len(own)]) is None else node, host.cpus)
            for rank in range(ranks)]  # fmt: skip


def _equal(host: Recording, hosts: int) -> tuple[Recording, ...]:
    """So many hosts like that one, with names and ranks of their own."""
    n = len(host.processes)
    return tuple(
        replace(
            host,
            hostname=f"node{place}",
            boot_id=f"boot{place}",
            processes=tuple(replace(one, rank=place * n + one.rank) for one in host.processes),
        )
        for place in range(hosts)
    )


@tiered(("first", "number"), [(0, 100), (100, 900)], [(0, 100)])
def test_machines_that_are_well_have_no_finding_that_costs(first: int, number: int) -> None:
    alarms = []
    for seed in range(first, first + number):
        draw = random.Random(seed)
        name = MACHINES[seed % len(MACHINES)]
        hosts = draw.choice((1, 1, 2, 3))
        drawn = _equal(_drawn(name, draw, hosts), hosts)
        loads = tuple(map(awake, drawn)) if draw.random() < 0.5 else ()
        evidence = Evidence(hosts=drawn, loaded=loads, after=loads)
        alarms += [
            (seed, name, one.check, one.subject, one.seen)
            for one in find(evidence)
            if one.severity != "remark"
        ]
    assert not alarms
