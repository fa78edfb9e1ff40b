"""The wire ledger of rows as lines of text: what passed each link, beside what had to."""

from collections.abc import Sequence

from collbench.bench.wire import Entry, Ledger, likenesses
from collbench.core.case import Case
from collbench.core.grouping import grouped
from collbench.core.knobs import UNASKED
from collbench.core.peers import is_peer
from collbench.core.text import paragraphs, table
from collbench.core.units import format_size

_MB = 1e6
_HEADS = ("size", "row", "link", "", "expected MB", "seen MB", "raw MB", "foreign MB")
_NUMBERS = range(4, 8)
_WAYS = ("out", "in")
_OURS = 0.01  # of what was seen; less than this is no other's traffic
_LEAST_FOREIGN = 1 << 16  # bytes a launch


def ledger_lines(rows: Sequence[tuple[Case, Ledger]], columns: int) -> list[str]:
    """The ledger of rows, what libraries moved, foreign traffic, and what has no counter."""
    shown = [
        (case, entry)
        for case, ledger in rows
        for entry in ledger.entries
        if any(entry.seen) or any(entry.expected or ())
    ]
    lines = ["Wire ledger: no link that is counted carried anything."]
    has_ops = len({case.op for case, _ in rows}) > 1
    if shown:
        cells = [cells_of(case, entry, way, has_ops) for case, entry in shown for way in range(2)]
        used = [place for place in range(len(_HEADS)) if any(row[place] for row in cells)]
        heads, kept = [_HEADS[k] for k in used], [[row[k] for k in used] for row in cells]
        right = [used.index(k) for k in used if k in _NUMBERS]
        lines = ["Wire ledger, megabytes a launch:", *table(heads, kept, right, columns)]
    texts = [text for case, ledger in rows for text in _texts(case, ledger, has_ops)]
    every = sorted({one for _, ledger in rows for one in ledger.unread.items()})
    unread = grouped((why, name) for name, why in every)
    texts += [f"No counter of {', '.join(names)}: {why}." for why, names in unread.items()]
    return [*lines, *paragraphs(texts, columns)]


def cells_of(case: Case, entry: Entry, way: int, has_ops: bool = False) -> tuple[str, ...]:
    """A line of the table: one direction of a link. has_ops: the row names its collective."""
    expected = None if entry.expected is None else entry.expected[way]
    return (
        format_size(case.size_bytes),
        _name(case, has_ops),
        entry.label,
        _WAYS[way],
        _text(expected),
        _text(entry.seen[way]),
        _text(entry.raw[way] if entry.raw is not None else None),
        _text(None if expected is None else entry.seen[way] - expected),
    )


def _name(case: Case, has_ops: bool) -> str:
    words = [case.op] * has_ops + [case.backend]
    if not is_peer(case.backend):
        words += [case.algo, case.proto]
    else:
        words += [case.algo] * (case.algo != UNASKED["algo"])
        words += [case.buffers] * (case.backend == "nccl")
    return " ".join(words)


def _text(number: int | None) -> str:
    return "" if number is None else f"{number / _MB:.3f}"


def _texts(case: Case, ledger: Ledger, has_ops: bool) -> list[str]:
    """What a row's ledger says, in sentences."""
    at = f"{_name(case, has_ops)} at {format_size(case.size_bytes)}"
    texts = [_moved(case, ledger, at)] if is_peer(case.backend) and ledger.entries else []
    for entry in ledger.entries:
        for way, seen, own in zip(_WAYS, entry.seen, entry.expected or entry.seen, strict=True):
            number = seen - own
            if number > max(_LEAST_FOREIGN, _OURS * max(entry.seen)):
                on = f", links {entry.links}" if entry.links else ""
                texts.append(
                    f"{at}: {_text(number)} MB a launch {way} by {entry.label}{on} is not of this"
                    " row."
                )
    return texts


def _moved(case: Case, ledger: Ledger, at: str) -> str:
    """What a library moved, in units of S, and what moves as much."""
    units = sum(ledger.sent) / len(ledger.sent) / case.size_bytes
    who = "GPU" if any(entry.place.device for entry in ledger.entries) else "rank"
    alike = likenesses(case, ledger)
    if alike:
        how = f"as much as {', '.join(alike)}"
    elif units < _OURS:
        how = "its data passed no link that is counted"
    else:
        how = "as much as no algorithm here"
    return f"{at} moved {units:.2f} S a {who}: {how}."
