"""Lines of text as people paste it: without escapes of terminals, marks of quotes, tags of
launchers and logs, time stamps, and without the markup of HTML and of Markdown's tables.
"""

import html
import re
from collections.abc import Iterator

from collbench.core import xml_tree
from collbench.core.pasted import entry_of, plain_text, without_prefix
from collbench.core.text import printable

# What a tag of a host may stand before; a legend has names before colons, too.
_KNOWN = r"(?=\s{0,9}(?:GPU ?\d|NIC\d|mlx\d|Link \d|(?:NIC )?Legend:|X {1,9}=|<))"
_TAGS = re.compile(
    r"(?:\s{0,3}>)"  # quoted in a mail or in Markdown
    r"|\[[\w.,:-]{1,64}\]<std(?:out|err)>:?|\[\d{1,5}\]:? |\[\w{1,9}\d{1,5}\]:"  # mpirun, torchrun
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}(?:Z|[+-]\d\d:?\d\d)? "
    rf"|\d{{1,5}}:{_KNOWN}|(?!NIC\d)[\w.-]{{1,64}}:{_KNOWN}"  # srun -l, pdsh
)
_MOST_TAGS = 4
_COLUMN_MARKS = str.maketrans("|│┃║\t", " " * 5)
_RULED_LINE = re.compile(r"[\s:+─━┼├┤-]+")  # below the header of a Markdown table
_LINE_END = re.compile(r"<(?:br\s?/?|/(?:tr|p|div|li))>", re.IGNORECASE)
_MARKUP = re.compile(
    r"</?(?:pre|code|span|div|p|td|th|tr|tbody|thead|table|b|html|body|details|summary)"
    r"(?:\s[^<>]{0,200})?>",
    re.IGNORECASE,
)
_MAX_DOCUMENT_CHARS = 8 << 20  # of XML with something around it
_DOCUMENT = re.compile(r"<(system|topology)[\s>]")


def lines(text: str) -> Iterator[str]:
    r"""Lines without what a terminal would have swallowed, and without tags.

    >>> list(lines("> \x1b[4mGPU0\x1b[0m\r\n[1,0]<stdout>:GPU0 X\n7: GPU1 X\nn-1: Link 0: 25 GB/s"))
    ['GPU0', 'GPU0 X', ' GPU1 X', ' Link 0: 25 GB/s']
    """
    plain = plain_text(text)
    if "<" in plain:
        plain = _MARKUP.sub(" ", _LINE_END.sub("\n", plain))
    pasted = plain.split("\n")
    if not any(map(str.strip, pasted[1::2])):  # each line end was doubled
        pasted = pasted[::2]
    for line in without_prefix(pasted):
        line = printable(line.translate(_COLUMN_MARKS))
        for _ in range(_MOST_TAGS):
            tag = _TAGS.match(line)
            if tag is None:
                break
            line = line[tag.end() :]
        yield "" if _RULED_LINE.fullmatch(line) else line


def xml_document(text: str) -> str:
    r"""The XML in a text that has something before or behind it, or tags before its lines, with as
    many empty lines before it; the text itself where there is none.

    >>> xml_document("see:\n> <system version='1'>\n> </system>\nbye")
    "\n<system version='1'>\n</system>"
    """
    if "&lt;system" in text or "&lt;topology" in text:
        text = html.unescape(text)
    is_entry = entry_of(text.lstrip().partition("\n")[0]) is not None
    is_bare = (text.lstrip().startswith("{") and not is_entry) or (
        # of another root, such as HTML's; none where the XML is not well-formed
        text.lstrip().startswith("<") and xml_tree.root_tag(text) in ("", "system", "topology")
    )
    opening = None if is_bare else _DOCUMENT.search(text, 0, _MAX_DOCUMENT_CHARS)
    if opening is None or len(text) > _MAX_DOCUMENT_CHARS:
        return text
    whole = list(lines(text))
    first = next((n for n, line in enumerate(whole) if _DOCUMENT.search(line)), 0)
    end = f"</{opening[1]}>"
    last = next((n for n in range(first, len(whole)) if end in whole[n]), len(whole) - 1)
    inner = whole[first : last + 1]
    inner[0] = inner[0][_DOCUMENT.search(inner[0]).start() :] if first else inner[0]  # type: ignore[union-attr]
    inner[-1] = inner[-1].partition(end)[0] + (end if end in inner[-1] else "")
    return "\n".join(["\n" * (first - 1)] * bool(first) + inner)
