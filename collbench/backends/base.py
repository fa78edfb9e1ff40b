"""The contract of backends: a backend opens sessions, and a session runs a job for a batch and
returns samples. Nothing here knows records, tables or files.

Every module of a backend has one object `BACKEND`: a Backend, whose jobs are plans, or a Peer, a
library whose jobs are cases. The process that drives a measurement has the session; the ranks that
do the work are Ranks of a worker group (see core/group.py).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from collbench.core.case import Case
from collbench.core.group import Group
from collbench.core.options import DEFAULT_MACHINE, LaunchMode, NetMemory
from collbench.core.pattern import Wrong
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.together import Together

if TYPE_CHECKING:  # a rank that starts reads no host
    from collbench.machine.discovery.counters import Moved

Job_contra = TypeVar("Job_contra", contravariant=True)
PartJob_contra = TypeVar("PartJob_contra", bound=Plan | Case, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """How to measure one repeat: untimed launches, timed iterations (0: as many as fill TARGET_S),
    and whether results are compared.

    An iteration is `aggregate` launches, followed by a barrier of all ranks if blocking.
    single_launches: after that batch, so many more at most are timed one by one, each behind a
    barrier of its own; single_s: seconds that they may take together, but LEAST_SINGLE may take
    more. deadline_s: how long no rank may wait for another.
    has_wire: read the counters of links before and after the timed iterations.
    """

    warmup: int = 1
    iterations: int = 0
    is_checked: bool = True
    aggregate: int = 1
    blocking: bool = False
    single_launches: int = 0
    single_s: float = math.inf
    deadline_s: float = 10.0
    has_wire: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One repeat: each rank's mean seconds a launch, iterations timed, wrong elements by rank,
    notes on the conditions.

    busy_s: CPU time of all ranks together, 0 if unknown. launch_times_s: of each launch that was
    timed by itself, the time of the rank that it took longest. alone_s: of launches together, what
    they take one after the other (planning/together.py). wire: what passed the links. span:
    from when to when all ranks of a host ran timed launches, by its monotonic clock.
    """

    seconds: tuple[float, ...]
    iterations: int = 1
    span: tuple[float, float] = (0.0, 0.0)
    busy_s: float = 0.0
    launch_times_s: tuple[float, ...] = ()
    alone_s: float = 0.0
    wrong: tuple[Wrong, ...] = ()
    notes: tuple[str, ...] = ()
    wire: "Moved | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOptions:
    """How GPUs are used: which (none: all), how launches are queued and timed, how long a wait may
    last.

    is_spread: ranks are on several hosts, so that none can reach all others' memory. inject: a
    fault, for tests. is_urgent: launches get multiprocessors before what other streams of the GPU
    have. net_memory: where slots of messages lie; auto: on the GPU if MPI says that it takes its
    memory, where a CPU need not look at them. net_threads: of a rank, that receive large messages
    (None: see net/receivers.py).
    """

    gpus: tuple[int, ...] = ()
    launch: LaunchMode = "graph"
    isolated: bool = False
    timeout_s: float = 10.0
    is_spread: bool = False
    inject: str = ""
    is_urgent: bool = False
    net_memory: NetMemory = "auto"
    net_threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What holds for a whole session: whether launches take one set of buffers all the time, the
    machine that the model describes, and how GPUs are used.
    """

    hot: bool = False
    machine: str = DEFAULT_MACHINE
    gpu: GpuOptions = field(default_factory=GpuOptions)


class SessionFacts(Protocol):
    """What rows and headlines say of a session.

    device, version: what ran the launches. headline: a line to show before the first row, or an
    empty text. host: what rows name as their host; empty: this one.
    """

    device: str
    version: str
    headline: str = ""
    host: str = ""


class Session(SessionFacts, Protocol[Job_contra]):
    """Runs jobs on the ranks that it holds."""

    @abstractmethod
    def run(self, job: Job_contra, batch: Batch) -> Samples:
        """One repeat: run and compare, poison, warm up, time, compare again."""

    def flag_s(self, limit_s: float, ways: int) -> float:
        """Seconds of the least launch on these ranks, in which a flag goes both ways between ranks,
        one way or none; 0: not known. limit_s: how long no rank may wait. Raises CollbenchError.
        """
        return 0.0

    def close(self) -> None:
        """End the ranks."""
        return


class SessionOpener(Protocol[Job_contra]):
    """What Backend and Peer have in common. name: the member of the family.

    is_gpu: its launches are queued on GPUs. wants_machine: it invents times for the machine of the
    options. has_launch_times: its ranks time launches one by one where a batch asks for that.
    is_apart: its ranks are processes that must not be there while other ranks are measured.
    """

    name: str
    is_gpu: bool = False
    wants_machine: bool = False
    has_launch_times: bool = True
    is_apart: bool = False

    def why_not(self, group: Group) -> str:
        """Why this backend cannot run on that group, or an empty text."""
        return ""

    def shared_bytes(self, job: Job_contra, *, hot: bool) -> int:
        """Shared memory that a job needs on each host."""
        return 0

    def private_bytes(self, job: Job_contra, *, hot: bool) -> int:
        """Memory of its own that a rank needs for a job."""
        return 0

    @abstractmethod
    def open(
        self, group: Group, jobs: Sequence[Job_contra], options: SessionOptions
    ) -> Session[Job_contra]:
        """A session for these jobs. Raises UnavailableError."""


class Backend(SessionOpener[Plan], Protocol):
    """Runs plans: our schedules."""

    is_peer: Literal[False] = False

    def limits(self, memory_bytes: int) -> Limits:
        """What a plan may use, with memory_bytes for its FIFOs."""
        return Limits(memory_bytes=memory_bytes)

    def why_waived(self, plan: Plan, group: Group) -> str:
        """Why this backend cannot run a plan on that group, or an empty text."""
        return ""


class TogetherOpener(SessionOpener[Together[PartJob_contra]], Protocol[PartJob_contra]):
    """Runs several plans at once, or, for a library, several cases."""

    has_launch_times: bool = False

    def why_waived(self, job: Together[PartJob_contra]) -> str:
        """Why these cannot run at once, or an empty text."""
        return ""


class Peer(SessionOpener[Case], Protocol):
    """A library that runs a case by its own algorithm. What it can be forced to: core/peers.py."""

    is_peer: Literal[True] = True

    @abstractmethod
    def why_waived(self, case: Case, is_reduction: bool) -> str:
        """Why the library cannot run a case, or an empty text."""
