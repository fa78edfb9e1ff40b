"""Lines of a log without what launchers, containers and loggers put before each of them.

No launcher is known by its name. What stands before a tool's own headings is the prefix, and its
form is learned there: digits may differ from line to line, as may the names of months and days;
all else is constant. A prefix without its times and counters tells the streams apart that one log
mixes, such as ranks.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from collbench.core.pasted import form_of

# characters; the longest of nccl-tests has less than 300, NCCL's own are longer and of no use here
LONGEST_LINE = 4000
_LONGEST_PREFIX = 400
_MOST_FORMS = 16  # of prefixes in one log; a launcher, a container and a logger at once make one
_SHORTEST_REPEATED = 3  # characters of a prefix that may stand in the middle of a line again
_TIME = re.compile(
    r"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?/\d\d?/\d{2,4}"  # dates
    r"|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?:\s?[AP]M\b)?"  # of a day
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}\b"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b"
    r"|(?<![\d.])\d+\.\d{3,}(?![\d.])"  # seconds since a start
    r"|\b1\d{9,18}\b"  # seconds, or parts of them, since 1970
    r"|\b[IWEF]\d{4}\b"  # a level with month and day
)


# of one that is repeated
_COUNT = re.compile(r"\b(?:run|iter\w*|trial|repeat\w*|round|rep|pass)\W{0,3}\d+", re.IGNORECASE)
_LOGGED = re.compile(r"\b(INFO|WARN(?:ING)?|DEBUG|TRACE|ERROR)\b|^(real|user|sys)\s|^\[\S+:\d+\]")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,200}>|^\s*(?:```|~~~)\w{0,20}\s*$")  # no words of anybody
_WORD = re.compile(r"[^\W\d_]{2}|^\s*[A-Z](?:[:.)]|\s*\Z)")  # or a letter, as of run A
_MOST_WORDS = 80  # characters, that are nearest to the table
_MASK = "~"
_MASKED = re.compile(r"\s*~+\s*")


_ROW = re.compile(r"\s*\d+\s+\d")  # of a table: a size, and a count or a time
_Kinds: TypeAlias = tuple[bool, bool]  # whether there are headings, and rows


class Line(NamedTuple):
    """A line without its prefix. stream: the prefix without its times, "" where there is none."""

    number: int
    stream: str
    text: str
    whole: str


def words_above(before: str, line: Line) -> str:
    """The words that may say what the next table is of, without times and counts: those of a line,
    else those before it.

    >>> words_above("", Line(1, "", "== pair 0,1 run 2/9 17:17:30 ==", ""))
    '== pair 0,1 ~/9 ~ =='
    >>> words_above("", Line(1, "", "H", "")), words_above("", Line(1, "", "A: 升级", ""))
    ('H', 'A: 升级')
    """
    said = _COUNT.sub(_MASK, _TIME.sub(_MASK, _MARKUP.sub("", line.text)))
    is_said = _WORD.search(said) and not _LOGGED.search(line.text)
    return said[-_MOST_WORDS:] if is_said else before


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1 on; neither empty nor so long that they can be no row."""
    return (
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line and len(line) <= LONGEST_LINE
    )


def log_lines(text: str, heading: re.Pattern[str]) -> list[Line]:
    r"""The lines of a log. heading: what only the tool itself prints, at the start of a line.

    >>> text = "[1,0]<out>:# size\n[1,1]<out>:a warning\n[1,0]<out>: 8\nend\n"
    >>> [line[1:3] for line in log_lines(text, re.compile("# size"))]
    [('[1,0]<out>:', '# size'), ('[1,1]<out>:', 'a warning'), ('[1,0]<out>:', '8'), ('', 'end')]
    """
    numbered = list(lines_of(text))
    forms = _forms(numbered, heading)
    matched = [
        next((match for form in forms if (match := form.match(line))), None) for _, line in numbered
    ]
    counters = _counters(numbered, matched, heading)
    lines = [
        _line(number, line, match, counters, heading)
        for (number, line), match in zip(numbered, matched, strict=True)
    ]
    return list(_with_continued(lines, heading))


