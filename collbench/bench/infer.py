"""Carry out `topo --infer`: which of this machine's GPUs share a path to the host's memory."""

import sys
import time

from collbench.bench.ranks import gpus_here
from collbench.core.errors import CollbenchError, UnavailableError
from collbench.core.screen import Remarks, remark, say, width
from collbench.core.units import format_duration
from collbench.machine.shared_paths import FlowSearch
from collbench.machine.views.shared_paths import lines


def infer(budget_s: float) -> None:
    """Measure and show. Raises UnavailableError where there are no two GPUs."""
    count = gpus_here()
    if count < 2:
        raise UnavailableError(
            f"--infer: CUDA shows {count} GPUs here: nothing can be told of what GPUs share",
            "start it where CUDA shows two GPUs or more",
        )
    from collbench.device.host_flows import HostFlows

    remark(f"copies of {count} GPUs, alone and two at once, for {budget_s:g} s at most")
    start, remarks = time.monotonic(), Remarks()
    with HostFlows() as source:
        search = FlowSearch(source, lambda: time.monotonic() - start, budget_s)

        def step(done: int, of: int) -> None:
            if remarks.due():
                remark(f"{search.count} measurements, {of - done} of this step are left")

        try:
            found = search.run(step)
        except (KeyboardInterrupt, CollbenchError):
            for line in lines(search.judge()) if search.count else ():
                remark(line)
            raise
    remark(
        f"{search.count} measurements of {len(search.repeats)} sets of copies in"
        f" {format_duration(time.monotonic() - start)}, noise {found.noise:.1%}"
    )
    say("\n".join(lines(found, width(sys.stdout))))
