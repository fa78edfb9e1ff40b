"""Whether a rate that another tool measured is normal: beside what `predict` gives NCCL on the
machine of the catalogue that has these GPUs.
"""

from collections.abc import Iterator, Sequence

from collbench.core import catalog
from collbench.core.errors import CollbenchError
from collbench.core.record import Record
from collbench.core.units import format_rate, format_size
from collbench.machine.gpu_kinds import kind_of, kinds_of
from collbench.machine.topology.machines import machine_topology
from collbench.planning.changes import changed
from collbench.planning.nccl.machine import nccl_machine
from collbench.planning.nccl.price import OPS, NcclPrice, nccl_price
from collbench.planning.price.cluster import cluster_of
from collbench.planning.price.constants import gpu_costs

_LEAST_BYTES = 64 << 20  # below, latency decides, of which the hosts' processors have a part
_ALIKE = 0.05  # between the rate of NICs in a text and in the catalogue
_WITH_NICS = ("GB10",)  # models that are sold with their NICs


def expected_lines(rows: Sequence[Record], network_gbits: float) -> list[str]:
    """A sentence on the best rate of each collective of NCCL at its largest size. network_gbits: of
    all NICs of a host, as the file tells it; 0 if it does not.
    """
    best: dict[tuple[str, int, int], Record] = {}
    for row in rows:
        is_large = row.size_bytes >= _LEAST_BYTES and row.ranks > 1
        if row.backend == "nccl" and row.status == "ok" and row.busbw_gbs and is_large:
            key = (row.op, row.ranks, row.hosts)
            best[key] = max(
                best.get(key, row), row, key=lambda one: (one.size_bytes, one.busbw_gbs or 0.0)
            )
    return [line for row in best.values() for line in _lines(row, network_gbits)]


def _lines(row: Record, network_gbits: float) -> Iterator[str]:
    kinds = kinds_of({row.device})
    if len(kinds) != 1 or row.op not in OPS:
        return
    (kind,) = kinds
    names = [name for name in catalog.names("machines") if kind_of(_gpu_of(name)).agrees(kind)]
    prices = [(name, price) for name in names if (price := _price(name, row, network_gbits))]
    if not prices:
        yield (
            f"Is {row.op} normal? No machine of the catalogue has {row.ranks // max(1, row.hosts)}"
            f" {kind} in a host: collbench predict --topo FILE --nic RATE --hosts {row.hosts}"
            " tells, with what nvidia-smi topo -m prints"
        )
        return
    # of several machines with such GPUs, that which is nearest to what was measured
    rate = row.busbw_gbs or 0.0
    name, price = min(prices, key=lambda one: abs(one[1].busbw_gbs - rate))
    said = (
        f"{row.op} of {row.ranks} ranks at {format_size(row.size_bytes)}: {format_rate(rate)} GB/s"
    )
    on = f" on {row.hosts} hosts" if row.hosts > 1 else ""
    if on and not network_gbits and kind.model not in _WITH_NICS:
        yield (
            f"{said}{on}, whose NICs the file does not tell. Is it normal? collbench predict"
            f" --machine {name} --op {row.op} --hosts {row.hosts} --set nic=200Gb tells, with the"
            " rate of NICs that each GPU has"
        )
        return
    verdict = "normal"
    if rate < price.low_gbs:
        verdict = "less than nine of ten healthy machines have: collbench log and doctor say why"
    yield (
        f"{said} is {verdict}. Predicted for {name}{on}: {format_rate(price.busbw_gbs)}, nine of"
        f" ten {format_rate(price.low_gbs)} to {format_rate(price.high_gbs)}"
        + (" (the switch sums: busbw counts traffic that it saves)" * ("nvls" in price.algo))
        + "".join(f"; {note}" for note in _notes(name) * (rate < price.low_gbs))
    )


def _gpu_of(machine: str) -> str:
    """The name of the GPUs of a machine of the catalogue; empty if it has none."""
    topology = catalog.load("machines", machine).get("topology", {})
    return str(topology.get("gpu", {}).get("name", ""))


def _notes(machine: str) -> list[str]:
    """What its file says of a machine beside numbers."""
    return [
        " ".join(note.split())
        for note in catalog.load("machines", machine)["topology"].get("notes", [])
    ]


def _price(name: str, row: Record, network_gbits: float) -> NcclPrice | None:
    """What NCCL should take there; None if the machine cannot be such hosts."""
    try:
        cluster = cluster_of(machine_topology(name), name, gpu_costs(name))
        gpus = row.ranks // max(1, row.hosts)
        if row.ranks != gpus * row.hosts or gpus > cluster.gpus_of_host:
            return None
        if gpus < cluster.gpus_of_host:
            cluster = changed(cluster, [f"gpus={gpus}"])
        if row.hosts > 1 and network_gbits and cluster.nic_gbs():
            factor = network_gbits / 8 / gpus / cluster.nic_gbs()
            if abs(factor - 1) > _ALIKE:
                cluster = cluster.scaled("nic", factor)
        (op,) = (one for one in OPS if one == row.op)
        return nccl_price(nccl_machine(cluster), op, row.hosts, row.size_bytes)
    except CollbenchError:
        return None
