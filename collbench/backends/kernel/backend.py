"""The backends of somebody's kernels: each is a library whose name is that of its file. On GPUs
nothing ends a kernel that hangs but the end of its process, so each rank is one of its own.
"""

import mmap
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from collbench.backends.base import Batch, Peer, Samples, Session, SessionOptions
from collbench.backends.blocking import GUARD, MARGIN_BYTES, stray, zones
from collbench.backends.gpu.memory import GpuArray
from collbench.backends.gpu.rank import Graphs, Launches, stride_bytes
from collbench.backends.gpu.session import GpuRank, GpuSession, why_no_gpus
from collbench.backends.kernel.contract import GRACE_S, START_S, KernelCall, KernelFile, KernelRank
from collbench.backends.library import Call, LibraryRank, LibrarySession, private_bytes
from collbench.backends.repeat import RankTiming
from collbench.core.case import Case, Problem
from collbench.core.dtypes import dtype
from collbench.core.errors import CollbenchError, RefusedError, UsageError
from collbench.core.group import Group, RankContext
from collbench.core.pattern import Wrong
from collbench.core.peers import PEERS, is_peer, library_of

if TYPE_CHECKING:
    from collbench.core.dtypes import Array

KernelKey = tuple[Problem, int]  # what is launched, and how many sets of user buffers there are
# a kernel that is loaded at its first launch waits for those that run, which may wait for it
VARIABLES = (("CUDA_MODULE_LOADING", "EAGER"),)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")
_WORDS = ("all", "auto", "ours")  # where options and tables expect a backend


class KernelCpuRank(LibraryRank):
    """One rank's part on CPU cores."""

    part: KernelRank

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        assert context.arena is not None
        self._arena = context.arena

    def load(self, path: str) -> None:
        """Make the rank's part of the kernel in that file."""
        self.file = KernelFile(Path(path))
        self.part = KernelRank(self.file, self._arena, self.rank, self.n)

    def named(self, error: BaseException) -> CollbenchError | None:
        return self.file.named(error)

    def describe(self) -> str:
        return self.file.version()

    def _call(self, problem: Problem, source: "Array", target: "Array") -> Call:
        kind = dtype(problem.dtype).numpy()
        call = self.part.call(problem, source.view(kind), target.view(kind))
        return self.part.kernel.run, (call,)

    def _meet(self) -> None:
        self.part.meet()

    def flag(self, limit_s: float) -> float:
        """Seconds of an exchange of a flag with one other rank, which is the tool's own."""
        return self.part.barrier.flag_s(limit_s)

    @contextmanager
    def _limit(self, call: str, limit_s: float) -> Iterator[None]:
        with super()._limit(call, limit_s + GRACE_S), self.part.limit(call, limit_s):
            yield

    def prepare(self, problem: Problem, hot: bool, batch: Batch) -> RankTiming:
        self.part.arena[0] = 0  # what another backend refused before is over
        return super().prepare(problem, hot, batch)


class GuardedLaunches(Launches):
    """Launches on user buffers between guard zones."""

    __slots__ = ()

    def zones(self) -> Iterator[list[tuple[int, int]]]:
        """Address and bytes of each zone of each set."""
        gpu, problem = self.gpu, self.problem
        for number in range(self.sets):
            base = gpu.user + number * stride_bytes(problem)
            yield [(base + zone.start, len(zone)) for zone in zones(problem, gpu.rank)]

    def compare(self, sets: range) -> Wrong | None:
        wrong = super().compare(sets)
        for placed in self.zones() if sets else ():
            seen = [self.gpu.card.download(*zone) for zone in placed]
            wrong = wrong or stray(self.problem, self.gpu.rank, seen)
        return wrong


class KernelGpuRank(GpuRank[KernelKey]):
    """One rank's part."""

    file: KernelFile | None = None
    why_not_shared = "a kernel may wait for another rank's, which a shared GPU need not run"

    def load(self, path: str, meeting: str) -> None:
        """Make the rank's part of the kernel in that file. meeting: a file that all ranks map."""
        self.file, context, card = KernelFile(Path(path)), self.context, self.gpu.card
        with Path(meeting).open("r+b") as file:
            arena = memoryview(mmap.mmap(file.fileno(), 0))
        of = context.rank, context.n, card.index, card.stream
        self.part = KernelRank(self.file, arena, *of)
        self.calls: list[KernelCall] = []
        self.graphs: Graphs = {}
        self.ready: KernelKey | None = None  # what the graphs and calls are of

    def named(self, error: BaseException) -> CollbenchError | None:
        return self.file.named(error) if self.file is not None else None

    def reset(self, key: KernelKey) -> None:
        """As of other ranks; also write the guard zones."""
        super().reset(key)
        for placed in self._launches(key).zones():
            for address, size in placed:
                self.gpu.card.upload(address, bytes([GUARD]) * size)

    def _call(self, problem: Problem, number: int) -> KernelCall:
        """What the kernel is called with on a set of user buffers."""
        give, take = (self.gpu.buffer(problem, which, number) for which in ("in", "out"))
        kind = problem.dtype
        return self.part.call(problem, GpuArray(*give, kind), GpuArray(*take, kind))

    def _launches(self, key: KernelKey) -> GuardedLaunches:
        problem, sets = key
        if self.ready != key:
            self.graphs, self.ready = {}, key
            self.calls = [self._call(problem, number) for number in range(sets)]
        return GuardedLaunches(
            gpu=self.gpu,
            problem=problem,
            # in the stream that the kernel was made with
            queue=lambda number, stream: self.part.kernel.run(self.calls[number]),
            sets=sets,
            wait=self._wait,
            graphs=self.graphs,
        )


