"""What changed between two sweeps: simulated ones, of which it is known what changed."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from collbench.compare.changes import Changes, compare, unlike
from collbench.compare.gate import gate_of
from collbench.compare.merge import together
from collbench.compare.tables.changes import lines
from collbench.core.errors import UsageError
from tests.support.frames import records, records_of, repeats, row
from tests.support.simulated import ALGOS, NOISES, Noise, sweep
from tests.support.tables import cells_of
from tests.support.tiers import tiered


def share(found: Changes, *verdicts: str) -> float:
    return float(found.rows["verdict"].isin(verdicts).mean())


def runs(noise: Noise, seed: int, count: int = 3, **more: Any) -> list[pd.DataFrame]:
    """Sweeps of one build, to be a base."""
    return [sweep(noise, 1000 * (run + 1) + seed, **more) for run in range(count)]


@tiered("bases", [1, 2, 3], 1)
@tiered("noise", NOISES, NOISES[2:3], ids=str)
def test_sweeps_of_one_build_are_not_called(noise: Noise, bases: int) -> None:
    called = 0
    for seed in range(5):
        found = compare(sweep(noise, seed), *runs(noise, seed, bases))
        assert len(found.rows) == 50
        called += (
            found.count("better") + found.count("worse") + (gate_of(found, 5).verdict == "FAIL")
        )
        called += sum(group.verdict in ("better", "worse") for group in found.groups)
    assert called <= 1


@tiered("repeats", [1, 3, 10], 1)
def test_more_repeats_raise_no_alarm(repeats: int) -> None:
    """Runs differ by heavy tails, while repeats within a run agree."""
    noise, called = Noise(repeats=repeats, within=0.002, between=0.0, drift=0.0), 0
    for seed in range(4):
        random = np.random.default_rng(seed)

        def run(number: int, random: np.random.Generator = random) -> pd.DataFrame:
            off = np.expm1(0.005 * random.standard_t(3, 100))
            return sweep(noise, number, knobs=2, slower=dict(enumerate(off)))

        found = compare(run(seed), run(100 + seed), run(200 + seed), run(300 + seed))
        called += found.count("better") + found.count("worse")
    assert called <= 1


@pytest.mark.exhaustive
def test_what_was_measured_side_by_side_may_drift_together() -> None:
    """On a noisy machine each algorithm's rows, measured within seconds, share what came then: that
    makes no algorithm slower.
    """
    algos = tuple(f"algo{number}" for number in range(30))
    noise, called = Noise(within=0.03, between=0.01), 0
    for seed in range(5):
        files = []
        for number in range(4):
            off = np.random.default_rng(10 * seed + number).normal(0, 0.03, len(algos))
            shared = dict(enumerate(np.expm1(np.repeat(off, 10))))
            files.append(sweep(noise, 10 * seed + number, algos, slower=shared))
        found = compare(*files)
        called += sum(group.verdict in ("better", "worse") for group in found.groups)
    assert called <= 2  # of more than 155


@tiered("noise", [Noise(drift=0.001), Noise(is_heavy=True, drift=0.001)], 1, ids=str)
def test_ten_percent_in_one_row_of_200_is_found_with_three_runs(noise: Noise) -> None:
    hits = false = 0
    for seed in range(4):
        slow = int(np.random.default_rng(seed).integers(200))
        new = sweep(noise, seed, knobs=4, slower={slow: 0.1})
        found = compare(new, *runs(noise, seed, knobs=4))
        worse = set(found.rows.index[found.rows["verdict"] == "worse"])
        hits += slow in worse
        false += len(worse - {slow})
    assert hits == 4
    assert false <= 1


@tiered("percent", [2, 5], 1)
def test_an_algorithm_is_found_by_all_its_rows(percent: int) -> None:
    hits = false = 0
    noise = Noise(is_heavy=True, drift=0.001)
    for seed in range(4):
        slower = dict.fromkeys(range(10, 20), percent / 100)
        found = compare(sweep(noise, seed, slower=slower), *runs(noise, seed))
        changed = {group.names for group in found.groups if group.verdict in ("better", "worse")}
        hits += any("tree" in names for names in changed)
        false += any({"ring", "star", "twoshot", "halving"} & {*names} for names in changed)
    assert hits == 4
    assert false <= 1


@pytest.mark.exhaustive
def test_two_percent_of_all_large_sizes_is_found() -> None:
    noise, hits = Noise(drift=0.001), 0
    slower = {row: 0.02 for row in range(50) if row % 10 >= 7}  # from 64 MiB on
    for seed in range(6):
        found = compare(sweep(noise, seed, slower=slower), *runs(noise, seed))
        told = [one for one in found.called if one.verdict == "worse"]
        hits += any(one.sizes == "from 64M on" for one in told)
    assert hits >= 5


def test_a_third_of_the_rows_slower_is_never_the_same() -> None:
    for bases in (1, 3):
        for seed in range(3):
            slow = np.flatnonzero(np.random.default_rng(seed).random(50) < 0.3)
            new = sweep(Noise(), seed, slower=dict.fromkeys(map(int, slow), 0.1))
            found = compare(new, *runs(Noise(), seed, bases))
            assert "same" not in set(found.rows.loc[slow, "verdict"])


def test_many_rows_that_nothing_joins_are_called_together() -> None:
    """With one base none of them would be sure alone."""
    slow = dict.fromkeys(range(0, 50, 3), 0.3)
    found = compare(sweep(Noise(), 1, slower=slow), sweep(Noise(), 2))
    (told,) = found.called
    assert (told.title, told.verdict) == ("17 of the 50 rows of everything", "worse")
    assert gate_of(found, 5).verdict == "FAIL"
    assert set(found.rows.index[found.rows["verdict"] == "worse"]) == set(slow)
    few = compare(sweep(Noise(), 1, slower=dict.fromkeys((5, 22), 0.2)), sweep(Noise(), 2))
    assert gate_of(few, 5).verdict != "FAIL"


def test_a_slowdown_of_everything_is_no_drift() -> None:
    slow = dict.fromkeys(range(50), 0.06)
    found = compare(sweep(Noise(), 1, slower=slow), *runs(Noise(), 2))
    assert share(found, "worse") > 0.9
    (first, *_) = found.called
    assert first.title == "everything"
    assert gate_of(found, 5).verdict == "FAIL"
    assert gate_of(found, 10).verdict != "FAIL"
    back = compare(sweep(Noise(), 2), *[sweep(Noise(), seed, slower=slow) for seed in (3, 4, 5)])
    assert share(back, "better") > 0.9
    assert gate_of(back, 0).verdict != "FAIL"


@tiered("bases", [1, 3], 1)
def test_intervals_hold_the_true_ratio(bases: int) -> None:
    noise = Noise(drift=0)
    held = [compare(sweep(noise, seed), *runs(noise, seed, bases)).rows for seed in range(5)]
    inside = pd.concat([(rows["low"] <= 1) & (rows["high"] >= 1) for rows in held])
    assert inside.mean() > 0.93


def test_same_is_what_lies_within_the_threshold() -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2)
    for same in (0.01, 0.05, 0.2):
        rows = compare(new, base, same=same).rows
        told = rows[rows["verdict"] == "same"]
        assert ((told["low"] >= 1 / (1 + same) - 1e-9) & (told["high"] <= 1 + same + 1e-9)).all()
    assert share(compare(new, base, same=0.01), "cannot tell") > 0.9


def test_runs_of_another_day_do_not_show_what_days_differ_by() -> None:
    """A row that changed beyond what runs of one hour differ by may be placed anew."""
    noise = Noise(drift=0.001)
    new = sweep(noise, 1, slower={5: 0.12}).assign(timestamp="2026-11-22T12:00:00Z")
    base = [one.assign(timestamp="2026-11-21T12:00:00Z") for one in runs(noise, 1)]
    assert compare(new.assign(timestamp="2026-11-21T13:00:00Z"), *base).count("worse") == 1
    found = compare(new, *base)
    assert found.count("worse") == 0
    assert any("is of another" in remark for remark in found.remarks)


def test_runs_of_one_file_are_runs() -> None:
    noise = Noise(drift=0.001)
    together = pd.concat(runs(noise, 1), ignore_index=True)
    new = sweep(noise, 1, slower={5: 0.1})
    one, several = compare(new, together), compare(new, *runs(noise, 1))
    assert one.runs == several.runs == (1, 3)
    assert list(one.rows["verdict"]) == list(several.rows["verdict"])
    assert list(one.rows.index[one.rows["verdict"] == "worse"]) == [5]
    shuffled = together.sample(frac=1, random_state=1)
    assert compare(new, shuffled).rows["ratio"].to_numpy() == pytest.approx(
        one.rows["ratio"].to_numpy()
    )


def test_modelled_times_are_exact() -> None:
    new, base = (sweep(Noise(), 1).assign(notes="modelled") for _ in range(2))
    assert share(compare(new, base), "same") == 1
    slower = new.assign(
        repeat_times_us=repeats([()] * len(base)),
        time_us=new["time_us"] * np.where(np.arange(len(new)) == 7, 1.02, 1.0),
    )
    found = compare(slower, base.assign(repeat_times_us=repeats([()] * len(base))))
    assert list(found.rows.index[found.rows["verdict"] == "worse"]) == [7]


def test_rows_that_are_not_compared_are_counted() -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2)
    new.loc[[0, 1], "status"] = "wrong"
    base.loc[1, "status"] = "wrong"
    new.loc[2, "status"] = base.loc[2, "status"] = base.loc[3, "status"] = "waived"
    new.loc[4, "status"] = "error"
    new.loc[5, "notes"] = "hot"
    found = compare(new.drop(index=6), base.drop(index=[7, 8]))
    assert found.not_compared == {
        "error in new": 1,
        "only in base": 2,
        "only in new": 3,
        "waived in base": 1,
        "waived in both": 1,
        "wrong in both": 1,
        "wrong in new": 1,
    }
    assert len(found.rows) == 50 - 9
    assert [(loss.kind, loss.text.split()[0]) for loss in found.losses] == [
        ("missing", "2"),
        ("failed", "3"),
    ]
    text = " ".join(" ".join(lines(found, ("new", "base"))).split())
    assert "lost: 3 rows wrong or failed" in text
    assert "looked at 41 rows" in text
    assert "1 wrong in new" in text


def test_losses() -> None:
    base = pd.concat(
        [sweep(Noise(), 1), sweep(Noise(), 1, ALGOS[:1]).assign(backend="nccl", algo="library")],
        ignore_index=True,
    )
    new = base.assign(run="new")
    assert compare(new, base).losses == ()

    def kinds(new: pd.DataFrame) -> list[str]:
        return [loss.kind for loss in compare(new, base).losses]

    assert kinds(new.drop(index=3)) == ["missing"]
    assert kinds(new[new["backend"] != "nccl"]) == ["peers"]
    assert kinds(new.assign(status=new["status"].mask(new.index == 3, "waived"))) == ["waived"]
    assert kinds(new.assign(status=new["status"].mask(new.index == 3, "error"))) == ["failed"]
    assert kinds(new.assign(notes=new["notes"].mask(new.index == 3, "unchecked"))) == ["unchecked"]


def test_rows_measured_twice_are_taken_together() -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2)
    found = compare(pd.concat([new, sweep(Noise(), 3)], ignore_index=True), base)
    assert len(found.rows) == 50
    assert any("50 rows" in remark for remark in found.remarks)
    assert found.runs == (2, 1)
    assert not compare(new, base).remarks


def test_rows_measured_again_keep_single_launches_that_only_one_has() -> None:
    times = {"p50_us": 1.0, "p99_us": 2.0, "max_us": 3.0, "histogram": ((0, 5), (8, 1))}
    more = {"p50_us": 4.0, "max_us": 5.0, "histogram": ((16, 2),)}
    rows = [row((1.0, 1.1), **times), row((1.0, 1.2)), row((1.0, 1.1), size_bytes=8)]
    for order in ((0, 1, 2), (1, 0, 2), (1, 2, 0)):
        merged, count = together(records(*[rows[k] for k in order]))
        (one,) = (row for row in merged if row.size_bytes == 1024)
        assert (count, {name: getattr(one, name) for name in times}) == (1, times)
        assert len(one.repeat_times_us) == 4
        assert [row.histogram for row in merged if row.size_bytes == 8] == [()]
    ((one,), _) = together(records(rows[0], row((1.0, 1.1), **more)))
    assert {name: getattr(one, name) for name in more} == more
    assert one.p99_us is None, "percentiles of two rows are not mixed"


@pytest.mark.parametrize(("runs", "statuses", "kept"), cells_of(__file__, "kept-statuses.tsv"))
def test_what_one_run_of_a_sweep_found_wrong_is_wrong(runs: str, statuses: str, kept: str) -> None:
    """The other runs of `sweep --runs 3` do not mend it; only a sweep that is resumed does, whose
    last row counts.
    """
    one = sweep(Noise(), 1)[:1]
    frame = pd.concat(
        [
            one.assign(run=run, status=status, wrong=7.0 if status == "wrong" else 0.0)
            for run, status in zip(runs.split(), statuses.split(), strict=True)
        ],
        ignore_index=True,
    )
    (merged,), again = together(records_of(frame))
    assert (merged.status, merged.wrong) == (kept, 7 * (kept == "wrong"))
    assert again == len(frame) - 1
    lost = [loss.kind for loss in compare(frame, sweep(Noise(), 2)[:1]).losses]
    assert lost == {"wrong": ["failed"], "waived": ["waived"]}.get(kept, [])


def test_a_row_without_a_time_is_lost() -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2)
    new["repeat_times_us"] = repeats([*new["repeat_times_us"][:3], (), *new["repeat_times_us"][4:]])
    new.loc[3, "time_us"] = np.nan
    assert [(loss.kind, loss.text.split()[0]) for loss in compare(new, base).losses] == [
        ("missing", "1")
    ]
    assert compare(base, new).losses == ()


def test_one_outlier_in_the_base_makes_another_no_news() -> None:
    """Of 50 rows and three runs one that is 10 % off lies beyond each share of the tail."""
    bases = [sweep(Noise(), seed) for seed in (1, 2)]
    new = sweep(Noise(), 4, slower={7: 0.1})
    for outlier, verdict in ({}, "worse"), ({30: 0.1}, "cannot tell"):
        found = compare(new, *bases, sweep(Noise(), 3, slower=outlier))
        assert found.rows["verdict"][7] == verdict
        assert (found.rows["verdict"].drop(7) != "worse").all()


def test_what_differs_stands_beside() -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2)
    base = base.assign(host="b", versions="collbench 1; nccl 2.27")
    base.loc[3, "limit"] = "GPU0 -> GPU1"
    base.loc[[3, 4], "notes"] = "throttled:thermal"
    found = compare(new, base)
    assert found.differences == (
        ("host", "a", "b"),
        ("NCCL_ALGO", "Ring", "-"),
        ("nccl", "2.28", "2.27"),
        ("limit (1 rows)", "-", "GPU0 -> GPU1"),
        ("rows with throttled", "0", "2"),
    )


@pytest.mark.parametrize("other", [{"device": "8 x GPU"}, {"ranks": 8}])
def test_unlike_machines_are_refused(other: dict[str, Any]) -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2).assign(**other)
    assert unlike(new, base)
    with pytest.raises(UsageError, match="differ"):
        compare(new, base)
    found = compare(new, base, is_forced=True)
    assert len(found.rows) == 50
    assert found.remarks


def foreign(frame: pd.DataFrame) -> pd.DataFrame:
    """As another tool's file would be read: one algorithm, no knobs, one repeat."""
    told = frame[frame["algo"] == "ring"].reset_index(drop=True)
    untold: dict[str, Any] = {
        "proto": "",
        "channels": 0,
        "group": "",
        "hosts": 0,
        "device": "",
        "versions": "",
        "host": "",
        "run": "",
        "repeat_times_us": repeats([()] * len(told)),
    }
    return told.assign(backend="nccl", algo="library", repeats=1, **untold)


