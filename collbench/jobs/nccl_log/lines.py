"""The header of a line of NCCL, wherever it stands in a line: host, process, thread, device, level.

Launchers, containers and loggers put prefixes before it, and other ranks write into the middle of a
line, so that the header is searched and one line may hold several.

Source: ncclDebugLog of NCCL 2.10 to 2.30 (src/debug.cc), and the strings of 2.32.3.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_MARK, _INFO = " NCCL ", " NCCL INFO"
_HEADER = re.compile(
    r"(?:(?P<host>[^\s:\[\]()|\"]{1,255}):(?P<pid>\d{1,10})(?::(?P<tid>\d{1,20}) |(?= NCCL DIAG ) )"
    # people take the host out of what they show, and leave the device
    r"(?:\[(?P<device>-?\d{1,6})\] )?|\[(?P<alone>-?\d{1,6})\] )"
    # of a warning: file:line and its function; of a trace: milliseconds, function:line
    r"(?:(?P<where>[\w./+~-]+:\d+) (?:\([^()]{0,200}\) )?"
    r"|\d+\.\d+ [\w:~<>]+:\d+ )?"
    r"NCCL (?P<level>INFO|WARN|ATTN|DIAG|TRACE|CALL|VERSION|ABORT)(?: |$)"
)
_AGAIN = re.compile(r" NCCL (?:INFO|WARN|ATTN|DIAG|TRACE|CALL|VERSION|ABORT)(?: |$)")
# people and loggers take the header away
_BARE = re.compile(
    r"(?:\A|[\s>\]:|`])(?:(?P<where>[\w./+~-]+\.(?:cc|h|cu):\d+) (?:\([^()]{0,200}\) )?)?"
    r"NCCL (?P<level>INFO|WARN|ATTN|DIAG) "
)
# what stands for a line's end where that was lost: in JSON, in a quoted text, between its strings;
# and what is too long for a name of a host, in which the search of headers is slow
_ENDS = re.compile(r"""[\r\0]+|(?:\\r)?\\n|["'], ?["']|[^\s:\[\]()|"'\\]{256,}""")
_QUOTES = ('"', "'", '["', "['")
_MOST_INTERLEAVED = 3  # ranks that write into one line
_CUT_NUMBER = re.compile(r"[-\d.]+\Z")  # of a table that another thread was printing
LONGEST = 4096  # characters of a line; NCCL cuts most of its own at 1024
_MOST_HOSTS = 2000  # among which the end of a host is searched
_MOST_HEADS = 4096  # kept; with timestamps every line has a head of its own


class LogSource(NamedTuple):
    """Who printed a line. device: as CUDA counts, -1 where it is not printed."""

    host: str
    pid: int
    tid: int
    device: int


class LogMessage(NamedTuple):
    """What one rank printed. where: file and line of NCCL's source that a warning names."""

    source: LogSource
    level: str
    where: str
    text: str


