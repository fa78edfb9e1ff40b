"""What a line that no table knows says of itself: who speaks, of which call, and with which error
of the system, whose numbers have words.
"""

import errno
import functools
import os
import re
import signal

from collbench.core import catalog
from collbench.jobs.log_errors import KnownError, known_error, without_harmless

# numbers that are said to be of the system, or are below 0, as the kernel returns them; -1 says
# no more than that it failed, and those of gethostbyname are others
_NUMBER = re.compile(
    r"(?:\berrno\b\W{0,4}|\bErrno |\bCMA error |"
    r"\b(?:error|err|ret|rc|returned|(?<!non-zero )status|failed)\b[^\w-]{0,4}-(?!1\b))"
    r"(?P<number>\d{1,3})\b",
    re.IGNORECASE,
)
# how a process ended: below 0, or above 128, the signal that ended it
_EXIT = re.compile(
    r"\b(?:exit(?:ed|s)?|return(?=[ _]?code))[ _]?(?:with |code|status|value| ){0,4}[^\w-]{0,4}"
    r"(?P<code>-(?!1\b)\d{1,2}|1[2-5]\d)\b",
    re.IGNORECASE,
)
_EXITS = {126: "a program that cannot be executed", 127: "a program or library that is not found"}
_SIGNALS = {int(one): one.name for one in signal.Signals}
_RAISED = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Failure|Timeout)\b")
# words of CUDA are none of the system
_OF_CUDA = re.compile(r"\b(?:cuda|hip)\w*(?: runtime| driver)? (?:error|failure)", re.IGNORECASE)
_SOURCE = re.compile(r"[\w./-]+\.(?:py|cc?|cpp|cu|go|rs|h|hpp|jl|java)[:(]\d+")


def system_error(text: str) -> str:
    """The words of the system that a text has, or has the number of.

    >>> system_error("ret = -12"), system_error("exit code 127"), system_error("returned -1")
    ('Cannot allocate memory (ENOMEM)', 'a program or library that is not found', '')
    >>> [system_error(one) for one in ("exit code: 143", "CUDA error: denied", "wait 12")]
    ['ended by signal 15 (SIGTERM)', '', '']
    """
    small = "" if _OF_CUDA.search(text) else text.lower()
    found = max((one for one in _system_words() if one in small), key=len, default="")
    number = _system_words().get(found)
    if number is None and "gethostby" not in small and (match := _NUMBER.search(text)):
        number = int(match["number"])
    if name := errno.errorcode.get(number or 0):
        return f"{os.strerror(number or 0)} ({name})"
    code = int(ended["code"]) if (ended := _EXIT.search(text)) else 0
    number = -code if code < 0 else code - 128
    ended_by = f"ended by signal {number} ({_SIGNALS[number]})" if number in _SIGNALS else ""
    return _EXITS.get(code, ended_by)


def own_words(text: str, *, is_known: bool) -> tuple[str, str]:
    """What a text itself says of its cause, and what to do then, first by its own advice.
    is_known: what failed is told already, so that words of a mere failure say nothing more.

    >>> own_words("frob: cannot start: Permission denied", is_known=True)[0][:52]
    ' The line says Permission denied (EACCES): perhaps a'
    >>> own_words("frob failed, exit code 1", is_known=True)
    ('', '')
    >>> own_words("it failed. Try a smaller frob.", is_known=True)[1]
    'the text itself says "Try a smaller frob"'
    """
    error, hint = system_error(text), _hint(text)
    hint = None if hint and hint.is_general and is_known else hint
    found = re.search(catalog.load("causes", "words")["advice"], text, re.IGNORECASE)
    advice = [f'the text itself says "{found[0].strip()}"'] if found else []
    to_do = "; ".join([*advice, *([hint.change] if hint else [])])
    if hint and error and is_known:
        return f" The line says {error}: perhaps {hint.why}.", to_do
    if hint:
        return f" By its words, perhaps {hint.why}.", to_do
    return f" The line says {error}." if error and is_known else "", to_do


def says_why(text: str) -> bool:
    """Whether a text has words of a cause, and not of a failure or an end alone."""
    hint = _hint(text)
    return hint is not None and not hint.is_general


def _hint(text: str) -> KnownError | None:
    return known_error(f"{without_harmless(text)} {system_error(text)}", "words")


def said(text: str) -> str:
    """Who says a text, and of what; empty if it does not tell.

    >>> said("x.c:9 ibv_post_send failed, errno 22")
    'of libibverbs, which drives the adapter (ibv_post_send): Invalid argument (EINVAL)'
    >>> said("engine.py:12 KVError: it might be dead"), said("all is lost")
    ('of the program (KVError, engine.py:12)', '')
    >>> said("tool.c:231 FOO  ERROR no room"), said("bar: error: no room")
    ('of FOO (tool.c:231)', 'of bar')
    """
    error = system_error(text)
    found = ((name, match) for name, pattern in _speakers() if (match := pattern.search(text)))
    name, match = next(found, ("", None))
    who = name.format(*match.groups()) if match else ""
    parts = [match[0].strip(" :()[]")] if match and who == name else []
    for other in () if parts else (_RAISED.search(text), _SOURCE.search(text)):
        parts += [other[0].rpartition("/")[2]] if other else []
    if not who and not parts and not error:
        return ""
    of = f" ({', '.join(parts)})" if parts and parts[0] not in who else ""
    return f"of {who or 'the program'}{of}" + (f": {error}" if error else "")


@functools.cache
def _system_words() -> dict[str, int]:
    return {os.strerror(number).lower(): number for number in errno.errorcode}


@functools.cache
def _speakers() -> tuple[tuple[str, re.Pattern[str]], ...]:
    rows = catalog.load("causes", "words")["speakers"]
    return tuple((name, re.compile(pattern)) for name, pattern in rows)
