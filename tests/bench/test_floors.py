"""The least time that a launch can take: no real row is below it, and what does less than it must
is called impossible.
"""

import csv
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.backends.base import GpuOptions, SessionOptions
from collbench.backends.cpu.rank import LoadedCpuPlan
from collbench.backends.cuda import backend as cuda
from collbench.backends.library import Call, LibraryRank, LibrarySession
from collbench.backends.repeat import FLAG_LAUNCHES, shortest_flag_s
from collbench.bench import rows, runner
from collbench.bench.points import SweepPoint, plan_points
from collbench.bench.rows import Floors, is_mutual
from collbench.bench.runner import Measurement
from collbench.core.case import Case, Problem
from collbench.core.collectives import OPS, collective
from collbench.core.errors import HangError
from collbench.core.group import RankContext
from collbench.core.limits import ADVISED_REPEATS
from collbench.core.options import Settings
from collbench.core.record import Record, read
from collbench.core.rows import is_noise, of_max
from collbench.device.compile import flag_source
from collbench.launch.local import LocalGroup
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.planner import resolve
from tests.bench.test_runner import CPU_CASES, Scripted, samples
from tests.benchmarks.recorded_ceilings import MACHINE, ROOT, links_of
from tests.support.commands import Invoke
from tests.support.gpus_in_threads import Machine, run_on
from tests.support.plants import plant

# of no flag, one and one each way: docs/results/sentinel.csv, profiles/results/h100x2.csv; the
# first two were not measured on H100s
FLAGS_US = {"H200": (0.41, 0.67, 1.22), "H100": (0.0, 0.0, 1.37)}
MOST_PERCENT = 101.0
MANY = 2000  # launches, beside which one that works takes no time
LONG = 32 << 20  # bytes, beside whose copies a launch that is skipped takes none, on busy cores too
SENTINEL = ROOT / "docs" / "results" / "sentinel.csv"
RESULTS = [ROOT / "profiles" / "results" / f"{name}.csv" for name in ("h100x2", "h200x2", "h200x4")]


def rows_of(measurement: Measurement) -> list[Record]:
    with closing(measurement):
        measurement.open()
        return list(measurement.records())


def measurement_of(cases: Sequence[Case], **settings: Any) -> Measurement:
    group = LocalGroup()
    given = {"hot": True, "repeats": 3, "iterations": 20, **settings}
    return Measurement(
        plan_points([one.rounded() for one in cases], group), group, Settings(**given)
    )


@pytest.mark.exhaustive
def test_real_launches_take_longer() -> None:
    cases = [
        Case(op=op, backend="cpu", ranks=2, size_bytes=size) for op in OPS for size in (64, 1 << 16)
    ]
    rows = rows_of(measurement_of(cases))
    assert {row.status for row in rows} == {"ok"}
    for row in rows:
        assert row.floor_us and row.time_us
        assert row.of_floor == pytest.approx(100 * row.floor_us / row.time_us)
        assert of_max(row) == (None if is_noise(row) else row.of_floor)


