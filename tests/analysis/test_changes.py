"""What changed between two sweeps: simulated ones, of which it is known what changed, and the
command's exit codes.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from collbench.analysis.changes import Changes, compare, unlike
from collbench.analysis.join import together
from collbench.cli import run
from collbench.report.tables.changes import lines
from collbench.results.record import COLUMNS
from collbench.util.errors import UsageError
from tests.support.tiers import tiered

ALGOS = ("ring", "tree", "star", "twoshot", "halving")
TEXT = {
    "op",
    "backend",
    "algo",
    "proto",
    "transport",
    "direct",
    "p2p",
    "reload",
    "specialize",
    "dtype",
    "redop",
    "placement",
    "group",
    "repeat_times_us",
    "limit",
    "status",
    "reason",
    "notes",
    "run",
    "host",
    "device",
    "versions",
    "timestamp",
}
REAL = {
    "time_us",
    "time_low_us",
    "time_high_us",
    "algbw_gbs",
    "busbw_gbs",
    "ceiling_gbs",
    "percent",
    "wrong",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Of times, as logarithms: of repeats, of a row between runs, of all rows between runs; heavy:
    rows' spreads differ by a factor of two.
    """

    repeats: int = 3
    within: float = 0.003
    between: float = 0.003
    drift: float = 0.004
    is_heavy: bool = False


NOISES = [
    Noise(),
    Noise(is_heavy=True),
    Noise(repeats=5, within=0.01, between=0.005),
    Noise(within=0.05, between=0.03, drift=0.02, is_heavy=True),
    Noise(repeats=4, within=0.002, between=0.004),
    Noise(within=0.001, between=0.0, drift=0.0),
]


def sweep(
    noise: Noise,
    seed: int,
    algos: tuple[str, ...] = ALGOS,
    sizes: int = 10,
    knobs: int = 1,
    slower: Mapping[int, float] | None = None,
) -> pd.DataFrame:
    """Rows of every algorithm, size and number of channels, as a sweep would have them; slower: by
    row, how much.
    """
    random = np.random.default_rng(seed)
    rows = [
        {
            "algo": algo,
            "channels": channels,
            "size_bytes": 4096 * 4**size,
            "count": 1024 * 4**size,
            "time": 5 + 0.0001 * 4096 * 4**size,
        }
        for algo in algos
        for channels in range(1, knobs + 1)
        for size in range(sizes)
    ]
    frame = pd.DataFrame(rows)
    spread = noise.within * np.exp(random.normal(0, 0.6 if noise.is_heavy else 0, len(frame)))
    middle = (
        np.log(frame["time"])
        + random.normal(0, noise.drift)
        + random.normal(0, noise.between, len(frame))
    )
    middle += np.log1p(pd.Series(slower or {}, dtype="float64").reindex(frame.index).fillna(0.0))
    times = np.exp(
        middle.to_numpy()[:, None]
        + spread[:, None] * random.normal(size=(len(frame), noise.repeats))
    )
    frame["repeat_times_us"] = [";".join(f"{time:.6g}" for time in row) for row in times]
    frame["time_us"] = np.median(times, axis=1)
    fixed: dict[str, Any] = {
        "op": "allreduce",
        "backend": "cuda",
        "proto": "simple",
        "dtype": "float32",
        "redop": "sum",
        "placement": "out",
        "group": "local",
        "ranks": 4,
        "hosts": 1,
        "repeats": noise.repeats,
        "status": "ok",
        "run": f"run{seed}",
        "host": "a",
        "device": "4 x GPU",
        "versions": "collbench 1; nccl 2.28 with NCCL_ALGO=Ring",
    }
    frame = frame.assign(**fixed)
    for name in COLUMNS:
        if name not in frame:
            frame[name] = "" if name in TEXT else float("nan") if name in REAL else 0
    return frame[list(COLUMNS)]


def share(found: Changes, *verdicts: str) -> float:
    return float(found.rows["verdict"].isin(verdicts).mean())


@pytest.mark.parametrize("noise", tiered(product(NOISES), product(NOISES[2:4])), ids=str)
def test_two_sweeps_of_one_build_are_the_same(noise: Noise) -> None:
    called, untold, groups = [], [], 0
    for seed in range(0, 20, 2):
        found = compare(sweep(noise, seed, knobs=20), sweep(noise, seed + 1, knobs=20))
        assert len(found.rows) == 1000
        called.append(share(found, "better", "worse"))
        untold.append(share(found, "cannot tell"))
        groups += sum(group.verdict in ("better", "worse") for group in found.groups)
    assert max(called) <= 0.01
    assert max(untold) <= 0.10
    assert groups <= 1


