"""Who the ranks of a command are, and where they run: the group that the environment gives, rank 0
as its driver, and the links of this machine's GPUs, or of a described one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from collbench.backends import FAMILY
from collbench.core.case import Case
from collbench.core.complaint import complain
from collbench.core.errors import CollbenchError, HangError, UnavailableError, UsageError
from collbench.core.group import Group
from collbench.core.host import has_nvidia_gpus, usable_cores
from collbench.core.launcher import launcher
from collbench.core.options import Options, Settings
from collbench.core.screen import remark
from collbench.core.world import host_numbers, ranks_per_gpu
from collbench.device.card import device_count, load_cupy
from collbench.machine.formats import described
from collbench.machine.topology import unnamed
from collbench.machine.topology.model import Topology
from collbench.planning.chooser import limits_of
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.planner import GPU_BACKENDS
from collbench.planning.price.constants import KIND_OF, costs_here, gpu_costs
from collbench.planning.protocols import FAMILY as PROTOCOLS

if TYPE_CHECKING:
    from collbench.machine.discovery.recording import Recording

MODEL = "model"


def group_here(timeout_s: float) -> Group:
    """The ranks of the launcher above, or this host's; one that is seen stopped or gone may keep
    the others for timeout_s.
    """
    started = launcher()
    if started is None:
        return local_group(timeout_s)
    from collbench.launch.mpi import MpiGroup

    return MpiGroup(started, timeout_s)


def local_group(timeout_s: float | None = None) -> Group:
    """The ranks of this host alone. timeout_s: as of group_here; None: the usual one."""
    from collbench.launch.local import LocalGroup

    return LocalGroup() if timeout_s is None else LocalGroup(timeout_s)


def drive_on_rank0(group: Group, drive: Callable[[], int]) -> int:
    """Drive on rank 0, serve on all others, and leave together; returns the exit code."""
    if group.rank != 0:
        return group.serve()
    code = 3
    try:
        code = drive()
    except (HangError, KeyboardInterrupt) as error:
        if group.kind == "mpi":  # some ranks may never answer again: leaving MPI together is over
            group.abort(complain(error))
        raise
    except CollbenchError as error:
        code = error.exit_code
        raise
    finally:
        group.close(code)
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """links: by backend, of those whose links are known. hosts: of the ranks, as numbers; () for
    one. per_gpu: ranks that share a GPU and its multiprocessors. orders, joined: what is known of
    ranks without links.
    """

    links: Mapping[str, RankLinks] = field(default_factory=dict)
    hosts: tuple[int, ...] = ()
    per_gpu: int = 1
    orders: tuple[tuple[int, ...], ...] = ()
    joined: str = ""

    def of(self, case: Case) -> RankLinks | None:
        """The links of the case's ranks."""
        return self.links.get(case.backend)

    def base(self, case: Case, limits: Limits) -> Limits:
        """The limits of a backend with what is known of ranks without links."""
        if self.of(case) is not None:
            return limits
        if case.backend in GPU_BACKENDS:
            has_lines = limits.has_lines and self.per_gpu > 1  # else over unknown links
            limits = replace(limits, ctas=limits.ctas // self.per_gpu, has_lines=has_lines)
        return replace(limits, orders=self.orders, joined=self.joined)

    def limits(self, case: Case, limits: Limits) -> Limits:
        """The limits with all that is known of the case's ranks."""
        return limits_of(case, self.base(case, limits), self.of(case))

    @property
    def has_hosts(self) -> bool:
        """Whether any backend has ranks on several hosts."""
        model = self.links.get(MODEL)
        return bool(self.hosts) or (model is not None and bool(model.hosts(len(model.gpus))))


def gpus_here() -> int:
    """The GPUs that CUDA shows this process; CuPy is not asked where the host has none."""
    return device_count() if has_nvidia_gpus() else 0


def least_cache_mib() -> float:
    """L2 cache of the GPU that has least, in MiB; 0 without a GPU. Creates no context."""
    runtime = load_cupy().cuda.runtime
    sizes = (
        int(runtime.getDeviceProperties(index)["l2CacheSize"]) for index in range(device_count())
    )
    return min(sizes, default=0) / 2**20


def refuse_no_gpus(hint: str, backend: str = "cuda") -> None:
    """Raise UnavailableError if nothing can run on GPUs here."""
    from collbench.backends.gpu.session import why_no_gpus

    if why := why_no_gpus():
        raise UnavailableError(f"--backend {backend}: {why}", hint)


class Asked(NamedTuple):
    """Whom a command measures: a backend, its ranks and how, their group, and their hosts."""

    backend: str
    ranks: int
    settings: Settings
    group: Group
    recordings: "Sequence[Recording]"

    @property
    def topology(self) -> Topology | None:
        """What the hosts are, where GPUs are measured. On rank 0."""
        return topology_of_all(self.recordings)

    def where(self) -> Ranks:
        """The links of the ranks. On rank 0."""
        return ranks_of((self.backend,), None, self.group, self.settings.gpus, self.topology)


def asked(options: Options, done: str, settings: Settings) -> Asked:
    """Whom the options, and a launcher, name. Every rank of a launcher calls this."""
    backend, ranks = _backend_asked(options, done)
    group = group_here(settings.timeout_s)
    recordings = recordings_of(group, {"backend": (backend,)})
    return Asked(backend, ranks, settings, group, recordings)


def _backend_asked(options: Options, done: str) -> tuple[str, int]:
    """The backend, and how many ranks, of a command that measures one: CUDA where there are two
    GPUs, or one a rank of a launcher. done: what happens to CPUs, such as checked.
    """
    under = launcher()
    backend, gpus = options.get("backend"), options.get("gpus", ())
    if not backend:
        has_enough = has_nvidia_gpus() and (gpus or device_count() > (under is None))
        backend = "cuda" if has_enough else "cpu"
        if has_nvidia_gpus() and not has_enough:
            remark(f"One GPU: nothing travels between ranks. The CPUs are {done}.")
    if backend != "cpu":
        refuse_no_gpus(f"with --backend cpu the CPUs are {done}", backend)
    if gpus and backend == "cpu":
        raise UsageError(f"--gpus: the CPUs are {done}", "give --backend cuda, or leave it out")
    ranks = options.get("ranks") or (under.size if under is not None else 0)
    if backend != "cpu":
        return backend, ranks or len(gpus) or device_count()
    return backend, ranks or max(2, min(8, usable_cores()))


def protocols_of(backend: str) -> tuple[str, ...]:
    """The protocols of a backend of ours; the model has constants of some alone."""
    return tuple(name for name in PROTOCOLS if backend != MODEL or name not in KIND_OF)


def ranks_of(
    backends: Sequence[str],
    machine: str | None,
    group: Group,
    gpus: Sequence[int],
    recorded: Topology | None,
) -> Ranks:
    """The ranks of a sweep. machine: the described one, or None. recorded: the links of this
    machine, or None.
    """
    topology = described(machine) if machine is not None else None
    known, shared = topology or recorded, ranks_per_gpu(gpus) if gpus else 1
    links: dict[str, RankLinks] = {}
    for backend in backends:
        if backend == MODEL:
            if topology is not None:
                names = tuple(gpu.id for gpu in topology.gpus)
                costs = gpu_costs(str(machine))
                links[backend] = RankLinks(topology, names, costs, is_described=True)
        # between ranks that share a GPU there are no links
        elif shared == 1 and known is not None and FAMILY.load(backend).is_gpu:
            used = _gpus_of_ranks(known, group, gpus)
            models = {known.by_id[gpu].name for gpu in used}
            costs = gpu_costs(costs_here("gpu", models.pop() if len(models) == 1 else ""))
            links[backend] = RankLinks(known, used, costs)
    return Ranks(links=links, hosts=hosts_of(group), per_gpu=shared)


def hosts_of(group: Group) -> tuple[int, ...]:
    """The host of every rank as a number; nothing if all are on one."""
    return host_numbers(group.hosts) if len(group.hosts) > 1 else ()


def topology_of_all(recordings: "Sequence[Recording]") -> Topology | None:
    """The machine of the recordings, if there are any."""
    from collbench.machine.discovery import topology_of

    return topology_of(recordings) if recordings else None


def _gpus_of_ranks(topology: Topology, group: Group, gpus: Sequence[int]) -> tuple[str, ...]:
    """The GPU of every rank: by its number on its host, through the list of GPUs if given."""
    by_place = {(gpu.host, gpu.index): gpu.id for gpu in topology.gpus}
    if group.kind == "local":
        wanted = [
            (0, index) for index in gpus or sorted(index for host, index in by_place if host == 0)
        ]
    else:
        hosts = list(dict.fromkeys(group.hosts))
        places = [
            (hosts.index(host), list(group.hosts[:rank]).count(host))
            for rank, host in enumerate(group.hosts)
        ]
        wanted = [(host, gpus[local] if local < len(gpus) else local) for host, local in places]
    if all(place in by_place for place in wanted):
        return tuple(by_place[place] for place in wanted)
    return ()


def remark_unnamed(machine: str | None) -> None:
    """Say what a described machine leaves unnamed."""
    topology = described(machine) if machine is not None else None
    if topology is not None and (text := unnamed.remark(topology)):
        remark(text)


def refuse_few_gpus(machine: str, ranks: int) -> None:
    """Raise UsageError if a described machine has GPUs, but not one for each rank: the schedules of
    many ranks take long to prove.
    """
    links = described(machine)
    if links is not None and ranks > len(links.gpus):
        raise UsageError(f"{machine} has {len(links.gpus)} GPUs, not {ranks}", "use fewer --ranks")


def recordings_of(group: Group, options: Options) -> "list[Recording]":
    """What the ranks' hosts are, if GPUs are in the sweep. Under a launcher all ranks must call it;
    only rank 0 gets them.
    """
    if not any(FAMILY.load(backend).is_gpu for backend in options.get("backend", ())):
        return []
    from collbench.machine.discovery import gather, record

    return [record()] if group.kind == "local" else gather(group.comm) or []  # type: ignore[attr-defined]
