"""A schedule drawn step by step: ranks as columns, time downwards, every message an arrow with its
chunk, and after each step what every rank has of each chunk.

Pure: the same playback gives the same bytes. The picture is light, and dark where the viewer's
style says so.
"""

from collections.abc import Iterable, Iterator, Sequence

from collbench.core.text import runs
from collbench.core.web.colors import FAMILIES, HEAT, ON_HEAT, ON_MUCH_HEAT, OTHER, Color
from collbench.core.web.svg import (
    FAINT,
    FONT,
    INK,
    Rect,
    box,
    clean,
    fitted,
    folded,
    line,
    number,
    text_at,
    width_of,
)
from collbench.schedules.drawings.step_words import StepWords, members, ranges
from collbench.schedules.playback import CellKey, CellState, Flight, Playback

EMPTY, FULL, MOST = 0, 6, 7  # places in HEAT
FIRST_DARK = 5  # of HEAT: from here on texts are light

_EDGE = 28.0  # of ground around the drawing
_TITLE_SIZE, _TEXT_SIZE, _LABEL_SIZE, _SMALL, _TINY = 20.0, 13.0, 11.5, 9.0, 8.5
_LANE_H, _PILL_H = 22.0, 17.0
_GAP = 3.0  # between cells
_STRIP_H = 4.0  # of the ranks whose contributions are in a cell
_GROUND, _PANEL, _RULE = "#ffffff", "#f6f7f9", "#d5dae0"
_DARK = {_GROUND: "#12161b", _PANEL: "#1a2027", _RULE: "#37414d", INK: "#e6e9ed", FAINT: "#a3adb8"}


def level(mask: int, n: int, *, is_reduction: bool) -> int:
    """The place in HEAT of a cell with these ranks' contributions.

    >>> [level((1 << count) - 1, 8, is_reduction=True) for count in range(9)]
    [0, 1, 1, 2, 2, 3, 3, 4, 6]
    """
    if not mask:
        return EMPTY
    if not is_reduction:
        return FIRST_DARK
    count = mask.bit_count()
    return FULL if count == n else 1 + 3 * (count - 1) // max(n - 2, 1)


def svg(played: Playback, hosts: Sequence[int] = ()) -> str:
    """The picture, as the text of an SVG file; to be read with up to 16 ranks. hosts: of each rank,
    if there are several.

    >>> from collbench.schedules.algorithms import ring
    >>> from collbench.schedules.ir import build
    >>> from collbench.schedules.playback import play
    >>> from collbench.core.world import World
    >>> text = svg(play(build("allreduce", "ring", ring.allreduce, World(n=4))))
    >>> text.count('class="message"'), text.count('class="state"')
    (24, 7)
    """
    return _Picture(played, hosts).text()


