"""Carry out `topo --infer`: copies alone and together, of this machine's GPUs or invented for a
described machine whose tree is hidden, and the tree that they tell.
"""

import time

from collbench.analysis.tomography.model import Inference
from collbench.analysis.tomography.search import FlowSearch
from collbench.analysis.tomography.tree import inferred
from collbench.cli._options import remark
from collbench.cli._progress import Remarks
from collbench.cli._rules import Options
from collbench.device.card import device_count
from collbench.machine.host import has_nvidia_gpus
from collbench.machine.topology.model import Topology
from collbench.machine.topology.planted import PlantedFlows, hidden, own_links
from collbench.report.tables.tomography import lines
from collbench.results.flows import FlowSource
from collbench.util.errors import CollbenchError, UnavailableError
from collbench.util.units import format_duration


def infer(topology: Topology, options: Options) -> tuple[Topology, Inference]:
    """The machine with the tree that copies tell. Raises UsageError for a described machine of
    which nothing can be invented, UnavailableError where there are no two GPUs.
    """
    if options["file"] is not None or options["machine"] is not None:
        planted = PlantedFlows(topology, options["noise"] / 100, options["seed"])
        remark(
            f"the tree of {topology.name} is hidden; rates are invented from its links, with"
            f" {options['noise']:g} % of noise"
        )
        return _search(hidden(topology), planted, options["budget"])
    count = device_count() if has_nvidia_gpus() else 0
    if count < 2 or len(topology.gpus) != count:
        raise UnavailableError(
            f"--infer: CUDA shows {count} GPUs here, of {len(topology.gpus)} in the machine:"
            " nothing can be told of what GPUs share",
            "give all of two GPUs or more, or --machine NAME to try it on a described machine",
        )
    from collbench.bench.flows import GpuFlows

    remark(f"copies of {count} GPUs, alone and together, for {options['budget']:g} s at most")
    with GpuFlows(own_links(topology)) as source:
        return _search(topology, source, options["budget"])


def _search(flat: Topology, source: FlowSource, budget_s: float) -> tuple[Topology, Inference]:
    start, remarks = time.monotonic(), Remarks()
    search = FlowSearch(source, lambda: time.monotonic() - start, budget_s)

    def step(done: int, of: int) -> None:
        if remarks.due():
            remark(f"{search.count} measurements, {of - done} of this step are left")

    try:
        inference = search.run(step)
    except (KeyboardInterrupt, CollbenchError):
        for line in lines(search.judge()) if search.count else ():
            remark(line)
        raise
    remark(
        f"{search.count} measurements of {len(search.repeats)} sets of copies in"
        f" {format_duration(time.monotonic() - start)}, noise {inference.noise:.1%}"
    )
    return inferred(flat, inference), inference