class Copier(LibraryRank):
    """A library of one collective: a shift by one through shared memory."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        assert context.arena is not None
        self.arena = np.frombuffer(context.arena, np.uint8)
        self.words = self.arena[:4096].view(np.int64)
        self.met = 0

    def describe(self) -> str:
        return "copier"

    def _meet(self) -> None:
        self.met += 1
        self.words[8 * self.rank] = self.met
        while self.words[8 * (1 - self.rank)] < self.met:
            time.sleep(0)

    def flag(self, limit_s: float) -> float:
        return shortest_flag_s(self._meet)

    def _call(self, problem: Problem, source: Any, target: Any) -> Call:
        own, other = (4096 + rank * len(source) for rank in (self.rank, 1 - self.rank))

        def shift() -> None:
            np.copyto(self.arena[own : own + len(source)], source)
            self._meet()
            np.copyto(target, self.arena[other : other + len(source)])
            self._meet()

        return shift, ()


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_library_that_returns_at_once_is_impossible(is_planted: bool) -> None:
    """Only its first call works, so all that it leaves on its buffers is right."""
    case = Case(op="sendrecv", backend="mpi", algo="library", proto="", ranks=2, size_bytes=4 << 20)
    iterations = MANY if is_planted else 5
    measurement = measurement_of([case], is_checked=False, iterations=iterations)
    (point,) = measurement.points
    with plant("first", "timed") if is_planted else nullcontext():
        workers = measurement.group.shared_workers(Copier, 2, 16 << 20)
        session = LibrarySession(workers, hot=True, start_s=10.0)
        measurement.sessions = {point.session: session}  # type: ignore[dict-item]
        with closing(measurement):
            (row,) = measurement.records()
    assert row.status == ("impossible" if is_planted else "ok"), row.reason


class Floored(Scripted):
    """Whose flag takes so many seconds, or fails."""

    flag: float | Exception = 0.0

    def flag_s(self, limit_s: float, ways: int) -> float:
        if isinstance(self.flag, Exception):
            raise self.flag
        return self.flag


@pytest.fixture
def row_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    """The row of an allreduce whose repeats, and whose copies, take so many seconds."""

    def measured(
        times: Sequence[float], copies_s: Sequence[float], flag: float | Exception = 0.0
    ) -> Record:
        copies = list(copies_s)
        monkeypatch.setattr(rows, "copy_rates", lambda: {4096: 8 / copies.pop(0)})
        group = LocalGroup()
        points = plan_points([replace(CPU_CASES[0], size_bytes=8)], group)
        measurement = Measurement(points, group, Settings(repeats=1))
        session = Floored([samples(one, one) for one in times])
        session.flag = flag
        measurement.sessions = {("cpu", 2): session}
        (row,) = measurement.records()
        assert not session.script
        assert not copies
        return row

    return measured


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which the kernel says nothing, whatever else runs here."""
    monkeypatch.setattr(runner, "look", lambda *of: None)


def test_copies_that_met_load_accuse_nobody(row_of: Callable[..., Record]) -> None:
    """They are measured again beside the row, until they are no longer."""
    row = row_of([1.0, 1.0, 1.0], [3.0, 2.5, 2.0, 2.0, 0.5])
    assert (row.status, row.repeats) == ("ok", 3)
    assert row.floor_us == pytest.approx(0.5e6)


def test_what_stays_below_its_floor_is_impossible(row_of: Callable[..., Record]) -> None:
    row = row_of([1.0] * ADVISED_REPEATS, [3.0, 2.5, 2.0, *[2.0] * (ADVISED_REPEATS - 1)])
    assert row.status == "impossible"
    assert row.time_us is None
    assert row.of_floor == pytest.approx(200)


