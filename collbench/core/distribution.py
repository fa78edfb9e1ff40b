"""The distribution of the times of single launches: percentiles, and a histogram of logarithmic
bins. Nothing here measures; what one launch's time is, docs/how-to/distribution.md says.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

# A row's columns of percentiles: what share of the launches takes no longer, in thousandths.
PERCENTILES = {"p50_us": 500, "p99_us": 990, "p999_us": 999}
BINS_A_DOUBLING = 8  # bin k holds the times from 2^(k/8) us up to 2^((k+1)/8) us, 9 % wide
LEAST_US = 2.0**-10  # a clock that does not move shows a time of 0
MOST_BIN = 50 * BINS_A_DOUBLING  # 2^50 us are 35 years
_LEAST_BIN = -10 * BINS_A_DOUBLING
_PAIR = re.compile(r"(0|-?[1-9]\d{0,2}):([1-9]\d{0,11})", re.ASCII)

# (bin, launches in it) of the bins that are not empty, ascending
Histogram = tuple[tuple[int, int], ...]


def percentile(ordered: Sequence[float], thousandths: int) -> float | None:
    """The shortest time that so many thousandths of the launches do not pass; None where the
    launches are too few for one of them to be longer. ordered: their times, ascending.

    >>> percentile(range(1, 1001), 999), percentile(range(1, 1000), 999)
    (999, None)
    >>> percentile([1.0, 2.0, 9.0], 500), percentile([], 500)
    (2.0, None)
    """
    if len(ordered) < least_launches(thousandths):
        return None
    return ordered[-(-len(ordered) * thousandths // 1000) - 1]


def least_launches(thousandths: int) -> int:
    """The launches of which one is expected to be above that percentile.

    >>> [least_launches(share) for share in PERCENTILES.values()]
    [2, 100, 1000]
    """
    return 1000 // (1000 - thousandths)


def histogram(times_us: Sequence[float]) -> Histogram:
    """The times in bins.

    >>> histogram([1.0, 1.05, 2.0, 0.5])
    ((-8, 1), (0, 2), (8, 1))
    """
    bins = Counter(
        min(MOST_BIN, math.floor(BINS_A_DOUBLING * math.log2(max(time, LEAST_US))))
        for time in times_us
    )
    return tuple(sorted(bins.items()))


def histogram_text(bins: Histogram) -> str:
    """A histogram as a cell of the CSV file: `bin:launches`, with `;` between bins.

    >>> histogram_text(((-8, 1), (0, 2)))
    '-8:1;0:2'
    """
    return ";".join(f"{number}:{count}" for number, count in bins)


def parse_histogram(text: str) -> Histogram:
    """The histogram of a cell. Raises ValueError for what histogram_text() does not write.

    >>> parse_histogram("-8:1;0:2"), parse_histogram("")
    (((-8, 1), (0, 2)), ())
    """
    bins: list[tuple[int, int]] = []
    for part in text.split(";") if text else ():
        pair = _PAIR.fullmatch(part)
        number = int(pair[1]) if pair else MOST_BIN + 1
        if pair is None or not _LEAST_BIN <= number <= MOST_BIN:
            raise ValueError(f"'{part[:40]}' is not a bin and its launches")
        if bins and number <= bins[-1][0]:
            raise ValueError(f"bin {number} follows bin {bins[-1][0]}")
        bins.append((number, int(pair[2])))
    return tuple(bins)
