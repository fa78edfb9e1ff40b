"""Several collectives at once: groups, communicators that share ranks, grouped launches, and orders
that deadlock.
"""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.backends.base import Batch, SessionOptions
from collbench.backends.blocking import HostBuffers
from collbench.backends.cpu import together as cpu_together
from collbench.backends.cpu.together import CpuTogether
from collbench.bench.points import plan_points
from collbench.core.case import Case
from collbench.core.collectives import OpName
from collbench.core.errors import HangError, UsageError
from collbench.core.pattern import Wrong
from collbench.core.record import Record, read
from collbench.core.together import parse_groups, parse_mix, split
from collbench.launch.local import LocalGroup
from collbench.planning.together import Together
from tests.support.commands import Capture, Invoke, invoke
from tests.support.tiers import tiered

SWEEP = ("sweep", "--repeats", "1", "-n", "3", "--algo", "auto", "--hot")


def rows_of(capfd: Capture, file: Path, *args: str) -> list[Record]:
    code, _, err = invoke(capfd, *SWEEP, *args, "--csv", str(file))
    assert code == 0, err
    return read(file)


def job(ranks: int, groups: str = "", mix: str = "", op: OpName = "allreduce") -> Together[Any]:
    case = Case(
        op=op, backend="cpu", ranks=ranks, size_bytes=4096, groups=groups, mix=mix
    ).rounded()
    (point,) = plan_points([case], LocalGroup())
    assert point.together is not None, point.waived
    return point.together


def wrong_of(together: Together[Any], **batch: Any) -> tuple[Wrong, ...]:
    """What is wrong in a repeat."""
    options = SessionOptions(hot=True)
    with closing(CpuTogether().open(LocalGroup(), [together], options)) as session:
        return session.run(together, Batch(iterations=3, **batch)).wrong


def test_two_groups_of_two_ranks(capfd: Capture, tmp_path: Path) -> None:
    rows = rows_of(
        capfd,
        tmp_path / "out.csv",
        *("--groups", "0,1/2,3", "--op", "allreduce,alltoallv", "--skew", "hot:1"),
        *("--sizes", "1K,100003"),
    )
    assert [(row.op, row.size_bytes, row.skew) for row in rows] == [
        ("allreduce", 1024, ""),
        ("allreduce", 100_000, ""),
        ("alltoallv", 1024, "hot:1"),
        ("alltoallv", 100_000, "hot:1"),
    ]
    for row in rows:
        assert (row.status, row.wrong, row.ranks, row.groups) == ("ok", 0, 4, "0,1/2,3")
        assert row.time_us is not None
        assert row.alone_us is not None
        assert row.algbw_gbs is not None
        assert row.over_alone == pytest.approx(row.time_us / row.alone_us, rel=1e-4)
        # of two ranks, not of four
        factor = 1.0 if row.op == "allreduce" else 0.5 * (row.imbalance or 0)
        assert row.algbw_gbs == pytest.approx(row.size_bytes / row.time_us / 1000, rel=1e-4)
        assert row.busbw_gbs == pytest.approx(row.algbw_gbs * factor, rel=1e-4)


@tiered("order", ["grouped", "same"], 1)
def test_ranks_in_several_groups_and_operations(capfd: Capture, tmp_path: Path, order: str) -> None:
    """Tensor and data parallel ranks, and a group twice, each with two operations."""
    (row,) = rows_of(
        capfd,
        tmp_path / "out.csv",
        *("--groups", "0,1/2,3/0,2/1,3/1,3", "--mix", "ar:4K+allgatherv:64K", "--skew", "zipf:1"),
        *("--launch-order", order),
    )
    assert (row.status, row.wrong, row.mix) == ("ok", 0, "allreduce:4K+allgatherv:64K")
    assert (row.op, row.size_bytes, row.skew) == ("allreduce", 68 << 10, "zipf:1")
    assert ("order-same" in row.notes) == (order == "same")
    # ranks 1 and 3 have three parts of either operation
    assert row.time_us is not None
    assert row.algbw_gbs == pytest.approx(3 * row.size_bytes / row.time_us / 1000, rel=1e-4)


