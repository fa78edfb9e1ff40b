"""How far the model is from what was measured: its constants are fitted to some rows, and its
prices compared with all others.

    python -m tests.benchmarks.model_errors --machine h200x4-vm --fit 300 results.csv ...
    python -m tests.benchmarks.model_errors --machine h200x4-vm --intervals results.csv ...
    python -m tests.benchmarks.model_errors --machine cpu-2 --draw 330 drawn.csv
    python -m tests.benchmarks.model_errors --machine h200x4-vm --draw 360 --backend cuda drawn.csv

--draw measures that many drawn configurations of a backend first, into the file. Prints the errors
by what the rows differ in, what the choice by the model costs over the best row, and what `auto`
does; with --constants also the constants that were fitted. --intervals prints, for
profiles/errors/model.toml, measured over predicted times of the best rows: of each fifth of the
problems by constants that were fitted to the others, and with --fit 0 by the shipped constants.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from collbench.backends import FAMILY
from collbench.bench.points import plan_points
from collbench.bench.runner import Measurement
from collbench.core.case import Case
from collbench.core.errors import UsageError
from collbench.core.knobs import KNOBS
from collbench.core.options import Settings
from collbench.core.record import Record, Writer, read
from collbench.launch.local import LocalGroup
from collbench.machine.formats import described
from collbench.planning.limits import Limits
from collbench.planning.plan import Plan
from collbench.planning.planner import resolve
from collbench.planning.price.constants import CpuCosts, GpuCosts, costs_text, cpu_costs, gpu_costs
from collbench.planning.price.gpus import gpu_price, site_of
from collbench.planning.price.work import cpu_price
from collbench.tune.calibrate import fitted, values_of, with_values
from collbench.tune.drawn import drawn_cases

_LEAST_RIVALS = 6  # rows of a problem, for a choice among them
_MEMORY = 1 << 34
_FOLDS = 5
_RANGES = {"0": 0, "1 MiB": 1 << 20, "64 MiB": 1 << 26}  # of intervals, from these sizes on
_BANDS = {1 << 16: "64K at most", 1 << 24: "more, 16M at most", 1 << 40: "more than 16M"}
_AXES = ("op", "root", "placement", "ranks", "dtype", "redop", "size_bytes")


class Point(NamedTuple):
    """A row that was measured, and its plan."""

    row: Record
    plan: Plan
    seconds: float


def points_of(file: Path) -> list[Point]:
    """The rows of our kernels or CPU ranks, by the least of their repeats."""
    found = []
    for row in read(file):
        if row.status != "ok" or row.backend not in ("cuda", "cpu"):
            continue
        try:
            plan = resolve(_case(row), Limits(memory_bytes=_MEMORY)).plan
        except UsageError:
            continue  # a knob of that row means something else by now
        if row.backend == "cuda" and row.pdl == "auto" and plan.kernel is not None:
            object.__setattr__(plan.kernel, "pdl", "off")  # measured before there was such a knob
        found.append(Point(row, plan, min(row.repeat_times_us) * 1e-6))
    return found


def _case(row: Record) -> Case:
    """The case of a row, without the knobs that do not matter to it."""
    unheeded = {"buffsize"} if row.backend == "cpu" or row.transport == "ce" else set()
    if row.backend == "cpu":
        unheeded |= {"p2p", "reload", "specialize", "pdl", "threads", "unroll", "cluster"}
    elif row.transport == "ce":
        unheeded |= {"unroll", "threads", "cluster", "p2p", "direct"}
    unheeded |= {"unroll"} if row.proto == "ll128" else {"reload"}
    unheeded |= {"specialize"} if row.proto == "simple" else set()
    heeded = {knob.name for knob in KNOBS} - unheeded
    return Case(**{name: getattr(row, name) for name in (*heeded, "backend", *_AXES)})


def cases_of(backend: str, count: int, limits: Limits) -> list[Case]:
    """Drawn configurations of CPU ranks, or of two GPUs."""
    if backend == "cpu":
        return drawn_cases("cpu", lambda drawn: drawn.choice((2, 2, 2, 3, 4)), count)
    return drawn_cases(
        backend, lambda drawn: drawn.choice((2,)), count, limits=limits, most_bytes=256 << 20
    )


def draw(backend: str, count: int, file: Path) -> None:
    """Measure drawn configurations."""
    family, group = FAMILY.load(backend), LocalGroup()
    assert not family.is_peer
    cases = cases_of(backend, count, family.limits(Settings().max_memory))
    with closing(Measurement(plan_points(cases, group), group, Settings(repeats=5))) as measurement:
        measurement.open()
        with closing(Writer(file)) as writer:
            writer.write(measurement.records())


def errors(name: str, logs: Iterable[float]) -> str:
    """A line about predicted over measured times."""
    rest = np.array(list(logs))
    off = np.abs(np.expm1(rest))
    return (
        f"{name:<24} {len(rest):>5} {np.expm1(np.median(rest)):>+8.1%} {np.median(off):>8.1%}"
        f" {np.quantile(off, 0.9):>8.1%} {off.max():>8.1%}"
    )


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--machine", required=True, help="A described machine.")
@click.option("--fit", "fit_points", default=40, show_default=True, help="Rows to fit to.")
@click.option("--seed", default=1, show_default=True, help="Of the draw of these rows.")
@click.option("--draw", "drawn", default=0, help="Configurations to measure first.")
@click.option("--backend", default="cpu", type=click.Choice(("cpu", "cuda")), help="Of these.")
@click.option("--intervals", is_flag=True, help="Print intervals of the best rows.")
@click.option("--constants", is_flag=True, help="Show the constants as well.")
def main(
    files: tuple[Path, ...],
    machine: str,
    fit_points: int,
    seed: int,
    drawn: int,
    backend: str,
    intervals: bool,
    constants: bool,
) -> None:
    if drawn:
        draw(backend, drawn, files[0])
    points = [point for file in files for point in points_of(file)]
    links = described(machine)
    start = cpu_costs(machine) if links is None else gpu_costs(machine)
    kinds = [
        kind
        for kind in start.kinds
        if any(kind in (point.plan.proto, point.plan.transport) for point in points)
    ]

    sites = {
        n: site_of(links, [gpu.id for gpu in links.gpus[:n]], start)
        for n in {point.plan.n for point in points}
        if links is not None and isinstance(start, GpuCosts)
    }

    def costs(values: Sequence[float]) -> CpuCosts | GpuCosts:
        return with_values(start, values, kinds)

    def price(plan: Plan, values: Sequence[float]) -> float:
        on = costs(values)
        if isinstance(on, CpuCosts):
            return cpu_price(plan, on)
        return gpu_price(plan, replace(sites[plan.n], costs=on))

    def fit_to(known: list[Point]) -> Sequence[float]:
        if not known:
            return values_of(start, kinds)
        measured = [point.seconds for point in known]
        return fitted(
            values_of(start, kinds),
            lambda values: [price(point.plan, values) for point in known],
            measured,
        ).values

    random.Random(seed).shuffle(points)
    if intervals:
        print("\n".join(_intervals(points, fit_points, fit_to, price)))
        return
    fit, held = points[:fit_points], points[fit_points:]
    values = fit_to(fit)
    if constants:
        print(costs_text(costs(values), f"{len(fit)} rows"))
    logs = [math.log(price(one.plan, values) / one.seconds) for one in held]
    print(f"{'rows that were not fitted':<24} {'rows':>4}     bias   median      90%     most")
    print(errors("all", logs))
    keys: tuple[Callable[[Record], str], ...] = (
        lambda row: f"{row.ranks} ranks",
        attrgetter("proto"),
        attrgetter("transport"),
        attrgetter("algo"),
        lambda row: next(name for most, name in _BANDS.items() if row.size_bytes <= most),
    )
    for key in keys:
        groups: dict[str, list[float]] = {}
        for one, log in zip(held, logs, strict=True):
            groups.setdefault(key(one.row), []).append(log)
        for name in sorted(groups) if len(groups) > 1 else ():
            print(errors(name, groups[name]))
    _print_choices(points, lambda plan: price(plan, values))


def _problems(points: list[Point], *axes: str) -> list[list[Point]]:
    """The rows of each problem, in the order of the problems' first rows."""
    rivals: dict[object, list[Point]] = {}
    for point in points:
        rivals.setdefault(attrgetter(*_AXES, *axes)(point.row), []).append(point)
    return list(rivals.values())


