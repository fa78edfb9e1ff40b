"""Case to record: order of repeats, waivers, wrong data, noise."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from collbench.backends.base import Batch, Samples, Session
from collbench.bench import runner
from collbench.bench.points import STRIDE, SweepPoint, estimate_s, order, plan_points
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.errors import HangError, ScheduleError
from collbench.core.limits import MORE_REPEATS
from collbench.core.options import Settings
from collbench.core.pattern import Wrong
from collbench.core.record import Record
from collbench.launch.driver import OutOfTime
from collbench.launch.local import LocalGroup
from collbench.machine.others import Look
from collbench.planning.planner import resolve

CASES = [
    Case(op="allreduce", backend="model", algo=algo, ranks=2, size_bytes=4096)
    for algo in ("ring", "twoshot")
]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which the kernel says nothing, whatever else runs here."""
    monkeypatch.setattr(runner, "look", lambda *of: None)


class Scripted(Session[Any]):
    """A session that returns prepared samples, or raises prepared errors."""

    device = version = "scripted"

    def __init__(self, script: Sequence[Samples | Exception]) -> None:
        self.script = list(script)
        self.batches: list[Batch] = []

    def run(self, job: Any, batch: Batch) -> Samples:
        self.batches.append(batch)
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        pass


def measured(
    script: Sequence[Samples | Exception], cases: Sequence[Case] = tuple(CASES), **settings: Any
) -> tuple[list[Record], Scripted]:
    group = LocalGroup()
    measurement = Measurement(plan_points(cases, group), group, Settings(**settings))
    session = Scripted(script)
    measurement.sessions = {(case.backend, 2): session for case in cases}
    return list(measurement.records()), session


CPU_CASES = [
    Case(op="allreduce", backend="cpu", algo=algo, ranks=2, size_bytes=4096)
    for algo in ("ring", "twoshot")
]


def rows_of(*times: Sequence[float], **settings: Any) -> list[Record]:
    """Rows of two algorithms: by round, the times of each; then of what is measured again."""
    script = [samples(time, time) for of_round in times for time in of_round]
    rows, session = measured(script, CPU_CASES, **settings)
    assert not session.script
    return rows


def test_what_one_repeat_could_turn_is_measured_again() -> None:
    """An outlier of three repeats: one more would move the median by far."""
    ring, other = rows_of((1.0, 1.5), (1.01, 1.5), (9.0,), (1.02, 1.0), (1.5,))
    assert (ring.repeats, other.repeats) == (5, 3)
    assert ring.time_us == pytest.approx(1.01e6)
    assert len(ring.repeat_times_us) == 5


def test_more_is_not_measured_where_it_would_change_nothing() -> None:
    """Repeats that agree, what cannot be the fastest, and one repeat that was asked for."""
    for repeats, times in (
        (3, ((1.0, 1.5), (1.01, 1.51), (1.02, 1.52))),
        (3, ((1.0, 5.0), (1.0, 9.0), (1.0, 7.0))),
        (1, ((1.0, 5.0),)),
    ):
        asked = {"repeats": 1} if repeats == 1 else {}
        assert [row.repeats for row in rows_of(*times, **asked)] == [repeats] * 2


def test_more_repeats_end_where_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    monkeypatch.setattr(runner, "MORE_TIME_SHARE", 1.0)  # as in a long sweep
    ring, _ = rows_of((1.0, 9.0), (2.0, 9.0), (3.0,), noise[3:], (9.0,))
    assert ring.repeats == 3 + MORE_REPEATS
    monkeypatch.setattr(runner, "MORE_TIME_SHARE", -1.0)  # no time is left after the first two
    ring, _ = rows_of((1.0, 9.0), (2.0, 9.0), (3.0,), noise[3:5], (9.0,))
    assert ring.repeats == 5


def samples(*seconds: float, **more: Any) -> Samples:
    return Samples(seconds=seconds, iterations=5, **more)


def test_every_repeat_once_and_spread() -> None:
    for points in (1, 3, 24, 100):
        for repeats in (1, 3, 5):
            taken = list(order(points, repeats))
            assert sorted(taken) == [
                (point, repeat) for point in range(points) for repeat in range(repeats)
            ]
            turns = {pair: turn for turn, pair in enumerate(taken)}
            for point in range(points):
                for repeat in range(repeats - 1):
                    assert turns[point, repeat + 1] - turns[point, repeat] >= min(points, STRIDE)


