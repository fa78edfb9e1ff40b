"""Carry out `topo --measure`: every pair of GPUs, or two ranks on CPUs, and the rates that their
links should reach; under a launcher every pair of its ranks.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TextIO

from collbench.bench.busy import BusyRemark
from collbench.bench.pairs import (
    LATENCIES,
    WAYS,
    RankPair,
    behind,
    by_messages,
    expected_gbs,
    measure,
    with_rates,
)
from collbench.bench.pairwise import SIZES, Pairs, PairSettings
from collbench.bench.ranks import gpus_here
from collbench.bench.tables.pairs import lines
from collbench.core.errors import UnavailableError
from collbench.core.group import Group
from collbench.core.options import Settings
from collbench.core.screen import remark, say, width
from collbench.launch.local import LocalGroup
from collbench.launch.processes import LOST_S
from collbench.machine.topology.model import Topology

Rows = list[dict[str, object]]


def measure_pairs(topology: Topology, out: TextIO) -> tuple[Topology, Rows]:
    """Measure, show, and return the topology with the rates that stores reached instead of the
    expected ones, and the pairs for JSON.
    """
    gpus = topology.gpus
    count = gpus_here()
    backend, ranks = ("cuda", tuple(gpu.index for gpu in gpus)) if count else ("cpu", (0, 1))
    if count == 1:
        raise UnavailableError(
            "--measure: this machine has one GPU, and nothing travels between GPUs",
            "give two GPUs or more, or hide this one to measure two ranks on CPUs",
        )
    names = [f"GPU{index}" for index in ranks] if count else [f"rank{rank}" for rank in ranks]
    ids = [gpu.id for gpu in gpus] if count else []

    def measured() -> Iterator[RankPair]:
        group = LocalGroup()
        try:
            yield from measure(group, backend, ranks, Settings())
        finally:
            group.close(0)

    pairs = _shown(measured(), topology, ids, names, len(names), out)
    source = (
        f"measured {datetime.now(UTC):%Y-%m-%d} by topo --measure: stores of {ranks} over one pair"
        " at a time"
        if ids
        else ""
    )
    return with_rates(topology, ids, pairs, source) if ids else topology, _rows(pairs, names)


def measure_pairs_of(topology: Topology, group: Group, out: TextIO) -> tuple[Topology, Rows]:
    """Measure every pair of a launcher's ranks, one at a time, and show them; returns the same as
    measure_pairs.
    """
    here = group.hosts.count(group.hosts[0])
    backend = "cuda" if gpus_here() >= here else "cpu"
    names = [f"rank{rank}" for rank in range(group.ranks)]
    settings = PairSettings(size_bytes=SIZES[backend], timeout_s=LOST_S)

    def measured() -> Iterator[RankPair]:
        with Pairs(group, 0, backend, settings) as pairs:
            yield from by_messages(pairs)

    return topology, _rows(_shown(measured(), topology, [], names, here, out), names)


def _shown(
    pairs: Iterator[RankPair],
    topology: Topology,
    ids: Sequence[str],
    names: Sequence[str],
    here: int,
    out: TextIO,
) -> list[RankPair]:
    """Take pairs as they are measured; however that ends, print the rates of those until then, and
    which are slower than others like them, unless others may have slowed them. ids: the nodes of
    the ranks, where they are GPUs. here: ranks of this host.
    """
    start, found, busy = time.monotonic(), list[RankPair](), BusyRemark()
    try:
        found.extend(pairs)
    finally:
        if found:
            slow = [] if busy.of_all(here) else behind(found, topology, ids)
            expected = {
                (pair.a, pair.b, way): expected_gbs(topology, ids[pair.a], ids[pair.b], way)
                for pair in found
                for way in WAYS
                if ids
            }
            say("\n".join(lines(found, names, expected, width(out))).lstrip("\n"), file=out)
            for pair, middle in slow:
                unit = "us" if pair.way in LATENCIES else "GB/s"
                say(
                    f"slower than pairs like it: {names[pair.a]} -> {names[pair.b]}, {pair.way}:"
                    f" {pair.value:.4g} {unit}, the median is {middle:.4g}",
                    file=out,
                )
            remark(
                f"{len(found)} measurements in {time.monotonic() - start:.0f} s, every result"
                " compared"
            )
    return found


def _rows(pairs: Sequence[RankPair], names: Sequence[str]) -> Rows:
    """What JSON has of pairs: a rate in GB/s per direction, or a latency in us."""
    return [
        {
            "from": names[pair.a],
            "to": names[pair.b],
            "way": pair.way,
            "is_both": pair.is_both,
            "gbs": None if pair.way in LATENCIES else pair.value,
            "time_us": pair.value if pair.way in LATENCIES else None,
            "reason": pair.reason,
        }
        for pair in pairs
    ]
