"""What the doctor says that a planted fault costs, beside what sweeps with and without it say:
`python -m tests.benchmarks.doctor_costs`, on a quiet machine.

The sweeps are the truth: twice each, one after the other, 9 repeats of every size.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from tests.support.commands import result_of
from tests.support.runs import said_by

SIZES = "1K,64K,1M"
GPU_SIZES = "8K,1M,16M"
TOOL = (sys.executable, "-m", "collbench")
# name, check, words before the command, variables, backend of the sweeps
Planted = tuple[str, str, Sequence[str], Mapping[str, str], str]
ON_CPUS: list[Planted] = [
    ("one core for all ranks", "binding", ("taskset", "-c", "1"), {}, "cpu"),
    ("MPI over TCP", "mpi-transport", (), {"OMPI_MCA_btl": "self,tcp"}, "mpi"),
    (
        "MPI without copies between processes",
        "cross-memory-attach",
        (),
        {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"},
        "mpi",
    ),
]
ON_GPUS: list[Planted] = [
    (f"{name}={value}", "settings", (), {name: value}, "nccl")
    for name, value in (
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_SHM_DISABLE", "1"),
        ("NCCL_PROTO", "LL"),
        ("NCCL_ALGO", "Tree"),
        ("NCCL_MAX_NCHANNELS", "2"),
        ("NCCL_BUFFSIZE", "65536"),
        ("NCCL_NTHREADS", "64"),
        ("NCCL_LL_BUFFSIZE", "4096"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("NCCL_CUMEM_ENABLE", "0"),
    )
]


def environment(variables: Mapping[str, str], planted: bool) -> dict[str, str]:
    """This process's own, with the variables or without them."""
    kept = {name: value for name, value in os.environ.items() if name not in variables}
    return {**kept, **variables} if planted else kept


def diagnosed(plant: Planted) -> tuple[float, dict[str, str], str]:
    """Seconds, the ratios by size that the doctor gives, and why it has none."""
    _, check, prefix, variables, _ = plant
    start = time.monotonic()
    command = [*prefix, *TOOL, "doctor", "--only", check, "--json", "-"]
    done = said_by(command, 300.0, env=environment(variables, planted=True))
    seconds = time.monotonic() - start
    findings = [
        finding
        for finding in result_of(done.stdout)["findings"]
        if not variables or any(name in finding["seen"] for name in variables)
    ]
    costs = {
        cost["what"].partition(" of ")[2].partition(",")[0]: (
            f"{cost['ratio']:.2f} ({cost['low']:.2f} to {cost['high']:.2f})"
        )
        for finding in findings
        for cost in finding["costs"]
    }
    return seconds, costs, "; ".join(filter(None, (one["unmeasured"] for one in findings)))


def truth(plant: Planted, ranks: int) -> dict[str, float]:
    """The ratio of the medians of sweeps with and without the plant, by size."""
    _, _, prefix, variables, backend = plant
    times: dict[bool, dict[int, list[float]]] = {True: {}, False: {}}
    sizes = GPU_SIZES if backend == "nccl" else SIZES
    for planted in (True, False, False, True):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.csv"
            knobs = ("--nccl", "plain") if backend == "nccl" else ("--algo", "auto")
            command = [
                *(prefix if planted else ()),
                *TOOL,
                *("sweep", "--backend", backend, "--ranks", str(ranks), "--sizes", sizes),
                *(*knobs, "--repeats", "9", "--csv", str(file)),
            ]
            variables_now = environment(variables, planted=planted)
            subprocess.run(command, env=variables_now, capture_output=True, check=True, timeout=300)
            rows = pd.read_csv(file, comment="#")
            for size, some in zip(rows["size_bytes"], rows["repeat_times_us"], strict=True):
                times[planted].setdefault(int(size), []).extend(map(float, str(some).split(";")))
    return {
        asked: median(times[True][size]) / median(times[False][size])
        for asked, size in zip(sizes.split(","), sorted(times[True]), strict=True)
    }


def main() -> None:
    """Print a table in Markdown."""
    from collbench.core.host import has_nvidia_gpus
    from collbench.device.card import device_count

    gpus = device_count() if has_nvidia_gpus() else 0
    print("| planted | size | doctor | true | doctor took |")
    print("| --- | --- | --- | --- | --- |")
    for plant in [*ON_CPUS, *(ON_GPUS if gpus > 1 else [])]:
        seconds, costs, why = diagnosed(plant)
        true = truth(plant, gpus if plant[4] == "nccl" else 2)
        for size, ratio in true.items():
            said = costs.get(size, f"not measured: {why}")
            print(f"| {plant[0]} | {size} | {said} | {ratio:.2f} | {seconds:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