def test_repeats_that_leave_it_open_accuse_nobody(row_of: Callable[..., Record]) -> None:
    times = [1.0, *[1.0, 2.0] * (ADVISED_REPEATS // 2)]
    row = row_of(times, [2.0] * (2 + ADVISED_REPEATS))
    assert (row.status, row.repeats) == ("ok", ADVISED_REPEATS)


def test_a_flag_accuses_nobody(row_of: Callable[..., Record]) -> None:
    """Beside other processes each exchange of a flag may be slow; the launch was faster."""
    row = row_of([1.0], [0.5, 0.5, 0.5], flag=4.0)
    assert (row.status, row.repeats) == ("ok", 1)
    assert row.floor_us == row.time_us
    assert row.of_floor == 100
    row = row_of([1.0], [0.6, 0.5, 0.7], flag=4.0)
    assert row.floor_us == min(row.repeat_times_us)


def test_without_a_least_launch_a_row_says_so_and_is_measured(
    row_of: Callable[..., Record],
) -> None:
    row = row_of([1.0], [0.5, 0.5, 0.5], flag=HangError("lost"))
    assert (row.status, "no-floor" in row.notes.split()) == ("ok", True)


@pytest.mark.parametrize("isolated", [False, True])
def test_gpus_exchange_flags_and_none(isolated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any two marks are 10 us apart here, in a graph with so many launches between them."""
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    case = Case(op="allreduce", backend="cuda", ranks=3, size_bytes=1024, channels=1)
    (point,) = plan_points([case], LocalGroup())
    machine = Machine(1)
    run_on(machine, 3, monkeypatch)
    options = SessionOptions(hot=True, gpu=GpuOptions(isolated=isolated))
    session = cuda.BACKEND.open(LocalGroup(), [point.plan], options)  # type: ignore[list-item]
    with closing(session):
        for ways in (2, 1, 0):
            seconds = session.flag_s(10.0, ways)
            assert seconds == pytest.approx(1e-5 / (1 if isolated else FLAG_LAUNCHES))
    assert flag_source(is_dependent=True) in machine.sources


def gpu_floor_us(row: dict[str, str], links: RankLinks, flags_us: Sequence[float]) -> float:
    """The floor of a row."""
    case = Case(
        op=collective(row["op"]).name,
        backend=row.get("backend", "cuda").split("-")[0],  # each release of NCCL as NCCL
        algo=row["algo"],
        ranks=int(row["ranks"]),
        size_bytes=int(row.get("size_bytes") or row["bytes"]),
        transport=row.get("transport") or "auto",
    )
    plan = resolve(case, Limits()).plan if case.transport == "ce" else None  # another engine
    point = SweepPoint(case, plan)
    known = Floors(flags_s={(point.session, i): us * 1e-6 for i, us in enumerate(flags_us)})
    return 1e6 * known.floor_s(point, links)


@pytest.mark.parametrize("file", [*RESULTS, SENTINEL], ids=lambda file: file.stem)
def test_no_shipped_row_is_below_its_floor(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")  # as it was then
    links = links_of(MACHINE)
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    rows = [row for row in csv.DictReader(lines) if row.get("status", "ok") == "ok"]
    of_floor = [
        100 * gpu_floor_us(row, links, flags_us) / float(row.get("time_us") or row["us"])
        for card, flags_us in FLAGS_US.items()
        for row in rows
        if card in row.get("device", row.get("card", ""))
    ]
    assert len(of_floor) > 100
    assert max(of_floor) <= MOST_PERCENT


def test_only_who_waits_for_all_others_needs_a_flag() -> None:
    mutual = [op for op in OPS if is_mutual(Case(op=op, backend="cpu", ranks=2, size_bytes=64))]
    assert mutual == ["allreduce", "allgather", "reducescatter", "alltoall", "sendrecv"]
    even = Case(op="allgatherv", backend="cpu", ranks=4, size_bytes=1 << 10)
    skews = {skew: is_mutual(replace(even, skew=skew)) for skew in ("even", "zipf:1", "hot:1")}
    assert skews == {"even": True, "zipf:1": True, "hot:1": False}


@pytest.mark.exhaustive
def test_a_sweep_with_an_impossible_row_ends_with_1_and_says_it(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first launch of a batch works, and nobody compares what they leave, nor counts them
    by their connections.
    """
    monkeypatch.setattr(LoadedCpuPlan, "missing_launches", lambda loaded, rank: None)
    file = tmp_path / "rows.csv"
    asked = f"--backend cpu --algo ring --sizes {LONG // 2},{LONG} --iters {MANY} -c 0".split()
    with plant("first", "timed"):
        code, out, _ = invoke("sweep", "--hot", *asked, "--csv", str(file))
    assert code == 1
    assert out.count("impossible: ") == 2
    for row in read(file):
        assert (row.status, row.time_us, row.repeats) == ("impossible", None, ADVISED_REPEATS)
        assert "us a launch; to copy its bytes takes" in row.reason
    _, out, _ = invoke("compare", str(file))
    assert "2 rows: 2 impossible" in out
