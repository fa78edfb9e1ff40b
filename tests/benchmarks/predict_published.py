"""Predictions held against what others published, and against NCCL's own tables.

    python -m tests.benchmarks.predict_published

Rows of profiles/results/*-published.csv are those of NCCL. Predicted is the best of our engine's
algorithms, by constants that were fitted to our own rows of four H200s, and the ceiling of sums in
the switch (NVLS) where NCCL may use it; no number of a judged file is in it. Latency over hosts is
compared with the tables by which NCCL chooses (tuning.cc), for the smallest messages.
"""

import csv
import math

from collbench.core import catalog
from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.text import table
from collbench.core.units import format_rate, format_size, parse_size
from collbench.machine.topology.machines import machine_topology
from collbench.planning.links import RankLinks
from collbench.planning.predict import Prediction
from collbench.planning.price.cluster import Cluster, cluster_of
from collbench.planning.price.constants import gpu_costs

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
        topology = machine_topology(machine_name)
        known = [row for row in rows if row["status"] == "ok" and row["placement"] == "out"]
        for row in known:
            op, ranks, size = row["op"], int(row["ranks"]), int(row["size_bytes"])
            machine = cluster(machine_name)
            if machine.hosts == 1:
                machine = machine.with_gpus(ranks)
            best = Prediction(machine, collective(op).name).best(machine.hosts, size)
            assert best is not None
            busbw = float(row["busbw_gbs"])
            case = Case(
                op=collective(op).name, backend="nccl", ranks=ranks, size_bytes=size, algo="auto"
            )
            gpus = [gpu.id for gpu in topology.gpus]
            top = RankLinks(topology, gpus).ceiling(case, None)
            lines.append(
                [
                    machine_name,
                    op,
                    str(ranks),
                    format_size(size),
                    format_rate(busbw),
                    f"{best.algo} {best.plan.proto}",
                    format_rate(best.busbw_gbs(case.op)),
                    f"{best.busbw_gbs(case.op) / busbw:.2f}",
                    "-" if top is None else f"{top.gbs / busbw:.2f}",
                ]
            )
    return lines


def tables_of_nccl() -> list[list[str]]:
    """Latencies over hosts of 8 x H100 by NCCL's tables and by ours, of 8 bytes."""
    prediction, lines = Prediction(cluster("hgx-h100"), "allreduce"), []
    hosts = (2, 16, 128, 2048)
    for (algo, proto), (base, near, far) in _NCCL_US.items():
        for number in hosts:
            n = 8 * number
            if algo == "ring":
                between = 2 * (number - 1)
                us = base + (2 * (n - 1) - between) * near + between * far
            else:
                us = base + 2 * ((n // number - 1) * near + math.log2(number) * far)
            point = prediction.of(number, 8, algo, proto)
            assert point is not None
            ours = point.seconds * 1e6
            lines.append([algo, proto, str(n), f"{us:.0f}", f"{ours:.0f}", f"{ours / us:.2f}"])
    return lines


def main() -> None:
    """Print both tables."""
    heads = ("machine", "op", "ranks", "size", "published", "predicted by", "busbw")
    lines = published()
    for line in table((*heads, "over it", "ceiling over it"), lines, {2, 3, 4, 6, 7, 8}):
        print(line)
    for about, keep in (("all", 1), ("from 64M on", 1 << 26)):
        ratios = sorted(float(line[7]) for line in lines if parse_size(line[3]) >= keep)
        print(
            f"{about}: median {ratios[len(ratios) // 2]:.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}"
        )
    print()
    for line in table(
        ("algorithm", "proto", "ranks", "NCCL's us", "ours", "over it"),
        tables_of_nccl(),
        {2, 3, 4, 5},
    ):
        print(line)


if __name__ == "__main__":
    main()
