"""Launches that do nothing while they are timed: every backend sees it by its outputs, which are
poisoned after the first check. tests/mpi and tests/gpu have MPI, CUDA and NCCL themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product, takewhile
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collbench.backends import reference, repeat
from collbench.backends.base import Batch, GpuOptions
from collbench.backends.cpu import backend as cpu
from collbench.backends.gpu import copies, timing
from collbench.backends.gpu import rank as gpu_rank
from collbench.backends.gpu.concurrent import ConcurrentWork
from collbench.backends.gpu.proof import Changing
from collbench.backends.gpu.rank import DeviceRank, stride_bytes
from collbench.backends.gpu.session import GpuRank
from collbench.backends.proof import Elements
from collbench.backends.repeat import checked_sets, phase, timed_sets
from collbench.core.case import Case, Problem
from collbench.core.collectives import OPS, OpName, collective
from collbench.core.dtypes import DTYPES, REDOPS, DtypeName, RedopName, dtype, ufunc
from collbench.core.group import RankContext
from collbench.core.knobs import Placement
from collbench.core.options import LaunchMode
from collbench.core.pattern import PERIOD, Wrong, bits, fill, inputs, reduced
from collbench.launch.local import LocalGroup
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from tests.support.gpu_session import launches
from tests.support.gpus_in_threads import exchange, fill_or_compare
from tests.support.plants import PLANTS, on_gpu, plant
from tests.support.tiers import tiered

PLACES: tuple[Placement, ...] = ("out", "in")
PLACED = [
    (op, place) for op in OPS for place in PLACES if place == "out" or collective(op).has_in_place
]


def case(op: OpName, place: Placement, **more: Any) -> Case:
    given = {"backend": "cpu", "algo": "auto", "ranks": 2, "size_bytes": 4096, **more}
    return Case(op=op, placement=place, **given)


# Which sets are poisoned and compared


@pytest.mark.parametrize("launches", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize(("op", "place"), PLACED)
def test_what_is_compared_was_launched_and_is_known(
    op: OpName, place: Placement, launches: int
) -> None:
    """Where the definition only knows the first launch on a set, there is exactly one."""
    for redop, hot in product(("sum", "max"), (False, True)):
        problem = case(op, place, redop=redop, size_bytes=1 << 22).problem()
        sets = repeat.rotations(problem, hot=hot)
        order, checked = timed_sets(problem, sets, launches), checked_sets(problem, sets, launches)
        assert len(order) == launches
        assert max(order) < sets
        assert set(checked) <= set(order)
        if repeat.accumulates(problem):
            assert [number for number in order if number in checked] == [order[-1]]
        else:
            assert set(checked) == set(order)


@pytest.mark.parametrize("redop", REDOPS)
@tiered("name", DTYPES, 4)
def test_the_first_element_is_one_that_a_reduction_in_place_changes(
    name: DtypeName, redop: RedopName
) -> None:
    """Its size may be one element."""
    for n, op in product((2, 3, 8, 33), OPS):
        what = collective(op)
        if what.is_reduction:
            given = {
                "dtype": name,
                "redop": redop,
                "ranks": n,
                "root": n - 1 if what.is_rooted else 0,
            }
            problem = case(op, "in", **given, size_bytes=dtype(name).item_bytes * n).problem()
            values = inputs(name, redop, n, problem.root), reduced(name, redop, n)
            first, last = (table[phase(problem, 0)].tobytes() for table in values)
            assert first != last


def test_no_two_sets_hold_the_same() -> None:
    problem = case("allreduce", "out").problem()
    assert len({phase(problem, number) for number in range(repeat.MAX_ROTATIONS + 1)}) == 257
    source, target = (np.empty(problem.block_count, np.float32) for _ in range(2))
    fill(target, "broadcast", "sum", 2, 0, phase(problem, 0))
    broadcast = case("broadcast", "out").problem()
    assert repeat.compare_output(broadcast, 1, target, 0) is None
    assert repeat.compare_output(broadcast, 1, target, 1) is not None
    repeat.prepare_buffers(problem, 0, source, target, 3)
    assert source[0] == inputs("float32", "sum", 2, 0)[3 * repeat.SET_PHASE % PERIOD]


# CPUs and the reference


@pytest.mark.exhaustive
@pytest.mark.parametrize("hot", [False, True])
def test_idle_cpus_are_noticed(monkeypatch: pytest.MonkeyPatch, hot: bool) -> None:
    plans = [
        resolve(case(op, place, proto=proto, redop=redop, size_bytes=size)).plan
        for number, (op, place) in enumerate(PLACED)
        for proto, redop in (
            (("simple", "ll", "ll128")[number % 3], "sum"),
            ("simple", "max" if place == "in" else "sum"),
        )
        for size in (8, 4096)
    ]
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", 3)
    right = run_all(plans, hot)
    assert not [plan.problem for plan, wrong in zip(plans, right, strict=True) if wrong]
    for method in ("timed", "timed_singly"):
        with plant("idle", method):
            idle = run_all(plans, hot)
        assert not [plan.problem for plan, wrong in zip(plans, idle, strict=True) if not wrong]


def run_all(plans: list[Plan], hot: bool) -> list[tuple[Wrong, ...]]:
    session = cpu.CpuSession(LocalGroup(), plans, hot=hot)
    batches = (
        Batch(iterations=3, single_launches=1),
        Batch(iterations=4, aggregate=2, blocking=True, single_launches=5),
    )
    try:
        return [session.run(plan, batches[number % 2]).wrong for number, plan in enumerate(plans)]
    finally:
        session.close()


@pytest.mark.parametrize("place", PLACES)
def test_an_idle_reference_is_noticed(monkeypatch: pytest.MonkeyPatch, place: Placement) -> None:
    plan = resolve(case("allreduce", place, backend="reference")).plan
    launch, count = reference.ReferenceRun.launch, 0

    def first_alone(machine: reference.ReferenceRun) -> None:
        nonlocal count
        count += 1
        if count == 1:
            launch(machine)

    assert not reference.ReferenceSession().run(plan, Batch(iterations=3)).wrong
    monkeypatch.setattr(reference.ReferenceRun, "launch", first_alone)
    assert reference.ReferenceSession().run(plan, Batch(iterations=1)).wrong


# GPUs: the kernels of pattern.cu, launches and graphs are made of NumPy


class Card:
    """Memory, and a stream that does what it is asked to at once, or as often as a graph is
    launched. log: what was done. Its first launch takes a microsecond, each one more than the one
    before, an event nothing, and all else a millisecond.
    """

    def __init__(self) -> None:
        self.memory, self.end = np.zeros(1 << 26, np.uint8), 4096
        self.stream, self.log = 1, list[str]()
        self.now_s, self.launched, self.recorded_s = 0.0, 0, list[float]()
        self._captured: list[tuple[str, Callable[[], None]]] | None = None
        self.changed: tuple[Sequence[int], int] | None = None  # for the launch that is queued next

    def do(self, what: str, work: Callable[[], None]) -> None:
        if self._captured is not None:
            self._captured.append((what, work))
        else:
            self.log.append(what)
            self.launched += what == "launch"
            takes_s = {"launch": 1e-6 * self.launched, "record": 0.0}
            self.now_s += takes_s.get(what, 1e-3)
            work()

    def view(self, address: int, size: int) -> np.ndarray:
        return self.memory[address : address + size]

    def allocate(self, size: int) -> int:
        start = self.end
        self.end += -(-size // 4096) * 4096
        return start

    def upload(self, address: int, data: bytes) -> None:
        self.view(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def download(self, address: int, size: int) -> bytes:
        return self.view(address, size).tobytes()

    def capture(self, body: Callable[[int], None]) -> Any:
        self._captured = []
        body(self.stream)
        works, self._captured = self._captured, None

        def launch(stream: int) -> None:
            for work in works or ():
                self.do(*work)

        return SimpleNamespace(launch=launch)

    def clear(self, address: int, size: int) -> None:
        self.do("clear", partial(self.view(address, size).fill, 0))

    def record(self, event: int) -> None:
        self.do("record", lambda: self.recorded_s.__setitem__(event, self.now_s))

    record_by_graph = record

    def as_cupy(self, stream: int) -> int:
        return stream

    def wait(self, deadline_s: float) -> None: ...

    def event(self) -> int:
        self.recorded_s.append(0.0)
        return len(self.recorded_s) - 1

    def elapsed_s(self, start: int, stop: int) -> float:
        return self.recorded_s[stop] - self.recorded_s[start]


class Kernel:
    """A launch of a kernel of pattern.cu: its arguments are what the kernel's are."""

    def __init__(self, card: Card, function: Any, grid: Any, block: int, args: list[bytes]) -> None:
        self.card, (self.name, self.item), self.sets = card, function, grid[1]
        self.args = [int.from_bytes(arg, "little") for arg in args]

    def __call__(self, stream: int) -> None:
        if self.name == "exchange":
            self.card.do(self.name, partial(exchange, self.card.view, self.item, *self.args))
            return
        for number in range(self.sets):
            of = partial(fill_or_compare, self.card.view, self.item, number, self.args)
            self.card.do(self.name, partial(of, is_fill=self.name == "fill"))


