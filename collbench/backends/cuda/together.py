"""Several plans at once on GPUs: see gpu/together.py. Each part is a CudaRank in its regions: its
states, FIFOs and reports are its own, too.

CTAs of all groups of a rank wait for other ranks, so all must be resident at once: a group that
finds no place could be what others wait for.
"""

from collections.abc import Sequence
from functools import partial

from collbench.backends.base import Batch, GpuOptions, SessionOptions, TogetherOpener
from collbench.backends.cuda.compilation import Compilation
from collbench.backends.cuda.rank import DROP_AFTER, CudaRank, LoadedGpuPlan
from collbench.backends.gpu import timing, together
from collbench.backends.gpu.hang import diagnosis
from collbench.backends.gpu.rank import Launches, QueueOne
from collbench.backends.gpu.session import START_S, GpuRank
from collbench.backends.gpu.together import (
    GpuTogetherSession,
    PartOfRanks,
    PartRank,
    why_not_one_host,
)
from collbench.backends.repeat import MAX_LOADED_PLANS, RankTiming, refuse_other_plans
from collbench.core.errors import HangError, ScheduleError
from collbench.core.group import Group
from collbench.device.card import Launch
from collbench.device.layout import is_in_host, layouts
from collbench.device.program import ctas, launches_counted
from collbench.planning.plan import Plan
from collbench.planning.together import Part, Together

_CLUSTERED_SHARE = 2  # only one in so many places can be promised to CTAs of clusters: see below


class _PartRank(PartRank[str], CudaRank):
    """One rank of a part."""

    def __init__(self, whole: CudaRank, part: PartOfRanks) -> None:
        super().__init__(whole, part)
        self._beside: dict[tuple[str, int], Launch] = {}

    def first(self, digest: str, is_checked: bool) -> RankTiming:
        """As of CudaRank; faults of tests are those of the whole rank."""
        return GpuRank.first(self, digest, is_checked)

    def beside(self, digest: str, launches: Launches) -> QueueOne:
        """A launch that does not take its place before what is in front of it has ended: the place
        might be one that another group needs.
        """
        return partial(self._queue_beside, self.loaded[digest])

    def _queue_beside(self, loaded: LoadedGpuPlan, number: int, stream: int) -> None:
        key = loaded.plan.digest, number
        if key not in self._beside:
            self._beside[key] = self.launch(
                loaded, loaded.function, loaded.memory, number, is_alone=True
            )
        self._beside[key](stream)

    def diagnosis(self, plan: Plan) -> HangError | None:
        """What the CTAs of a plan of this part were waiting for, if any was."""
        return diagnosis(self.gpu, plan, self.part.ranks, self.part.name)


class TogetherRank(together.TogetherRank[str], CudaRank):
    """One rank's part of several plans. Every plan's FIFOs are as the launches before left them."""

    parts: dict[int, _PartRank]

    def _part(self, part: PartOfRanks) -> _PartRank:
        return _PartRank(self, part)

    def load_part(
        self, number: int, plan: Plan, sets: int, cubins: Sequence[bytes], is_full: bool
    ) -> str:
        """Load a part's kernel and program; returns the plan's hash, empty where this rank has no
        such part.
        """
        if number not in self.parts:
            return ""
        if is_full:
            self.graphs.clear()
        return self.parts[number].load(plan, sets, cubins, is_full)

    def refuse_crowd(self, digests: Sequence[str]) -> None:
        """Raise ScheduleError if the launches of this rank's parts may not run at once."""
        most: dict[int, int] = {}  # CTAs of a group, whose launches follow each other
        for number, part in self.parts.items():
            launched = ctas(part.loaded[digests[number]].plan)
            most[part.part.group] = max(launched, most.get(part.part.group, 0))
        loaded = [part.loaded[digests[number]] for number, part in self.parts.items()]
        places, wanted = resident_places(loaded), sum(most.values())
        if len(most) > 1 and wanted > places:
            raise ScheduleError(
                f"{wanted} CTAs of {len(most)} launches wait for each other on rank"
                f" {self.context.rank}, {places} are sure to be resident together on"
                f" {self.gpu.card.name}",
                "use fewer --channels, --cluster 1, or --launch-order same",
            )

    def first_of_part(self, number: int, digest: str, is_checked: bool) -> RankTiming | None:
        """As of other ranks; a test may want this one to misbehave before."""
        if number == min(self.parts, default=-1):
            self._misbehave()
        return super().first_of_part(number, digest, is_checked)

    def _hang(self, digests: Sequence[str], error: HangError) -> HangError:
        """Of the part, of this rank's, whose CTAs had come least far."""
        if error.suspect is not None:
            return error
        found = [
            part.diagnosis(part.loaded[digests[number]].plan) for number, part in self.parts.items()
        ]
        hangs = [one for one in found if one is not None and one.suspect is not None]
        return min(hangs, key=lambda one: one.suspect or (), default=error)


