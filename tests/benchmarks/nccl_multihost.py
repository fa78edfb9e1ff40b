"""Predictions of NCCL on several hosts held against 314 published figures, and their fit.

    python -m tests.benchmarks.nccl_multihost            errors by size and by machine
    python -m tests.benchmarks.nccl_multihost --rows     every row
    python -m tests.benchmarks.nccl_multihost --fit      fit on the rows marked fit alone
    python -m tests.benchmarks.nccl_multihost --errors   ranges of held-out rows, as TOML

The rows are in multihost-published.csv, each with its source. part: fit (the constants may know
it), held (they do not), fault (the thread calls it too low), unused (what the model needs is not
told, or is not in it). Parts were dealt by machine. inferred: what the source does not say.
"""

import csv
import math
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from collbench.core import catalog
from collbench.core.collectives import collective
from collbench.core.text import table
from collbench.core.units import format_size
from collbench.machine.topology.machines import machine_topology
from collbench.planning.nccl.constants import Constants, constants
from collbench.planning.nccl.machine import Fabric, NcclMachine, nccl_machine
from collbench.planning.nccl.price import NcclPrice, nccl_price
from collbench.planning.price.cluster import cluster_of
from collbench.planning.price.constants import gpu_costs
from tests.benchmarks.predict_published import MACHINES
from tests.support.tables import cells_of

FILE = Path(__file__).with_name("multihost-published.csv")
# Of the published rows of one host or one rack, in profiles/results, those that are fitted to.
_FIT = ("h200x8-published", "b200x8-published")
# A row's GPU holds the word: the machine of the catalogue whose links it has, or its architecture,
# its links and GB/s of a ring, by the number of NVLinks: H800 has 8 of 18, V100 of NV2 has 6; xGMI
# of MI355X as in rates.py; PCIe 5 x16.
_HOSTS: tuple[tuple[str, str | tuple[str, float]], ...] = (
    ("GB200", "gb200-nvl72"),
    ("GB300", "gb300-nvl72"),
    ("GB10", ("blackwell", 0.0)),
    ("H800", ("hopper", 162.0)),
    ("H100", "hgx-h100"),
    ("H200", "hgx-h200"),
    ("H20", "hgx-h200"),
    ("B200", "hgx-b200"),
    ("A100", "dgx-a100"),
    ("DGX-1", "dgx-1"),
    ("V100", "dgx-2"),
    ("MI355X", ("hopper", 403.2)),
    ("MI300X", "mi300x-8"),
    ("MI250X", "mi250x-8"),
    ("RTX", ("blackwell", 48.0)),
    ("", ("hopper", 364.5)),  # Slingshot with four of NV6, and rows that the network limits
)
_FABRICS: dict[str, Fabric] = {
    **{"ib": "ib", "roce": "roce", "slingshot": "roce", "tcpxo": "roce"},
    **{"efa": "efa", "tcp": "tcp"},
}
_RACK = 18  # hosts of an NVLink domain of GB200 and GB300
SCOPES = ("host", "hosts", "racks")
RANGES = (
    (0, "below 1 MiB"),
    (1 << 20, "1 to 64 MiB"),
    (1 << 26, "64 MiB to 1 GiB"),
    (1 << 30, "from 1 GiB on"),
)
_ENDS = (*(least for least, _ in RANGES[1:]), 1 << 62)
_FEW = 5  # figures of a range
# What may be fitted: the least, what is expected without a figure, and the most. Shares of NICs: 46
# to 48 of 50 GB/s reach NCCL, by its developers; of links: those of one host; latencies: those of a
# NIC; chunks fill pipelines by a third of the textbook's optimum.
BOUNDS = {
    name: (float(low), float(mid), float(high))
    for name, low, mid, high in cells_of(__file__, "bounds.tsv")
}
_SEED, _STEPS = 1, 6000  # of a random walk
_PULL = 1.0  # of what is expected, in rows: where few rows know better, it stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure and its machine. machine: its name among rows of one setting."""

    place: int
    row: dict[str, str]
    machine: NcclMachine
    size_bytes: int
    time_us: float

    @property
    def scope(self) -> str:
        """As Errors has it."""
        if self.machine.hosts > 1:
            return "racks"
        return "hosts" if int(self.row["hosts"]) > 1 else "host"

    def price(self, own: Constants | None = None) -> NcclPrice:
        """What is predicted of it, with the algorithm that the row was told to use."""
        row = self.row
        return nccl_price(
            self.machine,
            collective(row["op"]).name,
            int(row["hosts"]),
            self.size_bytes,
            algo=row["algo"] or None,
            proto=row["proto"] or None,
            uses_nvls=row["nvls"] != "off",
            is_tuned=row["is_tuned"] == "yes",
            own=own,
        )

    def ratio(self, own: Constants | None = None) -> float:
        """Measured over predicted time."""
        return self.time_us / self.price(own).time_us


