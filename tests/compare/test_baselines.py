"""compare --against: shipped references, the nearest machine, what is like what, and the sizes that
are slower or faster.
"""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collbench.compare.baselines import published_floor, reference
from collbench.compare.load import load
from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.machine.gpu_kinds import kind_of
from tests.support.commands import Said, Says
from tests.support.frames import against_reference, records_of, write
from tests.support.tables import cells_of
from tests.support.tiers import tiered

H200 = catalog.results()["h200x4"]
_read = cache(load)


def shipped(name: str = "h200x4", **only: str) -> pd.DataFrame:
    """The rows of a reference, which is read once: all, or those with such values."""
    frame = _read(catalog.results()[name]).frame
    return frame[(frame[list(only)] == pd.Series(only, dtype=object)).all(axis=1)].copy()


@pytest.fixture
def held(says: Says, tmp_path: Path) -> Says:
    """Writes rows to a file of somebody's, and compares it with a reference."""

    def held(code: int, rows: pd.DataFrame, *more: str) -> Said:
        write(rows, file := tmp_path / "mine.csv")
        return says(code, "compare", file, "--against", *more)

    return held


def test_every_shipped_reference_is_read_and_names_machine_date_and_source() -> None:
    for name, file in catalog.results().items():
        frame = load(file).frame
        assert len(frame), name
        assert all(frame["device"].replace("", None).dropna().str.contains("NVIDIA")), name
        right = frame[frame["status"] == "ok"]
        assert all(right["versions"].str.len() > 0), name
        if name.endswith("-published"):
            assert all(right["versions"].str.contains("source github.com/")), name
            assert (right["timestamp"] == "").all() or right["timestamp"].str.match(
                r"20\d\d-\d\d-\d\d$|^$"
            ).all(), name


@pytest.mark.parametrize("name", ["h200x4", "hosts-published"])
def test_a_file_is_normal_against_itself(name: str) -> None:
    """Also one most rows of which are noise: a row is itself, whatever its repeats are."""
    frame = shipped(name)
    found = against_reference(frame, frame)
    assert {"allreduce", "alltoall"} <= set(found.rows["op"])
    assert set(found.rows["verdict"]) == {"same"}
    assert np.allclose(found.rows["ratio"], 1.0)
    assert found.differences == () and len(found.remarks) == 1


def test_the_range_that_falls_behind_is_named(held: Says) -> None:
    slow = shipped(op="allreduce", backend="nccl")
    middle = (slow["size_bytes"] >= 1 << 20) & (slow["size_bytes"] <= 16 << 20)
    slow.loc[middle, ["busbw_gbs", "algbw_gbs"]] *= 0.5
    out = held(0, slow, "h200x4").out
    assert "0 better, 3 worse, 10 same" in out
    assert re.search(r"worst: (1M|4M|16M) allreduce nccl library \+100\.0%", out)
    held(1, slow, "h200x4", "--fail-below", "20%")


def test_between_two_sizes_of_the_reference_any_rate_of_theirs_will_do() -> None:
    """And that in the time of the larger: small sizes take the same time."""
    frame = shipped(op="allreduce", backend="nccl")
    near = frame[frame["size_bytes"] == 512]
    time_us = frame[frame["size_bytes"] == 4096]["time_us"].iloc[0]

    def ratio(slower: float) -> float:
        algbw = 1024 / (time_us * slower) / 1e3
        mine = near.assign(size_bytes=1024, count=256, algbw_gbs=algbw, busbw_gbs=1.5 * algbw)
        (found,) = against_reference(mine, frame).rows["ratio"]
        return float(found)

    assert ratio(1.0) == pytest.approx(1.0)
    assert ratio(0.9) == pytest.approx(1.0)
    assert ratio(2.0) == pytest.approx(2.0, rel=0.01)


def test_what_was_measured_otherwise_is_not_compared(held: Says, tmp_path: Path) -> None:
    alone = shipped(op="allreduce", backend="cuda")
    alone["notes"] = alone["notes"] + " isolated"
    alone["busbw_gbs"] /= 4  # a launch is in the time
    out = held(1, alone, "h200x4").words
    assert "nothing to compare" in out and "differs in conditions isolated | -" in out
    held(0, alone, tmp_path / "mine.csv")