def test_the_slowest_rank_counts_and_the_median_of_repeats() -> None:
    alike = samples(1e-6, 1e-6)
    script = [samples(1e-6, 2e-6), alike, samples(4e-6, 1e-6), alike, samples(3e-6, 1e-6), alike]
    (ring, twoshot), session = measured(script, repeats=3)
    assert ring.repeat_times_us == pytest.approx((2, 4, 3))
    assert (ring.time_us, ring.time_low_us, ring.time_high_us) == pytest.approx((3, 2, 4))
    assert twoshot.time_us == pytest.approx(1)
    assert ring.notes == "noisy"
    assert twoshot.notes == ""
    assert [batch.iterations for batch in session.batches] == [0, 0, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("ranks", "queued", "note"),
    [(2, 12, "other-processes:12.0"), (2, 0, ""), (2, 1, "other-processes:1.0"), (1, 1, "")],
)
def test_a_row_says_what_other_processes_took_where_they_left_no_core_to_a_rank(
    monkeypatch: pytest.MonkeyPatch, ranks: int, queued: int, note: str
) -> None:
    """Two cores: what is queued is seen in the shortest time."""
    clock = iter(range(100))

    def seen(*of: object) -> Look:
        return Look(when_s=1e-3 * next(clock), busy_s=0.0, own_s=0.0, queued=queued)

    monkeypatch.setattr(runner, "look", seen)
    monkeypatch.setattr(runner, "own_cores", lambda: frozenset((0, 1)))
    monkeypatch.setattr(Measurement, "_ranks_here", lambda self, case: ranks)
    case = replace(CASES[0], backend="cpu")
    (row,), _ = measured([samples(1e-6, 1e-6)] * 3, [case], repeats=3)
    assert row.notes == (f"noisy {note}" if note else "")


def test_no_repeat_goes_on_behind_the_end_of_all() -> None:
    """What was measured until then stays, and no session is asked again."""
    group = LocalGroup()
    measurement = Measurement(plan_points(CASES, group), group, Settings(repeats=3))
    session = Scripted([samples(1e-6, 1e-6), OutOfTime(), samples(1e-6, 1e-6)])
    measurement.sessions = {("model", 2): session}
    (row,) = measurement.records_within(math.inf)
    assert (row.algo, row.repeats, len(session.batches)) == ("ring", 1, 2)


def test_single_launches_of_all_repeats_are_one_distribution() -> None:
    """Each repeat has its share of them; what they are too few for stays empty."""
    case = replace(CASES[0], backend="cpu")
    times = [1e-6 * number for number in range(1, 1001)]
    script = [samples(1e-6, 1e-6, launch_times_s=tuple(times[k::3])) for k in range(3)]
    (row,), session = measured(script, [case], repeats=3, distribution=1000)
    assert [batch.single_launches for batch in session.batches] == [334, 333, 333]
    known = (row.p50_us, row.p99_us, row.p999_us, row.max_us)
    assert known == pytest.approx((500, 990, 999, 1000))
    assert sum(dict(row.histogram).values()) == 1000
    script = [samples(1e-6, 1e-6, launch_times_s=tuple(times[:99]))]
    (row,), _ = measured(script, [case], repeats=1, distribution=0)
    assert (row.p99_us, row.p999_us) == (None, None)
    assert (row.p50_us, row.max_us) == pytest.approx((50, 99))


def test_nothing_is_timed_singly_that_was_not_asked_for_or_has_no_ranks() -> None:
    for case, settings in ((CASES[0], {"distribution": 5}), (replace(CASES[0], backend="cpu"), {})):
        (row,), session = measured([samples(1e-6, 1e-6)], [case], repeats=1, **settings)
        assert [batch.single_launches for batch in session.batches] == [0]
        assert (row.p50_us, row.max_us, row.histogram) == (None, None, ())


def test_a_row_without_single_launches_is_measured_again_where_they_are_asked_for() -> None:
    case = replace(CASES[0], backend="cpu")
    point = SweepPoint(case)
    (bare,), _ = measured([samples(1e-6, 1e-6)], [case], repeats=1)
    whole = replace(bare, histogram=((0, 5),))
    for distribution, is_enough in ((None, True), (0, False)):
        measurement = Measurement([], LocalGroup(), Settings(distribution=distribution))
        assert measurement.is_measured_by(point, bare) == is_enough
        assert measurement.is_measured_by(point, whole)
        assert not measurement.is_measured_by(point, replace(whole, status="wrong"))
        assert not measurement.is_measured_by(point, None)
        assert measurement.is_measured_by(SweepPoint(CASES[0]), bare)


