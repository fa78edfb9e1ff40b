"""Unequal blocks: how many elements each rank has for each other, by a formula or from a file.

alltoallv has a matrix of counts, of which row i is what rank i sends to each rank; allgatherv and
reducescatterv have one count a rank, of what it gives or gets. A formula shares S among the ranks
by weights that depend on nothing but their number: no random numbers, so that every run and every
host has the same counts. In an alltoallv every rank sends S bytes and prefers the same ranks, like
tokens that are routed to popular experts.

S is the total of allgatherv and reducescatterv, and of alltoallv the total over n, which is what
each rank would send if all blocks were equal.
"""

import hashlib
import re
from functools import lru_cache
from math import exp
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

from collbench.core.collectives import OpName, collective
from collbench.core.errors import UsageError

EVEN = "even"
FORMULAS = ("even", "lognormal:SIGMA", "zipf:EXPONENT", "hot:RANKS")
MAX_COUNT = 1 << 40  # elements of a block in a file
_MOST = {"lognormal": 10.0, "zipf": 10.0, "hot": 4096.0}
_WEIGHT_GRAIN = 1 << 60  # weights become whole numbers, so that shares are exact
_HINT = "for example lognormal:1.2, zipf:1.1, hot:1 or even"
Counts = tuple[int, ...]  # of a matrix: its rows one after the other


class CountsFile(NamedTuple):
    """The numbers of a file: its lines, the name that its rows have, the file, and the numbers of
    the lines in it.
    """

    lines: tuple[Counts, ...]
    name: str
    file: str
    numbers: tuple[int, ...]

    def place(self, first: int, last: int) -> str:
        """The file and its lines from one to another of those with counts, by their index."""
        lines = sorted({self.numbers[first], self.numbers[last]})
        return f"{self.file}, line{'s' * (len(lines) > 1)} {' to '.join(map(str, lines))}"


def skew(text: str) -> str:
    """A formula in the one form that rows have. Raises UsageError.

    >>> skew("zipf:1.10"), skew("hot:2"), skew("even")
    ('zipf:1.1', 'hot:2', 'even')
    """
    name, colon, value = text.lower().partition(":")
    if name == EVEN and not colon:
        return EVEN
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if name not in _MOST or not 0 < number <= _MOST[name] or (name == "hot" and number % 1):
        limits = ", ".join(f"{one} up to {most:g}" for one, most in _MOST.items())
        raise UsageError(
            f"'{text}' is not one of {', '.join(FORMULAS)} with a number above 0 ({limits})", _HINT
        )
    return f"{name}:{number:g}"


def refuse_skew(formula: str, n: int) -> None:
    """Raise UsageError for a formula that so many ranks cannot have.

    >>> refuse_skew("hot:2", 2)
    """
    name, _, value = formula.partition(":")
    if name == "hot" and int(value) > n:
        raise UsageError(
            f"--skew {formula}: {value} ranks cannot have all, there are {n}",
            f"give hot:1 to hot:{n}, or more ranks",
        )


def is_matrix(op: OpName) -> bool:
    """Whether a collective has a count for every pair of ranks."""
    what = collective(op)
    return what.inputs[0] == what.outputs[0] == "n"


class Busiest(NamedTuple):
    """A rank, what it must do most of, and how many elements that are."""

    elements: int
    rank: int
    verb: str


@lru_cache(maxsize=256)
def counts_by(formula: str, op: OpName, n: int, elements: int) -> Counts:
    """The counts by a formula; elements: of S.

    >>> counts_by("hot:1", "allgatherv", 3, 10), counts_by("zipf:1", "allgatherv", 3, 11)
    ((10, 0, 0), (6, 3, 2))
    >>> counts_by("even", "alltoallv", 2, 3)
    (2, 1, 2, 1)
    """
    row = _shared(elements, _weights(formula, n))
    return row * n if is_matrix(op) else row


