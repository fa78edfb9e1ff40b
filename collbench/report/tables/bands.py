"""The lowest ratio of NCCL's time to ours in each band of sizes, as plain text."""

from typing import TYPE_CHECKING

from collbench.analysis.bands import BANDS, bands
from collbench.analysis.rows import rows_of, titles
from collbench.util.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def band_lines(frame: "pd.DataFrame") -> list[str]:
    """The lowest ratio of NCCL's own choice to the tool's own choice in each band of sizes, and
    below it its interval; a line a workload.

    Rows marked auto, or alone, against NCCL's, repeat by repeat; nothing is chosen, so all repeats
    count. Raises UsageError if no size has both.
    """
    worst_of = bands(rows_of(frame))
    if not worst_of:
        raise UsageError(
            "there is no band: no size has both our choice (a row marked auto, or one only) and"
            " NCCL's own",
            "collbench sweep measures both",
        )
    names = titles(worst_of)
    if len({workload.ranks for workload in worst_of}) == 1:
        names = {
            workload: ", ".join([workload.op, *name.split(", ")[2:]])
            for workload, name in names.items()
        }
    width = max(4, *map(len, names.values()))
    ranks = sorted({workload.ranks for workload in worst_of})
    lines = [
        (
            "NCCL's time over ours, own"
            f" choices{f' of {ranks[0]} ranks' if len(ranks) == 1 else ''}: worst of a band, its"
            " interval"
        ),
        "  ".join([f"{'op':<{width}}", *[f"{name:>10}" for _, name in BANDS]]),
    ]
    for workload, worst in worst_of.items():
        ratios = ["-" if one is None else f"{one[1].median:.2f}" for one in worst]
        bounds = [
            "" if one is None or one[1].low != one[1].low else f"{one[1].low:.2f}-{one[1].high:.2f}"
            for one in worst
        ]
        lines.append(
            "  ".join([f"{names[workload]:<{width}}", *[f"{cell:>10}" for cell in ratios]])
        )
        lines.append("  ".join([" " * width, *[f"{cell:>10}" for cell in bounds]]).rstrip())
    return [line for line in lines if line.strip()]