def _with_continued(lines: Iterable[Line], heading: re.Pattern[str]) -> Iterator[Line]:
    """The lines, those that a backslash continues in one with what follows in their stream."""
    begun: dict[str, str] = {}
    for line in lines:
        before = begun.pop(line.stream, "")
        if line.text.endswith("\\") and len(before) < LONGEST_LINE:
            begun[line.stream] = f"{before}{line.text[:-1]} "
        elif before and not heading.match(line.text):
            yield line._replace(text=before + line.text)
        else:
            yield line


def _forms(lines: Sequence[tuple[int, str]], heading: re.Pattern[str]) -> list[re.Pattern[str]]:
    """The forms of the prefixes of headings, longest first, of those that two lines have."""
    seen: dict[str, int] = {}
    for _, line in lines:
        match = heading.search(line)
        if match and 0 < match.start() <= _LONGEST_PREFIX and line[: match.start()].strip():
            form = form_of(line[: match.start()])
            if form in seen or len(seen) < _MOST_FORMS:
                seen[form] = seen.get(form, 0) + 1
    forms = [re.compile(form) for form in sorted(seen, key=len, reverse=True)]
    return [form for form in forms if _has_two(form, lines)]


def _has_two(form: re.Pattern[str], lines: Sequence[tuple[int, str]]) -> bool:
    found = (line for _, line in lines if form.match(line))
    return next(found, None) is not None and next(found, None) is not None


def _counters(
    lines: Sequence[tuple[int, str]],
    matched: Sequence[re.Match[str] | None],
    heading: re.Pattern[str],
) -> dict[re.Pattern[str], set[int]]:
    """Of each form the groups that count lines or seconds, and tell no programs apart: a number
    that does has a heading for each of its values that has rows.

    A number counts if a row stands under a value without a heading, or if it never falls and has
    values without one.
    """
    last: dict[re.Pattern[str], list[int]] = {}
    growing: dict[re.Pattern[str], set[int]] = {}
    seen: dict[tuple[re.Pattern[str], int], dict[int, _Kinds]] = {}
    for (_, line), match in zip(lines, matched, strict=True):
        if match is None:
            continue
        numbers = [int(group[:18]) for group in match.groups()]
        before = last.setdefault(match.re, numbers)
        growing.setdefault(match.re, set(range(len(numbers))))
        growing[match.re] -= {at for at in growing[match.re] if numbers[at] < before[at]}
        last[match.re] = numbers
        is_heading = heading.match(line, match.end()) is not None
        is_row = not is_heading and _ROW.match(line, match.end()) is not None
        for at, number in enumerate(numbers):
            kinds = seen.setdefault((match.re, at), {})
            had_heading, had_row = kinds.get(number, (False, False))
            kinds[number] = had_heading or is_heading, had_row or is_row
    counters: dict[re.Pattern[str], set[int]] = {form: set() for form in growing}
    for (form, at), kinds in seen.items():
        without = [has_row for has_heading, has_row in kinds.values() if not has_heading]
        if any(without) or (without and at in growing[form]):
            counters[form].add(at)
    return counters


def _line(
    number: int,
    line: str,
    match: re.Match[str] | None,
    counters: dict[re.Pattern[str], set[int]],
    heading: re.Pattern[str],
) -> Line:
    if match is None:
        own = heading.search(line)  # what stands before it is of no other line
        text = line[own.start() :] if own else line
        return Line(number, "", text.strip(), line)
    prefix = match[0]
    text = line[match.end() :]
    # Open MPI writes the tag again where a line comes in parts.
    if len(prefix.strip()) >= _SHORTEST_REPEATED and prefix.strip() in text:
        text = text.replace(prefix.strip(), " ")
    spans = [one.span() for one in _TIME.finditer(prefix)]
    spans += [match.span(place + 1) for place in counters[match.re]]
    for start, end in spans:
        prefix = prefix[:start] + _MASK * (end - start) + prefix[end:]
    return Line(number, _MASKED.sub(_MASK, " ".join(prefix.split())), text.strip(), line)
