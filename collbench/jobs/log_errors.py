"""What NCCL's warnings and the errors of its users mean, and what to do: a table.

Sources: the warnings of github.com/NVIDIA/nccl v2.10.3 to v2.30.7; the status numbers of work
completions in rdma-core's libibverbs/verbs.h; NCCL's user guide, Troubleshooting.
"""

import re
from dataclasses import dataclass

from collbench.doctor.finding import Severity


@dataclass(frozen=True, slots=True)
class KnownError:
    """One kind of warning. name: of the finding; pattern: searched in the text."""

    name: str
    pattern: re.Pattern[str]
    why: str
    change: str
    severity: Severity = "fault"


def _error(
    name: str, pattern: str, why: str, change: str, severity: Severity = "fault"
) -> KnownError:
    return KnownError(name, re.compile(pattern, re.IGNORECASE), why, change, severity)


# what a work completion's status says: name, why, change
IB_STATUS: dict[int, tuple[str, str, str]] = {
    1: (
        "LOC_LEN_ERR",
        "a message was longer than the buffer that was posted for it, as when ranks disagree on a"
        " count",
        "compare the counts of the ranks (collbench log --hang)",
    ),
    2: (
        "LOC_QP_OP_ERR",
        "the local adapter found its queue pair in a state that it should not have",
        "update the firmware and driver of the adapter",
    ),
    4: (
        "LOC_PROT_ERR",
        "the adapter was not allowed to read or write local memory: GPUDirect RDMA fails this way"
        " when ACS or an IOMMU redirects its traffic, or nvidia-peermem is another version than"
        " the driver",
        "disable ACS on the PCIe switches, boot with iommu=pt; to confirm, run once with"
        " NCCL_NET_GDR_LEVEL=LOC",
    ),
    5: (
        "WR_FLUSH_ERR",
        "the connection had already failed: this is a consequence, look for an earlier error",
        "look at the first error of the log",
    ),
    9: (
        "REM_INV_REQ_ERR",
        "the remote adapter refused a request",
        "update the firmware of the adapters, and see that both ends run the same version of NCCL",
    ),
    10: (
        "REM_ACCESS_ERR",
        "the remote adapter was not allowed to write where it should",
        "see that all ranks run the same version of NCCL; run once with NCCL_NET_GDR_LEVEL=LOC",
    ),
    11: (
        "REM_OP_ERR",
        "the remote adapter could not carry out the request",
        "look at the log of the other host at that time; disable ACS there",
    ),
    12: (
        "RETRY_EXC_ERR",
        "the peer did not acknowledge in time: a cable or switch port is down, the fabric loses"
        " packets (RoCE without PFC), the peer died, or the two NICs cannot reach each other"
        " (another rail or GID)",
        "test the two adapters with ib_write_bw; check the ports' counters, NCCL_IB_GID_INDEX"
        " (unset it from 2.21 on) and NCCL_IB_HCA; a larger NCCL_IB_TIMEOUT (22) helps against"
        " short losses",
    ),
    13: (
        "RNR_RETRY_EXC_ERR",
        "the peer had no buffer posted in time: it is stuck or slow",
        "look at what the other rank did at that time",
    ),
    19: ("FATAL_ERR", "the adapter failed", "look at dmesg, and reset or replace the adapter"),
    20: ("RESP_TIMEOUT_ERR", "the peer did not answer in time", "check the fabric and the peer"),
    21: ("GENERAL_ERR", "the adapter gives no other reason", "look at dmesg of that host"),
}
IB_COMPLETION = re.compile(
    r"Got completion from peer (?P<peer>\S+) with (?:error |status=\D{0,40}?)(?P<status>\d{1,3})",
    re.IGNORECASE,
)