def gpu_on(card: Card, rank: int, n: int, monkeypatch: pytest.MonkeyPatch) -> DeviceRank:
    gpu = DeviceRank(rank, n, cast(Any, card), is_alone=True)
    monkeypatch.setattr(gpu_rank, "Launch", Kernel)
    monkeypatch.setattr(gpu_rank, "POOL_BYTES", 1 << 22)
    monkeypatch.setattr(gpu, "barrier", lambda hold_ns=0: card.do("barrier", lambda: None))
    kernels = "fill", "compare", "exchange"
    before, after = Changing.before, Changing.after

    def change(changing: Any, number: int, stream: int) -> None:
        before(changing, number, stream)
        card.changed = changing._order, number

    def keep(changing: Any, number: int, stream: int) -> None:
        card.changed = None
        after(changing, number, stream)

    monkeypatch.setattr(Changing, "before", change)
    monkeypatch.setattr(Changing, "after", keep)
    patterns: Any = {item: [(name, item) for name in kernels] for item in (1, 2, 4, 8)}
    gpu._patterns, gpu.user = patterns, card.allocate(1 << 22)
    gpu._mismatches = gpu.keep("mismatches", bytes(16))
    return gpu


def launch(gpu: DeviceRank, problem: Problem, number: int, stream: int) -> None:
    """What the rank has after a launch: of its own input, and the others' as they were filled, and
    as a launch that proves others changed them.
    """
    changed = cast(Card, gpu.card).changed

    def work() -> None:
        card, count = cast(Card, gpu.card), problem.block_count
        what, kind = collective(problem.op), dtype(problem.dtype).numpy()
        own, out = (
            card.view(*gpu.buffer(problem, which, number)).view(kind) for which in ("in", "out")
        )
        given = {gpu.rank: own.copy()}
        for rank in set(range(problem.n)) - {gpu.rank}:
            given[rank] = np.empty(what.blocks("in", problem.n, problem.root, rank) * count, kind)
            fill(given[rank], problem.op, problem.redop, problem.n, rank, phase(problem, number))
            if changed is not None:
                order, at = changed
                elements = Elements(problem, rank, order)
                bits(given[rank])[elements.into[at]] = elements.given[at]
        for want in what.wants(problem.n, problem.root, gpu.rank):
            parts = [given[rank][want.in_block * count :][:count] for rank in want.ranks]
            total = parts[0].copy()
            for part in parts[1:]:
                ufunc(problem.redop)(total, part, total)
            out[want.out_block * count :][:count] = total

    cast(Card, gpu.card).do("launch", work)


