"""What is wrong with one value, and when two values are the same. Pure.

NCCL reads numbers as C's strtoll does: what follows a number is ignored, and what is no number is
0. It tells nobody, so that a value can do nothing, or something else than was meant.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from collbench.machine.settings.table import Variable

_NUMBER = re.compile(
    r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]{1,40}|0[0-7]{0,40}|[1-9][0-9]{0,40})(.*)", re.DOTALL
)
_UNITS = re.compile(r"([0-9]{1,40}(\.[0-9]{1,40})?([kmgtp]b?|b)?|auto|inf)", re.IGNORECASE)
_SUFFIXES = {"k": 10, "m": 20, "g": 30}
_YES = frozenset(("1", "y", "yes", "t", "true", "on", "enable"))
_NO = frozenset(("0", "n", "no", "f", "false", "off", "disable"))
_MOST_NUMBER = (1 << 63) - 1
_LISTS_BY_COLLECTIVE = "2.24.3"  # the version of NCCL that knows them
_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
_MOST_SHOWN = 60


def version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version.

    >>> version_of("2.28.9+cuda12.9")
    (2, 28, 9)
    """
    return tuple(int(part) for part in re.findall(r"[0-9]{1,6}", text)[:3])


def is_before(version: str, other: str) -> bool:
    """Whether a version is older than another; 2.28 stands for all of its versions.

    >>> is_before("2.27.7", "2.28.3"), is_before("2.28", "2.28.3")
    (True, False)
    """
    asked = version_of(version)
    return bool(asked) and asked < version_of(other)[: len(asked)]


def of_version(variable: Variable, version: str | None) -> Variable:
    """The variable with the default that a version of NCCL has.

    >>> from collbench.machine.settings.table import known
    >>> timeout = known().by_name["NCCL_IB_TIMEOUT"]
    >>> of_version(timeout, "2.21.5").default, of_version(timeout, "2.28").default
    ('18', '20')
    """
    olders = variable.default_before.items() if version else ()
    for first, default in olders:
        if is_before(version or "", first):
            return replace(variable, default=default)
    return variable


def number(text: str) -> tuple[int, str] | None:
    """The number that strtoll reads, and what it leaves; None if there is none.

    >>> number("4M"), number("0x10"), number("010"), number("yes")
    ((4, 'M'), (16, ''), (8, ''), None)
    """
    found = _NUMBER.match(text)
    if not found:
        return None
    sign, digits, rest = found.groups()
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    value = int(digits, 8 if is_octal else 0)
    return -value if sign == "-" else value, rest.strip()


def shown(value: str) -> str:
    """A value for a sentence, the beginning of a long one."""
    return value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}..."


def is_same(variable: Variable, one: str, other: str) -> bool:
    """Whether two values mean the same."""
    if one.strip() == other.strip():
        return True
    match variable.kind:
        case "flag" | "integer" | "size":
            first, second = number(one), number(other)
            return first is not None and first == second
        case "switch":
            words = {one.strip().lower(), other.strip().lower()}
            return words <= _YES or words <= _NO
        case "choice":
            return not variable.is_exact and one.lower() == other.lower()
        case "list" | "tuning":
            is_plain = "^" not in one + other and ":" not in one + other
            first_tokens, second_tokens = (
                set(text.lower().split(variable.separator)) for text in (one, other)
            )
            return is_plain and first_tokens == second_tokens
        case _:
            return False


def is_one_of(variable: Variable, value: str, among: tuple[str, ...]) -> bool:
    """Whether a value is one of these, in any letters unless they matter; "*" is any but the
    default.
    """
    if among == ("*",):
        return variable.default is None or not is_same(variable, value, variable.default)
    return any(
        is_same(variable, value, one)
        or (not variable.is_exact and value.strip().lower() == one.lower())
        for one in among
    )


def chosen(variable: Variable, value: str) -> Iterator[str]:
    """What a list takes in, without what it excludes, in small letters.

    >>> from collbench.machine.settings.table import known
    >>> sorted(chosen(known().by_name["NCCL_ALGO"], "^NVLS;allreduce:ring,tree"))
    ['ring', 'tree']
    """
    sections = value.split(";") if variable.kind == "tuning" else [value]
    for section in sections:
        _, colon, tokens = section.partition(":")
        listed = tokens if colon and variable.kind == "tuning" else section
        if not listed.startswith("^"):
            yield from listed.lower().split(variable.separator)


def fault(variable: Variable, value: str, version: str | None = None) -> tuple[str, str] | None:
    """What is wrong with a value, and what to write instead; None if nothing is."""
    if not value or value.strip() in variable.special:
        return None
    match variable.kind:
        case "flag" | "integer" | "size":
            return _number_fault(variable, value)
        case "switch":
            if value.strip().lower() in _YES | _NO:
                return None
            return "is neither yes nor no", "Write 1 or 0."
        case "choice":
            return _choice_fault(variable, value, version)
        case "list":
            return _list_fault(variable, value, version) if variable.values else _blank(value)
        case "tuning":
            return _tuning_fault(variable, value, version)
        case "path" if value.startswith("~") and variable.reader == "NCCL":
            return "begins with ~, which NCCL does not expand", "Write the whole path."
        case _:
            return None


