"""The lowest ratio of NCCL's time to ours in each band of sizes, as plain text."""

from collections.abc import Sequence
from math import isnan

from collbench.compare.bands import BANDS, bands
from collbench.core.errors import UsageError
from collbench.core.record import Record
from collbench.core.rows import titles
from collbench.core.text import NARROW_COLUMNS, table
from collbench.core.units import format_size


def band_lines(rows: Sequence[Record], columns: int = NARROW_COLUMNS) -> list[str]:
    """The lowest ratio of NCCL's own choice to the tool's own choice in each band of sizes; below
    it its interval, its size and the user buffers that NCCL is fastest with there.

    Rows marked auto, or alone, against NCCL's, repeat by repeat; nothing is chosen, so all repeats
    count. Raises UsageError if no size has both.
    """
    worst_of = bands(rows)
    if not worst_of:
        raise UsageError(
            "there is no band: no size has both our choice (a row marked auto, or one only) and"
            " NCCL's own",
            "collbench sweep measures both",
        )
    has_forms = len({row.buffers for row in rows if row.backend == "nccl"}) > 1
    names = titles(worst_of)
    if len({workload.ranks for workload in worst_of}) == 1:
        names = {
            workload: ", ".join([workload.op, *name.split(", ")[2:]])
            for workload, name in names.items()
        }
    ranks = sorted({workload.ranks for workload in worst_of})
    of_ranks = f" of {ranks[0]} ranks" if len(ranks) == 1 else ""
    lines: list[list[str]] = []
    for workload, worst in worst_of.items():
        ratios = [None if one is None else one.ratio for one in worst]
        lines.append(
            [names[workload], *["-" if one is None else f"{one.median:.2f}" for one in ratios]]
        )
        bounds = [
            "" if one is None or isnan(one.low) else f"{one.low:.2f}-{one.high:.2f}"
            for one in ratios
        ]
        lines += [["", *bounds]] if any(bounds) else []
        lines.append(["", *["" if one is None else format_size(one.size_bytes) for one in worst]])
        if has_forms:
            lines.append(["", *["" if one is None else one.buffers for one in worst]])
    heads = ["op  ", *[f"{name:>10}" for _, name in BANDS]]
    return [
        f"NCCL's time over ours, own choices{of_ranks}: the worst of a band,",
        f"its interval, its size{', and the user buffers that NCCL is fastest with' * has_forms}",
        *table(heads, lines, range(1, len(heads)), columns),
    ]
