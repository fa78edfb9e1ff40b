"""Predictions held against what others published, and against NCCL's own tables.

    python -m tests.benchmarks.predict_published

Rows of profiles/results/*-published.csv are those of NCCL. Predicted is the best of our engine's
algorithms, by constants that were fitted to our own rows of four H200s, and the ceiling of sums in
the switch (NVLS) where NCCL may use it; no number of a judged file is in it. Latency over hosts is
compared with the tables by which NCCL chooses (tuning.cc), for the smallest messages.
"""

import csv
import math
from itertools import product

from collbench.core import catalog
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.text import table
from collbench.core.units import format_rate, format_size, parse_size
from collbench.machine.topology.machines import machine_topology
from collbench.planning.predict import Prediction
from collbench.planning.price.cluster import Cluster, cluster_of
from collbench.planning.price.constants import gpu_costs
from tests.benchmarks.recorded_ceilings import links_of

MACHINES = {
    "a100x8-published": "dgx-a100",
    "h100x8-published": "hgx-h100",
    "h200x8-published": "hgx-h200",
    "b200x8-published": "hgx-b200",
    "gb200x72-published": "gb200-nvl72",
}
# Microseconds by which NCCL chooses (tuning.cc of 2.30): a base, a hop over NVLink and one over the
# network, by algorithm and protocol.
_NCCL_US = {
    ("ring", "ll"): (6.6, 0.6, 2.7),
    ("ring", "simple"): (8.4, 3.4, 14.0),
    ("tree", "ll"): (6.8, 0.6, 5.0),
    ("tree", "simple"): (8.4, 4.0, 14.0),
}


def cluster(name: str) -> Cluster:
    """A machine of the catalogue, as it is."""
    return cluster_of(machine_topology(name), name, gpu_costs(name))


def published() -> list[list[str]]:
    """Predicted over published, a line for each row out of place."""
    lines = []
    for name, machine_name in MACHINES.items():
        rows = csv.DictReader(catalog.results()[name].read_text().splitlines())
        known = [row for row in rows if row["status"] == "ok" and row["placement"] == "out"]
        machine, links = cluster(machine_name), links_of(machine_name)
        for row in known:
            ranks, size = int(row["ranks"]), int(row["size_bytes"])
            busbw, op = float(row["busbw_gbs"]), collective(row["op"]).name
            joined = machine.with_gpus(ranks) if machine.hosts == 1 else machine
            best = Prediction(joined, op).best(machine.hosts, size)
            assert best is not None
            case = Case(op=op, backend="nccl", ranks=ranks, size_bytes=size, algo="auto")
            top = links.ceiling(case, None)
            about = f"{machine_name} {row['op']} {ranks} {format_size(size)} {format_rate(busbw)}"
            ours = best.busbw_gbs(op)
            by = [f"{best.algo} {best.plan.proto}", format_rate(ours), f"{ours / busbw:.2f}"]
            lines.append([*about.split(), *by, "-" if top is None else f"{top.gbs / busbw:.2f}"])
    return lines


def tables_of_nccl() -> list[list[str]]:
    """Latencies over hosts of 8 x H100 by NCCL's tables and by ours, of 8 bytes."""
    prediction, lines = Prediction(cluster("hgx-h100"), "allreduce"), []
    for (algo, proto), hosts in product(_NCCL_US, (2, 16, 128, 2048)):
        base, near, far = _NCCL_US[algo, proto]
        if algo == "ring":
            us = base + 14 * hosts * near + 2 * (hosts - 1) * far
        else:
            us = base + 2 * (7 * near + math.log2(hosts) * far)
        point = prediction.of(hosts, 8, algo, proto)
        if point is None:
            continue  # more CTAs than a GPU holds at once
        ours = point.seconds * 1e6
        numbers = f"{8 * hosts} {us:.0f} {ours:.0f} {ours / us:.2f}"
        lines.append([algo, proto, *numbers.split()])
    return lines


def main() -> None:
    """Print both tables."""
    heads = ("machine", "op", "ranks", "size", "published", "predicted by", "busbw", "over it")
    lines = published()
    print("\n".join(table((*heads, "ceiling over it"), lines, {2, 3, 4, 6, 7, 8})))
    for which, keep in (("all", 1), ("from 64M on", 1 << 26)):
        ratios = sorted(float(line[7]) for line in lines if parse_size(line[3]) >= keep)
        middle = ratios[len(ratios) // 2]
        print(f"{which}: median {middle:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")
    print()
    about = ("algorithm", "proto", "ranks", "NCCL's us", "ours", "over it")
    print("\n".join(table(about, tables_of_nccl(), {2, 3, 4, 5})))


if __name__ == "__main__":
    main()
