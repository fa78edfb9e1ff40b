"""The shapes of drawings, as SVG elements. Pure; every foreign string is escaped here."""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from collbench.core.text import printable

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
INK, FAINT = "#222222", "#666666"
# of a letter, at most on average, in the fonts above: texts are cut to what surely fits
_WIDE_EM = 0.62


@dataclass(frozen=True, slots=True, kw_only=True)
class Rect:
    """A place on the drawing, in pixels from its upper left corner."""

    x: float
    y: float
    w: float
    h: float

    @property
    def middle(self) -> float:
        """The x of its centre."""
        return self.x + self.w / 2

    @property
    def right(self) -> float:
        """The x of its right edge."""
        return self.x + self.w

    @property
    def bottom(self) -> float:
        """The y of its lower edge."""
        return self.y + self.h


def clean(text: str) -> str:
    r"""A text as XML may hold it.

    >>> clean("a <b> & \x1b[4mc")
    'a &lt;b&gt; &amp; \\x1b[4mc'
    """
    return escape(printable(text), {'"': "&quot;"})


def number(value: float) -> str:
    """A coordinate, with at most one decimal.

    >>> number(12.0), number(3.25)
    ('12', '3.2')
    """
    return f"{value:.1f}".removesuffix(".0")


def width_of(text: str, size: float, *, is_bold: bool = False) -> float:
    """Pixels that a text surely does not pass."""
    return len(text) * size * _WIDE_EM * (1.06 if is_bold else 1)


def fitted(text: str, room: float, size: float, *, is_bold: bool = False) -> str:
    """A text cut to the room that there is.

    >>> fitted("Intel Xeon Platinum", 60, 10)
    'Intel Xe…'
    """
    most = int(room / (size * _WIDE_EM * (1.06 if is_bold else 1)))
    if len(text) <= most:
        return text
    return text[: most - 1].rstrip(" ,") + "…" if most > 2 else ""


def folded(text: str, room: float, size: float) -> list[str]:
    """A text in lines that fit.

    >>> folded("a text in lines", 60, 10)
    ['a text in', 'lines']
    """
    lines = [""]
    for word in text.split():
        if lines[-1] and width_of(f"{lines[-1]} {word}", size) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [fitted(part, room, size) for part in lines]


def text_at(
    x: float,
    y: float,
    text: str,
    size: float,
    *,
    anchor: str = "middle",
    colour: str = INK,
    is_bold: bool = False,
    has_halo: bool = False,
) -> str:
    """A line of text, y its base line. With a halo it can stand on lines."""
    weight = ' font-weight="bold"' if is_bold else ""
    halo = (
        ' paint-order="stroke" stroke="#ffffff" stroke-width="4" stroke-linejoin="round"'
        if has_halo
        else ""
    )
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{anchor}"'
        f' fill="{colour}"{weight}{halo}>{clean(text)}</text>'
    )


def box(
    rect: Rect, fill: str, edge: str, radius: float = 5, dash: str = "", width: float = 1.4
) -> str:
    """A filled box with an edge."""
    place = (
        f'x="{number(rect.x)}" y="{number(rect.y)}" width="{number(rect.w)}"'
        f' height="{number(rect.h)}"'
    )
    return (
        f'<rect {place} rx="{number(radius)}" fill="{fill}" stroke="{edge}"'
        f' stroke-width="{number(width)}"{_dashed(dash)}/>'
    )


def line(
    points: Sequence[tuple[float, float]], colour: str, width: float = 2, dash: str = ""
) -> str:
    """A line through points."""
    text = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return (
        f'<polyline points="{text}" fill="none" stroke="{colour}"'
        f' stroke-width="{number(width)}"{_dashed(dash)}/>'
    )


def arc(
    start: tuple[float, float],
    end: tuple[float, float],
    height: float,
    colour: str,
    width: float = 2,
) -> str:
    """A curve that rises above two points by `height`, or falls below if that is negative."""
    (x1, y1), (x2, y2) = start, end
    lift = height * 4 / 3
    path = (
        f"M{number(x1)},{number(y1)} C{number(x1)},{number(y1 - lift)}"
        f" {number(x2)},{number(y2 - lift)} {number(x2)},{number(y2)}"
    )
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{number(width)}"/>'


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""
