"""What a text must contain for a regular expression to match: plain texts that are searched a
hundred times faster. For the expressions of profiles/causes, which have no named groups.
"""

_SHORTEST = 3  # characters; shorter ones are in every line
_MOST = 64  # texts of a run of characters and groups


def literals(pattern: str) -> frozenset[str]:
    r"""Texts in small letters, one of which is in whatever the pattern matches, however its
    capitals; empty if there are none.

    >>> sorted(literals(r"NVRM: .*(?:failed|lost)|Xid \d+"))
    ['nvrm: ', 'xid ']
    >>> sorted(literals(r"(?:any|of) (?:error|fail)s?"))
    ['any error', 'any fail', 'of error', 'of fail']
    >>> literals(r"(?:ab)?\w+")
    frozenset()
    """
    found, _, end = _alternatives(pattern.lower(), 0)
    assert end == len(pattern), pattern
    return _better(frozenset(), found)


def _alternatives(text: str, at: int) -> tuple[frozenset[str], bool, int]:
    """Of what stands up to the end or the closing bracket, whether it matches these texts alone,
    and where that is.
    """
    options, is_exact = [], True
    while True:
        option, is_exact_option, at = _sequence(text, at)
        options.append(option)
        is_exact &= is_exact_option
        if text[at : at + 1] != "|":
            return frozenset().union(*options) if all(options) else frozenset(), is_exact, at
        at += 1


def _sequence(text: str, at: int) -> tuple[frozenset[str], bool, int]:
    best, run, is_whole = frozenset[str](), frozenset({""}), True
    while at < len(text) and text[at] not in "|)":
        atom, is_exact, at = _atom(text, at)
        is_optional, is_repeated, at = _quantifier(text, at)
        is_joined = is_exact and not is_optional and len(run) * len(atom) <= _MOST
        if is_joined:
            run = frozenset(before + after for before in run for after in atom)
            if not is_repeated:
                continue
        best, run, is_whole = _better(best, run), frozenset({""}), False
        if not is_joined and not is_optional:
            best = _better(best, atom)
    return run if is_whole else _better(best, run), is_whole, at


def _better(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """The one whose shortest text is longer."""
    length = min(map(len, other), default=0)
    return other if length >= max(_SHORTEST, 1 + min(map(len, one), default=0)) else one


def _atom(text: str, at: int) -> tuple[frozenset[str], bool, int]:
    """A character, or the texts of a group; no texts for what matches many characters."""
    nothing, empty = frozenset[str](), frozenset({""})
    first = text[at]
    if first == "\\":
        if text[at + 1] in "ab":  # \A and \b match no character
            return empty, True, at + 2
        is_plain = not text[at + 1].isalnum()
        return frozenset({text[at + 1]}) if is_plain else nothing, is_plain, at + 2
    if first == "[":
        at += 1 + (text[at + 1] == "^")
        at += text[at] == "]"  # a bracket that comes first is a character
        while text[at] != "]":
            at += 1 + (text[at] == "\\")
        return nothing, False, at + 1
    if first in ".^$":
        return (nothing, False, at + 1) if first == "." else (empty, True, at + 1)
    if first != "(":
        return frozenset({first}), True, at + 1
    start = at + 1
    is_asserted = text.startswith(("(?!", "(?=", "(?<"), at)
    if text[start] == "?":  # (?: (?i: (?! (?= (?<! (?<=
        start += 2 + text.startswith(("(?<", "(?i"), at)
    found, is_exact, end = _alternatives(text, start)
    return (empty, True, end + 1) if is_asserted else (found, is_exact, end + 1)


def _quantifier(text: str, at: int) -> tuple[bool, bool, int]:
    """Whether what stands before may be absent, or be there more than once, and its end."""
    sign = text[at : at + 1]
    if sign == "{":
        end = text.index("}", at) + 1
        return text[at + 1] == "0", True, end + (text[end : end + 1] == "?")
    if sign and sign in "*+?":
        return sign != "+", True, at + 1 + (text[at + 1 : at + 2] == "?")
    return False, False, at