def resident_places(loaded: Sequence[LoadedGpuPlan]) -> int:
    """CTAs of any of these kernels that are sure to be resident at once, whichever come first.

    If k CTAs of every kernel fit a multiprocessor, none takes more than one k-th of anything there:
    as long as fewer than k have come to each, there is room for another. Clusters need several
    places in one GPC; while half of all places are free, some GPC has as many.
    """
    places = min(one.resident for one in loaded)
    has_clusters = any(
        one.plan.kernel is not None and one.plan.kernel.cluster > 1 for one in loaded
    )
    return places // _CLUSTERED_SHARE if has_clusters else places


class CudaTogetherSession(GpuTogetherSession[Plan, str, TogetherRank]):
    """Drives the ranks."""

    def __init__(
        self, group: Group, jobs: Sequence[Together[Plan]], *, hot: bool, options: GpuOptions
    ) -> None:
        super().__init__(group, TogetherRank, jobs[0].n, hot=hot, options=options)
        self._known: set[tuple[str, ...]] = set()
        self._compilation = Compilation(DROP_AFTER if options.inject == "drop" else None)
        plans = [part.job for job in jobs for part in job.parts]
        for job in jobs:
            for part in job.parts:
                self._compilation.begin(part.job, self._archs(part))
        parts, arena_bytes, user_bytes = self._regions(jobs)
        with self._opening():
            self._share_memory(
                arena_bytes,
                user_bytes,
                arena_bytes if any(map(is_in_host, plans)) else 0,
                is_peered=not all(map(is_in_host, plans)),
            )
            self._workers.call(TogetherRank.divide, parts, timeout_s=START_S)
        self.headline = (
            f"{self.device}: {-(-arena_bytes >> 20)}M of FIFOs, flags and scratch memory a GPU for"
            f" {len(parts)} parts"
        )

    def _archs(self, part: Part[Plan]) -> list[int]:
        return [self.facts[rank].arch for rank in part.ranks]

    def _bytes_of(self, part: Part[Plan]) -> tuple[int, int]:
        arena = max(max(where.total, where.fifos_end) for where in layouts(part.job))
        return arena, self._user_bytes(part)

    def _load(self, job: Together[Plan]) -> tuple[str, ...]:
        """Have the plans of a job on their ranks; returns their hashes. Raises ScheduleError for
        what a GPU cannot run, or not at once.
        """
        digests = tuple(part.job.digest for part in job.parts)
        if digests not in self._known:
            if is_full := len(self._known) >= MAX_LOADED_PLANS:
                self._known.clear()
            for number, part in enumerate(job.parts):
                plan, cubins = part.job, self._compilation.cubins(part.job, self._archs(part))
                sets = self._sets(plan.problem)
                loaded = self._workers.call(
                    TogetherRank.load_part, number, plan, sets, cubins, is_full, timeout_s=START_S
                )
                refuse_other_plans(plan.digest, loaded)
            self._known.add(digests)
        if job.order == "grouped":
            self._workers.call(TogetherRank.refuse_crowd, digests, timeout_s=START_S)
        return digests

    def _refuse_uncounted(self, job: Together[Plan], batch: Batch) -> None:
        """Raise ScheduleError for more launches than kernels can count between two resets."""
        for plan in (part.job for part in job.parts):
            # alone and together
            timed = 2 * timing.launches_of(batch, self.options)
            launches, most = self._sets(plan.problem) + timed, launches_counted(plan)
            if launches > most:
                raise ScheduleError(
                    f"{launches} launches in a repeat: kernels count the slices of {most}",
                    "use fewer --iters or a larger --chunk",
                )

    def close(self) -> None:
        """End the ranks, and what is being compiled."""
        self._compilation.close()
        super().close()


class CudaTogether(TogetherOpener[Plan]):
    """What opens sessions for launches together."""

    name = "cuda"
    is_gpu = True

    def why_not(self, group: Group) -> str:
        return why_not_one_host(group)

    def why_waived(self, job: Together[Plan]) -> str:
        transports = {part.job.transport for part in job.parts}
        if "ce" in transports:
            return (
                "copy engines take turns with one collective at a time: use --transport p2p or shm"
            )
        if any(part.job.domains for part in job.parts):
            return (
                "a rank's host moves the messages of one collective at a time: use --transport p2p"
                " or shm"
            )
        return ""

    def open(
        self, group: Group, jobs: Sequence[Together[Plan]], options: SessionOptions
    ) -> CudaTogetherSession:
        return CudaTogetherSession(group, jobs, hot=options.hot, options=options.gpu)


TOGETHER = CudaTogether()
