"""Launches that do nothing, or less than they should, only while they are timed: every mode notices
each of them. tests/mpi and tests/gpu have MPI, CUDA and NCCL themselves.
"""

from contextlib import closing
from itertools import product
from typing import Any

import pytest

from collbench.backends import repeat
from collbench.backends.base import Batch
from collbench.backends.cpu.backend import CpuSession
from collbench.backends.cpu.together import TogetherSession
from collbench.bench.points import plan_points
from collbench.core.case import Case
from collbench.core.pattern import Wrong
from collbench.launch.local import LocalGroup
from tests.support.plants import PLANTS, PlantKind, plant
from tests.support.tiers import tiered

SINGLY, SIZES = "timed_singly", (8, 65536)
# of each mode what its case and its batch have, and what times the launches
MODES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "plain": ({}, {}, "timed"),
    "in place": ({"placement": "in"}, {}, "timed"),
    "distribution": ({}, {"single_launches": 20}, SINGLY),
    "distribution in place": ({"placement": "in"}, {"single_launches": 20}, SINGLY),
    "uneven": ({"op": "allgatherv", "skew": "hot:2"}, {}, "timed"),
    "uneven distribution": ({"op": "alltoallv"}, {"single_launches": 20}, SINGLY),
    "blocking": ({"op": "alltoall"}, {"blocking": True}, "timed"),
    "several launches": ({"op": "reducescatter"}, {"aggregate": 3}, "timed"),
    "messages": ({"proto": "ll"}, {"blocking": True, "aggregate": 2}, "timed"),
    "rooted": ({"op": "gather", "root": 1}, {}, "timed"),
    "groups": ({"groups": "0,1/2,3", "ranks": 4}, {}, "timed_together"),
    "groups alone": ({"groups": "0,1/2,3", "ranks": 4}, {}, "timed"),
    "mix": ({"mix": "allreduce:8K+alltoall:8K"}, {}, "timed_together"),
    "mix of small ones": ({"mix": "allreduce:8+allgather:16"}, {}, "timed_together"),
}
CELLS: list[tuple[str, bool, int, PlantKind]]
CELLS = list(product(MODES, (False, True), SIZES, PLANTS))
# of modes in which all ranks leave out the same launches
ALIKE = ("plain", "in place", "distribution", "blocking", "several launches", "messages")
KEPT: list[tuple[str, bool, int, PlantKind]]
KEPT = list(product(ALIKE, (False, True), SIZES[1:], ("kept",)))
DAILY = [*CELLS[::23], *KEPT[::4]]


def wrong_of(mode: str, hot: bool, size_bytes: int) -> tuple[Wrong, ...]:
    """What is wrong in a repeat of that mode."""
    given, batch, _ = MODES[mode]
    case = Case(
        **{
            **{"op": "allreduce", "backend": "cpu", "algo": "auto", "ranks": 2},
            **given,
            "size_bytes": size_bytes * (1 + (given.get("op") in ("allgatherv", "alltoallv"))),
        }
    ).rounded()
    (point,) = plan_points([case], LocalGroup())
    assert point.job is not None, point.waived
    opener: Any = TogetherSession if case.is_together else CpuSession
    with closing(opener(LocalGroup(), [point.job], hot=hot)) as session:
        wrong: tuple[Wrong, ...] = session.run(
            point.job, Batch(**{"iterations": 20, **batch})
        ).wrong
        return wrong


@tiered(("mode", "hot", "size_bytes", "kind"), CELLS + KEPT, 3)
def test_what_is_left_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mode: str, hot: bool, size_bytes: int, kind: PlantKind
) -> None:
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", 3)
    with plant(kind, MODES[mode][-1]):
        assert wrong_of(mode, hot, size_bytes)


@tiered(("hot", "size_bytes"), [*product((True, False), SIZES)], 1)
def test_what_is_right_is_right(
    monkeypatch: pytest.MonkeyPatch, hot: bool, size_bytes: int
) -> None:
    monkeypatch.setattr(repeat, "MAX_ROTATIONS", 3)
    assert not {mode: wrong for mode in MODES if (wrong := wrong_of(mode, hot, size_bytes))}
