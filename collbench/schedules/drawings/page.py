"""A schedule that plays: one page of HTML with the messages of every step under way, which requests
nothing.

What each rank does is on the page as text, too; the script shows the part of the step at hand, and
without it all steps can be read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collbench.core.grouping import grouped
from collbench.core.web.colors import FAMILIES
from collbench.core.web.html import element, embedded
from collbench.core.web.parts import document, part, style
from collbench.schedules.drawings.step_words import StepWords
from collbench.schedules.playback import Flight, Playback

_BLOCK, _FULL = 5, 6  # places in the scale of colours: of a block, of a whole sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The slots of each connection. batch: how many a receiver gives back at a time; 0: none before
    the launch ends. is_ended: whether what is played ends the launch, which gives back the rest.
    says: what moves head and tail. parts: what the message is cut into, by name.
    """

    count: int = 4
    batch: int = 1
    is_ended: bool = False
    says: str = (
        "A sender fills a slot and moves the tail on. A receiver empties it and moves the head on,"
        " which gives it back."
    )
    parts: Mapping[str, str] = field(default_factory=dict)


def page(played: Playback, hosts: Sequence[int] = (), slots: Slots | None = None) -> str:
    """The page. hosts: of each rank, if there are several."""
    slots = slots or Slots()
    words = StepWords(played, hosts)
    schedule = played.schedule
    look, script = style() + part("steps.css"), part("steps.js")
    return document(
        "steps.html",
        f"{schedule.op} by {schedule.name} over {schedule.n} ranks",
        look,
        script,
        lead=f"{element('p', f'Start: {words.start}', class_='lead')}\n"
        + element("p", f"Goal: {words.goal}", class_="lead"),
        key=element("p", _key(played, words), class_="hint"),
        says=slots.says,
        cut="".join(element("dt", one) + element("dd", text) for one, text in slots.parts.items()),
        transcript=_transcript(words, len(played.stops)),
        data=f'<script type="application/json" id="data">{embedded(data_of(played, hosts, slots))}'
        "</script>",
    )


def data_of(played: Playback, hosts: Sequence[int], slots: Slots) -> dict[str, Any]:
    """What the script plays. slots: of a connection. levels: the place in the scale of colours of a
    cell by how many ranks are in it. has, wants: the bit masks of ranks of a cell at the start and
    at the end, 0 where the rank needs nothing. back: when the sender of a message is told that its
    slot is free; None if it is not. values: the cell, as the receiver numbers it, and the mask of
    each chunk. updates: time, rank, cell, mask, whether it stands in the output.
    """
    backs = _backs(played, slots)
    words, n = StepWords(played, hosts), played.schedule.n
    keys = played.keys()
    ranks = []
    for rank in range(n):
        has, wants = played.inputs(rank), played.wanted(rank)
        cells = [
            {
                "name": words.cell(key, rank),
                "has": has[key].mask if key in has else 0,
                "wants": wants.get(key, 0),
            }
            for key in keys[rank]
        ]
        ranks.append({"name": words.rank_name(rank), "cells": cells})
    flights = [
        {
            **flight._asdict(),
            "back": backs[flight],
            "label": words.label(flight),
            "short": words.short(flight.values),
            "values": [
                (keys[flight.target].index(played.key(value)), value.mask)
                for value in flight.values
            ],
        }
        for flight in played.flights
    ]
    name = played.schedule.name
    return {
        "n": n,
        "slots": slots.count,
        "isReduction": played.is_reduction,
        "color": f"f-{name if name in FAMILIES else 'other'}",
        "columns": _columns_of(played),
        "levels": [_level(count, n, is_reduction=played.is_reduction) for count in range(n + 1)],
        "stops": list(played.stops),
        "ranks": ranks,
        "flights": flights,
        "updates": [
            (time, rank, keys[rank].index(key), state.mask, int(state.is_output))
            for time, rank, key, state in played.updates()
        ],
    }


def _columns_of(played: Playback) -> int:
    """Cells of a rank side by side. In an alltoall its own blocks fill whole rows, if they can."""
    if not played.is_crossed:
        return min(4, max(map(len, played.keys())))
    n = played.schedule.n
    most = 5 if n <= 10 else 8
    whole = [n // rows for rows in range(1, n) if n % rows == 0 and n // rows <= most]
    return max(whole, default=min(n, 8))


def _level(count: int, n: int, *, is_reduction: bool) -> int:
    """The place in the scale of colours of a cell with so many ranks' contributions.

    >>> [_level(count, 8, is_reduction=True) for count in range(9)]
    [0, 1, 1, 2, 2, 3, 3, 4, 6]
    """
    if not count:
        return 0
    if not is_reduction:
        return _BLOCK
    return _FULL if count == n else 1 + 3 * (count - 1) // max(n - 2, 1)


def _backs(played: Playback, slots: Slots) -> dict[Flight, float | None]:
    """When the head of each message comes back to its sender, if it does."""
    backs: dict[Flight, float | None] = {}
    of_port = grouped(((one.source, one.target, one.port), one) for one in played.flights)
    for flights in of_port.values():
        for number, flight in enumerate(flights):
            last = number - number % slots.batch + slots.batch - 1 if slots.batch else len(flights)
            if last < len(flights):
                backs[flight] = flights[last].freed
            else:
                backs[flight] = played.stops[-1] if slots.is_ended else None
    return backs


def _key(played: Playback, words: StepWords) -> str:
    """What a cell and a message mean."""
    marks = "A thick frame is a result in the output, a coloured ring what the last step formed."
    if any(set(keys) - set(played.wanted(rank)) for rank, keys in enumerate(played.keys())):
        marks += " A dotted frame is where a result shall stand at the end."
    if not played.is_reduction:
        return (
            f"A cell is a {words.noun}: filled, the rank has it. On its way {words.example()}"
            f" {marks}"
        )
    return (
        f"A cell is a {words.noun}, with its number in the corner. The large number says of how"
        " many ranks it is the sum, and the strip below of which, rank 0 on the left. On its way"
        f" {words.example()} {marks}"
    )


def _transcript(words: StepWords, steps: int) -> str:
    """Every step as a title and a list of what the ranks do."""
    parts = []
    for number in range(1, steps + 1):
        deeds = "".join(element("li", sentence) for sentence in words.step(number))
        parts.append(f"{element('h3', words.heading(number))}\n<ul>{deeds}</ul>")
    return "\n".join(parts)