class _Picture:
    """One picture while it grows downwards."""

    def __init__(self, played: Playback, hosts: Sequence[int]) -> None:
        self.played, self.words = played, StepWords(played, hosts)
        self.n = played.schedule.n
        self.keys, self.states = played.keys(), played.states()
        most = max(map(len, self.keys))
        self.columns = columns_of(played)
        self.rows = -(-most // self.columns)
        self.cell_w, self.cell_h = (40.0, 34.0) if self.n <= 8 else (24.0, 28.0)
        wide = self.columns * (self.cell_w + _GAP) - _GAP
        self.pitch = max(wide + 20, 118.0 if self.n <= 8 else 100.0)
        self.wide = max(self.n * self.pitch, 560.0)
        self.pitch = self.wide / self.n
        self.colour = FAMILIES.get(played.schedule.name, OTHER)
        self.shapes: list[str] = []
        self.looks: dict[str, str] = {}
        self.y = _EDGE

    def text(self) -> str:
        """The whole document."""
        schedule = self.played.schedule
        self.y += _TITLE_SIZE
        title = f"{schedule.op} by {schedule.name} over {self.n} ranks"
        self._write(title, _TITLE_SIZE, is_bold=True)
        for text in (f"Start: {self.words.start}", f"Goal: {self.words.goal}"):
            self._write(text, _TEXT_SIZE, above=20)
        self._key()
        self._write(self.words.heading(0), _TEXT_SIZE, above=26, is_bold=True)
        self.y -= 8
        self._state(0)
        for step in range(1, len(self.states)):
            self._messages(step)
            self._state(step)
        return self._document(title)

    def _write(self, text: str, size: float, *, above: float = 0, is_bold: bool = False) -> None:
        self.y += above
        self.shapes.append(
            text_at(
                _EDGE,
                self.y,
                fitted(text, self.wide, size, is_bold=is_bold),
                size,
                anchor="start",
                colour=INK if is_bold else FAINT,
                is_bold=is_bold,
            )
        )

    def _key(self) -> None:
        """What a cell and a message mean."""
        self.y += 14
        reduction, n = self.played.is_reduction, self.n
        full = (1 << n) - 1
        few = full & ~1 if n > 2 else 1
        if reduction:
            samples = [
                (CellState(mask=few), f"{few.bit_count()} of {n} summed: the strip says which"),
                (CellState(mask=full, is_output=True), f"all {n} summed, in the output"),
            ]
        else:
            samples = [
                (CellState(mask=1), "the rank has it"),
                (CellState(mask=1, is_output=True), "it is in the output"),
                (CellState(), "it is to come"),
            ]
        x = _EDGE
        for state, text in samples:
            rect = Rect(x=x, y=self.y, w=40, h=34)
            self.shapes += cell_shapes(rect, state, "0", n, reduction)
            self.shapes.append(
                text_at(x + 48, self.y + 21, text, _LABEL_SIZE, anchor="start", colour=FAINT)
            )
            x += 48 + 0.52 * _LABEL_SIZE * len(text) + 24
        self.y += 34
        text = f"On an arrow {self.words.example()} A coloured ring: what the step formed."
        if any(flight.taken > flight.end for flight in self.played.flights):
            text += " A dashed arrow: it waits at its receiver."
        self.y += 4
        for part in folded(text, self.wide, _LABEL_SIZE):
            self._write(part, _LABEL_SIZE, above=16)

    def _middle(self, rank: int) -> float:
        return _EDGE + self.pitch * (rank + 0.5)

    def _state(self, step: int) -> None:
        """What every rank has after a step, as a row of panels."""
        self.y += 16
        high = 22 + self.rows * (self.cell_h + _GAP) - _GAP + 8
        before = self.states[step - 1] if step else self.states[0]
        self.shapes.append(f'<g class="state" data-step="{step}">')
        for rank in range(self.n):
            left, name = _EDGE + self.pitch * rank + 4, self.words.rank_name(rank)
            room = self.pitch - 12
            size = _LABEL_SIZE if width_of(name, _LABEL_SIZE, is_bold=True) <= room else _SMALL
            self.shapes.append(
                f'<rect x="{number(left)}" y="{number(self.y)}" width="{number(self.pitch - 8)}"'
                f' height="{number(high)}" rx="6" fill="{_PANEL}" stroke="{_RULE}"/>'
            )
            self.shapes.append(
                text_at(
                    self._middle(rank),
                    self.y + 15,
                    fitted(name, room, size, is_bold=True),
                    size,
                    is_bold=True,
                )
            )
            self._cells(rank, step, before[rank])
        self.shapes.append("</g>")
        self.y += high

    def _cells(self, rank: int, step: int, before: dict[CellKey, CellState]) -> None:
        wanted = self.played.wanted(rank)
        now = self.states[step][rank]
        wide = min(len(self.keys[rank]), self.columns) * (self.cell_w + _GAP) - _GAP
        for place, key in enumerate(self.keys[rank]):
            row, column = divmod(place, self.columns)
            x = self._middle(rank) - wide / 2 + column * (self.cell_w + _GAP)
            y = self.y + 22 + row * (self.cell_h + _GAP)
            state, name = now.get(key, CellState()), self.words.cell(key, rank)
            is_right = state.is_output and wanted.get(key) == state.mask
            look = self._look(name, state, is_new=state != before.get(key, CellState()))
            about = (
                f'class="cell" data-rank="{rank}" data-cell="{name}"'
                f' data-ranks="{ranges(members(state.mask))}" data-output="{int(is_right)}"'
            )
            self.shapes.append(f'<use href="#{look}" x="{number(x)}" y="{number(y)}" {about}/>')

    def _look(self, name: str, state: CellState, *, is_new: bool) -> str:
        """The name of a cell's look, each of which is drawn once."""
        ring = self.colour.light if is_new else ""
        rect = Rect(x=0, y=0, w=self.cell_w, h=self.cell_h)
        shapes = cell_shapes(rect, state, name, self.n, self.played.is_reduction, ring)
        return self.looks.setdefault("".join(shapes), f"c{len(self.looks)}")

    def _messages(self, step: int) -> None:
        """The messages that set out in a step, as arrows in lanes."""
        self.y += 26
        self._write(self.words.heading(step), _TEXT_SIZE, is_bold=True)
        lanes = _lanes(self.words.leaving(step))
        top = self.y + 8
        self.y = top + len(lanes) * _LANE_H
        self.shapes += [
            line([(self._middle(rank), top), (self._middle(rank), self.y + 12)], _RULE, 1.2)
            for rank in range(self.n)
        ]
        for place, lane in enumerate(lanes):
            for flight in lane:
                self._arrow(flight, step, top + (place + 0.5) * _LANE_H)

    def _arrow(self, flight: Flight, step: int, y: float) -> None:
        start, end = self._middle(flight.source), self._middle(flight.target)
        way = 1 if end > start else -1
        label = fitted(self.words.label(flight), self.pitch - 34, _LABEL_SIZE)
        mask = flight.values[0].mask
        place = level(mask, self.n, is_reduction=self.played.is_reduction)
        wide = max(width_of(label, _LABEL_SIZE) + 10, 22.0)
        middle = start + way * (wide / 2 + 8)
        about = (
            f'class="message" data-step="{step}" data-from="{flight.source}"'
            f' data-to="{flight.target}" data-port="{clean(flight.port)}"'
        )
        pill = Rect(x=middle - wide / 2, y=y - _PILL_H / 2, w=wide, h=_PILL_H)
        tip = end - way * 3
        dash = "6 3" if flight.taken > flight.end else ""
        self.shapes += [
            f"<g {about}>",
            f"<title>{clean(self.words.message(flight))}</title>",
            line([(start, y), (tip - way * 6, y)], self.colour.light, 2, dash),
            f'<circle cx="{number(start)}" cy="{number(y)}" r="3" fill="{self.colour.light}"/>',
            f'<path d="M{number(tip)},{number(y)} l{number(-way * 9)},-4.5 v9 z"'
            f' fill="{self.colour.light}"/>',
            box(pill, HEAT[place].light, self.colour.light, 8.5, width=1.2),
            text_at(middle, y + 4, label, _LABEL_SIZE, colour=on(place)),
            "</g>",
        ]

    def _document(self, title: str) -> str:
        wide, high = self.wide + 2 * _EDGE, self.y + _EDGE
        size = (
            f'width="{number(wide)}" height="{number(high)}" viewBox="0 0 {number(wide)}'
            f' {number(high)}"'
        )
        about = (
            f"{self.words.start} {self.words.goal} {len(self.played.stops)} steps,"
            f" {len(self.played.flights)} messages."
        )
        head = [
            f'<svg class="collbench" xmlns="http://www.w3.org/2000/svg" {size}'
            f' font-family="{clean(FONT)}" role="img"'
            ' aria-labelledby="title about">',
            f'<title id="title">{clean(title)}</title>',
            f'<desc id="about">{clean(about)}</desc>',
            f"<style>{_dark_style(self.colour)}</style>",
            "<defs>",
            *(f'<g id="{name}">{look}</g>' for look, name in self.looks.items()),
            "</defs>",
            f'<rect width="{number(wide)}" height="{number(high)}" fill="{_GROUND}"/>',
        ]
        return "\n".join([*head, *self.shapes, "</svg>"]) + "\n"


def columns_of(played: Playback) -> int:
    """Cells of a rank side by side. In an alltoall its own blocks fill whole rows, if they can."""
    if not played.is_crossed:
        return min(4, max(map(len, played.keys())))
    n = played.schedule.n
    most = 5 if n <= 10 else 8
    whole = [n // rows for rows in range(1, n) if n % rows == 0 and n // rows <= most]
    return max(whole, default=min(n, 8))


def on(place: int) -> str:
    """The colour of a text on a place in HEAT."""
    return ON_MUCH_HEAT.light if place >= FIRST_DARK else ON_HEAT.light


def cell_shapes(
    rect: Rect, state: CellState, name: str, n: int, is_reduction: bool, ring: str = ""
) -> Iterator[str]:
    """One cell: its name; where ranks are reduced, how many contributions it has, and below, whose.
    ring: the colour of the frame of a cell that is new.
    """
    place = level(state.mask, n, is_reduction=is_reduction)
    edge, width = (INK, 2.4) if state.is_output else (FAINT, 1.0)
    if ring:
        around = Rect(x=rect.x - 2.5, y=rect.y - 2.5, w=rect.w + 5, h=rect.h + 5)
        yield box(around, "none", ring, 6, width=2)
    yield box(rect, HEAT[place].light, edge, 4, "" if state.mask else "3 3", width)
    ink = on(place) if state.mask else FAINT
    if not is_reduction or not state.mask:
        yield text_at(rect.middle, rect.y + rect.h / 2 + 4, name, _LABEL_SIZE, colour=ink)
        return
    yield text_at(rect.x + 4, rect.y + _TINY + 1.5, name, _TINY, anchor="start", colour=ink)
    count = str(state.mask.bit_count())
    size = _TEXT_SIZE if rect.w > 30 else _LABEL_SIZE
    yield text_at(rect.middle + 3, rect.y + rect.h / 2 + 5, count, size, colour=ink, is_bold=True)
    yield from _strip(rect, state.mask, n, place)


def _strip(rect: Rect, mask: int, n: int, place: int) -> Iterator[str]:
    """The ranks whose contributions are in a cell, as a strip with a position for each."""
    empty, filled = (MOST, EMPTY) if place >= FIRST_DARK else (EMPTY, FIRST_DARK)
    left, wide = rect.x + 3, rect.w - 6
    top = rect.bottom - _STRIP_H - 3
    yield (
        f'<rect x="{number(left)}" y="{number(top)}" width="{number(wide)}"'
        f' height="{number(_STRIP_H)}" fill="{HEAT[empty].light}"/>'
    )
    for run in runs(members(mask)):
        yield (
            f'<rect x="{left + wide * run[0] / n:.2f}" y="{number(top)}"'
            f' width="{wide * len(run) / n:.2f}" height="{number(_STRIP_H)}"'
            f' fill="{HEAT[filled].light}"/>'
        )


def _lanes(flights: Iterable[Flight]) -> list[list[Flight]]:
    """Messages in as few lanes as it takes for none to cross another in its lane: short ones first,
    so that neighbours share the uppermost.
    """
    lanes: list[list[Flight]] = []
    for flight in sorted(flights, key=lambda one: abs(one.target - one.source)):
        for lane in lanes:
            if all(_apart(flight, other) for other in lane):
                lane.append(flight)
                break
        else:
            lanes.append([flight])
    return lanes


def _apart(one: Flight, other: Flight) -> bool:
    low, high = sorted((one.source, one.target))
    other_low, other_high = sorted((other.source, other.target))
    return high <= other_low or other_high <= low


def _dark_style(family: Color) -> str:
    """Rules that replace each colour by its dark partner, for viewers that heed them."""
    colours = {**_DARK, family.light: family.dark}
    colours |= {color.light: color.dark for color in (*HEAT[1:], ON_HEAT)}
    rules = [
        f'[{what}="{light}"]{{{what}:{dark}}}'
        for light, dark in colours.items()
        for what in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme:dark){" + "".join(rules) + "}"
