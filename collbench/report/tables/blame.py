"""Who is to blame for the time of a collective: the chain to its root, who waited for whom, and the
verdict.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.blame import Blame, Cause
from collbench.report.tables.text import table
from collbench.util.units import format_time_us, to_us

_CAUSES = 8  # of the chain that are shown
_MOST_RANKS = 16  # of the matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A second run without the cause. changed: what was different, in words; found: what it shows,
    None if nothing could be changed, for the reason.
    """

    changed: str
    found: Blame | None = None
    reason: str = ""

    def is_met(self, first: Blame) -> bool:
        """Whether the cause is real: at least half of the excess went with it, or it stayed with
        one of the two ranks of a link.
        """
        return self._has_healed(first) or bool(self._rank_that_kept_it(first))

    def _has_healed(self, first: Blame) -> bool:
        if self.found is None or first.root is None:
            return False
        return first.seconds - self.found.seconds >= first.excess_s[first.root] / 2

    def _rank_that_kept_it(self, first: Blame) -> str:
        """Who sends or receives slowly over another link, too."""
        again = self.found.root if self.found is not None else None
        if first.root is None or again is None or {first.root.kind, again.kind} != {"link"}:
            return ""
        if again.a == first.root.a:
            return f"rank {again.a} sends slowly to rank {again.b}, too"
        return f"rank {again.b} receives slowly from rank {again.a}, too" * (
            again.b == first.root.b
        )

    def text(self, first: Blame) -> str:
        """What the second run says."""
        if self.found is None:
            return f"Not confirmed: {self.reason or 'nothing was run again'}."
        took = f"{self.changed}, a launch takes {_us(self.found.seconds)} us"
        if self._has_healed(first):
            return f"Confirmed: {took}."
        if kept := self._rank_that_kept_it(first):
            return f"Confirmed, and it is the rank: {took}, and {kept}."
        return f"Not confirmed, so it is chance or the way that launches begin: {took}."


def lines(found: Blame, ranks: int) -> list[str]:
    """The chain and the matrix of waits."""
    chain = sorted(found.path_s.items(), key=lambda item: -item[1])[:_CAUSES]
    rows = [
        (_name(cause), _us(seconds), f"{100 * seconds / found.seconds:.0f} %")
        for cause, seconds in chain
        if seconds > 0
    ]
    shown = table(("the chain to the last action", "us", "share"), rows, right=(1, 2))
    if ranks <= _MOST_RANKS:
        heads = ("waits, us", *(f"for {rank}" for rank in range(ranks)))
        matrix = [
            (
                f"rank {rank}",
                *(
                    _us(found.waits_s[rank, peer]) if (rank, peer) in found.waits_s else "."
                    for peer in range(ranks)
                ),
            )
            for rank in range(ranks)
        ]
        shown += ["", *table(heads, matrix, right=range(1, ranks + 1))]
    return shown


def verdict(found: Blame, second: Confirmation | None) -> str:
    """The root in words, and whether a second run confirms it."""
    if found.root is None:
        return "No rank came late and no link is slow: nothing stands out."
    excess = found.excess_s[found.root]
    text = (
        f"{str(found.root)[:1].upper()}{str(found.root)[1:]}: {_us(excess)} us more than others, of"
        f" a launch of {_us(found.seconds)} us."
    )
    return f"{text} {second.text(found) if second is not None else ''}".rstrip()


def as_json(found: Blame, second: Confirmation | None) -> str:
    """The whole as a JSON object; times in microseconds."""

    def named(causes: Sequence[tuple[Cause, float]]) -> list[dict[str, object]]:
        return [
            {"kind": cause.kind, "a": cause.a, "b": cause.b, "us": to_us(seconds)}
            for cause, seconds in causes
        ]

    root = found.root
    document = {
        "format": "collbench-blame",
        "version": 1,
        "launch_us": to_us(found.seconds),
        "root": named([(root, found.excess_s[root])])[0] if root is not None else None,
        "is_confirmed": second is not None and second.is_met(found),
        "path": named(sorted(found.path_s.items(), key=lambda item: -item[1])),
        "waits": [
            {"rank": rank, "for": peer, "us": to_us(seconds)}
            for (rank, peer), seconds in sorted(found.waits_s.items())
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _name(cause: Cause) -> str:
    return {
        "late": f"rank {cause.a} entered after the first",
        "work": f"rank {cause.a} worked",
        "link": f"from rank {cause.a} to rank {cause.b}",
    }[cause.kind]


def _us(seconds: float) -> str:
    return format_time_us(to_us(seconds))