def test_what_was_measured_side_by_side_may_drift_together() -> None:
    """On a noisy machine each algorithm's rows, measured within seconds, share what came then: that
    makes no algorithm slower.
    """
    algos = tuple(f"algo{number}" for number in range(30))
    noise, called = Noise(within=0.12, between=0.03), 0
    for seed in range(0, 10, 2):
        shared = np.expm1(np.repeat(np.random.default_rng(seed).normal(0, 0.12, len(algos)), 20))
        found = compare(
            sweep(noise, seed, algos, knobs=2, slower=dict(enumerate(shared))),
            sweep(noise, seed + 1, algos, knobs=2),
        )
        called += sum(group.verdict in ("better", "worse") for group in found.groups)
    assert called <= 2  # of 155


@pytest.mark.parametrize(
    "noise",
    tiered(
        [
            (Noise(),),
            (Noise(is_heavy=True),),
            (Noise(repeats=5, within=0.008),),
            (Noise(within=0.001, between=0.001),),
        ],
        [(Noise(is_heavy=True),)],
    ),
    ids=str,
)
def test_five_percent_in_3_of_40_rows_is_found(noise: Noise) -> None:
    hits = false = 0
    for seed in range(0, 40, 2):
        slow = [int(place) for place in np.random.default_rng(seed).choice(40, 3, replace=False)]
        found = compare(
            sweep(noise, seed, ALGOS[:4], slower=dict.fromkeys(slow, 0.05)),
            sweep(noise, seed + 1, ALGOS[:4]),
        )
        names = sweep(noise, seed, ALGOS[:4])
        planted = {(names["algo"][place], names["size_bytes"][place]) for place in slow}
        worse = found.rows[found.rows["verdict"] == "worse"]
        seen = set(zip(worse["algo"], worse["size_bytes"], strict=True))
        hits += len(seen & planted)
        false += len(seen - planted)
    assert hits >= 57  # of 60
    assert false <= 2  # of 740


@pytest.mark.parametrize(
    ("noise", "knobs"),
    tiered(
        product(
            [
                Noise(drift=0.002),
                Noise(is_heavy=True, drift=0.002),
                Noise(repeats=5, within=0.01, drift=0.002),
            ],
            [2, 20],
        ),
        [(Noise(is_heavy=True, drift=0.002), 2), (Noise(drift=0.002), 20)],
    ),
    ids=str,
)
def test_two_percent_in_an_algorithm_is_found(noise: Noise, knobs: int) -> None:
    hits = false = 0
    for seed in range(0, 20, 2):
        slower = dict.fromkeys(range(10 * knobs, 20 * knobs), 0.02)
        found = compare(
            sweep(noise, seed, knobs=knobs, slower=slower), sweep(noise, seed + 1, knobs=knobs)
        )
        changed = {group.names for group in found.groups if group.verdict in ("better", "worse")}
        hits += ("cuda", "tree") in changed
        false += any("tree" not in names for names in changed)
    assert hits >= 9
    assert false <= 1


def test_a_slowdown_of_everything_is_no_drift() -> None:
    found = compare(sweep(Noise(), 1, slower=dict.fromkeys(range(50), 0.06)), sweep(Noise(), 2))
    assert share(found, "worse") > 0.9
    assert found.groups[0].names == ("cuda",)
    assert found.groups[0].verdict == "worse"
    assert found.is_worse_by(5)
    assert not found.is_worse_by(10)
    back = compare(sweep(Noise(), 2), sweep(Noise(), 1, slower=dict.fromkeys(range(50), 0.06)))
    assert share(back, "better") > 0.9
    assert not back.is_worse_by(0)


def test_intervals_hold_the_true_ratio() -> None:
    held = [
        compare(sweep(Noise(drift=0), seed), sweep(Noise(drift=0), seed + 1)).rows
        for seed in range(0, 20, 2)
    ]
    inside = pd.concat([(rows["low"] <= 1) & (rows["high"] >= 1) for rows in held])
    assert inside.mean() > 0.93


def test_single_repeats_are_judged_by_their_neighbours() -> None:
    noise = Noise(repeats=1, within=0.005)
    found = compare(sweep(noise, 1, slower={7: 0.1}), sweep(noise, 2))
    assert list(found.rows.index[found.rows["verdict"] == "worse"]) == [7]
    assert np.isnan(found.repeat_spread)


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
    assert found.new_failures == 2
    assert found.is_worse_by(100)
    text = " ".join(" ".join(lines(found, ("new", "base"))).split())
    assert "1 wrong in new" in text
    assert "2 that were right in base are wrong or failed" in text


def test_rows_measured_twice_are_taken_together() -> None:
    new, base = sweep(Noise(), 1), sweep(Noise(), 2)
    found = compare(pd.concat([new, sweep(Noise(), 3)], ignore_index=True), base)
    assert len(found.rows) == 50
    assert any("50 rows" in said for said in found.remarks)
    once = compare(new, base)
    assert not once.remarks


