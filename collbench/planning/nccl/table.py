"""What NCCL would take on hosts, as rows and as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from collbench.core.collectives import OpName
from collbench.core.text import table, wrapped
from collbench.core.units import format_rate, format_size, format_time_us
from collbench.planning.nccl.constants import constants
from collbench.planning.nccl.machine import NcclMachine
from collbench.planning.nccl.price import NcclPrice, nccl_price
from collbench.planning.predict_table import Row, rounded

_NEEDED = 1.01  # times the rate as it is, that a reachable one is shown from


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRow:
    """A price. before_us: on the machine before changes. reachable_gbs: bus bandwidth with enough
    CTAs and queue pairs. scaling: bus bandwidth over that of the fewest hosts.
    """

    price: NcclPrice
    reachable_gbs: float
    scaling: float
    before_us: float | None


def nccl_rows(
    machine: NcclMachine,
    before: NcclMachine | None,
    op: OpName,
    hosts: Sequence[int],
    sizes: Sequence[int],
) -> list[NcclRow]:
    """A row for each number of hosts and each size. Raises RefusedError for hosts that the machine
    cannot have.
    """
    rows = []
    first: dict[int, float] = {}
    for number, size in product(hosts, sizes):
        price = nccl_price(machine, op, number, size)
        reachable = max(price.busbw_gbs, _tuned_gbs(machine, op, number, size))
        old = None if before is None else nccl_price(before, op, number, size)
        busbw = first.setdefault(size, price.busbw_gbs)
        rows.append(
            NcclRow(
                price=price,
                reachable_gbs=reachable,
                scaling=price.busbw_gbs / busbw,
                before_us=None if old is None else old.time_us,
            )
        )
    return rows


def _tuned_gbs(machine: NcclMachine, op: OpName, hosts: int, size: int) -> float:
    """Bus bandwidth of a ring with enough CTAs and queue pairs; 0 where none was published."""
    if hosts <= machine.hosts or f"tuned_{machine.arch}" not in constants().fitted:
        return 0.0
    return nccl_price(
        machine, op, hosts, size, algo="ring", proto="simple", is_tuned=True
    ).busbw_gbs


def documented(rows: Sequence[NcclRow], op: OpName, machine: str) -> list[Row]:
    """The rows with the columns of predict's documents."""
    return [
        {
            "op": op,
            "machine": machine,
            "hosts": row.price.hosts,
            "ranks": row.price.ranks,
            "size_bytes": row.price.size_bytes,
            "algo": row.price.algo,
            "proto": row.price.proto,
            "time_us": rounded(row.price.time_us),
            "busbw_gbs": rounded(row.price.busbw_gbs),
            "scaling": rounded(row.scaling),
            "before_us": None if row.before_us is None else rounded(row.before_us),
            "engine": "nccl",
            "low_us": rounded(row.price.low_us),
            "high_us": rounded(row.price.high_us),
            "reachable_gbs": rounded(row.reachable_gbs),
        }
        for row in rows
    ]


def nccl_lines(machine: NcclMachine, rows: Sequence[NcclRow], columns: int) -> Iterator[str]:
    """The machine as NCCL sees it, the table, and what its columns are."""
    yield from wrapped(_seen(machine, rows), columns)
    heads = ["hosts", "  size", "algo", "proto", "time us", "9 of 10 us", "busbw"]
    has_more = any(row.reachable_gbs > _NEEDED * row.price.busbw_gbs for row in rows)
    has_before = any(row.before_us is not None for row in rows)
    heads += ["reach"] * has_more
    # beside a change there is room for one range, of which the other follows
    heads += ["before", "gain"] if has_before else ["9 of 10"]
    cells = []
    for row in rows:
        cells.append(
            [
                str(row.price.hosts),
                format_size(row.price.size_bytes),
                row.price.algo,
                row.price.proto,
                format_time_us(row.price.time_us),
                f"{format_time_us(row.price.low_us)}-{format_time_us(row.price.high_us)}",
                format_rate(row.price.busbw_gbs),
            ]
        )
        if has_more:
            cells[-1].append(format_rate(row.reachable_gbs))
        if row.before_us is not None:
            gain = f"x{row.before_us / row.price.time_us:.2f}"
            cells[-1] += [format_time_us(row.before_us), gain]
        elif not has_before:
            ends = map(format_rate, (row.price.low_gbs, row.price.high_gbs))
            cells[-1].append("-".join(ends))
    yield from table(heads, cells, {0, 1, *range(4, len(heads))}, columns)
    yield ""
    text = (
        "busbw in GB/s. 9 of 10: where nine of ten published figures of healthy machines would be."
    )
    if has_more:
        text += " reach: busbw with NCCL_MIN_CTAS=24 NCCL_IB_QPS_PER_CONNECTION=2."
    yield from wrapped(text, columns)


def _seen(machine: NcclMachine, rows: Sequence[NcclRow]) -> str:
    """What the prices rest on."""
    hosts = max(row.price.hosts for row in rows)
    parts = [f"NCCL as it is: {machine.near_gbs:.0f} GB/s of {_NEAR[machine.near]} a GPU"]
    if not machine.near_gbs:
        parts = ["NCCL as it is: one GPU a host"]
    if any(row.price.algo.startswith("nvls") for row in rows):
        parts.append("sums in the switch (NVLS)")
    if hosts > machine.hosts:
        domain = "a host" if machine.hosts == 1 else f"an NVLink domain of {machine.hosts} hosts"
        name = _FABRIC[machine.fabric]
        parts.append(f"NICs of {machine.network_gbs:.0f} GB/s {domain}, {name}")
    return ", ".join(parts)


_NEAR = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe"}
_FABRIC = {
    "ib": "InfiniBand",
    "roce": "RoCE",
    "efa": "EFA",
    "efa1": "EFA of the first generation",
    "tcp": "TCP",
}
