"""What `hunt --blame` shows: who waited for whom, on what, and the verdict confirmed."""

import math
from collections.abc import Sequence

from collbench.bench.trace.blame import Blame, Part
from collbench.core.files import WholeVerdict, result_json
from collbench.core.text import table, wrapped
from collbench.core.units import format_time_us, to_us

_SHOWN_RANKS = 12  # of the matrix
_SHOWN_PARTS = 4
_LEAST_SHARE = 0.05


def lines(
    found: Blame, names: Sequence[str], confirmation: str, columns: int, *, is_confirmed: bool
) -> list[str]:
    """All that is shown. names: of the ranks. confirmation: what the second run says."""
    shown = _matrix(found, names, columns)
    shown += ["", *wrapped(_spent(found, names), columns), ""]
    if found.part is None:
        return shown + wrapped(
            "None of these stands out: no rank and no link is to blame.", columns
        )
    shown += wrapped(headline(found, names, is_confirmed=is_confirmed), columns)
    return shown + [f"  {line}" for line in wrapped(confirmation, columns - 2)]


def headline(found: Blame, names: Sequence[str], *, is_confirmed: bool) -> str:
    """The verdict in a line."""
    assert found.part is not None
    kind, _ = found.part
    ratio = "" if math.isinf(found.ratio) else f", {found.ratio:.2g} times as long as its like"
    word = ("LATE " if kind == "late" else "SLOW ") if is_confirmed else "Perhaps"
    return (
        f"{word} {part_name(found.part, names)}: {found.share:.0%} of the time{ratio}; without it"
        f" {_ms(found.total_s - found.excess_s)} instead of {_ms(found.total_s)}"
    )


def part_name(part: Part, names: Sequence[str]) -> str:
    """A part of the time as people name it.

    >>> part_name(("link", (0, 1)), ["a", "b"]), part_name(("late", (1,)), ["a", "b"])
    ('the link a -> b', 'b comes late')
    """
    kind, key = part
    if kind == "link":
        return f"the link {names[key[0]]} -> {names[key[1]]}"
    return f"{names[key[0]]} {'comes late' if kind == 'late' else 'works'}"


def _spent(found: Blame, names: Sequence[str]) -> str:
    parts = sorted(found.shares.items(), key=lambda item: -item[1])[:_SHOWN_PARTS]
    texts = [
        f"{part_name(part, names)} {share:.0%}" for part, share in parts if share >= _LEAST_SHARE
    ]
    return f"A launch takes {_ms(found.total_s)}: {', '.join(texts)}."


def _matrix(found: Blame, names: Sequence[str], columns: int) -> list[str]:
    if len(names) > _SHOWN_RANKS:
        worst = sorted(found.waits_s.items(), key=lambda item: -item[1])[:_SHOWN_RANKS]
        rows = [(names[a], names[b], _us(wait)) for (a, b), wait in worst]
        return table(("waits", "for", "us"), rows, (2,), columns)
    grid = [
        (name, *["X" if a == b else _us(found.waits_s.get((a, b))) for b in range(len(names))])
        for a, name in enumerate(names)
    ]
    title, right = "Rows wait for columns, us in a launch:", range(1, len(names) + 1)
    return [title, *table(("", *names), grid, right, columns)]


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else format_time_us(to_us(seconds))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def as_json(
    found: Blame, names: Sequence[str], machine: str, confirmation: str, *, is_confirmed: bool
) -> str:
    """The result as a JSON object."""
    document = {
        "ranks": list(names),
        "part": found.part,
        "share": found.share,
        "ratio": None if math.isinf(found.ratio) else found.ratio,
        "total_us": to_us(found.total_s),
        "excess_us": to_us(found.excess_s),
        "is_confirmed": is_confirmed,
        "confirmation": confirmation,
        "waits_us": [[a, b, to_us(wait)] for (a, b), wait in found.waits_s.items()],
        "shares": [[kind, key, share] for (kind, key), share in found.shares.items()],
    }
    verdict: WholeVerdict = "PASS" if found.part is None else "FAIL" if is_confirmed else "WARN"
    return result_json(document, machine=machine, verdict=verdict)
