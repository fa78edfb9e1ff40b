"""Outputs of nccl-tests of many ages, written as each version prints them, with the numbers that
they were made of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ITEM_BYTES = 4  # of float
PROGRAMS = {
    "allreduce": "all_reduce_perf",
    "allgather": "all_gather_perf",
    "reducescatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "alltoall": "alltoall_perf",
    "gather": "gather_perf",
    "scatter": "scatter_perf",
    "sendrecv": "sendrecv_perf",
}
BLOCKS = ("allgather", "reducescatter", "alltoall", "gather", "scatter")
REDUCTIONS = ("allreduce", "reducescatter", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """How a version prints. columns: those before the first time, by collective."""

    name: str
    ops: tuple[str, ...]
    check: str = "error"
    has_all_columns: bool = False

    def columns(self, op: str) -> list[str]:
        if self.has_all_columns:
            return ["redop", "root"]
        return ["redop"] * (op in REDUCTIONS) + ["root"] * (op in ROOTED)

    def cells(self, op: str) -> list[str]:
        """What stands under `columns`."""
        redop = "sum" if op in (*REDUCTIONS, "sendrecv") else "none"
        if self.has_all_columns:
            return [redop, "0" if op in ROOTED else "-1"]
        return ["sum"] * (op in REDUCTIONS) + ["0"] * (op in ROOTED)


FIRST = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
VERSIONS = (
    Version(name="2.8", ops=(*FIRST, "alltoall")),
    Version(name="2.11", ops=(*FIRST, "alltoall", "gather", "scatter", "sendrecv")),
    Version(name="2.13", ops=tuple(PROGRAMS), check="#wrong", has_all_columns=True),
)


def factor(op: str, n: int) -> float:
    """busbw over algbw, by the documentation of nccl-tests."""
    return {"allreduce": 2 * (n - 1) / n, **dict.fromkeys(BLOCKS, (n - 1) / n)}.get(op, 1.0)


def output(
    version: Version,
    op: str,
    n: int,
    times_us: Sequence[float],
    *,
    has_ranks: bool = True,
    end: Callable[[int], str] = lambda wrong: f"{wrong} {'FAILED' if wrong else 'OK'}",
) -> str:
    """The text of a run. times_us: out of place of one size each, from 1 MiB on; in place is a
    quarter faster.
    """
    lines = [
        f"# nThread 1 nGpus {n} minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5"
        " iters: 20 validation: 1 "
    ]
    lines += ["# Using devices"]
    for rank in range(n if has_ranks else 0):
        lines.append(
            f"#   Rank {rank:2} Pid   4711 on      node1 device {rank:2} [0x1a] Tesla V100"
        )
    columns = version.columns(op)
    part = ["time", "algbw", "busbw", version.check]
    lines += [
        "#" + " " * 45 + "out-of-place" + "                    in-place",
        "# "
        + "  ".join(f"{word:>8}" for word in ["size", "count", "type", *columns, *part, *part]),
    ]
    units = ["(us)", "(GB/s)", "(GB/s)", ""] * 2
    lines.append("#       (B)    (elements)  " + "  ".join(f"{word:>6}" for word in units))
    for row, time_us in enumerate(times_us):
        size = 1048576 * n << row
        block = size // n if op in BLOCKS else size
        cells = [f"{size:12}", f"{block // ITEM_BYTES:12}", "  float"]
        cells += [f"{cell:>6}" for cell in version.cells(op)]
        for place in range(2):
            cells += _part(version, op, n, size, time_us * (1 - place / 4), place)
        lines.append("  ".join(cells))
    lines += [f"# Out of bounds values : {end(0)}"]
    lines += ["# Avg bus bandwidth    : 1.5 "]
    return "\n".join(lines) + "\n"


def _part(version: Version, op: str, n: int, size: int, time_us: float, place: int) -> list[str]:
    algbw = size / time_us / 1e3
    busbw = algbw * factor(op, n)
    if time_us > 10000:
        time = f"{time_us:7.0f}"
    else:
        time = f"{time_us:7.1f}" if time_us > 100 else f"{time_us:7.2f}"
    check = "0" if version.check == "#wrong" else "0e+00"
    if place and op in ("alltoall", "sendrecv") and version.check == "#wrong":
        check = "N/A"
    return [time, f"{algbw:6.2f}", f"{busbw:6.2f}", f"{check:>5}"]