def _number_fault(variable: Variable, value: str) -> tuple[str, str] | None:
    if variable.has_units:
        if _UNITS.fullmatch(value.strip()):
            return None
        return "is no size", "Write bytes, a size as 8K, or auto."
    found = number(value)
    wanted = _wanted(variable)
    is_ncclish = variable.reader == "NCCL"
    if found is None:
        as_read = f", and {variable.reader} reads 0" if is_ncclish else ""
        return f"is no number{as_read}", wanted
    least, rest = found
    if rest:
        if is_ncclish and rest[0].lower() in _SUFFIXES and variable.kind == "size":
            wanted = f"Write {least << _SUFFIXES[rest[0].lower()]}."
        as_read = f", and NCCL reads {least}" if is_ncclish else ""
        return f"has {shown(rest)!r} after the number{as_read}", wanted
    if re.match(r"\s*[+-]?0[0-9]", value):
        return f"begins with 0 and is read as the octal number {least}", wanted
    if variable.kind == "flag":
        return None if least in (0, 1) else ("is neither 0 nor 1", wanted)
    bottom = -_MOST_NUMBER if variable.least is None else variable.least
    top = _MOST_NUMBER if variable.most is None else variable.most
    if not bottom <= least <= top:
        return "is out of range", wanted
    if least % variable.multiple:
        return f"is no multiple of {variable.multiple}", wanted
    return None


def _wanted(variable: Variable) -> str:
    if variable.kind == "flag":
        return "Write 0 or 1."
    what = "bytes" if variable.kind == "size" else "a number"
    least, most = variable.least, variable.most
    limits = "" if least is None else f" from {least} on"
    if least is not None and most is not None:
        limits = f" from {least} to {most}"
    if variable.multiple > 1:
        limits += f" in steps of {variable.multiple}"
    return f"Write {what}{limits}."


def _choice_fault(variable: Variable, value: str, version: str | None) -> tuple[str, str] | None:
    text = value.strip()
    if variable.is_exact and text not in variable.values and text.upper() in variable.values:
        return "is ignored, because capitals matter here", f"Write {text.upper()}."
    return _token_fault(variable, text, version)


def _token_fault(variable: Variable, token: str, version: str | None) -> tuple[str, str] | None:
    """What is wrong with one of the words that a variable takes."""
    values = {value.lower(): value for value in variable.values}
    if token.lower() not in values:
        near = get_close_matches(token.lower()[:_MOST_SHOWN], values, n=1)
        hint = f"Did you mean {values[near[0]]}?" if near else ""
        return f"has {shown(token)!r}, which is none of {', '.join(variable.values)}", hint
    since = variable.values_since.get(values[token.lower()], "")
    if version and since and is_before(version, since):
        return f"has {token}, which NCCL knows from {since} on", "Leave it out."
    return None


def _blank(value: str) -> tuple[str, str] | None:
    """A blank beside a comma belongs to the name beside it, so that nothing is called so."""
    if re.search(r"[,^=]\s|\s,", value):
        return "has a blank, which counts as part of a name", "Write it without blanks."
    return None


def _list_fault(variable: Variable, value: str, version: str | None) -> tuple[str, str] | None:
    if wrong := _blank(value):
        return wrong
    for token in value.removeprefix("^").split(variable.separator):
        if token.startswith("^"):
            return "has ^ inside, which counts at the beginning alone", "Write ^ once, in front."
        if token and (wrong := _token_fault(variable, token, version)):
            return wrong
    return None


def _tuning_fault(variable: Variable, value: str, version: str | None) -> tuple[str, str] | None:
    """As NCCL's lists by collective: "ring;allreduce:^tree,nvls"."""
    is_old = version is not None and is_before(version, _LISTS_BY_COLLECTIVE)
    if is_old and re.search("[:;]", value):
        return f"has lists by collective, known from {_LISTS_BY_COLLECTIVE} on", "Write one list."
    for place, section in enumerate(value.split(";")):
        collective, colon, tokens = section.partition(":")
        if colon and collective.lower() not in _COLLECTIVES:
            near = get_close_matches(collective.lower()[:_MOST_SHOWN], _COLLECTIVES, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Name one of {', '.join(_COLLECTIVES)}."
            return f"has {shown(collective)!r}, which is no collective of NCCL's lists", hint
        if not colon and place and section:
            return "has a second list without a collective", "Write collective:list."
        if wrong := _list_fault(variable, tokens if colon else section, version):
            return wrong
    return None