class KernelGpuSession(GpuSession[Case, KernelKey, KernelGpuRank]):
    """Drives the ranks of a kernel."""

    def __init__(
        self, group: Group, cases: Sequence[Case], file: KernelFile, options: SessionOptions
    ) -> None:
        n, hot, gpu = cases[0].ranks, options.hot, options.gpu
        super().__init__(group, KernelGpuRank, n, hot=hot, options=gpu, variables=VARIABLES)
        with self._opening(), TemporaryDirectory(prefix="collbench-kernel-") as folder:
            paths = str(file.path), f"{folder}/meeting"
            Path(paths[1]).touch()
            os.truncate(paths[1], file.arena_bytes(n))
            loaded = map(self._loaded, cases)
            size = max(sets * stride_bytes(problem) for _, problem, sets in loaded)
            self._share_memory(0, size)
            self._workers.call(KernelGpuRank.load, *paths, timeout_s=START_S)
        self.version += f"; {file.version()}"

    def _loaded(self, case: Case) -> tuple[KernelKey, Problem, int]:
        problem = replace(case.problem(), margin_bytes=MARGIN_BYTES)
        sets = self._sets(problem)
        return (problem, sets), problem, sets

    def _notes_of(self, case: Case) -> tuple[str, ...]:
        return ("processes",)


class KernelSession(Session[Case]):
    """A session that begins again behind a refusal: ranks that refuse a point may have met less
    often than others, or left shared memory half written.
    """

    def __init__(self, begin: Callable[[], Session[Case]]) -> None:
        self._begin, first = begin, begin()
        self._session: Session[Case] | None = first
        self.device, self.version = first.device, first.version

    def run(self, job: Case, batch: Batch) -> Samples:
        try:
            return self._begun().run(job, batch)
        except RefusedError:
            self.close()
            raise

    def flag_s(self, limit_s: float, ways: int) -> float:
        return self._begun().flag_s(limit_s, ways)

    def _begun(self) -> Session[Case]:
        self._session = self._session or self._begin()
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


class KernelBackend(Peer):
    """The kernel of a file."""

    def __init__(self, path: Path) -> None:
        self.name, self.file = path.stem, KernelFile(path)

    @property
    def is_gpu(self) -> bool:  # type: ignore[override]  # known once the file is loaded
        return bool(self.file.module.ON_GPUS)

    def why_not(self, group: Group) -> str:
        if len(set(group.hosts)) > 1:
            return f"{self.file.path.name} is measured on one host"
        return why_no_gpus() if self.is_gpu else ""

    @property
    def is_apart(self) -> bool:  # type: ignore[override]  # known once all files are named
        # ranks of a launcher have the part of one kernel at a time
        return self.is_gpu or len(KERNELS) > 1

    def why_waived(self, case: Case, is_reduction: bool) -> str:
        return self.file.why_waived(case, is_reduction)

    def shared_bytes(self, case: Case, *, hot: bool) -> int:
        return self.file.arena_bytes(case.ranks)

    def private_bytes(self, case: Case, *, hot: bool) -> int:
        return 0 if self.is_gpu else private_bytes(case, hot=hot)

    def open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> Session[Case]:
        return KernelSession(partial(self._open, group, cases, options))

    def _open(self, group: Group, cases: Sequence[Case], options: SessionOptions) -> Session[Case]:
        if self.is_gpu:
            return KernelGpuSession(group, cases, self.file, options)
        n, path = cases[0].ranks, str(self.file.path)
        workers = group.shared_workers(KernelCpuRank, n, self.file.arena_bytes(n))
        begin = partial(workers.call, KernelCpuRank.load, path, timeout_s=START_S)
        return LibrarySession(
            workers, hot=options.hot, start_s=START_S, begin=begin, margin_bytes=MARGIN_BYTES
        )


KERNELS: dict[str, KernelBackend] = {}  # that were named, by their names in rows


def add(file: str) -> str:
    """The name of a kernel in rows, which is from then on a backend. Raises UsageError."""
    path = Path(file).parent.resolve() / Path(file).name  # a link keeps its name
    name, hint = path.stem, "rename the file: a letter, then at most 30 letters, digits, _ and -"
    if not _NAME.fullmatch(name):
        raise UsageError(f"--backend: '{name}' cannot be a name in rows", hint)
    known = {one.file.path for one in KERNELS.values() if one.name == name}
    is_taken = library_of(name) in (*PEERS, *_WORDS) or not is_peer(name)
    if is_taken or any(one != path and one.exists() for one in known):
        raise UsageError(f"--backend: {name} has a meaning already", hint)
    if path not in known:
        KERNELS[name] = KernelBackend(path)
    return name
