"""Pairs of ranks that exchange messages through shared memory: threads of this process, each with a
rank's part.
"""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.bench.pair_links import SLOT_BYTES, arena_bytes
from collbench.bench.pair_rank import PairJob, PairRank, PairTime
from collbench.bench.pairwise import Pairs, PairSettings
from collbench.core.errors import HangError
from collbench.core.group import RankContext
from tests.support.corrupt import WrongPairRank


def exchange(
    n: int, job: PairJob, kind: type[PairRank] = PairRank, missing: int = -1
) -> list[PairTime | None]:
    """One round of n ranks, twice with the same parts; the results of the second. missing: a rank
    that never comes.
    """
    arena = memoryview(bytearray(arena_bytes(n)))
    parts = [kind(RankContext(rank=rank, n=n, arena=arena)) for rank in range(n) if rank != missing]
    with ThreadPoolExecutor(n) as pool:
        for _ in range(2):
            answers = [pool.submit(part.exchange, job) for part in parts]
            times = [answer.result() for answer in answers]
    return times


def job(*pairs: tuple[int, int], size_bytes: int = 1000, is_both: bool = False) -> PairJob:
    return PairJob(
        pairs=pairs, size_bytes=size_bytes, window_s=0.002, deadline_s=5.0, is_both=is_both
    )


@pytest.mark.parametrize("is_both", [False, True])
@pytest.mark.parametrize("size_bytes", [1, 1000, 3 * SLOT_BYTES + 7])
def test_pairs_agree_on_the_last_message(size_bytes: int, is_both: bool) -> None:
    times = exchange(5, job((0, 3), (4, 1), size_bytes=size_bytes, is_both=is_both))
    assert times[2] is None
    for a, b in ((0, 3), (4, 1)):
        first, second = times[a], times[b]
        assert first is not None and second is not None
        assert first.messages == second.messages > 1
        assert first.wrong == second.wrong == 0
        assert first.seconds > 0 and second.seconds > 0


def test_a_wrong_byte_is_counted_by_its_receiver() -> None:
    one_way, back, both = (
        exchange(2, round_, WrongPairRank)
        for round_ in (job((0, 1)), job((1, 0)), job((0, 1), is_both=True))
    )
    wrong = [[time.wrong if time else None for time in times] for times in (one_way, back, both)]
    assert wrong == [[0, 0], [2, 0], [2, 0]]


def test_a_rank_that_never_comes_is_named() -> None:
    round_ = PairJob(pairs=((0, 1),), size_bytes=8, window_s=0.0, deadline_s=0.05)
    with pytest.raises(HangError, match=r"rank 0 waited 0.15 s for rank 1"):
        exchange(2, round_, missing=1)


def test_ranks_that_may_wait_for_cores_are_known_with_the_reason() -> None:
    """Hosts of one boot are one machine, whatever runs there; a load matters on CPUs alone."""
    hosts = ["h1", "h2", "h3", "h4", "h4", "h4"]
    one, loads = (0.0, 2, "one boot"), [(9.0, 2, "another"), *[(0.5, 2, "")] * 3]
    workers = SimpleNamespace(call=lambda *_, **__: [one, one, *loads], close=lambda: None)
    group: Any = SimpleNamespace(ranks=6, hosts=hosts, mpi_workers=lambda *_: workers)
    settings = PairSettings(size_bytes=1, timeout_s=1.0)
    machine = dict.fromkeys(("h1", "h2"), "h[1-2] (one machine with 2 cores)")
    busy = {"h3": "h3 (load 9.0 on 2 cores)", "h4": "h4 (3 ranks on 2 cores)"}
    assert Pairs(group, 6, "cpu", settings).busy_hosts() == machine | busy
    assert Pairs(group, 6, "nccl", settings).busy_hosts() == machine
