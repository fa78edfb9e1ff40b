"""Slots made of lines on processors: what lies in a FIFO after a send, what a torn slice does, and
what cannot be had.
"""

import platform
from contextlib import closing
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from shlex import split
from typing import Any

import numpy as np
import pytest

from collbench.backends.base import Batch
from collbench.backends.cpu import backend as cpu
from collbench.backends.cpu import lines
from collbench.backends.cpu.flags import LineFlags
from collbench.backends.cpu.layout import fifo_wire_bytes, layout
from collbench.backends.cpu.lines import refuse_repeats
from collbench.backends.cpu.rank import CpuRank
from collbench.bench.points import plan_points
from collbench.cli import run
from collbench.core.case import Case
from collbench.core.dtypes import DtypeName
from collbench.core.errors import HangError, ScheduleError
from collbench.core.group import RankContext
from collbench.core.record import read
from collbench.launch.local import LocalGroup
from collbench.planning.lowering import actors
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.protocols import FAMILY as PROTOCOLS
from tests.support.batteries import plan_of, problem
from tests.support.commands import Capture

PROTOS = tuple(name for name in PROTOCOLS if hasattr(PROTOCOLS.load(name), "FLAG_BYTES"))
LAYOUTS = {name: attrgetter("DATA_BYTES", "FLAG_BYTES")(PROTOCOLS.load(name)) for name in PROTOS}


class Pair:
    """Two ranks in this process, which take turns: rank 0 sends, then rank 1 receives."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.at = plan, layout(plan, 1)
        self.memory = np.zeros(self.at.total, np.uint8)
        self.ranks = [
            CpuRank(RankContext(rank=rank, n=2, arena=self.memory.data)) for rank in range(2)
        ]
        for rank in self.ranks:
            rank.load(plan, True, 1, False)

    def launch(self, rank: int, limit_s: float = 10.0) -> None:
        loaded = self.ranks[rank].loaded[self.plan.digest, True]
        loaded.runner.launch(loaded.programs[0], limit_s)

    def buffer(self, rank: int, which: str) -> np.ndarray:
        source, target = self.ranks[rank].loaded[self.plan.digest, True].buffers.arrays(0)
        return source if which == "in" else target

    @property
    def fifo(self) -> np.ndarray:
        return self.memory[self.at.fifos : self.at.fifos + fifo_wire_bytes(self.plan)]


def pair(proto: str, count: int = 100, dtype: DtypeName = "float32", **knobs: Any) -> Pair:
    """A broadcast from rank 0, which waits for nobody."""
    what = problem("broadcast", 2, count=count, dtype=dtype)
    found = Pair(replace(plan_of(what, "direct", **{"chunk_bytes": 1024, **knobs}), proto=proto))
    found.buffer(0, "in")[...] = (np.arange(count) % 100 + 1).astype(found.buffer(0, "in").dtype)
    return found


def lines_by_hand(payload: bytes, proto: str, flag: int) -> list[tuple[bytes, bytes]]:
    """Data and flag of every line, the last one's data cut where the payload ends."""
    data_bytes, flag_bytes = LAYOUTS[proto]
    return [
        (payload[start : start + data_bytes], flag.to_bytes(flag_bytes, "little"))
        for start in range(0, len(payload), data_bytes)
    ]


def lines_in(fifo: np.ndarray, payload: bytes, proto: str) -> list[tuple[bytes, bytes]]:
    data_bytes, flag_bytes = LAYOUTS[proto]
    wire, raw = data_bytes + flag_bytes, fifo.tobytes()
    starts = range(0, len(payload), data_bytes)
    return [
        (
            raw[number * wire :][: min(data_bytes, len(payload) - start)],
            raw[number * wire + data_bytes :][:flag_bytes],
        )
        for number, start in enumerate(starts)
    ]


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 30, 61])
@pytest.mark.parametrize("proto", PROTOS)
def test_a_sent_slice_lies_in_lines_of_data_and_flag(
    proto: str, count: int, dtype: DtypeName
) -> None:
    both = pair(proto, count, dtype)
    payload = both.buffer(0, "in").tobytes()
    both.launch(0)
    assert lines_in(both.fifo, payload, proto) == lines_by_hand(payload, proto, 1)
    both.launch(1)
    assert both.buffer(1, "out").tobytes() == payload


