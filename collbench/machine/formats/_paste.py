"""Lines of text as people paste it: without escapes of terminals, marks of quotes, tags of
launchers and time stamps.
"""

import re
from collections.abc import Iterator

from collbench.util.text import printable

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])"
)
# What a tag of a host may stand before; a legend has names before colons, too.
_KNOWN = r"(?=\s{0,9}(?:GPU ?\d|NIC\d|mlx\d|Link \d|(?:NIC )?Legend:|X {1,9}=|<))"
_TAGS = re.compile(
    r"(?:\s{0,3}>)"  # quoted in a mail or in Markdown
    r"|\[[\w.,:-]{1,64}\]<std(?:out|err)>:?|\[\d{1,5}\]:? |\[\w{1,9}\d{1,5}\]:"  # mpirun, torchrun
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}(?:Z|[+-]\d\d:?\d\d)? "
    rf"|\d{{1,5}}:{_KNOWN}|[\w.-]{{1,64}}:{_KNOWN}"  # srun -l, pdsh
)
_MOST_TAGS = 4
_DOCUMENT = re.compile(r"<(system|topology)[\s>]")


def lines(text: str) -> Iterator[str]:
    r"""Lines without what a terminal would have swallowed, and without tags.

    >>> list(lines("> \x1b[4mGPU0\x1b[0m\r\n[1,0]<stdout>:GPU0 X\n7: GPU1 X\nn-1: Link 0: 25 GB/s"))
    [' GPU0', 'GPU0 X', ' GPU1 X', ' Link 0: 25 GB/s']
    """
    plain = _ESCAPE.sub("", text).replace("\r", "")
    for line in plain.split("\n"):
        line = printable(line.replace("\t", " ").replace("\ufeff", "").replace("\xa0", " "))
        for _ in range(_MOST_TAGS):
            tag = _TAGS.match(line)
            if tag is None:
                break
            line = line[tag.end() :]
        yield line


def xml_document(text: str) -> str:
    r"""The XML in a text that has something before or behind it, or tags before its lines, with as
    many empty lines before it; the text itself where there is none.

    >>> xml_document("see:\n> <system version='1'>\n> </system>\nbye")
    "\n<system version='1'>\n </system>"
    """
    opening = None if text.lstrip().startswith(("<", "{")) else _DOCUMENT.search(text)
    if opening is None:
        return text
    whole = list(lines(text))
    first = next((n for n, line in enumerate(whole) if _DOCUMENT.search(line)), 0)
    end = f"</{opening[1]}>"
    last = next((n for n in range(first, len(whole)) if end in whole[n]), len(whole) - 1)
    inner = whole[first : last + 1]
    inner[0] = inner[0][_DOCUMENT.search(inner[0]).start() :] if first else inner[0]  # type: ignore[union-attr]
    inner[-1] = inner[-1].partition(end)[0] + (end if end in inner[-1] else "")
    return "\n".join(["\n" * (first - 1)] * bool(first) + inner)
