"""What GPU backends share on both sides: options, a rank that takes its GPU, a session that opens,
a repeat, what disturbed it.
"""

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from collbench.backends.base import ANSWER_S, Batch, Samples
from collbench.backends.gpu.child import ChildWorkerGroup, Variables
from collbench.backends.gpu.rank import DeviceRank, sets_of, stride_bytes
from collbench.backends.gpu.timing import REPLAYS, TimingOptions, auto_iterations
from collbench.backends.net.gpu_proxy import may_be_on_gpu, net_bytes
from collbench.backends.net.receivers import may_take_threads, receivers_for
from collbench.device.card import Card, cuda_errors, device_count
from collbench.device.gemm import Gemm
from collbench.launch.group import Group, RankContext, WorkerGroup
from collbench.machine import gpus
from collbench.machine.host import has_nvidia_gpus
from collbench.planning.plan import Plan
from collbench.spec.case import Problem
from collbench.spec.collectives import collective
from collbench.spec.options import LaunchMode, NetMemory
from collbench.util.errors import CollbenchError, RefusedError, UnavailableError

# times as long as the first launches, on average, later ones may take: a GPU that grows hot lowers
# its clocks
SLOWER = 2
START_S = 120.0  # for contexts, allocations and first compilations
_CUDA_SWITCHES = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOptions:
    """How GPUs are used: which (none: all), how launches are queued and timed, how long a wait may
    last.

    is_spread: ranks are on several hosts, so that none can reach all others' memory. inject: a
    fault, for tests. is_urgent: launches get multiprocessors before what other streams of the GPU
    have. net_memory: where slots of messages lie; auto: on the GPU if MPI says that it takes its
    memory, where a processor need not look at them. net_threads: of a rank, that receive large
    messages (None: _receivers.py).
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


def why_no_gpus() -> str:
    """Why no GPU backend can run here, or an empty text."""
    if not has_nvidia_gpus() and find_spec("cupy") is None:
        return "this host has no NVIDIA GPU"
    if device_count() == 0:
        return "CUDA shows no GPU" if has_nvidia_gpus() else "this host has no NVIDIA GPU"
    return ""


def take_gpu(context: RankContext, options: GpuOptions) -> tuple[DeviceRank, dict[str, Any]]:
    """The GPU of a rank's number on its host, or the only one that its launcher shows it; and what
    the driver wants to know of it.
    """
    count = device_count()
    indices = options.gpus or tuple(range(count))
    if context.local_rank >= len(indices) > 1 or not indices:
        raise UnavailableError(
            f"rank {context.rank} has no GPU: {len(indices)} for the ranks of its host",
            "start one rank a GPU",
        )
    index = indices[context.local_rank if len(indices) > 1 else 0]
    if index >= count:
        raise UnavailableError(
            f"there is no GPU {index}: CUDA shows 0 to {count - 1}",
            "give others with --gpus, or look at CUDA_VISIBLE_DEVICES",
        )
    card = Card(index)
    if options.is_urgent:
        card.hurry()
    runtime = card.runtime
    facts = {
        "name": card.name,
        "uuid": card.uuid,
        "arch": card.arch,
        "ctas": card.multiprocessors,
        "cache": card.cache_bytes,
        "pids": (os.getpid(), os.getppid()) if context.is_process else (os.getpid(),),
        "version": (
            f"cuda {runtime.runtimeGetVersion()}{_switches()}; driver {runtime.driverGetVersion()};"
            f" cupy {card.cupy.__version__}"
        ),
    }
    return (
        DeviceRank(
            context.rank, context.n, card, is_alone=context.comm is None and not context.is_process
        ),
        facts,
    )


class GpuRank:
    """One rank's part, as far as all GPU backends have it alike."""

    def __init__(self, context: RankContext) -> None:
        self.context = context

    def device(self, options: GpuOptions) -> dict[str, Any]:
        """Take this rank's GPU; what the driver wants to know of it."""
        self.faults, self.options = cuda_errors(), options
        self.lane, facts = take_gpu(self.context, options)
        return facts

    def allocate(self, arena_bytes: int, user_bytes: int, host_bytes: int) -> Any:
        """Make the memory that the others write to and read."""
        return self.lane.allocate(arena_bytes, user_bytes, host_bytes)

    def connect(
        self,
        exported: Sequence[Any],
        timeout_s: float,
        is_peered: bool,
        hosts: Sequence[Hashable] = (),
    ) -> None:
        """Reach the others' memory; hosts: of the ranks, if there are several."""
        near = (
            [rank for rank, host in enumerate(hosts) if host == hosts[self.context.rank]]
            if hosts
            else None
        )
        self.lane.connect(exported, timeout_s, is_peered=is_peered, near=near)

    def compute(self, size: int) -> None:
        """Make the product that beside() queues. It takes seconds, in which no other rank may wait
        in a meeting.
        """
        if self.lane.product is None:
            self.lane.product = Gemm(self.lane.card, size)

    def close(self) -> None:
        """Give memory back."""
        if hasattr(self, "lane"):
            self.lane.close()


