"""How far `auto` is from the best of a grid, with the user's tuning file and without it.

    collbench tune --op allreduce,alltoall --sizes 1K:16M --budget 2m
    python -m tests.benchmarks.tuned --op allreduce,alltoall --sizes 1K:16M

The grid has every algorithm by every protocol and transport that can run, messages in place and
through FIFOs; and of the fastest few and of `auto` every value near its own of every knob. Each is
measured once; the fastest few, `auto` and what it would be without the file are then measured in
turns. Three turns choose the best of the grid, the others give the ratios. It is no test: it takes
minutes.
"""

import time
from statistics import median
from typing import Any

import click

from collbench.backends import FAMILY
from collbench.bench.points import SweepPoint
from collbench.bench.ranks import ranks_of, recordings_of
from collbench.cli._options import Sizes
from collbench.core.case import Case
from collbench.core.collectives import OPS
from collbench.core.options import Settings
from collbench.core.units import format_size
from collbench.launch.local import LocalGroup
from collbench.machine.discovery import topology_of
from collbench.planning.chooser import row_of
from collbench.planning.planner import machine_of
from collbench.tune.candidates import Candidate, Field
from collbench.tune.search import Pace, Trial
from collbench.tune.store import stored

FASTEST, CHOOSING, TURNS = 3, 3, 8


@click.command()
@click.option("--backend", default="cpu", type=click.Choice(("cpu", "cuda")))
@click.option("--op", default="allreduce")
@click.option("--sizes", default="1K:16M", type=Sizes())
@click.option("--ranks", default=2)
@click.option("--transport", default="auto")
@click.option("--turns", default=TURNS)
def main(op: str, sizes: tuple[int, ...], turns: int, **of: Any) -> None:
    """Measure, and print a line for each collective and size, and the worst and the median."""
    print(f"{'collective':13} {'size':>5}  grid  {'auto':>6} {'before':>6}  auto, and the best")
    ratios = [
        measured(Case(**of | {"op": one, "size_bytes": size}).rounded(), turns)
        for one in (OPS if op == "all" else op.split(","))
        for size in sizes
    ]
    for name, column in zip(("auto", "before"), zip(*ratios, strict=True), strict=True):
        print(f"{name}: worst {max(column):.3f}, median {median(column):.3f} of the best's time")


def measured(case: Case, turns: int) -> tuple[float, float]:
    """The time of `auto`, and of what it is without the user's file, over that of the best."""
    start_s, group, settings = time.monotonic(), LocalGroup(), Settings()
    backend = FAMILY.load(case.backend)
    assert not backend.is_peer
    recordings = recordings_of(group, {"backend": (case.backend,)})
    topology = topology_of(recordings) if recordings else None
    where = ranks_of((case.backend,), None, group, settings.gpus, topology)
    base = backend.limits(settings.max_memory)
    limits, links = where.limits(case, base), where.of(case)
    machine = machine_of(case.backend, limits)
    machine = machine if backend.is_gpu else machine._replace(joined="memory")
    own = str(stored(machine).tuning_file)
    field = Field(case, backend, group, limits, "", row_of(case, base, links))
    before = Field(case, backend, group, limits, own, row_of(case, base, links, own)).today
    auto = field.today
    assert auto is not None
    assert before is not None
    ways = fastest(field.ways(), group, settings)
    near = [one for way in [auto, *ways[:FASTEST]] for one in field.neighbours(way)]
    grid = sorted([*ways, *fastest(near, group, settings)], key=lambda one: one.times[0])
    rated = [auto, before, *grid[:FASTEST]]
    times = in_turns(rated, turns, group, settings)
    best = min(range(len(rated)), key=lambda one: median(times[one][:CHOOSING]))

    def over_best(one: int) -> float:
        pairs = zip(times[one][CHOOSING:], times[best][CHOOSING:], strict=True)
        return median(slower / faster for slower, faster in pairs)

    print(
        f"{case.op:13} {format_size(case.size_bytes):>5}  {len(grid):4}  {over_best(0):6.3f}"
        f" {over_best(1):6.3f}  {way(auto.point)}, {rated[best].text}"
        f" ({time.monotonic() - start_s:.0f} s)",
        flush=True,
    )
    return over_best(0), over_best(1)


def way(point: SweepPoint) -> str:
    """Algorithm, protocol and transport of a point."""
    return f"{point.case.algo} {point.case.proto} {point.case.transport}"


def fastest(grid: list[Candidate], group: LocalGroup, settings: Settings) -> list[Candidate]:
    """Those that can run, the fastest by one repeat each first."""
    with Trial(grid, group, settings, Pace()) as trial:
        for one in grid:
            trial.repeat(one)
    return sorted((one for one in grid if not one.reason), key=lambda one: one.times[0])


def in_turns(
    rated: list[Candidate], turns: int, group: LocalGroup, settings: Settings
) -> list[list[float]]:
    """Seconds of each in every turn."""
    for one in rated:
        one.times = []
    with Trial(rated, group, settings, Pace()) as trial:
        for turn in range(turns):
            for one in rated[:: -1 if turn % 2 else 1]:
                trial.repeat(one)
                assert not one.reason, one.reason
    return [one.times for one in rated]


if __name__ == "__main__":
    main()