@cache
def _like(name: str) -> NcclMachine:
    return nccl_machine(cluster_of(machine_topology(name), name, gpu_costs(name)))


def machine_of(row: dict[str, str]) -> NcclMachine:
    """The machine of a row: links of the catalogue's, NICs of the row's."""
    like = next(what for word, what in _HOSTS if word in row["gpu"])
    if isinstance(like, str):
        known = _like(like)
    else:
        arch, gbs = like
        known = replace(_like("hgx-h100"), arch=arch, near_gbs=gbs, has_nvls=False)
    gpus, is_rack = int(row["gpus_per_host"]), known.hosts > 1
    hosts = _rack_hosts(int(row["hosts"])) if is_rack else 1
    fabric = _FABRICS[row["fabric"]]
    if fabric == "efa" and known.arch in ("ampere", "volta"):
        fabric = "efa1"
    return replace(
        known,
        name=row["gpu"],
        hosts=hosts,
        gpus=gpus * hosts,
        near="pcie" if row["intra"] == "pcie" else known.near,
        near_gbs=known.near_gbs if gpus * hosts > 1 else 0.0,
        has_nvls=known.has_nvls and (is_rack or gpus == 8),
        fabric=fabric,
        network_gbs=float(row["host_gbs"]) * hosts,
    )


def _rack_hosts(hosts: int) -> int:
    """Hosts of one rack: published racks have 16 or 18."""
    return next((own for own in (_RACK, 16) if hosts % own == 0), hosts)


@cache
def published() -> tuple[Published, ...]:
    """All rows that can be predicted, of several hosts and then of one."""
    rows = csv.DictReader(FILE.read_text().splitlines())
    found = [
        _published(place, row, machine_of(row))
        for place, row in enumerate(rows, 2)
        if row["part"] != "unused"
    ]
    return (*found, *_of_one_host())


def _of_one_host() -> Iterator[Published]:
    """Rows out of place of profiles/results/*-published.csv."""
    for name in sorted(MACHINES, key=lambda name: name not in _FIT):
        machine, part = _like(MACHINES[name]), "fit" if name in _FIT else "held"
        rows = csv.DictReader(catalog.results()[name].read_text().splitlines())
        for place, row in enumerate(rows, 2):
            if row["status"] != "ok" or row["placement"] != "out":
                continue
            about = row["device"] + row["versions"]
            gpus = int(row["ranks"]) // machine.hosts
            own = {name: row[name] for name in ("op", "size_bytes", "time_us")}
            own |= {"gpu": name, "hosts": str(machine.hosts), "gpus_per_host": str(gpus)}
            own |= dict.fromkeys(("fabric", "proto", "is_tuned", "busbw_gbs"), "")
            own |= {"is_healthy": "yes", "part": part, "source": row["versions"]}
            own["algo"] = "ring" * (row["algo"] == "ring")
            own["nvls"] = "off" if "NVLS off" in about else ""
            like = replace(machine, gpus=int(row["ranks"]))
            yield _published(place, own, like)


def _published(place: int, row: dict[str, str], machine: NcclMachine) -> Published:
    size, n = int(row["size_bytes"]), int(row["hosts"]) * int(row["gpus_per_host"])
    busbw, told = float(row["busbw_gbs"] or 0), float(row["time_us"] or 0)
    time_us = told or size * collective(row["op"]).factor(n) / busbw / 1e3
    return Published(place=place, row=row, machine=machine, size_bytes=size, time_us=time_us)


def of(part: str, healthy: Sequence[str] = ("yes", "unknown")) -> list[Published]:
    """The rows of a part."""
    rows = (one for one in published() if one.row["part"] == part)
    return [one for one in rows if one.row["is_healthy"] in healthy]


def error(one: Published, own: Constants | None = None) -> float:
    """Predicted against measured time, as a share of the measured one."""
    return abs(1 / one.ratio(own) - 1)


def quantile(values: Iterable[float], share: float) -> float:
    """Between the two values that are next."""
    return float(np.quantile(list(values), share))


def by_range(rows: Sequence[Published]) -> Iterator[list[str]]:
    """A line for each range of sizes."""
    for (least, name), most in zip(RANGES, _ENDS, strict=True):
        errors = [error(one) for one in rows if least <= one.size_bytes < most]
        if errors:
            yield [name, *_summary(errors)]
    if rows:
        yield ["all", *_summary([error(one) for one in rows])]