def test_wrong_data_has_no_time_and_says_where() -> None:
    wrong = Wrong(rank=1, count=3, index=700, got="5.0", wanted="6.0")
    (row,), _ = measured([samples(1e-6, 1e-6, wrong=(wrong,))], CASES[:1], repeats=1)
    assert (row.status, row.wrong, row.time_us, row.busbw_gbs) == ("wrong", 3, None, None)
    assert row.reason.startswith(
        "rank 1 element 700: got 5.0, expected 6.0; written by channel 0, track main, round "
    )
    assert row.reason.endswith("from rank 0")


def test_a_stuck_point_ends_the_sweep_after_its_row() -> None:
    group = LocalGroup()
    measurement = Measurement(plan_points(CASES, group), group, Settings(repeats=1))
    measurement.sessions = {
        ("model", 2): Scripted([samples(1e-6, 1e-6), HangError("rank 1 waited")])
    }
    rows: list[Record] = []
    with pytest.raises(HangError):
        rows.extend(measurement.records())
    assert [row.status for row in rows] == ["ok", "error"]
    assert rows[1].reason == "rank 1 waited"


def test_a_plan_that_cannot_run_is_waived_once() -> None:
    script: list[Samples | Exception] = [
        ScheduleError("9 CTAs wait for each other, 8 can be resident", "use fewer"),
        samples(1.0),
        samples(1.0),
    ]
    rows, _ = measured(script, CASES[:2], repeats=2)
    assert [(row.status, row.reason) for row in rows] == [
        ("waived", "9 CTAs wait for each other, 8 can be resident; use fewer"),
        ("ok", ""),
    ]


def test_unchecked_and_blocking_rows_say_so() -> None:
    case = replace(CASES[0], backend="reference")
    (row,), _ = measured([samples(1e-6, 1e-6)], [case], repeats=1, is_checked=False, blocking=True)
    assert row.notes == "unchecked blocking"
    assert row.wrong is None


def test_rows_name_only_the_conditions_that_their_backend_heeds() -> None:
    settings = Settings(isolated=True, launch="stream", blocking=True, aggregate=2)
    measurement = Measurement([], LocalGroup(), settings)
    for backend, conditions in (
        ("cpu", ("aggregate-2", "blocking")),
        ("cuda", ("aggregate-2", "isolated", "stream")),
    ):
        point = SweepPoint(Case(op="allreduce", backend=backend, ranks=2, size_bytes=8))
        assert measurement.key_of(point)[-len(conditions) :] == conditions


def test_rows_name_threads_only_where_messages_are_worth_one() -> None:
    base: dict[str, Any] = {"op": "allreduce", "backend": "cuda", "algo": "ring", "ranks": 2}
    base |= {"transport": "net", "proto": "simple", "channels": 1, "size_bytes": 4 << 20}
    found = [resolve(Case(**base, chunk=chunk)) for chunk in (64 << 10, 2 << 20)]
    small, large = (SweepPoint(one.case, one.plan) for one in found)
    measurement = Measurement([], LocalGroup(), Settings(net_threads=3))
    assert "net-threads-3" in measurement.key_of(large)
    assert "net-threads-3" not in measurement.key_of(small)
    measurement.group.hosts = ("a", "b")
    assert "net-threads-3" not in measurement.key_of(large), (
        "what another host sends no thread copies"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ranks": 1}, "nothing travels"),
        ({"size_bytes": 2}, "less than one float32 element"),
        ({"proto": "ll", "transport": "net"}, "a message of MPI comes whole; use --proto simple"),
    ],
)
def test_what_cannot_run_is_waived_with_its_reason(change: dict[str, Any], reason: str) -> None:
    base: dict[str, Any] = {"op": "allreduce", "backend": "cpu", "ranks": 4, "size_bytes": 4096}
    (point,) = plan_points([Case(**(base | change))], LocalGroup())
    assert reason in point.waived
    assert estimate_s(point, Settings(), Measurement([], LocalGroup(), Settings()).machine) == 0


def test_what_a_model_invents_takes_no_time_of_the_machine() -> None:
    cases = [
        Case(op="allreduce", backend=backend, algo="ring", ranks=4, size_bytes=16 << 20)
        for backend in ("model", "cpu")
    ]
    group = LocalGroup()
    played, run = (
        estimate_s(point, Settings(), Measurement([], group, Settings()).machine)
        for point in plan_points(cases, group)
    )
    assert 0 < played < 0.1 < run
