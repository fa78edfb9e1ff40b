"""One arm of an experiment: a process that opens ranks of its own, and measures once for each call.
Every element of the results is compared; what is wrong is an error.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collbench.bench.experiment import Experiment
from collbench.core.errors import UnavailableError
from collbench.core.group import Rank, RankContext

if TYPE_CHECKING:
    from collbench.bench.runner import Measurement


class ArmRank(Rank):
    """What serves the process of experiments (see lab.py)."""

    def __init__(self, context: RankContext) -> None:
        self._measurement: Measurement | None = None

    def open(self, experiment: Experiment, cpulist: str) -> None:
        """Open the ranks, on these cores if there are any."""
        from collbench.bench.points import plan_points
        from collbench.bench.runner import Measurement
        from collbench.bench.sweep import Sweep, cases
        from collbench.core.options import Settings
        from collbench.core.peers import is_peer, knobs_of
        from collbench.launch.local import LocalGroup

        if cpulist:
            _bind(cpulist)
        group, backend = LocalGroup(), experiment.backend
        knobs = {"algo": "auto", **experiment.knobs}
        sweep = Sweep(
            sizes=experiment.sizes,
            op=(experiment.op,),  # type: ignore[arg-type]  # one of a check's or of tune's
            backend=(backend,),
            ranks=(experiment.ranks,),
            knobs={name: (value,) for name, value in knobs.items()},
        )
        peers = {backend: knobs_of(backend)} if is_peer(backend) else {}
        points = plan_points(cases(sweep, peers, has_hosts=False), group)
        self._measurement = Measurement(points, group, Settings(repeats=1))
        self._measurement.open()
        if waived := next((point.waived for point in points if point.waived), ""):
            raise UnavailableError(waived)

    def once(self) -> tuple[Sequence[float], float]:
        """The slowest rank's seconds of a launch at each size, and the cores' worth of time that
        other processes had so far.
        """
        assert self._measurement is not None
        return self._measurement.once(), self._measurement.foreign_share

    def close(self) -> None:
        """End the ranks."""
        if self._measurement is not None:
            self._measurement.close()


def _bind(cpulist: str) -> None:
    from collbench.machine.topology.model import members

    try:
        os.sched_setaffinity(0, members(cpulist))
    except OSError as error:
        raise UnavailableError(f"cores {cpulist} cannot be used: {error.strerror}") from None