MODES: list[tuple[LaunchMode, bool, bool]] = [
    ("graph", False, False),
    ("stream", False, False),
    ("stream", True, False),
    ("graph", False, True),
    ("stream", False, True),
]


@tiered(
    ("op", "place", "mode", "isolated", "is_outside"),
    [(*placed, *mode) for placed in PLACED for mode in MODES],
    2,
)
def test_idle_gpus_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
    op: OpName,
    place: Placement,
    mode: LaunchMode,
    isolated: bool,
    is_outside: bool,
) -> None:
    """And what is right is right. Nothing but launches is between two events, until the batch is
    proved.
    """
    number = PLACED.index((op, place)) + MODES.index((mode, isolated, is_outside))
    ways: tuple[tuple[RedopName, bool, int], ...] = (
        ("sum", False, 70), ("sum", True, 2), ("max", True, 65)
    )  # fmt: skip
    for redop, hot, count in (ways[number % 3],):
        card = Card()
        root = int(op in ("reduce", "gather"))
        problem = case(op, place, redop=redop, root=root, size_bytes=1024, ranks=3).problem()
        gpu = gpu_on(card, 1, 3, monkeypatch)
        gpu.outside = cast(Any, SimpleNamespace(proxy=None)) if is_outside else None
        sets = gpu_rank.sets_of(problem, 3 * stride_bytes(problem) // 2, hot=hot)
        assert sets == (1 if hot else 3) + repeat.accumulates(problem)
        gpu.prepare(problem, range(sets), stride_bytes(problem))
        queue = partial(launch, gpu, problem)
        real = launches(gpu, problem, queue, sets, lambda work_s: None)
        options = GpuOptions(launch=mode, isolated=isolated)
        batch = Batch(iterations=count)
        assert timing.first(real, is_checked=True).wrong is None
        card.log.clear()
        assert timing.timed(real, batch, options, 0.0).wrong is None
        timed = list(takewhile(lambda what: what != "exchange", between_events(card.log)))
        assert set(timed) <= {"launch"} or (mode == "graph" and is_outside)
        assert len(timed) == count * (1 if isolated else repeat.REPLAYS + 1)
        assert on_gpu("idle", timing.timed)(real, batch, options, 0.0).wrong is not None
        some_plants = PLANTS[("sum", "max").index(redop) + hot :: 3]
        for kind, method in product(some_plants, (timing.timed, timing.timed_singly)):
            some = Batch(iterations=count, single_launches=count)
            gpu.prepare(problem, range(sets), stride_bytes(problem))
            assert on_gpu(kind, method)(real, some, options, 0.0).wrong is not None
        unchecked = Batch(iterations=count, is_checked=False)
        assert on_gpu("idle", timing.timed)(real, unchecked, options, 0.0).wrong is None
        singly = Batch(single_launches=count + 60)
        gpu.prepare(problem, range(sets), stride_bytes(problem))
        assert on_gpu("idle", timing.timed_singly)(real, singly, options, 0.0).wrong is not None
        card.log.clear()
        launched = card.launched
        answer = timing.timed_singly(real, singly, options, 0.0)
        assert answer.wrong is None
        proved = min(count + 60, timing.GRAPH_LAUNCHES)
        numbers = range(1, card.launched - launched - proved + 1)
        takes_s = [1e-6 * (launched + number) for number in numbers if number not in (1, 102)]
        assert len(takes_s) == count + 60
        assert answer.launch_times_s == pytest.approx(takes_s, abs=1e-9)
        assert card.log.count("barrier") == len(numbers) + proved


def between_events(log: list[str]) -> Iterator[str]:
    is_timed = False
    for what in log:
        if what == "record":
            is_timed = not is_timed
        elif is_timed:
            yield what


@pytest.mark.parametrize("algo", copies.COPY_ALGOS)
def test_idle_copies_are_noticed(monkeypatch: pytest.MonkeyPatch, algo: str) -> None:
    """Also those to host memory, from which the data of earlier ones could be copied on."""
    card = Card()
    rank = copies.CopyRank(RankContext(rank=0, n=1))
    rank._gpu = gpu = gpu_on(card, 0, 1, monkeypatch)
    gpu.loads[None], gpu.users = cast(Any, SimpleNamespace(stream=2)), [gpu.user]
    gpu.host_arenas = [card.allocate(1 << 16)]
    copied = case("sendrecv", "out", backend="copies", algo=algo, ranks=1)
    key = copied, 1

    def copy(target: int, source: int, size: int, *more: int) -> None:
        data, to = card.view(source, size), card.view(target, size)
        card.do("copy", lambda: to.__setitem__(slice(None), data))

    monkeypatch.setattr(copies, "queue_copy", lambda runtime, *args: copy(*args))
    rank.kernel = cast(Any, SimpleNamespace(queue=copy))
    card.runtime = None  # type: ignore[attr-defined]
    monkeypatch.setattr(copies.CopyRank, "options", GpuOptions(), raising=False)
    monkeypatch.setattr(gpu, "wait", lambda deadline_s: None)
    gpu.prepare(copied.problem(), range(1), stride_bytes(copied.problem()))
    work = ConcurrentWork(seconds=1.0, replays=2, launches=3)
    assert rank.run_concurrently(key, work).wrong is None
    rank.graphs.clear()
    monkeypatch.setattr(rank, "_queue", lambda case, number, stream: None)
    assert GpuRank.run_concurrently(rank, key, work).wrong is None or algo != "host"
    assert rank.run_concurrently(key, work).wrong is not None