def test_another_tools_file_matches_by_the_problem() -> None:
    new, base = sweep(Noise(), 1), foreign(sweep(Noise(), 2, slower=dict.fromkeys(range(10), 0.2)))
    found = compare(new, base)
    assert len(found.rows) == 10
    assert all(found.rows["ratio"] < 0.9)
    assert found.called[0].verdict == "better"
    assert any("40 slower ones" in said for said in found.remarks)
    assert len(compare(base, base).rows) == 10
    untold = base.assign(ranks=0, dtype="")  # a tool that does not tell these
    assert len(compare(untold, new).rows) == 10
    assert len(compare(untold, base).rows) == 10
    # not known; versions that one tool alone tells are no difference
    assert found.differences == (("host", "a", "-"), ("device", "4 x GPU", "-"))


def test_where_nothing_is_alike_the_knob_is_named() -> None:
    base = sweep(Noise(), 1)
    found = compare(base.assign(cluster=4, channels=np.arange(len(base)) + 50), base)
    assert not len(found.rows)
    text = "\n".join(lines(found, ("new.csv", "base.csv"), 200))
    assert "nothing has the same channels: 50, 51, 52 and 47 more | 1\n" in text
    assert "nothing has the same cluster: 4 | 0" in text
    assert "same ranks" not in text and "same size_bytes" not in text


