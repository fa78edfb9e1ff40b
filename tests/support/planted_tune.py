"""`collbench tune` on real ranks, where a repeat takes as long as the test says, by a clock that
only repeats move: the ranks run every candidate, and how busy the machine is decides nothing.

    mpirun -n 2 python3 -m tests.support.planted_tune --backend cpu --op broadcast --sizes 64K
"""

import sys
import time
from unittest.mock import patch

from collbench.cli import run
from collbench.tune import search
from collbench.tune.candidates import Candidate

SLOW_CHUNK, SLOW_S, OTHER_S = 64, 1e-3, 1e-4  # seconds of a launch
REPEAT_S = 0.4


class Clock:
    """A clock that only measuring moves."""

    now_s = time.monotonic()

    def monotonic(self) -> float:
        return self.now_s


class PlantedTrial(search.Trial):
    """Measures, and then takes the planted seconds: chunks of SLOW_CHUNK bytes are slow."""

    clock = Clock()

    def repeat(self, one: Candidate) -> None:
        super().repeat(one)
        self.clock.now_s += REPEAT_S
        if not one.reason:
            one.times[-1] = SLOW_S if one.point.case.chunk == SLOW_CHUNK else OTHER_S


if __name__ == "__main__":
    clock = PlantedTrial.clock
    with patch.object(search, "Trial", PlantedTrial), patch.object(search, "time", clock):
        sys.exit(run(["tune", *sys.argv[1:]]))
