"""NCCL's time by collbench and by nccl-tests, each form of user buffers in turns:

    python -m tests.benchmarks.nccl_agreement BUILD [OUT]

BUILD has the programs of nccl-tests (all_reduce_perf and others); OUT gets all that was measured.
Both drive all GPUs from one process, launch graphs, and report the slowest rank. A round measures
every collective and form by both; the time of a size is the median of its rounds. Prints two tables
in Markdown: the sizes within a limit by collective and form, and each size that is not.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from collbench.analysis.readers import nccl_tests
from collbench.device.card import device_count
from collbench.results.record import Record, read
from collbench.util.units import format_size

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
# smallest and largest size, launches in a graph, rounds; nccl-tests takes its buffers in turn out
# of the largest size, so that those of the first range pass the caches as ours do
RANGES = (("8", "64M", 100, ROUNDS), ("128M", "1G", 5, 1))
LIMIT = 0.05
LIMIT_S = 120.0  # of a program
Cell = tuple[str, str, int]  # collective, form, size
Times = dict[Cell, list[float]]  # us


def by_nccl_tests(build: Path, out: Path, number: int) -> Iterator[tuple[Cell, float]]:
    """The times of one round by nccl-tests."""
    for form, (options, variables) in FORMS.items():
        for op, program in PROGRAMS.items():
            for low, high, launches, rounds in RANGES:
                if number >= rounds:
                    continue
                gpus = str(device_count())
                sizes = ("-b", low, "-e", high, "-f", "2")
                timing = ("-n", str(launches), "-w", "5", "-G", "20", "-a", "3", "-c", "0")
                done = subprocess.run(
                    [build / program, "-t", gpus, "-g", "1", *sizes, *timing, *options],
                    env={**os.environ, **variables},
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                    check=False,
                )
                name = f"nccl-tests-{op}-{form}-{low}-{number}.txt"
                (out / name).write_text(done.stdout + done.stderr)
                if done.returncode:
                    print(f"{name}: exit code {done.returncode}", file=sys.stderr)
                    continue
                rows, _ = nccl_tests.read(done.stdout, name)
                for row in rows:
                    if row.placement == "out" and row.time_us:
                        yield (op, form, row.size_bytes), row.time_us


def by_collbench(out: Path, number: int) -> Iterator[tuple[Cell, float]]:
    """The times of one round by collbench."""
    for low, high, _, rounds in RANGES:
        if number >= rounds:
            continue
        file = out / f"collbench-{low}-{number}.csv"
        command = [sys.executable, "-m", "collbench", "sweep", "--backend", "nccl"]
        what = ["--op", ",".join(PROGRAMS), "--algo", "auto", "--nccl", ",".join(FORMS)]
        sizes = ["-b", low, "-e", high, "-f", "2", "--csv", str(file)]
        subprocess.run([*command, *what, *sizes], stdout=subprocess.DEVNULL, check=True)
        rows: list[Record] = read(file)
        for row in rows:
            if row.status == "ok" and row.time_us:
                yield (row.op, row.buffers, row.size_bytes), row.time_us


def main(build: str, out: str = "") -> int:
    """Measure, and print the tables; returns the exit code."""
    folder = Path(out or tempfile.mkdtemp(prefix="agreement"))
    folder.mkdir(parents=True, exist_ok=True)
    ours, theirs = Times(), Times()
    for number in range(ROUNDS):
        for cell, time_us in by_collbench(folder, number):
            ours.setdefault(cell, []).append(time_us)
        for cell, time_us in by_nccl_tests(Path(build), folder, number):
            theirs.setdefault(cell, []).append(time_us)
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
