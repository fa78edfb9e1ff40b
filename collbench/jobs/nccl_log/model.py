"""What a log says of a job: communicators, how they are joined, networks, settings, operations,
warnings. Filled by the reader, which also says in which lines it stands.
"""

from array import array
from dataclasses import dataclass, field

from collbench.jobs.nccl_log.lines import LogSource

MOST_PLACES = 4  # kept of a fact


@dataclass(frozen=True, slots=True, order=True)
class LogPlace:
    """A line of a file; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file} line {self.line}"


@dataclass(slots=True)
class Seen:
    """Where something stands: the first few places, and how often in all."""

    places: list[LogPlace] = field(default_factory=list)
    count: int = 0
    hosts: set[str] = field(default_factory=set)

    def add(self, place: LogPlace, host: str = "") -> None:
        """Keep one more place."""
        self.count += 1
        if host:
            self.hosts.add(host)
        if len(self.places) < MOST_PLACES:
            self.places.append(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRank:
    """A member of a communicator. device: as CUDA counts. bus: the GPU's bus id, hexadecimal."""

    rank: int
    host: str
    pid: int
    device: int
    bus: str
    place: LogPlace


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operation is: all ranks of one must agree. dtype and redop: NCCL's numbers."""

    op: str
    count: int
    dtype: int
    redop: int
    root: int


@dataclass(slots=True)
class LoggedCalls:
    """What one rank asked for in a communicator, in its order: numbers of signatures of
    collectives, and their lines; the same of sends and receives.
    """

    signatures: "array[int]" = field(default_factory=lambda: array("I"))
    lines: "array[int]" = field(default_factory=lambda: array("I"))
    p2p: "array[int]" = field(default_factory=lambda: array("I"))
    p2p_lines: "array[int]" = field(default_factory=lambda: array("I"))
    first: LogPlace | None = None
    last: LogPlace | None = None


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
    """A warning: the text of the first, its place in NCCL's source."""

    text: str
    where: str
    seen: Seen = field(default_factory=Seen)


@dataclass(slots=True)
class Timeout:
    """What PyTorch's watchdog says of a rank: the number of the operation that did not end, and of
    the last that the program asked for.
    """

    number: int | None = None
    text: str = ""
    enqueued: int | None = None
    place: LogPlace | None = None


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
    counters: Counters = field(default_factory=Counters)
    versions: dict[str, Seen] = field(default_factory=dict)  # such as NCCL 2.28.9+cuda13.0
    communicators: list[Communicator] = field(default_factory=list)
    settings: dict[tuple[str, str], Seen] = field(default_factory=dict)
    config: dict[tuple[str, str], Seen] = field(default_factory=dict)
    networks: dict[str, Seen] = field(default_factory=dict)
    nics: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (IB or Socket, names)
    interfaces: dict[str, Seen] = field(default_factory=dict)  # of the bootstrap
    gdr: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (Enabled, of what)
    plugins: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (what, kind and name)
    failed_plugins: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (kind, why)
    numa: dict[tuple[str, str], str] = field(default_factory=dict)  # (host, bus id) -> node
    links: dict[str, Seen] = field(default_factory=dict)  # kinds of links of GPUs: NVL[370.8]
    p2p_off: dict[str, Seen] = field(default_factory=dict)
    nvls: dict[bool, Seen] = field(default_factory=dict)
    tuning: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    choices: dict[tuple[str, int], LoggedChoice] = field(default_factory=dict)
    signatures: list[Signature] = field(default_factory=list)
    timeouts: dict[tuple[str, int], Timeout] = field(default_factory=dict)  # by group and rank
    warnings: dict[str, LoggedWarning] = field(default_factory=dict)
    gone: dict[str, Seen] = field(default_factory=dict)  # connections that were closed
    is_ended: bool = False  # whether a communicator was ended by its program

    @property
    def gpus(self) -> set[tuple[str, str]]:
        """GPUs of all communicators, as (host, bus id)."""
        return {(rank.host, rank.bus) for one in self.communicators for rank in one.ranks.values()}