def _switches() -> str:
    """What the environment sets that changes how CUDA runs launches, in words."""
    given = [f"{name}={os.environ[name]}" for name in _CUDA_SWITCHES if name in os.environ]
    return f" with {' '.join(given)}" if given else ""


def open_ranks(
    group: Group, backend: str, n: int, options: GpuOptions, variables: Variables = ()
) -> tuple[WorkerGroup, list[dict[str, Any]]]:
    """A crew with a GPU a rank, no two the same, and what each is; in new processes with those
    environment variables if there are any.
    """
    count = len(options.gpus) or device_count()
    if group.kind == "local" and n > count:
        raise UnavailableError(f"{n} ranks, {count} GPUs", "use fewer --ranks")
    workers = (
        ChildWorkerGroup(group, backend, n, variables)
        if variables
        else group.gpu_workers(backend, n)
    )
    try:
        facts: list[dict[str, Any]] = workers.call("device", options, timeout_s=START_S)
    except CollbenchError:
        workers.close()
        raise
    if is_shared(facts):
        workers.close()
        uuids = ", ".join(fact["uuid"] for fact in facts)
        raise UnavailableError(
            f"two ranks share a GPU: {uuids}",
            "start one rank a GPU, or give each its own with --gpus",
        )
    return workers, facts


def is_shared(facts: Sequence[dict[str, Any]]) -> bool:
    """Whether two ranks have the same GPU: their kernels would wait for each other's turn."""
    return len({fact["uuid"] for fact in facts}) < len(facts)