class Headers:
    """Splits lines into messages; keeps the hosts that it has seen."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self._known: dict[str, tuple[LogSource, str, str]] = {}

    def repeated(self, line: str) -> tuple[tuple[LogSource, str, str], str] | None:
        r"""Header and text of a line as logs have millions of: at level INFO, behind a header that
        has been seen before, with nothing in it that `plain` changes. Keep it fast.

        >>> headers, line = Headers(), "n1:7:9 [3] NCCL INFO Using network IB"
        >>> headers.repeated(line), [one.text for one in headers.messages(line)]
        (None, ['Using network IB'])
        >>> headers.repeated(line + "\n")[1], headers.repeated(line + " &amp; Socket")
        ('Using network IB', None)
        >>> headers.repeated(line.replace("INFO ", "INFO&"))
        """
        end = line.find(_INFO) + len(_INFO)
        known = self._known.get(line[:end])
        is_blank = line[end : end + 1] == " "
        if known is None or len(line) > LONGEST or line.startswith(_QUOTES) or not is_blank:
            return None
        text = line[end + 1 :].rstrip()
        if (
            "NCCL " in text
            or "&" in text
            or "\x1b" in text
            or "\\" in text
            or "://" in text
            or "](" in text
            or "[0m" in text
            or "^[" in text
            or not text.isascii()
        ):
            return None
        return known, text

    def messages(self, line: str) -> Iterator[LogMessage]:
        """The messages of a line; none if it has no header.

        >>> [one] = Headers().messages("[1,0]<stdout>:n1:7:9 [3] NCCL INFO Using network IB")
        >>> one.source, one.text
        (LogSource(host='n1', pid=7, tid=9, device=3), 'Using network IB')
        >>> both = "n1:7:9 [3] NCCL INFO Usin1:7:8 [2] NCCL INFO Connected all rings"
        >>> [one.text for one in Headers().messages(both)]
        ['Usi', 'Connected all rings']
        """
        at = line.find(_MARK)
        if at < 0:
            if _MARK[1:] in line:
                yield from self._searched(line)
            return
        # the commonest line: one header, which has been seen before
        if _AGAIN.search(line, at + 1) is None:
            start = line.find(" ", at + len(_MARK))
            head = line[:start] if start > 0 else line
            known = self._known.get(head)
            if known is not None:
                yield LogMessage(*known, line[len(head) + 1 :])
                return
        yield from self._searched(line)

    def is_beginning(self, line: str) -> bool:
        """Whether a line is the beginning of a known header, and no more."""
        return bool(line) and any(head.startswith(line) for head in self._known)

    def _searched(self, line: str) -> Iterator[LogMessage]:
        found = list(_HEADER.finditer(line))
        if not found and (bare := _BARE.search(line)):
            source = LogSource("", 0, 0, -1)
            yield LogMessage(source, bare["level"], bare["where"] or "", line[bare.end() :])
        for place, match in enumerate(found):
            end = len(line) if place + 1 == len(found) else found[place + 1].start()
            text = line[match.end() : end]
            host = self._known_end(match["host"] or "", is_behind=place > 0)
            self.hosts.add(host)
            if place + 1 < len(found):  # the next host may have the end of this message before it
                following = found[place + 1]["host"] or ""
                own = self._known_end(following, is_behind=True)
                text += following[: len(following) - len(own)]
                text = text.removesuffix(" | ")  # of a table that has a line twice
            device = match["device"] or match["alone"] or -1
            source = LogSource(host, int(match["pid"] or 0), int(match["tid"] or 0), int(device))
            head = (source, match["level"], match["where"] or "")
            if len(found) == 1 and match["level"] != "WARN":
                if len(self._known) >= _MOST_HEADS:
                    self._known.clear()
                self._known[line[: match.end()].rstrip(" ")] = head
            yield LogMessage(*head, text)

    def _known_end(self, host: str, *, is_behind: bool) -> str:
        """The known host that a text ends with, if what is before it is of another message."""
        if host in self.hosts or len(self.hosts) > _MOST_HOSTS:
            return host
        ends = [
            known
            for known in self.hosts
            if known
            and host.endswith(known)
            and (is_behind or _CUT_NUMBER.match(host[: -len(known)]))
        ]
        return max(ends, key=len, default=host)


def is_joined(line: str) -> bool:
    """Whether a line may be several: by two marks of NCCL, or as it is a quoted text."""
    return line.count(_MARK) > 1 or line.startswith(_QUOTES)


def parts_of(line: str) -> list[str]:
    r"""The lines in one whose line ends were lost, as far as something stands in their place.

    >>> parts_of('["n1:7:7 [0] NCCL INFO x", "step 1\\nstep 2"]'), parts_of("50%\r90%\r\n")
    (['["n1:7:7 [0] NCCL INFO x', 'step 1', 'step 2"]'], ['50%', '90%'])
    """
    return [part for part in _ENDS.split(line) if part.strip()]


def is_run_together(line: str) -> bool:
    """Whether several lines stand in one with nothing but blanks between them. Where ranks
    write into each other's lines, a host is mostly glued to the word that it cuts.

    >>> is_run_together("n1:7:7 [0] NCCL INFO x n1:7:8 [1] NCCL INFO y")
    True
    >>> is_run_together("n1:7:7 [0] NCCL INFO Usin1:7:8 [1] NCCL INFO Using network IB")
    False
    """
    hosts = [match["host"] for match in _HEADER.finditer(line)]
    marks = len(_AGAIN.findall(line))
    return marks > 1 and (
        marks > min(len(hosts), _MOST_INTERLEAVED) or len(set(hosts)) < len(hosts)
    )
