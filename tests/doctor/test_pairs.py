"""What rates of pairs say, that repeats agree on: pairs.toml."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collbench.core.pairwise import PairSample, PairWorld, world_of
from collbench.doctor.hunt.places import Place
from collbench.doctor.hunt.rounds import Pair, quick, rounds
from collbench.doctor.hunt.verdicts import Analysis, analyse
from tests.support.slow_pairs import world

CASES = tomllib.loads(Path(__file__).with_name("pairs.toml").read_text())


def pairs_of(words: str, ranks: PairWorld) -> Iterator[Pair]:
    """all and quick: both ways of the rounds; up: from lower to higher; near: inside a host; or
    pairs such as 0>1, of which either side may be a span or *.
    """
    n = ranks.n
    if words in ("all", "quick"):
        turns = rounds(n) if words == "all" else quick(n)
        yield from (way for turn in turns for pair in turn for way in (pair, pair[::-1]))
        return
    every = [(a, b) for a in range(n) for b in range(n) if a != b]
    if words in ("up", "near"):
        is_up = words == "up"
        yield from (
            (a, b) for a, b in every if (a < b if is_up else ranks.hosts[a] == ranks.hosts[b])
        )
        return
    for word in words.split():
        firsts, lasts = (_span(side, n) for side in word.split(">"))
        yield from ((a, b) for a, b in every if a in firsts and b in lasts)


def _span(text: str, n: int) -> range:
    first, _, last = (f"0-{n - 1}" if text == "*" else text).partition("-")
    return range(int(first), int(last or first) + 1)


def analysed(case: dict[str, Any]) -> Analysis:
    """Rates by names of hosts, both ways at once, or of ranks, in so many repeats."""
    if "lines" in case:
        lines = [line.split() for part in case["lines"] for line in part.split(", ")]
        names = sorted({name for line in lines for name in line[:2]})
        samples = [
            PairSample(a=names.index(a), b=names.index(b), gbs=float(gbs), is_both=True)
            for a, b, gbs in lines * case.get("times", 1)
        ]
        return analyse(samples, world_of(names))
    ranks = world(*map(int, case["world"].split("x")))
    slow = {
        pair: gbs for words, gbs in case.get("slow", {}).items() for pair in pairs_of(words, ranks)
    }
    both = case.get("is_both", False)
    samples = [
        PairSample(a=a, b=b, gbs=slow.get((a, b), case["gbs"]) * (1 + k / 200), is_both=both)
        for a, b in pairs_of(case["pairs"], ranks)
        for k in range(case["repeats"])
    ]
    return analyse(samples, ranks, **({"rate_gbs": case["rate"]} if "rate" in case else {}))


def named(place: Place) -> str:
    flow = "" if place.flow == "both" else f" {place.flow}"
    return f"{place.kind} {' '.join(map(str, place.key))}{flow}"


def wanted(missing: Sequence[Pair]) -> str:
    """Whose pairs would tell, as 0,1 to 4,5: from lower numbers to higher ones."""
    sides = (sorted({pair[end] for pair in missing}) for end in (0, 1))
    return " to ".join(",".join(map(str, side)) for side in sides)


@pytest.mark.parametrize("what", CASES)
def test_what_pairs_say(what: str) -> None:
    case = CASES[what]
    found = analysed(case)
    assert found.answer == case["answer"]
    said = []
    for one in found.verdicts:
        effect, more = one.effect, [f"or {other}" for other in sorted(map(named, one.same))]
        more += [f"measure {wanted(one.missing)}"] * bool(one.missing)
        more += ["inside"] * one.is_inside + ["layout"] * one.is_layout
        assert effect.low < effect.factor < effect.high
        text = f"{named(one.place)}: {effect.slow} of {effect.of} by {effect.factor:.1f}"
        said.append(", ".join([text, *more]))
    assert sorted(said) == case["verdicts"]
    assert " ".join(found.unjudged) == case.get("unjudged", "")
    assert [named(one) for one in found.untested] == case.get("untested", [])
    assert re.sub("[(),]", "", str(found.below)) == case.get("below", "")
