"""Text as people paste it, without what others put around it: colours, marks of quotes, links and
entities of forums, breaks at the width of a terminal, the JSON of log drivers, and what stands
before every line.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html import unescape

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)"
    r"|[()][0-9A-B]|[@-_])?"
    # colours of which the escape was shown as text, or was lost
    r"|(?:\^\[|\\(?:u001b|x1b|033|e))\[[\d;]{0,20}m"
    r"|\[(?:[0147]|0[0-9]|[349][0-7]|10[0-7]|\d{1,3}(?:;\d{1,3}){1,4})m(?!\])|[\x80-\x9f]"
)
# a link that a forum made of a host or an address
_LINK = re.compile(
    r"\[([^\[\]]{1,200})\]\((?:https?|mailto):[^()\s]{1,400}\)|<(?:https?://)([^<>\s]{1,200})>"
)
# blanks and marks that no tool prints, and a minus sign
_SIGNS = dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x3000), " ") | {
    0x200B: "",
    0xFEFF: "",
    0x2212: "-",
}
_QUOTED = re.compile(r"\A(?:> ?)+")
_ENTITY = re.compile(r"&(?:\w{2,8}|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
_MARKDOWN = re.compile(r"\\([#_*\[\]])")
_HEADING = re.compile(r"#{2,6}\s+(?=\D)")  # of Markdown; with one # it may be a tool's comment
# what log drivers that write a JSON object a line call the text of the line
_KEYS = ("log", "message", "msg", "line", "body", "MESSAGE", "textPayload")
_ERROR_KEYS = ("error", "err", "exception", "exc_info", "stacktrace")  # and what went wrong
# what may stand before such an object: a time, a stream, a pod or a container
_BEFORE_ENTRY = re.compile(r"[^{\"']{1,120}[ \t]")
_CUT_ENTRY = re.compile(rf'\{{.{{0,2000}}?"(?:{"|".join(_KEYS)})"\s?:\s?"((?:[^"\\]|\\.)*)')
# what a container's runtime writes before a line (CRI), and before a part of one that is too long
_PARTED = re.compile(r"\d{4}-\d\d-\d\dT\S{8,40} (?P<stream>stdout|stderr) (?P<tag>[PF]) ")
_MOST_PARTED = 1 << 20  # characters of a line in parts
_NARROWEST, _WIDEST = 60, 200  # columns of terminals
WORD = 12  # columns that are free where the next word of a table does not fit, or was only blanks
# how a line begins that is no rest; characters by which a tag of all lines is told
_HEAD, _TAG = re.compile(r"[#$|](?:\s|\Z)"), 8
_TOKEN = re.compile(r"\d+|\s+|[A-Za-z]+|.")
_CALENDAR = re.compile(
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)\Z"
)
_HALF_OF_DAY = re.compile(r"[AP]M\Z")
_PREFIX_END = re.compile(r"(?!:[0-9a-fA-F]{2}[:.])[:\])>|] ?|\dZ | [FP] |^\s{0,9}\d{1,9}\t|^\+")
_LONGEST_PREFIX, _FEWEST_PREFIXED = 120, 3
# of a table of devices, no prefix
_LABEL = re.compile("GPU|NIC|mlx|Link")


def plain(line: str) -> str:
    r"""A line without its end, colours, marks of quotes, links, entities and hard blanks.

    >>> plain("> \x1b[33mn1:7:7 [0] NCCL INFO a &lt;b&gt;\x1b[0m \r\n")
    'n1:7:7 [0] NCCL INFO a <b>'
    """
    line = line.rstrip()
    if line.startswith(">"):
        line = _QUOTED.sub("", line)
    if "&" in line:
        line = _ENTITY.sub(lambda match: unescape(match[0]), line)
    is_shown = "[0m" in line or "^[" in line or "\\u001b" in line or "\\033" in line
    if is_shown or "\x1b" in line or not line.isascii():
        line = _ESCAPE.sub("", line).translate(_SIGNS).rstrip()
    if "](" in line or "://" in line:
        line = _LINK.sub(lambda match: match[1] or match[2], line)
    if line.startswith("##"):
        line = _HEADING.sub("", line, count=1)
    return _MARKDOWN.sub(r"\1", line) if "\\" in line else line


def entry_of(line: str) -> str | None:
    r"""The text of a line that a log driver wrote as a JSON object, behind the tag before it; None
    of any other.

    >>> entry_of('{"log":"step \\"1\\"\\n","stream":"stderr","time":"2024"}'), entry_of("{}")
    ('step "1"\n', None)
    >>> entry_of('[pod/a-0/main] {"msg": "step 1", "error": "no memory", "level": "error"}')
    '[pod/a-0/main] step 1 no memory'
    """
    if not line.startswith("{"):
        tag = _BEFORE_ENTRY.match(line)
        if tag is None or not line.startswith('{"', tag.end()) or not line.rstrip().endswith("}"):
            return None
        entry = entry_of(line[tag.end() :].rstrip())
        return None if entry is None else tag[0] + entry
    try:
        entry = json.loads(line, strict=False)
        texts = [entry[key] for key in _KEYS if isinstance(entry.get(key), str)]
        errors = [entry[key] for key in _ERROR_KEYS if isinstance(entry.get(key), str)]
        if texts and any(errors):
            texts = [" ".join((max(texts, key=len).rstrip("\n"), *errors))]
    except (ValueError, RecursionError):
        texts = []
    if not texts and (found := _CUT_ENTRY.match(line)):
        texts.append(found[1].replace("\\n", "\n").replace('\\"', '"'))
    return max(texts, key=len, default=None)


def unparted(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Numbered lines, of which a container's runtime wrote some in parts: all but the last of such
    a line have the tag P, and those of the other stream may stand between.

    >>> lines = ("stderr P NC", "stdout F a", "stderr F CL")
    >>> log = enumerate((f"2026-01-02T03:04:05.1Z {one}" for one in lines), 1)
    >>> [(number, line[23:]) for number, line in unparted(log)]
    [(2, 'stdout F a'), (3, 'stderr F NCCL')]
    """
    begun: dict[str, str] = {}
    number = 0
    for number, line in lines:
        found = _PARTED.match(line) if begun or " P " in line else None
        if found is None:
            yield number, line
            continue
        text = f"{line[: found.start('tag')]}F {line[found.end() :]}"
        if before := begun.pop(found["stream"], ""):
            text = before.rstrip("\r\n") + line[found.end() :]
        if found["tag"] == "P" and len(text) < _MOST_PARTED:
            begun[found["stream"]] = text
        else:
            yield number, text
    yield from ((number, text) for text in begun.values())