ERRORS: tuple[KnownError, ...] = (
    _error(
        "libfabric",
        r"NET/OFI",
        "The plug-in for libfabric (EFA on AWS) cannot be set up, so that NCCL fails or takes"
        " sockets",
        "fi_info -p efa in the container, /dev/infiniband in it, a security group that allows all"
        " traffic to itself, and versions of plug-in and libfabric that fit",
    ),
    _error(
        "shm-not-shared",
        r"attaching to shared memory|unlink shared memory|/dev/shm.*No such file",
        "A process does not find the file of another one in /dev/shm: they are in containers that"
        " share no /dev/shm, or systemd removed the files of a user who is not logged in",
        "docker run --ipc=host for all of them, one pod; RemoveIPC=no in /etc/systemd/logind.conf",
    ),
    _error(
        "no-verbs",
        r"Failed to open libibverbs",
        "The library of InfiniBand and RoCE is not in the container; without such adapters that"
        " does not matter",
        "install libibverbs1 and ibverbs-providers",
        "risk",
    ),
    _error(
        "shm-full",
        r"misc/shmutils|include/shm\.h|shared memory (?:segment|file)|failed to extend /dev/shm|"
        r"/dev/shm.*(?:No space|Input/output|Invalid|failed)|No space left on device",
        "/dev/shm is too small: NCCL puts its buffers between processes there, and a container has"
        " 64 MiB unless told otherwise",
        "docker run --shm-size=1g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory"
        " at /dev/shm",
    ),
    _error(
        "duplicate-gpu",
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        "Two ranks have the same GPU: the launcher gives every rank the same local rank, or"
        " CUDA_VISIBLE_DEVICES is the same for all",
        "call cudaSetDevice (torch.cuda.set_device) with the local rank, before anything else",
    ),
    _error(
        "version-mismatch",
        r"Mismatched NCCL version|version mismatch|library version is too old|too old version of"
        r" NCCL",
        "The ranks, or the program and the library, have different versions of NCCL, which cannot"
        " talk to each other",
        "use one container image; see which libnccl.so.2 each rank loads (LD_LIBRARY_PATH)",
    ),
    _error(
        "timeout",
        r"Watchdog caught collective operation timeout|NCCL.*timed out|ncclTimeout",
        "A collective did not end in PyTorch's time: a rank did not come, came with another"
        " operation, or failed; the rank that says so is often not the one to blame",
        "find the rank that did not come: collbench log --hang with the logs of all ranks"
        " (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL)",
    ),
    _error(
        "remote-exit",
        r"remote process exited|ncclRemoteError|Connection closed by remote peer|Connection closed"
        r" by localRank|Connection reset by peer|Broken pipe",
        "Another rank died or lost its network first, so this one is a consequence",
        "look for the first error in the logs of all other ranks, and in dmesg there (out of"
        " memory, Xid)",
    ),
    _error(
        "bootstrap",
        r"Bootstrap ?:? ?(?:Root )?:? ?(?:no socket|mismatch|rank \d+ of|localId)|No usable"
        r" listening interface|no device found (?:matching|after)|Invalid NCCL_COMM_ID|no socket"
        r" interface found|No IP interface found|NET/Socket : no interface|No interface found in"
        r" the same subnet|Call to bind failed|Socket creation failed",
        "The ranks cannot find each other: no network interface fits what is set, or ranks"
        " disagree on how many they are",
        "see NCCL_SOCKET_IFNAME and NCCL_COMM_ID, and that every host has that interface: ip"
        " -brief address",
    ),
    _error(
        "connect",
        r"connect(?: to \S+)? (?:returned|failed)|Connection refused|No route to host|Connection"
        r" timed out|Network is unreachable|PollConnect to|socketStartConnect|exceeded error retry"
        r" count",
        "A rank cannot open a connection to another: a firewall, an interface that the other host"
        " cannot reach, or the other rank is gone",
        "set NCCL_SOCKET_IFNAME to the interface that all hosts share; open the ports between the"
        " hosts (NCCL takes free ones: net.ipv4.ip_local_port_range)",
    ),
    _error(
        "ib-setup",
        r"ibv_modify_qp failed|Call to ibv_\w+ failed|Call to ibv_\w+ returned|NET/IB ?: ?Unable"
        r" to|incompatible devices|device is incompatible|mlx5dv_\w+ failed",
        "InfiniBand or RoCE cannot be set up: wrong GID index, NICs of two kinds of networks, no"
        " right to pin memory, or a port that is down",
        "unset NCCL_IB_GID_INDEX (from 2.21 on it is found), set NCCL_IB_HCA to NICs of one"
        " network, ulimit -l unlimited; see ibv_devinfo and show_gids",
    ),
    _error(
        "ib-event",
        r"NET/IB ?: ?\S+ (?:Got (?:non-fatal )?async event|async fatal event)|async fatal event|"
        r"Got async event|GID table changed",
        "An adapter or its port changed its state while the job ran: the link went down, or its"
        " address changed",
        "look at the port's counter link_downed, the cable and the switch",
    ),
    _error(
        "out-of-memory",
        r"out of memory|Failed to (?:CUDA )?(?:host )?(?:m|c)alloc|Cannot allocate memory|"
        r"malloc\(size",
        "Memory ran out: NCCL needs some 100 MiB and more for each communicator on each GPU",
        "leave memory free for NCCL, make fewer communicators, or lower NCCL_BUFFSIZE and"
        " NCCL_MAX_NCHANNELS; ulimit -l unlimited for pinned memory",
    ),
    _error(
        "nvls-bind",
        r"NVLink SHARP|NVLS.*failed|multicast.*(?:CUDA error|fail)|nvls\.cc.*Cuda failure",
        "Multicast of the NVLink switches cannot be set up: the fabric manager does not run, or"
        " its memory is full",
        "start or restart nvidia-fabricmanager (its version must be the driver's); until then"
        " NCCL_NVLS_ENABLE=0",
    ),
    _error(
        "driver",
        r"CUDA driver version is insufficient|Minimum requirement is|system not yet initialized|"
        r"driver (?:initialization|version)|PFN functions not found",
        "The CUDA driver is too old for this NCCL, or the fabric manager does not run (system not"
        " yet initialized)",
        "update the driver, or systemctl start nvidia-fabricmanager",
    ),
    _error(
        "gpu-failed",
        r"illegal memory access|uncorrectable|unspecified launch failure|hardware error|GPU is"
        r" lost|fallen off|ECC|device-side assert",
        "A kernel failed or a GPU has an error; NCCL is where it was noticed, any earlier kernel"
        " may have caused it",
        "look for Xid in dmesg; run once with CUDA_LAUNCH_BLOCKING=1",
    ),
    _error(
        "peer-access",
        r"failed to peer with device|peer access|P2P is disabled between NVLINK|cudaIpc|invalid"
        r" device (?:pointer|context)|No transport found|no transport for",
        "GPUs cannot reach each other directly: containers that see different GPUs or have another"
        " IPC namespace, or a link that is down",
        "docker run --ipc=host, all GPUs visible in every container; nvidia-smi topo -p2p r",
    ),
    _error(
        "invalid-use",
        r"argument is NULL|is not a valid pointer|invalid (?:root|type|reduction|device|comm)|"
        r"Invalid (?:rank|device|config)|improper usage|has already been destroyed|mismatchs with|"
        r"corrupted comm|ncclInvalid(?:Usage|Argument)|\A(?!.*uda failure).*invalid (?:usage|"
        r"argument)|Message truncated|message truncated|not in a group call|previous operation"
        r" returned|Trying to (?:recv|send) to self",
        "The program calls NCCL wrongly, or ranks call with different sizes or in another order",
        "compare the calls of the ranks: NCCL_DEBUG_SUBSYS=COLL, then collbench log --hang",
    ),
    _error(
        "algorithm",
        r"No algorithm/protocol available|Unrecognized (?:element|prefix) token",
        "NCCL_ALGO or NCCL_PROTO leaves nothing that works for a collective",
        "unset NCCL_ALGO and NCCL_PROTO, or name a fallback: NCCL_ALGO='allreduce:tree;ring'",
    ),
    _error(
        "topology-file",
        r"XML|topology file|graph file",
        "A topology or graph file cannot be used",
        "unset NCCL_TOPO_FILE and NCCL_GRAPH_FILE, or take the file of this machine's provider",
    ),
    _error(
        "iommu",
        r"iommu=pt",
        "The IOMMU translates what GPUs send, which is slow and can hang",
        "boot with iommu=pt",
        "risk",
    ),
    _error(
        "numa-balancing",
        r"NUMA auto balancing",
        "The kernel moves pages while GPUs use them, which makes tails of milliseconds",
        "sysctl kernel.numa_balancing=0",
        "risk",
    ),
    _error(
        "collnet",
        r"Cannot initialize CollNet",
        "The network's own reduction cannot be used",
        "nothing, if it is not wanted: NCCL_COLLNET_ENABLE=0",
        "remark",
    ),
    _error(
        "cuda-error",
        r"Cuda failure|ncclUnhandledCudaError|unhandled cuda error|HIP failure|Hip failure",
        "A call of CUDA failed; NCCL gives CUDA's words",
        "see the text of the failure; look for Xid in dmesg, and for an earlier error of the"
        " program",
    ),
    _error(
        "system-error",
        r"unhandled system error|ncclSystemError|System call",
        "A call of the system, of the network or of a driver failed; the line before says which",
        "look at the warning before it; without one run again with NCCL_DEBUG=INFO",
    ),
    _error(
        "internal",
        r"ncclInternalError|internal error",
        "NCCL found itself in a state that it cannot be in, most often after a failed setup",
        "look at the warnings before it; update NCCL",
    ),
    _error(
        "proxy-failed",
        r"Socket recv failed while polling|Failed to execute operation|wrong type \d|proxy.*"
        r" failed",
        "The thread of NCCL that serves the network failed, after a connection or a device did",
        "look at the warning before it, of this rank or of its peer",
    ),
    _error(
        "aborted",
        r"NCCL communicator was aborted|in abort state|communicator encountered a fatal|was"
        r" revoked|commAlloc|NCCL error",
        "A communicator was ended after an error",
        "look at the first error of the log",
    ),
)


def known_error(text: str) -> KnownError | None:
    """The kind of a warning; None if none fits.

    >>> known_error("Error: failed to extend /dev/shm/nccl-a to 33030532 bytes").name
    'shm-full'
    """
    return next((one for one in ERRORS if one.pattern.search(text)), None)
