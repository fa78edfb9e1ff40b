"""What pairs of ranks reached, as matrices: rows send, columns receive, beside what to expect."""

from collections.abc import Iterable, Mapping, Sequence

from collbench.bench.pairs import LATENCIES, MESSAGES, WAYS, RankPair
from collbench.core.grouping import grouped
from collbench.core.text import NARROW_COLUMNS, table, wrapped
from collbench.core.units import format_rate, format_time_us

_WAY_TITLES = {
    "stores": "stores by the sender's kernel",
    "loads": "loads by the receiver's kernel",
    "copies": "the copy engine",
    "host": "copies through pinned host memory",
    MESSAGES: "messages of 1M, or copies of 64M on GPUs",
}
_NAME_WIDTH, _CELL_WIDTH = 6, 7


def lines(
    pairs: Sequence[RankPair],
    names: Sequence[str],
    expected: Mapping[tuple[int, int, str], float | None],
    columns: int = NARROW_COLUMNS,
) -> list[str]:
    """The matrices of all ways, in one direction and in both, then latency."""
    grid: list[str] = []
    for way in (*WAYS, MESSAGES):
        for is_both in (False, True):
            same = [pair for pair in pairs if pair.way == way and pair.is_both == is_both]
            if same:
                rates = [expected.get((pair.a, pair.b, way)) for pair in same]
                direction = "both ways at once, each" if is_both else "one way"
                title = f"{_WAY_TITLES[way]}, {direction}, GB/s{_range(rates)}"
                grid += ["", *wrapped(title, columns)]
                grid += _matrix(same, names, columns, is_symmetric=is_both)
    for way, how in LATENCIES.items():
        late = [pair for pair in pairs if pair.way == way]
        if late:
            grid += ["", *wrapped(f"exchange of 8 bytes, {how}its launch included, us", columns)]
            grid += _matrix(late, names, columns, is_symmetric=True)
    return grid + _refusals(pairs, names)


def _range(rates: Iterable[float | None]) -> str:
    values = sorted({round(rate, 1) for rate in rates if rate is not None})
    if not values:
        return "; what to expect is not known"
    ends = dict.fromkeys(format_rate(value) for value in (values[0], values[-1]))
    return f"; expected {' to '.join(ends)}"


def _matrix(
    pairs: Sequence[RankPair], names: Sequence[str], columns: int, *, is_symmetric: bool
) -> list[str]:
    cells = {(pair.a, pair.b): pair for pair in pairs}
    if is_symmetric:
        cells |= {(pair.b, pair.a): pair for pair in pairs}
    ranks = range(len(names))
    rows = [
        (name, *[_cell(cells.get((a, b)), a == b) for b in ranks]) for a, name in enumerate(names)
    ]
    heads = (" " * _NAME_WIDTH, *[f"{name:>{_CELL_WIDTH}}" for name in names])
    return table(heads, rows, range(1, len(heads)), columns)


def _cell(pair: RankPair | None, is_self: bool) -> str:
    if is_self:
        return "X"
    if pair is None or pair.value is None:
        return "-"
    return format_time_us(pair.value) if pair.way in LATENCIES else format_rate(pair.value)


def _refusals(pairs: Sequence[RankPair], names: Sequence[str]) -> list[str]:
    """Why a value is missing, once for each reason."""
    failed = (pair for pair in pairs if pair.value is None)
    reasons = grouped((f"{pair.way}: {pair.reason}", pair) for pair in failed)
    return [
        f"- {reason} ({names[same[0].a]} ->"
        f" {names[same[0].b]}{f' and {len(same) - 1} more' if len(same) > 1 else ''})"
        for reason, same in reasons.items()
    ]