def plain_text(text: str) -> str:
    """All lines of a text so, out of the JSON of a log driver, which may part a line."""
    lines = re.sub(r"\r+\n?|[\u2028\u2029]", "\n", text).split("\n")
    lines = [line for _, line in unparted(enumerate(lines))]
    entries = [(line, entry_of(line)) for line in lines]
    if any(entry and entry.endswith("\n") for _, entry in entries):
        whole = (f"{line}\n" if entry is None else entry for line, entry in entries)
        lines = "".join(whole).removesuffix("\n").split("\n")
    else:
        lines = [line if entry is None else entry for line, entry in entries]
    return "\n".join(map(plain, lines))


def joined(text: str, free: int = 0, between: str = "") -> str:
    r"""A text in which each line as long as the longest has the one after it behind it, as where a
    terminal broke them; its place is empty then. It is for who can tell whether that was right.
    free: columns that a line may lack of that, such as WORD where its last blanks were cut, or
    where it was broken at words, which have `between` between them.

    >>> joined("a" * 80 + "\nb\nc") == "a" * 80 + "b\n\nc"
    True
    >>> joined("a" * 75 + "\nb\n" + "c" * 80, WORD, " ") == "a" * 75 + " b\n\n" + "c" * 80
    True
    """
    lines: list[str] = []
    given = text.replace("\r\n", "\n").split("\n")
    width, at, last = max(map(len, given)), 0, ""
    if not _NARROWEST <= width <= _WIDEST:
        return text
    for number, line in enumerate(given):
        is_whole = _HEAD.match(line) or line[:_TAG] == given[0][:_TAG]
        is_rest = len(last) >= width - free and not is_whole
        lines.append("" if is_rest else line)
        at = at if is_rest else number
        lines[at] += (between or " " * (width - len(last))) + line if is_rest else ""
        last = line
    return "\n".join(lines)


def form_of(prefix: str) -> str:
    r"""A prefix as a regular expression: each number a group.

    >>> form_of("Jan  2 03:04 node1: ")
    '\\s*[A-Z][a-z]{2}\\s*(\\d+)\\s+(\\d+):\\s*(\\d+)\\s+node\\s*(\\d+):\\s*'
    """
    parts, last = ["" if prefix[0].isspace() else r"\s*"], ""
    for match in _TOKEN.finditer(prefix):
        token = match[0]
        if token.isdigit():
            # a number may be padded: "[ 2.5]", "[12.5]"
            parts.append(r"(\d+)" if not last or last.isspace() else r"\s*(\d+)")
        elif token.isspace():
            # nothing but a number needs a space: "0:" of an empty line has lost the one behind it
            is_between = bool(last) and prefix[match.end() :][:1].isalpha()
            parts.append(r"\s+" if last.isdigit() or is_between else r"\s*")
        elif _CALENDAR.match(token):
            parts.append("[A-Z][a-z]{2}")
        elif _HALF_OF_DAY.match(token):
            parts.append("[AP]M")
        else:
            parts.append(re.escape(token))
        last = token
    return "".join(parts)


def without_prefix(lines: Sequence[str]) -> list[str]:
    r"""Lines without what a launcher or a logger wrote before every one, but for its numbers, where
    the last one may be cut.

    >>> without_prefix(["n-1  | a", "n-1  |  b", "n-1  |", "n-1  | c"])
    ['a', ' b', '', 'c']
    """
    told = [line for line in lines if line.strip()]
    first = told[0] if len(told) >= _FEWEST_PREFIXED else ""
    for end in reversed([one.end() for one in _PREFIX_END.finditer(first, 0, _LONGEST_PREFIX)]):
        prefix = first[:end]
        form = re.compile(f"{form_of(prefix.rstrip())}{' ?' * prefix.endswith(' ')}")
        if not _LABEL.search(prefix) and all(map(form.match, told[:-1])):
            return [form.sub("", line, count=1) for line in lines]
    return list(lines)
