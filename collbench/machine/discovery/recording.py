"""What one host reports about itself, as data: read once, saved as JSON, replayed anywhere.
build.py makes a graph of it.

A value that could not be read is None, and `unknown` of the object that it belongs to says why, by
the field's name. PCI addresses are spelled as sysfs spells them. Names of sources: sysfs files by
their kernel names, the rest by NVML's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Reasons = Mapping[str, str]
UNLIMITED = -1  # of a limit, as RLIM_INFINITY
FABRIC_COMPLETED = 3  # of NVML_GPU_FABRIC_STATE_*: registered
NVIDIA, DISPLAY_CLASSES = "0x10de", "0x03"  # vendor; what classes of GPUs begin with


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRecord:
    """/proc/cpuinfo of the first core. has_hypervisor: the flag of x86; None elsewhere."""

    vendor: str | None = None
    family: int | None = None
    model: int | None = None
    name: str | None = None
    has_hypervisor: bool | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node that has cores; package: the physical id of its first core's package."""

    index: int
    cpulist: str
    package: int | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A PCI function. path: its real path under /sys. Speeds are texts such as 16.0 GT/s PCIe."""

    address: str
    path: str
    pci_class: str | None = None
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    current_link_speed: str | None = None
    current_link_width: int | None = None
    max_link_speed: str | None = None
    max_link_width: int | None = None
    numa_node: int | None = None
    local_cpulist: str | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of an RDMA device, as texts of the kernel: 400 Gb/sec (4X NDR), 4: ACTIVE. counters:
    of errors, by the kernel's names.
    """

    number: int
    rate: str | None = None
    state: str | None = None
    link_layer: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    unknown: Reasons = field(default_factory=dict)

    @property
    def gbps(self) -> float | None:
        """The rate as a number."""
        match = re.match(r"\d{1,6}(\.\d{1,3})?", self.rate or "")
        return float(match[0]) if match else None

    @property
    def state_name(self) -> str:
        """The state without its number."""
        return (self.state or "").rpartition(" ")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A network interface (speed in Mb/s) or an RDMA device (ports) of a PCI function. is_virtual:
    a part (SR-IOV) of one that is listed too. counters: of an interface's errors, by the kernel's
    names.
    """

    name: str
    address: str
    is_rdma: bool
    is_virtual: bool = False
    speed_mbps: int | None = None
    operstate: str | None = None
    mtu: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One NVLink of a GPU, as NVML counts it. state, version, speed_mbps: by field values;
    is_active, nvml_version: by functions of older GPUs.

    remote_type: NVML_NVLINK_DEVICE_TYPE. remote_class: sysfs's class of what is at the remote
    address, if it is there. The last three are error counters.
    """

    number: int
    is_active: bool | None = None
    state: int | None = None
    nvml_version: int | None = None
    field_version: int | None = None
    speed_mbps: int | None = None
    can_p2p: bool | None = None
    remote_type: int | None = None
    remote_address: str | None = None
    remote_class: str | None = None
    replay: int | None = None
    recovery: int | None = None
    crc: int | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class C2c:
    """One NVLink-C2C between a GPU and its CPU; status 1: active."""

    number: int
    status: int | None = None
    max_mbps: int | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """nvmlDeviceGetGpuFabricInfo: state 3 is completed; GPUs of one cluster and one clique reach
    each other by NVLink.
    """

    state: int | None = None
    status: int | None = None
    cluster: str | None = None
    clique: int | None = None
    health_mask: int | None = None

    @property
    def domain(self) -> tuple[str, int] | None:
        """Cluster and clique of a GPU that is registered, if both are known."""
        if self.state != FABRIC_COMPLETED or self.cluster is None or self.clique is None:
            return None
        return self.cluster, self.clique


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCondition:
    """How a GPU is at a moment, and how it is set up. Clocks in MHz, power in mW, degrees Celsius.

    throttle_bits: nvmlClocksEventReasons. app_*: application clocks, which a user may have set.
    ecc_corrected, ecc_uncorrected: errors since the driver was loaded. remap_*: of rows of memory
    that replace broken ones. recovery_action: 0 for none. pids: of compute processes. counters:
    errors since the driver was loaded, by NVML's names of them.
    """

    persistence: int | None = None
    compute_mode: int | None = None
    performance_state: int | None = None
    throttle_bits: int | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    app_sm_mhz: int | None = None
    app_default_sm_mhz: int | None = None
    memory_mhz: int | None = None
    memory_max_mhz: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    power_default_mw: int | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    ecc: int | None = None
    ecc_pending: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remap_pending: int | None = None
    remap_failed: int | None = None
    retired_pending: int | None = None
    recovery_action: int | None = None
    memory_bytes: int | None = None
    bar1_bytes: int | None = None
    virtualization: int | None = None
    vbios: str | None = None
    pids: tuple[int, ...] | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecord:
    """A GPU as NVML reports it. arch: 90 for compute capability 9.0. numa_node: the one that the
    GPU's own memory is, where it is one. condition: None in recordings of earlier versions.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    address: str | None = None
    arch: int | None = None
    has_mig: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_generation: int | None = None
    pcie_max_width: int | None = None
    gpu_max_pcie_generation: int | None = None
    cpu_affinity: str | None = None
    numa_node: int | None = None
    link_count: int | None = None
    common_speed_mbps: int | None = None
    links: tuple[NvLink, ...] = ()
    c2c: tuple[C2c, ...] = ()
    fabric: Fabric | None = None
    condition: GpuCondition | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """Two GPUs by NVML's numbers, in one direction: NVML's common ancestor (0 to 50 in tens) and
    four P2P statuses (0: OK).
    """

    a: int
    b: int
    ancestor: int | None = None
    read: int | None = None
    write: int | None = None
    nvlink: int | None = None
    atomics: int | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSupport:
    """What GPUDirect RDMA needs of the host. has_peermem: nvidia_peermem or nv_peer_mem is loaded.
    has_open_driver: NVIDIA's open kernel modules, which export memory as dma-buf. iommu: off,
    passthrough or translated.
    """

    has_peermem: bool | None = None
    has_open_driver: bool | None = None
    iommu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecord:
    """What the kernel and the control groups of a host allow, and how busy it is. Files of
    /proc/sys by their names.

    load: runnable tasks, mean of the last minute. cgroup_cpus: CPUs' worth of time. shm_huge: the
    chosen word of transparent_hugepage/shmem_enabled. governors: of the cores' clocks. busy_cpus:
    cores' worth of time that is used at the moment of the recording; busy_cpulist: the cores that
    are used for half of it or more. removes_ipc: whether logind removes this user's shared memory
    at the log-out. interfaces: names of all network interfaces, those of containers too.
    driver_parameters: of NVIDIA's kernel module.
    """

    memory_bytes: int | None = None
    memory_available_bytes: int | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    load: float | None = None
    busy_cpus: float | None = None
    busy_cpulist: str | None = None
    cgroup_cpus: float | None = None
    cgroup_memory_bytes: int | None = None
    pids_max: int | None = None
    file_max: int | None = None
    numa_balancing: int | None = None
    ptrace_scope: int | None = None
    shm_huge: str | None = None
    governors: tuple[str, ...] = ()
    is_wsl: bool | None = None
    removes_ipc: bool | None = None
    has_fabric_manager: bool | None = None
    interfaces: tuple[str, ...] = ()
    imex_channels: int | None = None
    driver_parameters: Mapping[str, str] = field(default_factory=dict)
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A configuration file that a library reads."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A rank, or the recording process where there is no launcher (rank 0 of 1). Limits are soft
    ones in bytes or numbers, UNLIMITED if there is none.

    cpulist: the cores that it may run on. namespaces: what /proc/self/ns names, for those that
    decide who can share memory. can_lock: CAP_IPC_LOCK, can_trace: CAP_SYS_PTRACE. can_copy:
    whether process_vm_readv works, tried on the process itself. environment: variables that
    communication libraries read. cuda: NVML's numbers of the GPUs that CUDA shows it.
    nccl_version: of NCCL's package, if it is installed. mpi_*: of an MPI that was initialised;
    mpi_has_cuda: whether it says that it takes memory of GPUs.
    """

    rank: int = 0
    ranks: int = 1
    cpulist: str | None = None
    mems: str | None = None
    memlock_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    stack_bytes: int | None = None
    can_lock: bool | None = None
    can_trace: bool | None = None
    can_copy: bool | None = None
    seccomp: int | None = None
    namespaces: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[ConfigFile, ...] = ()
    cuda: tuple[int, ...] | None = None
    nccl_version: str | None = None
    mpi_library: str | None = None
    mpi_thread_level: int | None = None
    mpi_has_cuda: bool | None = None
    unknown: Reasons = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One host. cuda: NVML's numbers of the GPUs that CUDA shows, in CUDA's order. product: what
    the host is sold as (DMI). system: None, and no processes, in recordings of earlier versions.
    """

    hostname: str | None = None
    boot_id: str | None = None
    kernel: str | None = None
    maker: str | None = None
    product: str | None = None
    cpus: str | None = None
    processor: CpuRecord = field(default_factory=CpuRecord)
    numa: tuple[NumaNode, ...] = ()
    pci: tuple[PciDevice, ...] = ()
    nics: tuple[Nic, ...] = ()
    rdma: RdmaSupport = field(default_factory=RdmaSupport)
    has_driver: bool = False
    driver: str | None = None
    visible_devices: str | None = None
    cuda: tuple[int, ...] | None = None
    gpus: tuple[GpuRecord, ...] = ()
    pairs: tuple[PairRecord, ...] = ()
    system: SystemRecord | None = None
    processes: tuple[ProcessRecord, ...] = ()
    unknown: Reasons = field(default_factory=dict)

    @property
    def usable_gpus(self) -> list[GpuRecord]:
        """The GPUs that NVML can ask."""
        return [gpu for gpu in self.gpus if "handle" not in gpu.unknown]

    @property
    def shown_gpus(self) -> list[GpuRecord]:
        """The GPUs that CUDA shows, in its order; all that can be asked if that is unknown."""
        by_index = {gpu.index: gpu for gpu in self.gpus}
        return self.usable_gpus if self.cuda is None else [by_index[one] for one in self.cuda]

    @property
    def gpus_on_the_bus(self) -> list[str]:
        """PCI addresses of NVIDIA's GPUs, whether a driver knows them or not."""
        return [
            one.address
            for one in self.pci
            if one.vendor == NVIDIA and (one.pci_class or "").startswith(DISPLAY_CLASSES)
        ]

    @property
    def domain(self) -> tuple[str, int] | None:
        """The NVLink fabric of all GPUs, which more hosts may share; None if they differ."""
        domains = {gpu.fabric.domain if gpu.fabric else None for gpu in self.usable_gpus}
        domain = domains.pop() if len(domains) == 1 else None
        return domain if domain is not None and domain[0].strip("0") else None
