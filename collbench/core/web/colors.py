"""What each colour means, on the page, in pictures and on a terminal: one table for all.

Blue is better and orange is worse, which every reader can tell apart; yellow cannot tell; what is
the same has no colour. No algorithm and no library has one of these. The hues of algorithms differ
in lightness too, and pictures give each a mark and libraries dashes, so that paper without colours
shows the same. On the page every other choice (a protocol, a number of channels) is a step of one
hue, from light to dark: it means "more", never an algorithm. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Judgement = Literal["better", "worse", "same", "cannot tell"]


class Color(NamedTuple):
    """A colour on a light and on a dark ground."""

    light: str
    dark: str


JUDGEMENTS: Mapping[Judgement, Color] = {
    "better": Color("#0b57d0", "#8ab4f8"),
    "worse": Color("#b93a00", "#ff9d6b"),
    "cannot tell": Color("#7a6500", "#d9c74a"),
    "same": Color("#57606a", "#a3adb8"),
}
# Of a terminal with 16 colours: cyan, red, yellow; the last is the colour of any text.
TERMINAL: Mapping[str, str] = {
    "better": "cyan",
    "worse": "red",
    "cannot tell": "yellow",
    "same": "",
}
_CODES = {"red": 31, "yellow": 33, "cyan": 36}

# What results may come from. Those that are measured together most often differ most.
FAMILIES: Mapping[str, Color] = {
    "ring": Color("#0e7490", "#22d3ee"),
    "oneshot": Color("#be185d", "#f472b6"),
    "twoshot": Color("#6d28d9", "#c4a5fd"),
    "direct": Color("#a16207", "#facc15"),
    "duplex": Color("#4d7c0f", "#a3e635"),
    "tree": Color("#7c3f1d", "#d6a37c"),
    "star": Color("#475569", "#a5b1c2"),
    "halving": Color("#a21caf", "#e879f9"),
    "chain": Color("#166534", "#4ade80"),
    "hierarchical": Color("#1e3a8a", "#93a5f8"),
    "nccl": Color("#1b1f24", "#e6e9ed"),
    "mpi": Color("#6b5b4b", "#c9b8a6"),
    "gloo": Color("#4b6b5b", "#a6c9b8"),
    "torch": Color("#6b4b5f", "#c9a6bb"),
}
OTHER = Color("#8a929b", "#78828d")  # what has no colour of its own
STEPS: Sequence[Color] = (  # of an ordered choice, from little to much
    Color("#8f83c9", "#7163b5"),
    Color("#7b6dbd", "#8071c2"),
    Color("#6859ae", "#8f82cf"),
    Color("#55459c", "#a195db"),
    Color("#433388", "#b6ace8"),
    Color("#332376", "#cdc5f4"),
)
HEAT: Sequence[Color] = (  # of areas, from nothing to all
    Color("#ffffff", "#151b22"),
    Color("#f2f0f9", "#1d1c30"),
    Color("#e2def2", "#282446"),
    Color("#cdc6e8", "#352f60"),
    Color("#b3a9da", "#453e7d"),
    Color("#6f5fb8", "#8e80d0"),
    Color("#5a49a6", "#b0a3e6"),
    Color("#3b2b80", "#cfc7f5"),
)
ON_HEAT = Color("#1b1f24", "#e6e9ed")  # of texts on the first five of them
ON_MUCH_HEAT = Color("#ffffff", "#0d1319")  # of texts on the last three


def painted(text: str, judgement: str) -> str:
    r"""A text in the terminal's colour of a judgement; as it is where that has none.

    >>> painted("+20%", "worse"), painted("+0%", "same")
    ('\x1b[31m+20%\x1b[0m', '+0%')
    """
    name = TERMINAL.get(judgement, "")
    return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if name else text


def css_variables(*, is_dark: bool) -> str:
    """The colours as variables of a style sheet."""
    named = {
        **{f"--{name.replace(' ', '-')}": color for name, color in JUDGEMENTS.items()},
        **{f"--f-{name}": color for name, color in FAMILIES.items()},
        "--f-other": OTHER,
        **{f"--s{place}": color for place, color in enumerate(STEPS)},
        **{f"--h{place}": color for place, color in enumerate(HEAT)},
        "--h-near": ON_HEAT,
        "--h-far": ON_MUCH_HEAT,
    }
    return " ".join(
        f"{name}: {color.dark if is_dark else color.light};" for name, color in named.items()
    )


def css_classes() -> str:
    """Classes that draw lines (l-) and marks (m-) in a family's colour or a step's."""
    names = [*(f"f-{name}" for name in FAMILIES), "f-other"]
    names += [f"s{place}" for place in range(len(STEPS))]
    return "\n".join(
        f".l-{name} {{ stroke: var(--{name}); }} .m-{name} {{ fill: var(--{name}); }}"
        for name in names
    )
