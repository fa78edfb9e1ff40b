"""What pairs of ranks reached, as matrices: one for each way, rows send, columns receive, beside
the rate to expect.
"""

from collections.abc import Iterable, Mapping, Sequence

from collbench.bench.pairs import WAYS, RankPair
from collbench.util.units import format_rate, format_time_us

_WAY_TITLES = {
    "stores": "stores by the sender's kernel",
    "loads": "loads by the receiver's kernel",
    "copies": "the copy engine",
    "host": "copies through pinned host memory",
}
_CELL_WIDTH = 7


def lines(
    pairs: Sequence[RankPair],
    names: Sequence[str],
    expected: Mapping[tuple[int, int, str], float | None],
) -> list[str]:
    """The matrices of all ways, each one way and both ways at once, and latency at the end. names:
    of the ranks.
    """
    grid: list[str] = []
    for way in WAYS:
        for is_both in (False, True):
            same = [pair for pair in pairs if pair.way == way and pair.is_both == is_both]
            if same:
                wanted = {
                    pair: rate
                    for pair in same
                    if (rate := expected.get((pair.a, pair.b, way))) is not None
                }
                title = (
                    f"{_WAY_TITLES[way]}, {'both ways at once, each' if is_both else 'one way'},"
                    f" GB/s{_range(wanted.values())}"
                )
                grid += ["", title, *_matrix(same, names, is_symmetric=is_both)]
    late = [pair for pair in pairs if pair.way == "latency"]
    if late:
        grid += [
            "",
            "exchange of 8 bytes, its launch included, us",
            *_matrix(late, names, is_symmetric=True),
        ]
    return grid + _refusals(pairs, names)


def _range(rates: Iterable[float]) -> str:
    values = sorted({round(rate, 1) for rate in rates})
    if not values:
        return "; what to expect is not known"
    return f"; expected {format_rate(values[0])}" + (
        f" to {format_rate(values[-1])}" if len(values) > 1 else ""
    )


def _matrix(pairs: Sequence[RankPair], names: Sequence[str], *, is_symmetric: bool) -> list[str]:
    cells = {(pair.a, pair.b): pair for pair in pairs}
    if is_symmetric:
        cells |= {(pair.b, pair.a): pair for pair in pairs}
    grid = ["  ".join([f"{'':<6}", *[f"{name:>{_CELL_WIDTH}}" for name in names]])]
    for a, name in enumerate(names):
        grid.append(
            "  ".join(
                [
                    f"{name:<6}",
                    *[
                        f"{_cell(cells.get((a, b)), a == b):>{_CELL_WIDTH}}"
                        for b in range(len(names))
                    ],
                ]
            )
        )
    return grid


def _cell(pair: RankPair | None, is_self: bool) -> str:
    if is_self:
        return "X"
    if pair is None or pair.value is None:
        return "-"
    return format_time_us(pair.value) if pair.way == "latency" else format_rate(pair.value)


def _refusals(pairs: Sequence[RankPair], names: Sequence[str]) -> list[str]:
    """Why a value is missing, once for each reason."""
    reasons: dict[str, list[RankPair]] = {}
    for pair in pairs:
        if pair.value is None:
            reasons.setdefault(f"{pair.way}: {pair.reason}", []).append(pair)
    return [
        f"- {reason} ({names[same[0].a]} ->"
        f" {names[same[0].b]}{f' and {len(same) - 1} more' if len(same) > 1 else ''})"
        for reason, same in reasons.items()
    ]
