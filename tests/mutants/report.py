"""What a number of mutants shows, as a table."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random

import pandas as pd

from tests.mutants.judge import Judgement, judge, why_refused
from tests.mutants.lowering import Found
from tests.mutants.schedules import mutant, valid

# Rules that a schedule must keep whatever it computes, by what the check says of one that does not.
RULES = {
    "writes to the input|has no .* buffer|without operands|goes nowhere|edge to rank|does not exist"
    "|chunks of the input|pulled and messages that are pushed": "its form",
    "may be shorter": "chunks of a vector stay in their places",
    "one side|used by two tracks|edge twice|chunks from rank|stay in port": "its ports",
    "two steps write|another writes it": "a round is unordered",
    "adds |reduces nothing|before anything was written|stale": "a step with no meaning",
    "cannot read what|cannot write what": "zero-copy messages lie in the input or output",
    "while it is pulled|finish a pull|not under way": "pulls are waited for",
    "without knowing that the launch has begun": "a direct write is announced",
    "without an order": "tracks that touch one chunk are ordered",
    "deadlocks": "no deadlock with these slots, stage by stage",
}


def mutants(count: int, seed: int) -> Iterator[Judgement]:
    """Mutants and what was found of each; every kind of fault in turn."""
    for number in range(count):
        yield judge(mutant(Random(f"{seed} {number}"), number), number)


def accepted(count: int, seed: int) -> Iterator[Judgement]:
    """So many mutants that the check accepts, and what was found of each."""
    drawn = ((number, mutant(Random(f"{seed} {number}"), number)) for number in itertools.count())
    fine = ((number, subject) for number, subject in drawn if not why_refused(subject))
    return (judge(subject, number, is_accepted=True) for number, subject in islice(fine, count))


def unchanged(count: int, seed: int) -> Iterator[Judgement]:
    """Valid schedules and what was found of each."""
    for number in range(count):
        yield judge(valid(Random(f"{seed} valid {number}")), number)


def rule_of(refused: str) -> str:
    """Which rule a refused schedule breaks."""
    return next((name for said, name in RULES.items() if re.search(said, refused)), refused)


def table(judged: Iterable[Judgement]) -> str:
    """Of each kind of fault: mutants that are wrong or hang on the reference, or in another order
    only, or were right in every order that was tried; each with those that the check refuses.
    """
    rows, rules = list[tuple[str, str, str]](), Counter[str]()
    for found in judged:
        place = {"reference": found.reference, "another order": found.elsewhere}
        where = next((name for name, verdict in place.items() if verdict != "right"), "right")
        rows.append((found.subject.fault, where, "refused" if found.refused else "accepted"))
        if where == "right" and found.refused:
            rules[rule_of(found.refused)] += 1
    counts = pd.DataFrame(rows, columns=["fault", "wrong", "check"])
    counted = pd.crosstab(counts["fault"], [counts["wrong"], counts["check"]], margins=True)
    lines = [f"{count:>6}  {rule}" for rule, count in rules.most_common()]
    return "\n".join([str(counted), "", "right in every order tried, and refused for:", *lines])


def noticed(
    make: Callable[[Random, int], Found], count: int, seed: int
) -> dict[str, tuple[int, int]]:
    """Of each fault in what a schedule is lowered to: how often data showed it, and of how many."""
    found = Counter(make(Random(f"{seed} {number}"), number) for number in range(count))
    return {
        fault: (found[Found(fault, True)], found[Found(fault, True)] + found[Found(fault, False)])
        for fault, _ in sorted(found)
    }