@pytest.mark.exhaustive
def test_without_a_name_the_nearest_machine_counts(says: Says) -> None:
    frame = shipped()
    with pytest.raises(UsageError, match="no shipped reference is of"):
        reference("", records_of(frame.assign(device="4 x NVIDIA Something")))
    assert "base h200x4" in says(0, "compare", H200, "--against").out


def test_the_nearest_has_the_most_curves_and_what_it_lacks_is_listed(says: Says) -> None:
    file = catalog.results()["h200x8-published"]  # with one row of 4 ranks
    assert reference("", load(file).records).name == "h200x8-published"
    out = says(1, "compare", file, "--against", "h200x4").words
    assert "not in the reference, or only at other sizes: allreduce by nccl on 4 ranks" in out


def test_sizes_beyond_the_reference_are_counted() -> None:
    frame = shipped(op="allreduce", backend="nccl")
    found = against_reference(frame, frame[frame["size_bytes"].between(1024, 1 << 20)])
    assert len(found.rows) == 5
    assert "sizes that the reference does not reach: 8, 64, 512 and 5 more" in found.remarks


def test_nothing_in_common_is_a_failure(says: Says) -> None:
    out = says(1, "compare", H200, "--against", "a100x8-published").words
    assert "the base is of 8 x NVIDIA A100 SXM; no date; nccl; source github.com" in out
    assert "differs in ranks 4 | 8, device H200 SXM | A100 SXM" in out


@tiered(("device", "ranks", "nearest"), cells_of(__file__, "nearest.tsv"), 4)
def test_the_nearest_is_of_the_same_model_and_form_and_of_as_many_ranks_as_can_be(
    device: str, ranks: str, nearest: str
) -> None:
    frame = shipped().assign(device=device, ranks=int(ranks))
    assert reference("", records_of(frame)).name == nearest


def test_a_librarys_own_choice_is_compared_with_its_own_choice() -> None:
    frame = shipped("b200x8-published")
    slow = frame.copy()
    slow.loc[slow["algo"] == "library", "busbw_gbs"] *= 0.5
    rows = against_reference(slow, frame).rows
    assert set(rows["ranks"]) == set(range(4, 9))
    assert rows["ratio"].min() == pytest.approx(2.0), "forced rows do not stand for NCCL's own"
    forced = against_reference(frame[frame["algo"] == "ring"], frame)
    assert not len(forced.rows)
    assert any("differs in conditions" in text for text in forced.remarks)


def test_fail_below_says_why_it_fails(held: Says) -> None:
    frame = shipped("a100x8-published")
    frame["busbw_gbs"] /= 1.12  # 12 % more time
    held(0, frame, "--fail-below", "20%")
    told = held(1, frame, "--fail-below", "5%")
    assert "`same` means within 5%" in told.out
    assert "slower by more than 5%" in told.err


@pytest.mark.parametrize(
    ("slower", "rows", "limit", "said"),
    [
        # single repeats, which differ from run to run by more than the gate allows
        (1.005, slice(None), "1%", "cannot judge: no interval is narrow enough for 1%"),
        # one size among many is no proof
        (1.15, slice(3, 4), "10%", "not judged: 1 row took over 10% longer"),
    ],
)
def test_a_gate_that_cannot_judge_is_no_pass(
    held: Says, slower: float, rows: slice, limit: str, said: str
) -> None:
    frame = shipped("a100x8-published")
    frame.loc[frame.index[rows], "busbw_gbs"] /= slower
    assert said in held(5, frame, "--fail-below", limit).err


