"""NCCL's time by collbench and by nccl-tests, each form of user buffers in turns:

    python -m tests.benchmarks.nccl_agreement BUILD [OUT]

BUILD has the programs of nccl-tests (all_reduce_perf and others). OUT gets all that was measured;
what is there already is read and not measured again. Both drive all GPUs from one process, launch
graphs, and report the slowest rank. A round measures every collective and form by both; the time of
a size is the median of its rounds. Prints two tables in Markdown: the sizes within a limit by
collective and form, and each size that is not.

Each launch takes the next of several buffers. How many there are decides from 256 KiB to 1 MiB
whether they stay in the cache, so both must have as many: nccl-tests takes as many as there are
launches in a graph, if they fit its largest size.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from collbench.compare.readers import nccl_tests
from collbench.core.options import MAX_SETS
from collbench.core.record import Record, read
from collbench.core.units import format_size, parse_size
from collbench.device.card import device_count

PROGRAMS = {
    "allreduce": "all_reduce_perf",
    "allgather": "all_gather_perf",
    "reducescatter": "reduce_scatter_perf",
    "alltoall": "alltoall_perf",
    "broadcast": "broadcast_perf",
}
# of nccl-tests: NCCL registers buffers that it finds in a graph, unless it must not
FORMS: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "plain": ((), {"NCCL_GRAPH_REGISTER": "0"}),
    "registered": (("-R", "1"), {}),
    "window": (("-R", "2"), {}),
}
ROUNDS = 3


class Range(NamedTuple):
    """Sizes of one run of both tools, of which those up to `counted` are used; launches in a graph
    of nccl-tests.
    """

    low: str
    high: str
    counted: str
    launches: int
    rounds: int


RANGES = (
    Range("8", "64M", "128K", 100, ROUNDS),
    Range("256K", "64M", "64M", MAX_SETS, ROUNDS),
    Range("128M", "1G", "1G", 5, 1),
)
LIMIT = 0.05
LIMIT_S = 120.0  # of a program
Timed = tuple[str, str, Record]  # collective, form, row
Times = dict[tuple[str, str, int], list[float]]  # us, by collective, form and size


def by_nccl_tests(build: Path, out: Path, sizes: Range, number: int) -> Iterator[Timed]:
    """The times of one round by nccl-tests."""
    gpus = str(device_count())
    for form, (options, variables) in FORMS.items():
        for op, program in PROGRAMS.items():
            file = out / f"nccl-tests-{op}-{form}-{sizes.low}-{number}.txt"
            if not file.exists():
                ends = ("-b", sizes.low, "-e", sizes.high, "-f", "2")
                timing = ("-n", str(sizes.launches), "-w", "5", "-G", "20", "-a", "3", "-c", "0")
                done = subprocess.run(
                    [build / program, "-t", gpus, "-g", "1", *ends, *timing, *options],
                    env={**os.environ, **variables},
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                    check=True,
                )
                file.write_text(done.stdout)
            rows, _ = nccl_tests.read(file.read_text(), file.name)
            yield from ((op, form, row) for row in rows if row.placement == "out")


def by_collbench(out: Path, sizes: Range, number: int) -> Iterator[Timed]:
    """The times of one round by collbench."""
    file = out / f"collbench-{sizes.low}-{number}.csv"
    if not file.exists():
        command = [sys.executable, "-m", "collbench", "sweep", "--backend", "nccl"]
        what = ["--op", ",".join(PROGRAMS), "--algo", "auto", "--nccl", ",".join(FORMS)]
        ends = ["-b", sizes.low, "-e", sizes.high, "-f", "2", "--csv", str(file)]
        subprocess.run([*command, *what, *ends], stdout=subprocess.DEVNULL, check=True)
    yield from ((row.op, row.buffers, row) for row in read(file) if row.status == "ok")


def main(build: str, out: str = "") -> int:
    """Measure, and print the tables; returns the exit code."""
    folder = Path(out or tempfile.mkdtemp(prefix="agreement"))
    folder.mkdir(parents=True, exist_ok=True)
    ours, theirs = Times(), Times()
    for sizes in RANGES:
        most = parse_size(sizes.counted)
        for number in range(sizes.rounds):
            for times, timed in (
                (ours, by_collbench(folder, sizes, number)),
                (theirs, by_nccl_tests(Path(build), folder, sizes, number)),
            ):
                for op, form, row in timed:
                    if row.time_us and row.size_bytes <= most:
                        times.setdefault((op, form, row.size_bytes), []).append(row.time_us)
    ratios = {cell: median(ours[cell]) / median(theirs[cell]) for cell in ours if cell in theirs}
    print("| collective | buffers | sizes | within 5 % | farthest |")
    print("|---|---|---|---|---|")
    for op in PROGRAMS:
        for form in FORMS:
            some = {size: ratio for (a, b, size), ratio in ratios.items() if (a, b) == (op, form)}
            if not some:
                continue
            near = sum(abs(ratio - 1) <= LIMIT for ratio in some.values())
            worst = max(some, key=lambda size: abs(some[size] - 1))
            at = f"{some[worst]:.2f} at {format_size(worst)}"
            print(f"| {op} | {form} | {len(some)} | {near} | {at} |")
    print("\n| collective | buffers | size | collbench us | nccl-tests us | ratio |")
    print("|---|---|---|---|---|---|")
    for (op, form, size), ratio in ratios.items():
        if abs(ratio - 1) <= LIMIT:
            continue
        cell = op, form, size
        both = (" ".join(f"{one:.2f}" for one in times[cell]) for times in (ours, theirs))
        print(f"| {op} | {form} | {format_size(size)} | {' | '.join(both)} | {ratio:.3f} |")
    near = sum(abs(ratio - 1) <= LIMIT for ratio in ratios.values())
    off = median(abs(ratio - 1) for ratio in ratios.values()) if ratios else 0.0
    print(f"\n{near} of {len(ratios)} within {LIMIT:.0%}; the median is {off:.1%} away.")
    return 0 if ratios else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
