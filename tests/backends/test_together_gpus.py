"""Several collectives at once by the cuda backend, on GPUs made of NumPy arrays: every part's
results, alone and together; streams, regions, and what is refused.
"""

from dataclasses import replace
from typing import Any

import pytest

from collbench.backends.base import Batch, GpuOptions, Samples, SessionOptions
from collbench.backends.cuda import backend as cuda
from collbench.backends.cuda import together as cuda_together
from collbench.backends.cuda.together import CudaTogether, CudaTogetherSession
from collbench.bench.runner import plan_points
from collbench.launch.local import LocalGroup
from collbench.planning.together import Together
from collbench.spec.case import Case
from collbench.util.errors import HangError, ScheduleError
from tests.support.gpus_in_threads import Machine, run_on

KNOBS: dict[str, Any] = {"channels": 2, "transport": "p2p", "threads": 64, "cluster": 1}


def job(monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> Together:
    """What the planner makes of a case."""
    monkeypatch.setattr(cuda.BACKEND, "why_not", lambda group: "")
    monkeypatch.setattr(cuda, "least_multiprocessors", lambda: 0)
    case = Case(**{"op": "allreduce", "backend": "cuda", "size_bytes": 1024, **KNOBS, **knobs})
    (point,) = plan_points([case.rounded()], LocalGroup())
    assert point.together is not None, point.waived
    assert not point.waived
    return point.together


def samples_of(
    machine: Machine,
    together: Together,
    monkeypatch: pytest.MonkeyPatch,
    options: GpuOptions | None = None,
    *,
    hot: bool = False,
    batch: Batch | None = None,
) -> Samples:
    """One repeat, and one more."""
    run_on(machine, together.n, monkeypatch)
    session = CudaTogether().open(
        LocalGroup(), [together], SessionOptions(hot=hot, gpu=options or GpuOptions())
    )
    try:
        session.run(together, batch or Batch(iterations=2))
        return session.run(together, batch or Batch(iterations=2))
    finally:
        session.close()


GROUPS = [
    (4, {"groups": "0,1/2,3"}),
    (4, {"groups": "0,2/1,3", "proto": "ll"}),
    (2, {"groups": "0,1/0,1", "op": "alltoall"}),
    (4, {"groups": "0,1/2,3/0,2/1,3/1,3", "proto": "ll128"}),
    (2, {"groups": "0,1/1,0", "op": "broadcast", "proto": "simple"}),
    (3, {"groups": "0,1/1,2/2,0", "op": "reducescatter", "transport": "shm"}),
    (2, {"mix": "allreduce:1K+allgatherv:6K", "skew": "zipf:1"}),
    (4, {"mix": "allreduce:1K+alltoall:4K", "groups": "0,1/2,3/3,1", "placement": "out"}),
]


@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_parts_are_right_alone_and_together(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, knobs = GROUPS[number]
    options = GpuOptions(launch="stream" if number % 3 == 1 else "graph", isolated=number % 4 == 3)
    together, machine = job(monkeypatch, ranks=ranks, **knobs), Machine(number)
    samples = samples_of(machine, together, monkeypatch, options, hot=number % 2 == 0)
    assert samples.wrong == ()
    assert len(samples.seconds) == ranks
    # every launch takes as long here, so that alone a rank takes as long as it has parts
    assert samples.alone_s == pytest.approx(together.most_parts * max(samples.seconds), rel=0.5)
    assert machine.most_streams == together.most_parts
