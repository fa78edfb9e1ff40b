"""One arm of an experiment as a process: it opens its ranks, and measures once for each line that
it reads.

    python -m collbench.bench.arm JOB

JOB is a JSON object: backend, ranks, op, sizes, knobs, cpulist. For each line of stdin it writes a
line of JSON: {"seconds": [...], "foreign": ...}, the slowest rank's seconds of a launch at each
size and the cores' worth of time that other processes had so far, or {"reason": "..."} and ends.
Every element of the results is compared; what is wrong is a reason.
"""

import json
import os
import sys
from typing import TextIO

from collbench.core.errors import CollbenchError, UnavailableError


def main(job: str) -> int:
    """Measure until stdin ends; returns the exit code."""
    asked = json.loads(job)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries write to stdout, too
    try:
        if asked["cpulist"]:
            _bind(asked["cpulist"])
        _measure(asked, answers)
    except CollbenchError as error:
        _say(answers, {"reason": error.message})
        return error.exit_code
    return 0


def _say(answers: TextIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _bind(cpulist: str) -> None:
    from collbench.machine.topology.model import members

    try:
        os.sched_setaffinity(0, members(cpulist))
    except OSError as error:
        raise UnavailableError(f"cores {cpulist} cannot be used: {error.strerror}") from None


def _measure(asked: dict[str, object], answers: TextIO) -> None:
    from collbench.bench.points import plan_points
    from collbench.bench.runner import Measurement
    from collbench.bench.sweep import Sweep, cases
    from collbench.core.options import Settings
    from collbench.core.peers import is_peer, knobs_of
    from collbench.launch.local import LocalGroup

    group = LocalGroup()
    sweep = Sweep(
        sizes=tuple(asked["sizes"]),  # type: ignore[arg-type]  # JSON of Experiment
        op=(asked["op"],),  # type: ignore[arg-type]
        backend=(str(asked["backend"]),),
        ranks=(asked["ranks"],),  # type: ignore[arg-type]
        knobs={name: (value,) for name, value in {"algo": "auto", **asked["knobs"]}.items()},  # type: ignore[dict-item]
    )
    peers = {name: knobs_of(name) for name in sweep.backend if is_peer(name)}
    points = plan_points(cases(sweep, peers, has_hosts=False), group)
    measurement = Measurement(points, group, Settings(repeats=1))
    try:
        measurement.open()
        if waived := next((point.waived for point in points if point.waived), ""):
            raise UnavailableError(waived)
        _say(answers, {"ready": True})
        for _ in sys.stdin:
            seconds = measurement.once()
            _say(answers, {"seconds": seconds, "foreign": measurement.foreign_share})
    finally:
        measurement.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