def describe(facts: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """The GPUs in words, and the versions of what drives them."""
    names = list(dict.fromkeys(fact["name"] for fact in facts))
    return ", ".join(
        f"{sum(fact['name'] == name for fact in facts)} x {name}" for name in names
    ), str(facts[0]["version"])


def share_memory(
    workers: WorkerGroup,
    arena_bytes: int,
    user_bytes: int,
    options: GpuOptions,
    host_bytes: int = 0,
    *,
    is_peered: bool = True,
    hosts: Sequence[str] = (),
) -> None:
    """Allocate on every rank, and let every rank reach the others' memory: their GPUs' if
    is_peered, and host_bytes of each in host memory.

    hosts: of the ranks, if there are several and each rank reaches only those of its own.
    """
    exported = workers.call("allocate", arena_bytes, user_bytes, host_bytes, timeout_s=START_S)
    workers.call(
        "connect",
        exported,
        options.timeout_s,
        is_peered,
        *([hosts] if hosts else []),
        timeout_s=START_S,
    )


def reserve_net(
    workers: WorkerGroup, plans: Sequence[Plan], options: GpuOptions, hosts: Sequence[str]
) -> tuple[str, int, Callable[[Plan], None]]:
    """Let ranks, on those hosts, have memory for the messages of plans, and threads to receive
    large ones of their host.

    Returns what is to be said of it, the bytes of a rank, and what raises RefusedError for a plan
    that cannot run as it was asked for.
    """
    if not plans:
        return "", 0, lambda plan: None
    told = workers.call("mpi", timeout_s=START_S)
    not_on_gpu = next((why for _, why, _ in told if why), "")
    may_have_threads = all(cores for _, _, cores in told)
    is_on_gpu = not not_on_gpu and options.net_memory != "host"
    words, slots, gpu_slots = net_bytes(plans, has_gpu_slots=is_on_gpu)
    receivers, said = 0, ""
    if any(
        may_take_threads(plan, hosts) and not (is_on_gpu and may_be_on_gpu(plan)) for plan in plans
    ):
        receivers, said = _threads_to_receive(
            [cores for _, _, cores in told], hosts, options.net_threads
        )
    workers.call("reserve", words, slots, gpu_slots, timeout_s=START_S)
    workers.call("join", receivers, hosts, timeout_s=START_S)
    where = " and ".join(name for name, size in (("GPU", gpu_slots), ("host", slots)) if size)

    def refuse(plan: Plan) -> None:
        if options.net_threads and not may_have_threads:
            raise RefusedError(
                f"{told[0][0]} was started without the thread level multiple: no other thread may"
                " receive",
                "leave out --net-threads",
            )
        if options.net_memory == "device" and (not_on_gpu or not may_be_on_gpu(plan)):
            lines = f"a processor looks at the lines of {plan.proto}, which it cannot in GPU memory"
            raise RefusedError(not_on_gpu or lines, "use --net-memory host")

    return (
        f"; {told[0][0]}, messages in {where} memory{said and f', {said}'}",
        words + slots + gpu_slots,
        refuse,
    )


def _threads_to_receive(
    cores: Sequence[frozenset[int]], hosts: Sequence[str], asked: int | None
) -> tuple[int, str]:
    """How many threads of a rank receive, and that in words; cores: that each rank may use, several
    the same ones, none if MPI allows no threads.

    >>> (
    ...     _threads_to_receive([frozenset(range(32))] * 2, "aa", None),
    ...     _threads_to_receive([frozenset({0}), frozenset({1})], "aa", None),
    ... )
    ((4, '4 threads receive'), (0, 'no threads receive (1 core a rank)'))
    """
    near = [
        [one for one, at in zip(cores, hosts, strict=True) if at == host] for host in set(hosts)
    ]
    spare = min(len(frozenset().union(*found)) // len(found) for found in near)
    if not all(cores):
        return 0, "no threads receive (MPI's thread level)"
    count = receivers_for(spare) if asked is None else asked
    if not count:
        return 0, "no threads receive" + (
            f" ({spare} core{'s' * (spare != 1)} a rank)" if asked is None else ""
        )
    return count, f"{count} thread{'s receive' if count > 1 else ' receives'}"


class GpuHealth:
    """Looks at the GPUs between repeats, and says what may have disturbed one."""

    def __init__(self, facts: Sequence[dict[str, Any]]) -> None:
        self._uuids, self._pids = (
            [fact["uuid"] for fact in facts],
            {pid for fact in facts for pid in fact["pids"]},
        )
        self._last = gpus.conditions(self._uuids, self._pids)
        self.cache_bytes: int = facts[0]["cache"]
        self.iterations: dict[Any, int] = {}  # of what was timed, by key

    def notes(self) -> tuple[str, ...]:
        """What happened since the last look."""
        before, self._last = self._last, gpus.conditions(self._uuids, self._pids)
        return gpus.disturbances(before, self._last)


class GpuSession:
    """The driver's side, as far as all GPU backends have it alike: ranks with a GPU each."""

    def __init__(
        self,
        group: Group,
        backend: str,
        n: int,
        *,
        hot: bool,
        options: GpuOptions,
        variables: Variables = (),
    ) -> None:
        self.hot, self.options, self.n = hot, options, n
        self._workers, self.facts = open_ranks(group, backend, n, options, variables)
        self.device, self.version = describe(self.facts)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Let the ranks go if one cannot have what it needs; otherwise watch the GPUs from then
        on.
        """
        try:
            yield
        except BaseException:
            self.close()
            raise
        self._watch = GpuHealth(self.facts)

    def _sets(self, problem: Problem) -> int:
        """Sets of user buffers of each rank."""
        return sets_of(problem, self.facts[0]["cache"], hot=self.hot)

    def close(self) -> None:
        """End the ranks."""
        self._workers.close()


def repeat(
    workers: WorkerGroup,
    watch: GpuHealth,
    key: Any,
    problem: Problem,
    batch: Batch,
    sets: int,
    options: GpuOptions,
    *,
    hot: bool,
) -> Samples:
    """One repeat: clear and fill, run every set of buffers once and compare, time, compare
    again.
    """
    limit_s = 4 * options.timeout_s + batch.deadline_s + ANSWER_S
    workers.call("reset", key, timeout_s=limit_s)
    first = workers.call("first", key, batch.is_checked, timeout_s=limit_s)
    launch_s = max(answer.seconds for answer in first)
    iterations = batch.iterations or watch.iterations.get(key) or auto_iterations(launch_s)
    while True:
        work_s = SLOWER * (REPLAYS + 1) * iterations * batch.aggregate * launch_s
        how = TimingOptions(
            launch=options.launch,
            isolated=options.isolated,
            iterations=iterations,
            aggregate=batch.aggregate,
            work_s=work_s,
        )
        timed = workers.call("timed", key, how, batch.is_checked, timeout_s=limit_s + work_s)
        wanted = auto_iterations(max(answer.seconds for answer in timed))
        if batch.iterations or key in watch.iterations or wanted <= iterations:
            break
        # launched one by one for the first time, small ones took ten times as long as in a graph
        watch.iterations[key] = iterations = wanted
        workers.call("reset", key, timeout_s=limit_s)
    wrong = [a.wrong or b.wrong for a, b in zip(first, timed, strict=True)]
    is_cached = sets * stride_bytes(problem) < watch.cache_bytes
    notes = ["hot"] if hot else (["in-cache"] if is_cached else [])
    notes += (
        ["isolated"]
        if options.isolated
        else ["pipelined"]
        if collective(problem.op).is_rooted
        else []
    )
    return Samples(
        seconds=tuple(answer.seconds for answer in timed),
        iterations=iterations,
        wrong=tuple(found for found in wrong if found is not None),
        notes=(*notes, *watch.notes()),
    )