def test_one_slow_size_by_chance_is_not_worse_and_several_are() -> None:
    frame = shipped("a100x8-published")
    verdicts = []
    for slow in (1, 4):
        mine = frame.copy()
        mine.loc[mine.index[5 : 5 + slow], "busbw_gbs"] *= 0.8
        found = against_reference(mine, frame)
        verdicts.append([found.count(one) for one in ("worse", "cannot tell", "better")])
    assert verdicts == [[0, 1, 0], [4, 0, 0]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("spread", [0.005, 0.015])
def test_chance_calls_nothing_worse_or_better(spread: float) -> None:
    """Rows of a healthy machine move by t from run to run; the repeats do not show it."""
    frame = shipped(status="ok")
    rng = np.random.default_rng(3)
    for _ in range(3):
        moved = frame["busbw_gbs"] * np.exp(spread / 3**0.5 * rng.standard_t(3, len(frame)))
        found = against_reference(frame.assign(busbw_gbs=moved), frame)
        assert len(found.rows) and not found.called
        assert set(found.rows["verdict"]) <= {"same", "cannot tell"}


def test_far_above_is_not_normal(held: Says) -> None:
    mine = shipped(op="allreduce", backend="nccl")
    mine["busbw_gbs"] *= 3.0
    mine["versions"] = mine["versions"].str.replace("NCCL_NVLS_ENABLE=0 ", "")
    told = held(0, mine, "h200x4").words
    assert "13 better" in told and "-66.7%" in told
    assert "NCCL_NVLS_ENABLE: - | 0" in told


@tiered(("column", "value", "ops", "said"), cells_of(__file__, "unlike.tsv"), 4)
def test_unlike_is_not_compared_and_says_why(
    column: str, value: str, ops: str, said: str, held: Says
) -> None:
    mine = shipped(op=ops, backend="cuda")
    mine[column] = int(value) if value.isdecimal() else value
    told = held(1, mine, "h200x4").words
    assert "nothing to compare" in told and said in told
    remedy = {"device": "--force"}.get(column, f"--across {column}")
    has_remedy = column in ("device", "group", "hosts", "transport")
    assert (f"to compare them still: {remedy}" in told) == has_remedy
    if has_remedy:
        assert f"{column}: {value} | " in held(0, mine, "h200x4", *remedy.split()).out


def test_what_decides_nothing_does_not_keep_rows_apart() -> None:
    """The reduction of what reduces nothing, and the root of what has none."""
    mine = shipped(op="allgather", backend="nccl")
    assert len(against_reference(mine.assign(redop="max", root=3), shipped()).rows)


def test_what_is_not_known_is_compared() -> None:
    """Another tool's file names neither launcher nor variables, and maybe no hosts."""
    frame, mine = shipped(), shipped(backend="nccl")
    other = mine.assign(group="", hosts=0, run="", device="", versions="nccl-tests; nccl 2.27.7")
    found = against_reference(other, frame)
    assert len(found.rows) == len(against_reference(mine, frame).rows)
    assert ("nccl", "2.27.7", "2.28.9") in found.differences


NAMES = (
    "NVIDIA H100, NVIDIA H100 SXM5, H100 PCIe, NVIDIA H200, NVIDIA H200 NVL,"
    " NVIDIA A100 80GB PCIe, NVIDIA A100-SXM4-40GB, 72 x NVIDIA GB200, NVIDIA B200"
)


@pytest.mark.parametrize(("ours", "agrees"), cells_of(__file__, "gpu-kinds.tsv"))
def test_kinds_of_gpus(ours: str, agrees: str) -> None:
    alike = [name for name in NAMES.split(", ") if kind_of(ours).agrees(kind_of(name))]
    assert ", ".join(alike) == agrees
    assert kind_of(ours).agrees(kind_of(ours))


def test_wrong_rows_fail_beside_a_reference(held: Says) -> None:
    frame = shipped("a100x8-published")
    frame.loc[frame.index[0], "status"] = "wrong"
    held(0, frame)
    assert "1 row wrong or failed" in held(1, frame, "--fail-below", "5%").err


def test_a_floor_is_the_slowest_published_machine_of_the_kind() -> None:
    """Two hosts of 8 H100 over InfiniBand, RoCE and EFA: nobody knows which a row went over."""
    row = replace(next(one for one in _read(H200).records if one.op == "allreduce"), notes="")
    row = replace(row, backend="cuda", status="ok", placement="out", time_us=1.0, busbw_gbs=1.0)
    hosts = replace(row, device="16 x NVIDIA H100 80GB HBM3", ranks=16, hosts=2)
    large = published_floor(replace(hosts, size_bytes=1 << 30))
    assert large is not None
    rates = [
        one.busbw_gbs or 0.0
        for one in load(catalog.results()["hosts-published"]).records
        if (one.op, one.ranks, one.hosts, one.size_bytes) == ("allreduce", 16, 2, 1 << 30)
        and kind_of(one.device).agrees(kind_of(hosts.device))
    ]
    assert len(rates) > 1
    assert large.gbs == min(rates)
    assert large.name == "hosts-published"
    assert published_floor(replace(hosts, ranks=9, size_bytes=1 << 30)) is None