def _intervals(
    points: list[Point],
    fit_points: int,
    fit_to: Callable[[list[Point]], Sequence[float]],
    price: Callable[[Plan, Sequence[float]], float],
) -> Iterable[str]:
    """Where nine of ten best rows are, of each range of sizes; constants know none of them."""
    problems, logs = _problems(points), []
    for fold in range(_FOLDS):
        own = problems[fold::_FOLDS]
        others = [point for ones in problems if ones not in own for point in ones]
        values = fit_to(others[:fit_points])
        logs += [
            (
                ones[0].row.size_bytes,
                min(one.seconds for one in ones) / min(price(one.plan, values) for one in ones),
            )
            for ones in own
        ]
    ends = [*list(_RANGES.values())[1:], 1 << 62]
    for (name, least), most in zip(_RANGES.items(), ends, strict=True):
        ratios = [ratio for size, ratio in logs if least <= size < most]
        low, middle, high = np.quantile(ratios, (0.05, 0.5, 0.95))
        yield f"# from {name} on: median {middle:.3f}"
        yield f"from_bytes = {least}\nlow = {min(low, 1):.3f}\nhigh = {max(high, 1):.3f}"
        yield f"rows = {len(ratios)}\n"


def _print_choices(points: list[Point], price: Callable[[Plan], float]) -> None:
    """What the choice by the model, and by `auto`, costs over the best row."""
    every = _problems(points, "run")
    problems = [ones for ones in every if len(ones) >= _LEAST_RIVALS]
    by_price = [(min(ones, key=lambda one: price(one.plan)), ones) for ones in problems]
    by_auto = [(chosen, ones) for ones in every if (chosen := _by_auto(ones)) is not None]
    for name, choices in (("the model's choice", by_price), ("`auto`", by_auto)):
        costs = [one.seconds / min(rival.seconds for rival in ones) for one, ones in choices]
        if costs:
            print(
                f"{name} over the best row, {len(costs)} problems: median {np.median(costs):.4f},"
                f" 90 % {np.quantile(costs, 0.9):.3f}, most {max(costs):.2f}"
            )


def _by_auto(rivals: list[Point]) -> Point | None:
    """The row of the algorithm, protocol and transport that `auto` takes; None where there is not
    exactly one.
    """
    row = rivals[0].row
    opened = {knob.name: knob.default for knob in KNOBS}
    case = replace(_case(row), **opened)
    limits = Limits(memory_bytes=_MEMORY, model=row.device, joined="NVLink")
    chosen = resolve(case, limits).case
    way = attrgetter("algo", "proto", "transport")
    same = [one for one in rivals if way(one.row) == way(chosen)]
    return same[0] if len(same) == 1 else None


if __name__ == "__main__":
    main()
