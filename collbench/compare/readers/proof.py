"""What the columns of a table of nccl-tests mean, proved by the numbers themselves.

Each row prints a size and a time, and two rates that follow from them: algbw = S / t and busbw =
algbw x factor. So the rates show the number of ranks, and digits that were lost.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError

MOST_RANKS = 1 << 20
# of a rate: what a program computed from more digits than it prints, or from rounded ones
_SLACK = 0.005
# of one rate by the other, which have the same time
_RATIO_SLACKS = (0.0, 0.001, 0.005)
# algbw, busbw, half a unit of their last digit
Rates: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One measurement as it is printed: the time in microseconds, rates in GB/s; errors are half a
    unit of the last digit.
    """

    line: int
    placement: str
    size_bytes: int
    time: float
    time_error: float
    algbw: float
    algbw_error: float
    busbw: float
    busbw_error: float

    def share_of_true_algbw(self) -> tuple[float, float]:
        """Bounds of algbw / (S / t)."""
        gbs = self.size_bytes / 1e3
        return (
            max(self.algbw - self.algbw_error, 0.0) * max(self.time - self.time_error, 0.0) / gbs,
            (self.algbw + self.algbw_error) * (self.time + self.time_error) / gbs,
        )

    @property
    def is_telling(self) -> bool:
        """Whether it has a size, a time and a rate that is not rounded to nothing."""
        return self.size_bytes > 0 and self.time > 0 and self.algbw > 2 * self.algbw_error

    @property
    def rates(self) -> Rates:
        return self.algbw, self.busbw, max(self.algbw_error, self.busbw_error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofReading:
    """How a table is to be read. ranks: 0 if unknown. misfits: (line, placement) of measurements
    whose rates are not those of their size and time.
    """

    ranks: int
    misfits: frozenset[tuple[int, str]]


def half_unit(text: str) -> float:
    """Half a unit of the last digit of a number.

    >>> half_unit("2.50"), half_unit("12e+02")
    (0.005, 50.0)
    """
    digits, _, power = text.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) / 2


def reading_of(
    op: OpName, rows: Sequence[Printed], *, claimed: int, counted: int, name: str, place: int
) -> ProofReading:
    """How the rows of one table are to be read.

    claimed: the number of ranks that the text names; counted: the one by which size and count
    differ; 0 if unknown. name: of the file; place: the line of the table. Raises UsageError where
    no reading fits.
    """
    telling = [row for row in rows if row.is_telling]
    misfits = [row for row in telling if not _fits(row)]
    if 2 * len(misfits) > len(telling):
        row = telling[0]
        gbs = row.size_bytes / row.time / 1e3
        raise UsageError(
            f"{name}, line {place}: line {row.line} prints algbw {row.algbw:g} GB/s, but"
            f" {row.size_bytes} bytes in {row.time:g} us are {gbs:.4g} GB/s",
            "the columns are not those of nccl-tests since June 2020, or the file was changed",
        )
    strange = {id(row) for row in misfits}
    fitting = [row for row in rows if row.time > 0 and id(row) not in strange]
    ranks, is_possible = ranks_of(op, [row.rates for row in fitting], claimed, counted)
    if not is_possible:
        ranks = _ranks_of_most(op, [row for row in fitting if row.is_telling], claimed, counted)
        odd = [row for row in fitting if ranks_of(op, [row.rates], ranks) != (ranks, True)]
        if not ranks or 2 * len(odd) >= len(fitting):
            row = max(fitting, key=lambda row: row.algbw)
            raise UsageError(
                f"{name}, line {place}: busbw {row.busbw:g} over algbw {row.algbw:g} is that of"
                f" {op} on no number of ranks (line {row.line})",
                "the rows may be of another collective: put the name of its program above them",
            )
        misfits += odd
    return ProofReading(
        ranks=ranks, misfits=frozenset((row.line, row.placement) for row in misfits)
    )


def _fits(row: Printed) -> bool:
    """Whether algbw is S / t."""
    low, high = row.share_of_true_algbw()
    return low * (1 - _SLACK) <= 1.0 <= high * (1 + _SLACK)


def ranks_of(
    op: OpName, rates: Iterable[Rates], claimed: int, counted: int = 0
) -> tuple[int, bool]:
    """How many ranks make busbw of algbw: `claimed` or `counted` if one of them may be, 0 if
    unknown; and whether any number of ranks does.

    busbw / algbw is k (n-1)/n; where the factor is 1 for every n the rates show nothing, and
    `claimed` stands.

    >>> (
    ...     ranks_of("allreduce", [(237.31, 355.96, 0.005)], 0),
    ...     ranks_of("allreduce", [(237.31, 355.96, 0.005)], 8),
    ...     ranks_of("broadcast", [], 8),
    ...     ranks_of("broadcast", [(237.31, 355.96, 0.005)], 8),
    ... )
    ((4, True), (4, True), (8, True), (8, False))
    """
    factor, known = collective(op).factor, list(rates)
    if factor(2) == factor(3):
        low, high = _ratio(known, _SLACK)
        return claimed or counted, low <= factor(2) <= high
    for slack in _RATIO_SLACKS:
        low, high = _ratio(known, slack)
        for n in (claimed, counted):
            if n and low <= factor(n) <= high:
                return n, True
        if low <= factor(1) <= high < factor(2):
            return 1, True
        fewest, most = _bounds_of_ranks(2 * factor(2), low, high)
        if fewest <= most:
            return fewest if fewest == most else 0, True
    return 0, False


def _ranks_of_most(op: OpName, rows: Sequence[Printed], claimed: int, counted: int) -> int:
    """The number of ranks that most of the rows show, each by itself; 0 if there is none."""
    shown = Counter(ranks_of(op, [row.rates], claimed, counted)[0] for row in rows)
    shown.pop(0, None)
    return max(shown, key=lambda n: shown[n], default=0)


def _ratio(rates: Iterable[Rates], slack: float) -> tuple[float, float]:
    """Bounds of busbw / algbw in every one of the rates."""
    low, high = 0.0, math.inf
    for algbw, busbw, error in rates:
        if algbw > error:
            low = max(low, (busbw - error) / (algbw + error) * (1 - slack))
            high = min(high, (busbw + error) / (algbw - error) * (1 + slack))
    return low, high


def _bounds_of_ranks(whole: float, low: float, high: float) -> tuple[int, int]:
    """The fewest and the most ranks for which whole x (n - 1) / n is between two bounds; the most
    below the fewest if none are.
    """
    if low > high or low >= whole:
        return 1, 0
    fewest = max(math.ceil(whole / (whole - low) - 1e-9), 2)
    most = MOST_RANKS if high >= whole else math.floor(whole / (whole - high) + 1e-9)
    return fewest, min(most, MOST_RANKS)
