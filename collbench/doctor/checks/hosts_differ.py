"""Whether hosts that work together are equal: which one differs, and in what."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median_high

from collbench.core.text import counted, listed
from collbench.doctor.check import Evidence, Finding, told
from collbench.doctor.checks._siblings import odd_ones
from collbench.machine.discovery.recording import UNLIMITED, Nic, ProcessRecord, Recording
from collbench.machine.topology.model import members

_SAME_MEMORY = 0.03  # of the size: less than one of 32 modules
# Variables that are each host's own.
_OWN = frozenset({
    "CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE",
    "NCCL_GRAPH_DUMP_FILE", "CUDA_CACHE_PATH",
})  # fmt: skip
_Value = Callable[[Recording], str | None]
_OfHosts = Mapping[int, str | None]  # by their numbers


def _some(what: str, value: object) -> str | None:
    return None if value in (None, "") else f"{what} {value}"


def _cores(host: Recording) -> str | None:
    return counted(len(members(host.cpus)), "core") if host.cpus else None


def _port_rates(host: Recording) -> str | None:
    ports = [port for nic in host.nics for port in nic.ports if not nic.is_virtual]
    if any(port.rate is None or port.state is None for port in ports):
        return None
    rates = sorted(str(port.rate) for port in ports if port.state_name == "ACTIVE")
    counts = {rate: rates.count(rate) for rate in rates}
    return listed([f"{n} x {rate}" for rate, n in counts.items()]) if counts else None


def _up(host: Recording) -> list[Nic]:
    return [nic for nic in host.nics if not nic.is_virtual and nic.operstate == "up"]


def _speeds(host: Recording) -> str | None:
    speeds = sorted(nic.speed_mbps for nic in _up(host) if nic.speed_mbps)
    words = {speed: f"{speeds.count(speed)} x {speed / 1000:g} Gb/s" for speed in speeds}
    return f"interfaces of {listed(list(words.values()))}" if words else None


def _mtus(host: Recording) -> str | None:
    mtus = sorted({nic.mtu for nic in _up(host) if nic.mtu})
    return f"MTU {listed(map(str, mtus))}" if mtus else None


def _of_system(name: str, what: str) -> _Value:
    def value(host: Recording) -> str | None:
        return None if host.system is None else _some(what, getattr(host.system, name))

    return value


def _of_rdma(name: str, yes: str, no: str) -> _Value:
    def value(host: Recording) -> str | None:
        known = getattr(host.rdma, name)
        return None if known is None else yes if known else no

    return value


def _governors(host: Recording) -> str | None:
    governors = () if host.system is None else host.system.governors
    return f"governor {listed(governors)} of the cores' clocks" if governors else None


def _of_ranks(value: Callable[[ProcessRecord], str | None]) -> _Value:
    """What all ranks of a host have; None where one does not say."""

    def of_host(host: Recording) -> str | None:
        values = dict.fromkeys(value(process) for process in host.processes)
        return listed([str(one) for one in values]) if values and None not in values else None

    return of_host


def _limit(name: str, what: str) -> _Value:
    def value(process: ProcessRecord) -> str | None:
        limit = getattr(process, name)
        return _some(what, "unlimited" if limit == UNLIMITED else limit)

    return _of_ranks(value)


_HARDWARE: tuple[_Value, ...] = (
    lambda host: _some("product", host.product),
    lambda host: _some("processor", host.processor.name),
    _cores,
    lambda host: counted(len(host.numa), "NUMA node") if host.numa else None,
    lambda host: counted(len(host.gpus), "GPU"),
    lambda host: counted(sum(not nic.is_virtual for nic in host.nics), "NIC"),
    _port_rates,
    _speeds,
)
_SOFTWARE: tuple[_Value, ...] = (
    lambda host: _some("kernel", host.kernel),
    lambda host: _some("driver", host.driver),
    _mtus,
    lambda host: _some("IOMMU", host.rdma.iommu),
    _of_rdma("has_peermem", "nvidia_peermem is loaded", "nvidia_peermem is not loaded"),
    _of_rdma("has_open_driver", "the open kernel modules", "the closed kernel modules"),
    _governors,
    _of_system("numa_balancing", "numa_balancing"),
    _of_system("ptrace_scope", "ptrace_scope"),
    _of_system("shm_huge", "shmem_enabled"),
    _of_system("cgroup_cpus", "cores of the control group:"),
    _of_system("cgroup_memory_bytes", "bytes of the control group:"),
    _limit("memlock_bytes", "memlock"),
    _limit("open_files", "open files"),
    _limit("processes", "processes"),
    _limit("stack_bytes", "stack"),
    _of_ranks(lambda process: process.mpi_library and process.mpi_library.splitlines()[0][:80]),
    _of_ranks(lambda process: _some("MPI's thread level", process.mpi_thread_level)),
)


def find(evidence: Evidence) -> Iterable[Finding]:
    def of_all(values: Iterable[_Value]) -> Iterable[_OfHosts]:
        return (dict(enumerate(map(value, evidence.hosts))) for value in values)

    def call(numbers: Sequence[int]) -> str:
        return listed([evidence.name(evidence.hosts[number]) for number in numbers])

    comparisons: Mapping[str, Iterable[_OfHosts]] = {
        "hosts-hardware": of_all(_HARDWARE),
        "hosts-software": of_all(_SOFTWARE),
        "hosts-memory": [_memories(evidence)],
        "hosts-parameters": _parameters(evidence),
        "hosts-variables": _variables(evidence),
    }
    for row, compared in comparisons.items():
        for values in compared:
            for subject, words in odd_ones(values, call):
                yield told(row, subject, words)


def _memories(evidence: Evidence) -> _OfHosts:
    """Sizes of memory; those near the median as it: firmware keeps a part that varies."""
    sizes = {
        number: host.system.memory_bytes
        for number, host in enumerate(evidence.hosts)
        if host.system is not None and host.system.memory_bytes
    }
    usual = median_high(sizes.values()) if sizes else 0
    near = {n: usual if abs(size / usual - 1) < _SAME_MEMORY else size for n, size in sizes.items()}
    return {number: f"{size / (1 << 30):.0f} GiB of memory" for number, size in near.items()}


def _parameters(evidence: Evidence) -> Iterable[_OfHosts]:
    """Parameters of NVIDIA's module, of the hosts that report them."""
    reported = {
        number: host.system.driver_parameters
        for number, host in enumerate(evidence.hosts)
        if host.system is not None and host.system.driver_parameters
    }
    for name in dict.fromkeys(name for some in reported.values() for name in some):
        yield {
            number: f"{name}={some[name]}" if name in some else None
            for number, some in reported.items()
        }


def _variables(evidence: Evidence) -> Iterable[_OfHosts]:
    """Variables and configuration files of the ranks of each host, in the order of the ranks."""
    of_ranks = {
        number: [
            dict(process.environment) | {f"file {one.path}": one.text for one in process.files}
            for process in host.processes
        ]
        for number, host in enumerate(evidence.hosts)
        if host.processes
    }
    names = dict.fromkeys(name for some in of_ranks.values() for rank in some for name in rank)
    for name in [one for one in names if one not in _OWN]:
        values: dict[int, str | None] = {}
        for number, some in of_ranks.items():
            of_host = [rank.get(name) for rank in some]
            texts = ["not set" if one is None else repr(one)[:60] for one in of_host]
            different = dict.fromkeys(texts)
            same_count = all(len(one) == len(some) for one in of_ranks.values())
            if len(different) > 1 and not same_count:
                break  # by local rank, maybe: not to be compared
            values[number] = f"{name}: {texts[0] if len(different) == 1 else ', '.join(texts)}"
        else:
            yield values