@pytest.mark.parametrize(
    ("statuses", "kept"),
    [
        (("wrong", "ok"), "ok"),
        (("ok", "wrong"), "wrong"),
        (("wrong", "waived"), "wrong"),
        (("error", "waived"), "waived"),
    ],
)
def test_the_last_row_that_was_measured_says_whether_it_is_right(
    statuses: tuple[str, ...], kept: str
) -> None:
    one = sweep(Noise(), 1)[:1]
    frame, again = together(
        pd.concat([one.assign(status=status) for status in statuses], ignore_index=True)
    )
    assert (list(frame["status"]), again) == ([kept], 1)


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
        "repeat_times_us": "",
    }
    return told.assign(backend="nccl", algo="library", repeats=1, **untold)


def test_another_tools_file_matches_by_the_problem() -> None:
    new, base = sweep(Noise(), 1), foreign(sweep(Noise(), 2, slower=dict.fromkeys(range(10), 0.2)))
    found = compare(new, base)
    assert len(found.rows) == 10
    assert share(found, "better") == 1
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
    sides = sweep(Noise(), 1, knobs=2, slower={5: 0.3}), sweep(Noise(), 2, knobs=2)
    new, base = (side.assign(algo="recursive-doubling-by-" + side["algo"]) for side in sides)
    text = lines(compare(new, base), ("new.csv", "base.csv"))
    assert max(map(len, text)) <= 80
    [row] = [place for place, line in enumerate(text) if line.startswith("worse:")]
    assert text[row + 1].split() == ["4M", "recursive-doubling-by-ring", "ch=1"]
    assert len(text[row + 2].split()) == 5  # its numbers


def test_report_fits_the_screen() -> None:
    found = compare(
        sweep(Noise(), 1, knobs=2, slower={5: 0.3}),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    frame: pd.DataFrame
    name: str
    kind: str = "collbench"
    remarks: tuple[str, ...] = ()


Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """The command, with files that are made as they are named: the word before the dot says what is
    in it.
    """
    made = {
        "new": sweep(Noise(), 1),
        "base": sweep(Noise(), 2),
        "slow": sweep(Noise(), 3, slower={5: 0.3}),
        "other": sweep(Noise(), 4).assign(device="b"),
        "empty": sweep(Noise(), 5)[:0],
        "hot": sweep(Noise(), 6).assign(notes="hot"),
        "noise": sweep(Noise(), 8).assign(notes="noisy"),
        "wrong": sweep(Noise(), 7).assign(status=["wrong", *["ok"] * 49]),
    }
    module = ModuleType("collbench.analysis.load")
    module.load_all = lambda files: [  # type: ignore[attr-defined]
        Loaded(frame=made[Path(file).stem], name=Path(file).name, remarks=("one line left out",))
        for file in files
    ]
    monkeypatch.setitem(sys.modules, "collbench.analysis.load", module)

    def invoked(*args: str) -> tuple[int, str, str]:
        code = run(["compare", *args])
        out, err = capfd.readouterr()
        return code, out, err

    return invoked


CODES = {
    "new base": 0,
    "new base --fail-below 5%": 0,
    "slow base": 0,
    "slow base --fail-below 5": 1,
    "slow base --fail-below 50%": 0,
    "base slow --fail-below 5%": 0,
    "wrong base --fail-below 5%": 1,
    "new other": 2,
    "new other --force": 0,
    "empty base": 1,
    "new empty": 1,
    "hot base --fail-below 5%": 1,
    "slow base new --fail-below 5%": 1,
    "noise base": 0,
    "noise base --fail-below 5%": 1,
    "noise --against h200x4": 1,
    "new --fail-below 5%": 2,
    "new base --fail-below x": 2,
    "new base --fail-below nan": 2,
    "": 2,
}


@pytest.mark.parametrize("line", CODES)
def test_exit_codes(invoke: Invoke, line: str) -> None:
    assert invoke(*line.split())[0] == CODES[line]


def test_one_file_gets_answers(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("collbench.report.tables.summary")
    module.lines_of_rows = lambda rows, columns, show_all, bars: [  # type: ignore[attr-defined]
        f"{len(rows)} rows in {columns} columns, {show_all}{bars}"
    ]
    monkeypatch.setitem(sys.modules, "collbench.report.tables.summary", module)
    monkeypatch.setenv("COLUMNS", "90")
    assert invoke("new.csv", "--all")[:2] == (0, "50 rows in 90 columns, True\n")


def test_talk_goes_to_stderr(invoke: Invoke) -> None:
    code, out, err = invoke("slow.csv", "base.csv", "--fail-below", "5%", "--color", "never")
    assert code == 1
    assert "slow.csv: one line left out" in err
    assert "slower than base.csv by more than 5%" in err
    assert out.startswith("new slow.csv, base base.csv")
    assert "\033" not in out
    assert "\033[31m" in invoke("slow.csv", "base.csv", "--color", "always")[1]


def test_noise_is_said_before_what_differs(invoke: Invoke) -> None:
    """And a gate that had noise to judge fails because of that."""
    _, out, err = invoke("new.csv", "noise.csv", "--fail-below", "50%")
    text = " ".join(out.split())
    assert text.startswith("noise.csv: 50 of 50 rows are noise.")
    assert "what to do end other processes" in text
    assert "cannot judge: most rows of noise.csv are noise" in err


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
