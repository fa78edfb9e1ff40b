"""The local group: ranks that are forked around shared memory."""

from pathlib import Path

from collbench.core.group import Rank, RankContext
from collbench.launch.local import LocalGroup


class IdleRank(Rank):
    """A rank that nobody calls."""

    def __init__(self, context: RankContext) -> None:
        self.context = context


def test_ranks_that_have_ended_leave_no_descriptor() -> None:
    descriptors = Path("/proc/self/fd")
    before = sorted(descriptors.iterdir())
    for _ in range(3):
        LocalGroup().shared_workers(IdleRank, 2, 4096).close()
    assert sorted(descriptors.iterdir()) == before
