"""What a text must contain for a regular expression to match: plain texts that are searched a
hundred times faster. For the expressions of profiles/causes, which have no named groups.
"""

_SHORTEST = 3  # characters; shorter ones are in every line


def literals(pattern: str) -> frozenset[str]:
    r"""Texts in small letters, one of which is in whatever the pattern matches, however its
    capitals; empty if there are none.

    >>> sorted(literals(r"NVRM: .*(?:failed|lost)|Xid \d+"))
    ['nvrm: ', 'xid ']
    >>> literals(r"(?:ab)?\w+")
    frozenset()
    """
    found, end = _alternatives(pattern.lower(), 0)
    assert end == len(pattern), pattern
    return found


def _alternatives(text: str, at: int) -> tuple[frozenset[str], int]:
    """Of what stands up to the end or the closing bracket, and where that is."""
    options = []
    while True:
        option, at = _sequence(text, at)
        options.append(option)
        if text[at : at + 1] != "|":
            return frozenset().union(*options) if all(options) else frozenset(), at
        at += 1


def _sequence(text: str, at: int) -> tuple[frozenset[str], int]:
    best, run = frozenset[str](), ""
    while at < len(text) and text[at] not in "|)":
        atom, at = _atom(text, at)
        is_optional, is_repeated, at = _quantifier(text, at)
        if isinstance(atom, str) and not is_optional:
            run += atom
            if not is_repeated:
                continue
        best, run = _better(best, frozenset({run})), ""
        if isinstance(atom, frozenset) and not is_optional:
            best = _better(best, atom)
    return _better(best, frozenset({run})), at


def _better(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """The one whose shortest text is longer."""
    length = min(map(len, other), default=0)
    return other if length >= max(_SHORTEST, 1 + min(map(len, one), default=0)) else one


def _atom(text: str, at: int) -> tuple[str | frozenset[str], int]:
    """A character, or the texts of a group; no texts for what matches many characters."""
    first = text[at]
    if first == "\\":
        is_plain = not text[at + 1].isalnum()
        return text[at + 1] if is_plain else frozenset(), at + 2
    if first == "[":
        at += 2  # a bracket that comes first is a character
        while text[at] != "]":
            at += 1 + (text[at] == "\\")
        return frozenset(), at + 1
    if first in ".^$":
        return frozenset(), at + 1
    if first != "(":
        return first, at + 1
    start = at + 1
    is_asserted = text.startswith(("(?!", "(?=", "(?<"), at)
    if text[start] == "?":  # (?: (?i: (?! (?= (?<! (?<=
        start += 2 + text.startswith(("(?<", "(?i"), at)
    found, end = _alternatives(text, start)
    return frozenset() if is_asserted else found, end + 1


def _quantifier(text: str, at: int) -> tuple[bool, bool, int]:
    """Whether what stands before may be absent, or be there more than once, and its end."""
    sign = text[at : at + 1]
    if sign == "{":
        end = text.index("}", at) + 1
        return text[at + 1] == "0", True, end + (text[end : end + 1] == "?")
    if sign and sign in "*+?":
        return sign != "+", True, at + 1 + (text[at + 1 : at + 2] == "?")
    return False, False, at