@pytest.mark.parametrize("proto", PROTOS)
def test_flags_count_slices_over_launches(proto: str) -> None:
    """Two slices a chunk, three loops: six slices a launch, in four slots."""
    both = pair(proto, 384, chunk_bytes=512, slices=2)
    (connection,) = both.plan.connections
    assert (connection.slices, both.plan.slots) == (6, 4)
    payload, sizes = both.buffer(0, "in").tobytes(), 256
    slot = len(both.fifo) // 4
    for launch in range(3):
        # credits for all, so that the sender need not wait for its turn
        both.ranks[0].words[both.at.flags // 8 + 8] = 1 << 40
        both.launch(0)
        for number in range(2, 6):  # the last four
            piece = payload[number * sizes :][:sizes]
            assert lines_in(both.fifo[number % 4 * slot :], piece, proto) == lines_by_hand(
                piece, proto, launch * 6 + number + 1
            )


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("proto", PROTOS)
def test_a_torn_slice_is_not_read(proto: str, which: str) -> None:
    both = pair(proto)
    data_bytes, flag_bytes = LAYOUTS[proto]
    both.launch(0)
    lines = -(-400 // data_bytes)
    line = {"first": 0, "middle": lines // 2, "last": lines - 1}[which]
    at = line * (data_bytes + flag_bytes) + data_bytes
    both.buffer(1, "out")[...] = -1
    both.fifo[at : at + flag_bytes] = 0
    with pytest.raises(HangError, match=f"flag 1 on {lines} lines, saw it on {lines - 1}"):
        both.launch(1, 0.05)
    assert (both.buffer(1, "out") == -1).all()
    both.fifo[at] = 1
    both.launch(1)
    assert (both.buffer(1, "out") == both.buffer(0, "in")).all()


@pytest.mark.parametrize("proto", PROTOS)
def test_flags_of_the_launch_before_do_not_pass(proto: str) -> None:
    both = pair(proto)
    both.launch(0)
    both.launch(1)
    with pytest.raises(HangError, match="wanted flag 2 on"):
        both.launch(1, 0.05)


@pytest.mark.parametrize("proto", PROTOS)
def test_an_empty_chunk_is_one_line(proto: str) -> None:
    """Of an allreduce of one element over two ranks, one of the two chunks is empty, and its
    hand-over still happens.
    """
    plan = replace(plan_of(problem("allreduce", 2, count=1), "ring"), proto=proto)
    binder = lines.Binder(plan, np.zeros(fifo_wire_bytes(plan), np.uint8))
    sizes = [
        region.size
        for actor in actors(plan, 0)
        for action in actor.actions
        for region in action.targets
        if region.space == "slot"
    ]
    assert 0 in sizes
    marks = [
        mark
        for program in binder.bind(
            actors(plan, 0), lambda region: np.zeros(region.size, np.uint8).view("f4")
        )
        for bound in program
        if isinstance(bound.lines, LineFlags)
        for mark in (*bound.lines.awaited, *bound.lines.filled)
    ]
    assert {len(flags) for mark in marks for flags in mark.chunks} == {1}


def test_flags_that_would_repeat_are_refused() -> None:
    plan = replace(plan_of(problem("allreduce", 2, count=1), "ring"), proto="ll")
    slices = plan.connections[0].slices
    refuse_repeats(plan, (1 << 32) // slices - 1)
    with pytest.raises(ScheduleError, match="flags of ll count them in 32 bits"):
        refuse_repeats(plan, -(-(1 << 32) // slices))
    refuse_repeats(replace(plan, proto="ll128"), 1 << 40)
    with closing(cpu.CpuSession(LocalGroup(), [plan], hot=True)) as session:
        with pytest.raises(ScheduleError, match="count them"):
            session.run(plan, Batch(iterations=1 << 31))
        assert session.run(plan, Batch(iterations=3)).wrong == ()


@pytest.mark.parametrize("algo", ["ring", "twoshot"])
@pytest.mark.parametrize("proto", PROTOS)
def test_a_buffer_that_was_asked_for_is_not_passed(proto: str, algo: str) -> None:
    """With the lines' flags in it, and as nearly as whole lines of every chunk fit."""
    case = Case(op="allreduce", backend="cpu", algo=algo, proto=proto, ranks=3, size_bytes=1 << 24)
    asked = resolve(replace(case, buffsize=1 << 20))
    assert 0.9 * (1 << 20) < asked.case.buffsize <= 1 << 20
    share = PROTOCOLS.load(proto).payload_bytes(1 << 20) / (1 << 20)
    assert asked.plan.slots * asked.plan.slot_bytes <= share * asked.case.buffsize
    assert (asked.case.proto, asked.case.direct, asked.plan.proto) == (proto, "off", proto)


@pytest.mark.parametrize("machine", ["aarch64", "ppc64le", "i686"])
def test_other_processors_are_waived(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    cases = [
        Case(op="allreduce", backend="cpu", proto=proto, ranks=2, size_bytes=4096)
        for proto in PROTOS
    ]
    assert {point.waived for point in plan_points(cases, LocalGroup())} == {
        f"the cpu backend relies on the store order of x86-64, this is {machine}"
    }


def test_rows_of_every_protocol(tmp_path: Path, capfd: Capture) -> None:
    file = tmp_path / "rows.csv"
    options = split("--backend cpu --algo ring --op allreduce,reduce --proto all --direct off")
    options += split("-d float32,int8 --sizes 5000 --ranks 2 --repeats 1 --iters 3 --hot --csv")
    assert run(["sweep", *options, str(file)]) == 0
    capfd.readouterr()
    every = [row for row in read(file) if row.op == "allreduce"]
    assert {row.proto for row in every if row.status == "waived"} == {"sentinel"}  # GPUs alone
    found = [row for row in every if row.status != "waived"]
    assert [(row.proto, row.status, row.wrong, row.p2p) for row in found] == [
        (proto, "ok", 0, "push") for _ in range(2) for proto in ("simple", *PROTOS)
    ]
    simple, ll, ll128 = found[:3]
    assert (ll.buffsize, ll128.buffsize) == (
        2 * simple.buffsize,
        4 * (-(-simple.chunk // 1920) * 2048),
    )
