"""The lowest ratio of NCCL's time to ours in each band of sizes, as plain text."""

from collections.abc import Sequence
from math import isnan

from collbench.compare.bands import BANDS, choice_gaps
from collbench.compare.best import summarise
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
    names = [name for _, name in BANDS]
    every = choice_gaps(summarise(rows))
    worst_of = {
        workload: [here.get(name) for name in names]
        for workload, here in every.items()
        if any(name in here for name in names)
    }
    if not worst_of:
        raise UsageError(
            "there is no band: no size has both our choice (a row marked auto, or one only) and"
            " NCCL's own",
            "collbench sweep measures both",
        )
    has_forms = len({row.buffers for row in rows if row.backend == "nccl"}) > 1
    named = titles(worst_of)
    ranks = sorted({workload.ranks for workload in worst_of})
    of_ranks = f" of {ranks[0]} ranks" if len(ranks) == 1 else ""
    lines: list[list[str]] = []
    for workload, worst in worst_of.items():
        title = named[workload]
        if of_ranks:
            title = ", ".join([workload.op, *title.split(", ")[2:]])
        lines.append([title, *["-" if one is None else f"{one.value:.2f}" for one in worst]])
        ratios = [None if one is None else one.ratio for one in worst]
        bounds = [
            "" if one is None or isnan(one.low) else f"{one.low:.2f}-{one.high:.2f}"
            for one in ratios
        ]
        lines += [["", *bounds]] if any(bounds) else []
        lines.append(["", *["" if one is None else format_size(one.size_bytes) for one in worst]])
        if has_forms:
            forms = ["" if one is None or one.rival is None else one.rival.buffers for one in worst]
            lines.append(["", *forms])
    heads = ["op  ", *[f"{name:>10}" for name in names]]
    return [
        f"NCCL's time over ours, own choices{of_ranks}: the worst of a band,",
        f"its interval, its size{', and the user buffers that NCCL is fastest with' * has_forms}",
        *table(heads, lines, range(1, len(heads)), columns),
    ]
