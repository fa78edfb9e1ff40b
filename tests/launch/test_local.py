"""The local group: ranks that are forked around shared memory."""

from pathlib import Path

from collbench.launch.group import Rank
from collbench.launch.local import LocalGroup


def test_ranks_that_have_ended_leave_no_descriptor() -> None:
    descriptors = Path("/proc/self/fd")
    before = sorted(descriptors.iterdir())
    for _ in range(3):
        LocalGroup().shared_workers(Rank, 2, 4096).close()
    assert sorted(descriptors.iterdir()) == before