def _weights(formula: str, n: int) -> list[float]:
    """The weights of the ranks, from the heaviest to the lightest."""
    name, _, value = formula.partition(":")
    if name == "zipf":
        return [(rank + 1) ** -float(value) for rank in range(n)]
    if name == "lognormal":  # the middles of n equally likely parts of the distribution
        sigma, normal = float(value), NormalDist()
        return [exp(sigma * normal.inv_cdf((n - rank - 0.5) / n)) for rank in range(n)]
    if name == "hot":
        return [1.0 if rank < int(value) else 0.0 for rank in range(n)]
    return [1.0] * n


def _shared(total: int, weights: list[float]) -> Counts:
    """Whole parts of a total by weights; what rounding down leaves goes to the largest rests."""
    whole = [round(weight * _WEIGHT_GRAIN) for weight in weights]
    divided = [divmod(total * weight, sum(whole)) for weight in whole]
    parts = [part for part, _ in divided]
    by_rest = sorted(range(len(parts)), key=lambda at: (-divided[at][1], at))
    for at in by_rest[: total - sum(parts)]:
        parts[at] += 1
    return tuple(parts)


def read_counts(file: Path) -> CountsFile:
    """The counts of a file: whole numbers, separated by blanks or commas, behind # a remark. Raises
    UsageError, which names line and value.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"cannot read {file}: {why}", "give a file of counts") from None
    lines, numbers = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        told = line.partition("#")[0].strip().removesuffix(",").rstrip()
        words = re.split(r"\s*,\s*|\s+", told) if told else []
        for word in words:
            if not (word.isascii() and word.isdigit() and int(word) <= MAX_COUNT):
                raise UsageError(
                    f"{file}, line {number}: '{word}' is not a whole number from 0 to {MAX_COUNT}",
                    "give elements: of an alltoallv a line for each rank, of what it sends to each",
                )
        if words:
            lines.append(tuple(map(int, words)))
            numbers.append(number)
    if not lines:
        raise UsageError(f"{file} has no counts", "give a whole number for each rank")
    digest = hashlib.sha256(repr(lines).encode()).hexdigest()[:8]
    return CountsFile(tuple(lines), f"file:{digest}", str(file), tuple(numbers))


def counts_in(table: CountsFile, op: OpName, n: int) -> Counts:
    """The counts of a file for a collective. Raises UsageError where it has others."""
    flat = tuple(count for line in table.lines for count in line)
    if not is_matrix(op):
        if len(flat) == n:
            return flat
        raise UsageError(
            f"{table.place(0, -1)}: {op} of {n} ranks needs {n} counts, these are {len(flat)}",
            f"use --ranks {len(flat)}" if len(flat) > 1 else "give a count for each rank",
        )
    for at, line in enumerate(table.lines):
        if len(line) != n:
            raise UsageError(
                f"{table.place(at, at)}: {op} of {n} ranks needs {n} counts a line, this one has"
                f" {len(line)}",
                f"use --ranks {len(line)}" if len(line) == len(table.lines) else "mend that line",
            )
    if len(table.lines) != n:
        raise UsageError(
            f"{table.place(0, -1)}: {op} of {n} ranks needs {n} lines of counts, the file has"
            f" {len(table.lines)}",
            "give a line for each rank: what it sends to each",
        )
    return flat


def busiest(op: OpName, n: int, counts: Counts) -> Busiest:
    """The rank that must send, or receive, most at least.

    >>> busiest("alltoallv", 2, (5, 1, 3, 0)), busiest("allgatherv", 2, (4, 1)).elements
    (Busiest(elements=3, rank=0, verb='receives'), 4)
    """
    ranks = range(n)
    if not is_matrix(op):  # each gets, or gives away, all blocks but its own
        least = min(ranks, key=counts.__getitem__)
        verb = "sends" if collective(op).is_reduction else "receives"
        return Busiest(sum(counts) - counts[least], least, verb)
    sent = [sum(counts[i * n : (i + 1) * n]) - counts[i * n + i] for i in ranks]
    received = [sum(counts[i::n]) - counts[i * n + i] for i in ranks]
    most = max(sent + received)
    if most in received:
        return Busiest(most, received.index(most), "receives")
    return Busiest(most, sent.index(most), "sends")