def test_launches_that_do_nothing_are_found(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_together, "launch_grouped", lambda launches, limit_s: None)
    args = ("--groups", "0,1/0,1", "--sizes", "4K", "--csv", str(tmp_path / "out.csv"))
    assert invoke(*SWEEP, *args)[0] == 1
    (row,) = read(tmp_path / "out.csv")
    # of 4 KiB that may be cached one element is poisoned
    assert (row.status, row.wrong) == ("wrong", 2)


def test_wrong_elements_have_the_number_of_the_rank_among_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        HostBuffers,
        "compare",
        lambda of, *_: Wrong(rank=of._rank, count=1, index=0, got="1", wanted="2"),
    )
    assert {one.rank for one in wrong_of(job(4, groups="0,1/2,3"))} == {0, 1, 2, 3}


def test_an_order_that_deadlocks_ends_at_the_deadline_and_is_explained() -> None:
    crossed = replace(job(2, mix="allreduce:4K+alltoall:4K"), order="crossed")
    with pytest.raises(HangError, match="before allreduce of ranks 0,1, and rank 0 launches"):
        wrong_of(crossed, deadline_s=0.3)


def test_which_orders_can_deadlock() -> None:
    pair = job(2, groups="0,1/0,1")
    assert pair.why_it_can_deadlock() == ""
    assert replace(pair, order="same").why_it_can_deadlock() == ""
    assert "rank 1 launches" in replace(pair, order="crossed").why_it_can_deadlock()
    apart = job(4, groups="0,1/2,3")
    assert replace(apart, order="crossed").why_it_can_deadlock() == ""
    # no two parts share two ranks with other orders, but three parts wait in a circle
    circle = replace(job(5, groups="0,1/2,0/1,2/3,4"), order="crossed")
    assert circle.why_it_can_deadlock().count("launches") == 3


def test_groups_that_are_none_are_refused(invoke: Invoke) -> None:
    for text, why in (
        ("0,1/2", "group '2' has one rank"),
        ("0,1/1,1", "has a rank twice"),
        ("0,1/2,3,4", "groups of 2 and 3 ranks"),
        ("0,1/3,4", "rank 2 is in no group"),
        ("0,x", "is not a list of ranks"),
    ):
        with pytest.raises(UsageError, match=why):
            parse_groups(text)
    for text in ("3", "0", "%3", "1", "%4", "x"):
        with pytest.raises(UsageError):
            split(text, 4)
    for text, why in (("allreduce", "has no size"), ("ar:1K", "is one operation")):
        with pytest.raises(UsageError, match=why):
            parse_mix(text)
    for args in (
        ("--groups", "0,1", "--ranks", "2"),
        ("--mix", "ar:1K+ag:1K", "--sizes", "1K"),
        ("--split", "2", "--distribution"),
        ("--launch-order", "same"),
        ("--skew", "hot:1"),
    ):
        assert invoke("sweep", "--backend", "cpu", *args)[0] == 2


@pytest.mark.parametrize("what", [{"groups": "0,1/0,1"}, {"mix": "allreduce:64+alltoall:64"}])
def test_messages_are_waived(what: dict[str, str]) -> None:
    case = Case(op="allreduce", backend="cpu", ranks=2, size_bytes=64, transport="net")
    (point,) = plan_points([replace(case, **what).rounded()], LocalGroup())  # type: ignore[arg-type]
    assert point.waived == "messages of MPI move one collective at a time: use --transport shm"


def test_other_backends_are_waived() -> None:
    case = Case(op="allreduce", backend="model", ranks=4, size_bytes=64, groups="0,1/2,3")
    (point,) = plan_points([case], LocalGroup())
    assert point.waived == (
        "model is measured with one collective at a time; use --backend cpu, cuda or nccl"
    )