def _summary(errors: Sequence[float]) -> list[str]:
    within = sum(one <= 0.25 for one in errors) / len(errors)
    parts = (quantile(errors, 0.5), quantile(errors, 0.9), within)
    return [str(len(errors)), *(f"{100 * one:.1f}%" for one in parts)]


def fitted() -> dict[str, float]:
    """Constants that make the errors of the fit rows least: by a random walk within BOUNDS."""
    rows, before = of("fit"), constants()

    def loss(values: dict[str, float]) -> float:
        own = replace(before, fitted={**before.fitted, **values})
        weighed = ((1.0 if one.scope == "hosts" else 0.3, one) for one in rows)
        errors = (weight * min(abs(math.log(one.ratio(own))), 0.7) for weight, one in weighed)
        pulls = ((values[name] - mid) / (high - low) for name, (low, mid, high) in BOUNDS.items())
        return sum(errors) + _PULL * sum(pull**2 for pull in pulls)

    draw = random.Random(_SEED)
    best = {name: mid for name, (_, mid, _) in BOUNDS.items()}
    least = loss(best)
    for step in range(_STEPS):
        trial = dict(best)
        for name in draw.sample(list(BOUNDS), draw.choice((1, 2))):
            low, _, high = BOUNDS[name]
            width = (high - low) * (0.3 if step < _STEPS / 2 else 0.03)
            trial[name] = min(max(best[name] + draw.gauss(0, width), low), high)
        if (now := loss(trial)) < least:
            best, least = trial, now
    return best


def ranges() -> Iterator[str]:
    """Between which factors nine of ten healthy held-out figures are, as the tables of the profile.
    A range with few figures has those of the next one too.
    """
    for scope in SCOPES:
        rows = [one for one in of("held", ["yes"]) if one.scope == scope]
        least, there = 0, list[float]()
        for (start, _), most in zip(RANGES, _ENDS, strict=True):
            least = least if there else start
            there += [one.ratio() for one in rows if start <= one.size_bytes < most]
            if len(there) < _FEW:
                continue
            low, high = min(1.0, quantile(there, 0.05)), max(1.0, quantile(there, 0.95))
            yield (
                f'[[errors]]\nscope = "{scope}"\nfrom_bytes = {least}\nlow = {low:.3f}\n'
                f"high = {high:.3f}\nrows = {len(there)}\n"
            )
            there = []


def main() -> None:
    """Print what was asked for."""
    if "--fit" in sys.argv:
        print("\n".join(f"{name} = {value:.3f}" for name, value in fitted().items()))
        return
    if "--errors" in sys.argv:
        print("\n".join(ranges()))
        return
    heads = ("sizes", "rows", "median", "nine of ten", "within 25%")
    parts = (
        ("fit", "fit", ("yes", "unknown")),
        ("held out, healthy", "held", ("yes",)),
        ("held out, unknown", "held", ("unknown",)),
    )
    for title, part, healthy in parts:
        for scope in SCOPES:
            rows = [one for one in of(part, healthy) if one.scope == scope]
            if rows:
                print(f"{title}, {scope}:")
                print("\n".join(table(heads, list(by_range(rows)), {1, 2, 3, 4})), "\n")
    print("\n".join(_by_machine()))
    if "--rows" in sys.argv:
        print("\n".join(("", *_rows())))


def _by_machine() -> Iterator[str]:
    """Errors of each machine, all sizes, healthy and unknown figures apart."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for part in ("fit", "held"):
        for one in of(part):
            if one.scope != "host":
                row = one.row
                key = (row["gpu"] or "not told", row["fabric"], part, row["is_healthy"])
                groups.setdefault(key, []).append(error(one))
    heads = ("GPU", "fabric", "part", "healthy", "rows", "median", "nine of ten", "within 25%")
    lines = [[*key, *_summary(errors)] for key, errors in sorted(groups.items())]
    yield from table(heads, lines, {4, 5, 6, 7})


def _rows() -> Iterator[str]:
    heads = ("line", "part", "healthy", "op", "hosts", "GPU", "fabric", "size", "us", "predicted")
    lines = []
    for one in published():
        row, price = one.row, one.price()
        lines.append(
            [
                str(one.place),
                row["part"],
                row["is_healthy"],
                row["op"],
                f"{row['hosts']} x {row['gpus_per_host']}",
                row["gpu"],
                row["fabric"],
                format_size(one.size_bytes),
                f"{one.time_us:.1f}",
                f"{price.time_us:.1f}",
                f"{price.time_us / one.time_us:.2f}",
                f"{price.algo} {price.proto}",
                f"{row['algo']} {'tuned' if row['is_tuned'] else ''}",
            ]
        )
    yield from table((*heads, "over it", "by", "told"), lines, {0, 7, 8, 9, 10})


if __name__ == "__main__":
    main()
