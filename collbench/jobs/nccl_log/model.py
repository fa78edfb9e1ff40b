"""What a log says of a job: communicators, how they are joined, networks, settings, operations,
warnings. Filled by the reader, which also says in which lines it stands.
"""

from array import array
from dataclasses import dataclass, field

from collbench.jobs.log_errors import Reader
from collbench.jobs.nccl_log.lines import LogSource
from collbench.jobs.nccl_log.places import LogPlace, Seen
from collbench.jobs.nccl_log.ras import RasReader
from collbench.jobs.nccl_log.torch_text import TorchReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRank:
    """A member of a communicator. device: as CUDA counts. bus: the GPU's bus id, hexadecimal."""

    rank: int
    host: str
    pid: int
    device: int
    bus: str
    place: LogPlace


REDUCTIONS = ("AllReduce", "ReduceScatter", "Reduce")
ROOTED = ("Broadcast", "Reduce", "Gather", "Scatter", "Send", "Recv")


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operation is: all ranks of one must agree. dtype and redop: NCCL's numbers. redop, of
    others than REDUCTIONS, and root, of others than ROOTED, are 0.
    """

    op: str
    count: int
    dtype: int
    redop: int
    root: int


@dataclass(slots=True)
class LoggedCalls:
    """What one rank asked for in a communicator, in its order: numbers of signatures of
    collectives, their lines, and the counter that NCCL prints of them, modulo 2^32; the same of
    sends and receives.
    """

    signatures: "array[int]" = field(default_factory=lambda: array("I"))
    opcounts: "array[int]" = field(default_factory=lambda: array("I"))
    lines: "array[int]" = field(default_factory=lambda: array("I"))
    p2p: "array[int]" = field(default_factory=lambda: array("I"))
    p2p_lines: "array[int]" = field(default_factory=lambda: array("I"))
    files: list[tuple[int, str]] = field(default_factory=list)  # from which operation on

    def add(self, number: int, line: int, opcount: int, *, is_p2p: bool) -> None:
        """Keep one more operation."""
        if is_p2p:
            self.p2p.append(number)
            self.p2p_lines.append(line)
        else:
            self.signatures.append(number)
            self.opcounts.append(opcount)
            self.lines.append(line)


@dataclass(slots=True, kw_only=True)
class Communicator:
    """Ranks that communicate. name: NCCL's id, or what stands for it. parent: the name of the one
    that was split. links: from (source rank, target rank, transport) to a mask of channels.
    """

    name: str
    nranks: int
    call: str = ""
    parent: str = ""
    color: int | None = None
    nodes: int | None = None
    channels: int | None = None
    p2p_channels: int | None = None
    ranks: dict[int, LoggedRank] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    # channel -> rank -> the rank above it
    trees: dict[int, dict[int, int]] = field(default_factory=dict)
    links: dict[tuple[int, int, str], int] = field(default_factory=dict)
    link_places: dict[str, Seen] = field(default_factory=dict)
    calls: dict[LogSource, LoggedCalls] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)

    @property
    def hosts(self) -> list[str]:
        """Its hosts, in the order of its ranks."""
        return list(dict.fromkeys(self.ranks[rank].host for rank in sorted(self.ranks)))

    def is_same_host(self, a: int, b: int) -> bool | None:
        """Whether two ranks are on one host; None if that is not known."""
        if a not in self.ranks or b not in self.ranks:
            return None
        return self.ranks[a].host == self.ranks[b].host


@dataclass(slots=True)
class LoggedChoice:
    """What NCCL takes for a size. channels: how many, where it says so."""

    algo: str
    proto: str
    channels: int | None
    seen: Seen = field(default_factory=Seen)


@dataclass(slots=True)
class LoggedWarning:
    """A warning: the text of the first, its place in NCCL's source, and whose words it is in.
    is_info: of NCCL's level INFO, where what failed may have been tried again.
    """

    text: str
    where: str
    reader: Reader = "nccl"
    is_info: bool = False
    seen: Seen = field(default_factory=Seen)


@dataclass(slots=True)
class Counters:
    """How much was read. nccl: messages of NCCL; understood: those that a kind says; kept: examples
    of the others, from their first words to the first such text.
    """

    lines: int = 0
    nccl: int = 0
    understood: int = 0
    joined: int = 0
    unknown: dict[str, tuple[str, Seen]] = field(default_factory=dict)

    @property
    def not_understood(self) -> int:
        """Messages of NCCL that no kind says."""
        return self.nccl - self.understood


@dataclass(slots=True)
class LogReport:
    """All that was learned."""

    files: list[str] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)  # files that end in the middle of a line of NCCL
    counters: Counters = field(default_factory=Counters)
    versions: dict[str, Seen] = field(default_factory=dict)  # such as NCCL 2.28.9+cuda13.0
    communicators: list[Communicator] = field(default_factory=list)
    settings: dict[tuple[str, str], Seen] = field(default_factory=dict)
    config: dict[tuple[str, str], Seen] = field(default_factory=dict)
    networks: dict[str, Seen] = field(default_factory=dict)
    nics: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (IB or Socket, names)
    interfaces: dict[str, Seen] = field(default_factory=dict)  # of the bootstrap
    gdr: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (Enabled, of what)
    gdr_of_gpus: dict[str, Seen] = field(default_factory=dict)  # Enabled or Disabled by distance
    plugins: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (what, kind and name)
    failed_plugins: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (kind, why)
    numa: dict[tuple[str, str], str] = field(default_factory=dict)  # (host, bus id) -> node
    links: dict[str, Seen] = field(default_factory=dict)  # kinds of links of GPUs: NVL[370.8]
    p2p_off: dict[str, Seen] = field(default_factory=dict)
    nvls: dict[bool, Seen] = field(default_factory=dict)
    tuning: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    choices: dict[tuple[str, int], LoggedChoice] = field(default_factory=dict)
    signatures: list[Signature] = field(default_factory=list)
    ras: RasReader = field(default_factory=RasReader)
    torch: TorchReader = field(default_factory=TorchReader)
    xids: dict[int, Seen] = field(default_factory=dict)  # numbers; hosts are bus ids here
    xid_texts: dict[int, str] = field(default_factory=dict)
    states: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (what, how it is)
    facts: dict[str, Seen] = field(default_factory=dict)  # of a machine, such as ports that are up
    told: int = 0  # lines of tools that say something of a machine
    unread_errors: dict[str, tuple[str, Seen]] = field(default_factory=dict)  # by first words
    run_together: Seen = field(default_factory=Seen)  # lines that were several
    returned: dict[str, Seen] = field(default_factory=dict)  # codes that calls of NCCL returned
    first_returned: str = ""  # where in NCCL's source the first of them was
    pci_unknown: Seen = field(default_factory=Seen)  # speeds of PCIe that NCCL could not read
    max_bw: dict[str, Seen] = field(default_factory=dict)  # of the machine, in NCCL's GB/s
    host_buffers: dict[str, Seen] = field(default_factory=dict)  # CUMEM or MMAP
    no_ib: Seen = field(default_factory=Seen)
    nodes: int = 0  # the most of communicators of which no more is known
    warnings: dict[str, LoggedWarning] = field(default_factory=dict)
    gone: dict[str, Seen] = field(default_factory=dict)  # connections that were closed
    crashed_in: str = ""  # where the stack of the first crash begins
    is_ended: bool = False  # whether a communicator was ended by its program

    @property
    def is_between_hosts(self) -> bool:
        """Whether a communicator has ranks of several hosts, by its ranks where all are known, else
        by what NCCL says of it.
        """
        several = (
            len(one.hosts) if len(one.ranks) >= one.nranks else max(one.nodes or 1, len(one.hosts))
            for one in self.communicators
        )
        return self.nodes > 1 or any(hosts > 1 for hosts in several)

    @property
    def is_of_one_host(self) -> bool:
        """Whether all communicators are whole in the log, and within one host."""
        return bool(self.communicators) and all(
            len(one.ranks) >= one.nranks and len(one.hosts) == 1 for one in self.communicators
        )

    @property
    def size(self) -> int:
        """How much is known, which grows with every line that says something."""
        return (
            self.counters.nccl
            + self.told
            + sum(one.seen.count for one in self.warnings.values())
            + sum(one.count for one in (*self.xids.values(), *self.versions.values()))
            + len(self.torch.timeouts)
            + len(self.torch.reports)
            + self.ras.size
        )

    @property
    def gpus(self) -> set[tuple[str, str]]:
        """GPUs of all communicators, as (host, bus id)."""
        return {(rank.host, rank.bus) for one in self.communicators for rank in one.ranks.values()}

    @property
    def hosts(self) -> set[str]:
        """Hosts of all ranks whose place is known."""
        return {host for host, _ in self.gpus}