def test_long_names_are_never_cut() -> None:
    sides = sweep(Noise(), 1, knobs=2, slower={5: 0.9}), sweep(Noise(), 2, knobs=2)
    new, base = (side.assign(algo="recursive-doubling-by-" + side["algo"]) for side in sides)
    text = lines(compare(new, base), ("new.csv", "base.csv"))
    assert max(map(len, text)) <= 80
    [row] = [place for place, line in enumerate(text) if line.split()[:1] == ["worse:"]]
    size, *first = text[row + 1].split()
    assert size == "4M" and len(first) > 5  # its numbers stand in the first line
    assert [*first[:-5], *text[row + 2].split()] == ["recursive-doubling-by-ring", "ch=1"]


def test_report_fits_the_screen() -> None:
    found = compare(
        sweep(Noise(), 1, knobs=2, slower={5: 0.9}),
        sweep(Noise(), 2, knobs=2).assign(host="b" * 30),
    )
    for columns in (80, 120):
        text = lines(found, ("new.csv", "base.csv"), columns)
        assert max(map(len, text)) <= columns
        assert text[1] == "100 rows compared: 0 better, 1 worse, 99 same, 0 cannot tell"
        assert text[2].startswith("worst: 4M allreduce cuda ring simple ch=1 +")
    assert len(lines(found, ("new.csv", "base.csv"), show_all=True)) > 100
    colored = lines(found, ("new.csv", "base.csv"), is_colored=True)
    assert sum("\033[31m" in line for line in colored) == 2


def test_a_transport_tells_rows_apart_before_the_knobs_that_are_chosen_by_it() -> None:
    sweeps = [
        sweep(Noise(), seed, ALGOS[:1]).assign(transport=transport, buffsize=size)
        for seed, (transport, size) in enumerate((("shm", 0), ("net", 1 << 22)))
    ]
    text = "\n".join(
        lines(compare(pd.concat(sweeps), pd.concat(sweeps)), ("new", "base"), show_all=True)
    )
    assert "transport=net" in text
    assert "buffer=" not in text
