"""What a line that no table knows says of itself: who speaks, of which call, and with which error
of the system, whose numbers have words.
"""

import errno
import functools
import os
import re

from collbench.core import catalog

# numbers that are said to be of the system, or are below 0, as the kernel returns them; -1 says
# no more than that it failed
_NUMBER = re.compile(
    r"(?:\berrno\b\W{0,4}|\bErrno |"
    r"\b(?:error|err|ret|rc|returned|status|failed)\b[^\w-]{0,4}-(?!1\b))"
    r"(?P<number>\d{1,3})\b",
    re.IGNORECASE,
)
_RAISED = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Failure|Timeout)\b")
_SOURCE = re.compile(r"[\w./-]+\.(?:py|cc?|cpp|cu|go|rs|h|hpp|jl|java)[:(]\d+")


def system_error(text: str) -> str:
    """The words of the system that a text has, or has the number of.

    >>> system_error("ret = -12"), system_error("mmap: Permission denied"), system_error("wait 12")
    ('Cannot allocate memory (ENOMEM)', 'Permission denied (EACCES)', '')
    """
    small = text.lower()
    found = max((one for one in _system_words() if one in small), key=len, default="")
    number = _system_words().get(found)
    if number is None and (match := _NUMBER.search(text)):
        number = int(match["number"])
    name = errno.errorcode.get(number or 0)
    return f"{os.strerror(number or 0)} ({name})" if name else ""


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
