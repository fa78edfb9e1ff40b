"""XML as a tree of elements that know their lines, for files from anyone: bounded, and no entity is
ever defined or fetched.

Not ElementTree: it forgets where an element stood, and has no bound on depth or number.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from xml.parsers import expat

from collbench.core.errors import UsageError
from collbench.core.text import escaped

_MAX_DEPTH = 200  # the deepest real ones, hwloc's of nested PCIe switches, have less than 40
_MAX_ELEMENTS = 500_000  # hwloc writes about 10 for a core
_MAX_ATTRIBUTES = 64
_MAX_TEXTS = 1_000_000  # hwloc's matrices: NUMA nodes squared
_CHARACTERS = 1 << 16  # fed to expat at once, so that it stops soon after what is refused
# a tag or a comment: expat before 2.6 looks through an unfinished one again with every piece
_MAX_TOKEN_BYTES = 1 << 20
_ENDED = tuple(
    expat.errors.codes[text]
    for text in (expat.errors.XML_ERROR_NO_ELEMENTS, expat.errors.XML_ERROR_UNCLOSED_TOKEN)
)
# hwloc's files open with their document type, which says where a definition would be; nobody
# fetches it.
_DOCTYPES = {("topology", "hwloc.dtd"), ("topology", "hwloc2.dtd"), ("topology", "hwloc3.dtd")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element: its attributes in order, its children, the texts between them, its place."""

    tag: str
    attributes: dict[str, str]
    file: str
    line: int
    children: list["Element"] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """File and line, to begin a message with."""
        return f"{self.file}, line {self.line}"

    def of(self, *tags: str) -> Iterator["Element"]:
        """Children with one of those tags."""
        return (child for child in self.children if child.tag in tags)

    def get(self, key: str) -> str:
        """An attribute, or nothing."""
        return self.attributes.get(key, "")

    def number(self, key: str, default: int) -> int:
        """An attribute that is a whole number, decimal or 0x..; the default if it is missing or
        empty. Raises UsageError for another.
        """
        text = self.get(key).strip()
        if not text:
            return default
        try:
            return int(text, 16 if text.lower().startswith(("0x", "-0x")) else 10)
        except ValueError:
            raise self.wrong(key, "is no whole number") from None

    def wrong(self, key: str, why: str) -> UsageError:
        """The error that an attribute is."""
        return UsageError(
            f"{self.place}: {key} of <{self.tag}> is '{self.get(key)[:40]}', which {why}"
        )


class _Stop(Exception):  # noqa: N818 - not an error
    """The root is known."""


def root_tag(text: str) -> str:
    """The tag of the root element, or nothing where none is found; the rest is not looked at.

    >>> root_tag('<!-- made by hand --> <system version="1">'), root_tag("GPU0")
    ('system', '')
    """
    if not text.lstrip().startswith("<"):
        return ""
    tree = _XmlBuilder("", is_root_enough=True)
    with suppress(_Stop, UsageError):
        tree.feed(text)
    return tree.root[0].tag if tree.root else ""


def parse(text: str, name: str, *, may_be_cut: bool = False) -> Element:
    """The root element of a file. Raises UsageError with line and column for what is not XML, and
    for a document type that defines things. may_be_cut: what stands before the end is enough.
    """
    tree = _XmlBuilder(name, may_be_cut=may_be_cut)
    tree.feed(text)
    return tree.root[0]


class _XmlBuilder:
    """What expat calls while it reads one file."""

    def __init__(
        self, name: str, *, is_root_enough: bool = False, may_be_cut: bool = False
    ) -> None:
        self.name, self.is_root_enough, self.may_be_cut = name, is_root_enough, may_be_cut
        self.root: list[Element] = []
        self.open: list[Element] = []
        self.count = self.texts = self.skipped = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters

    @property
    def line(self) -> int:
        return self.parser.CurrentLineNumber + self.skipped

    def feed(self, text: str) -> None:
        # an empty line before <?xml is common in pasted files, and harmless
        start = len(text) - len(text.lstrip())
        self.skipped = text.count("\n", 0, start)
        fed = 0
        try:
            for place in range(start, len(text), _CHARACTERS):
                piece = text[place : place + _CHARACTERS].encode()
                fed += len(piece)
                self.parser.Parse(piece, False)
                if fed - max(self.parser.CurrentByteIndex, 0) > _MAX_TOKEN_BYTES:
                    raise self.refusal(
                        f"a tag or a comment of more than {_MAX_TOKEN_BYTES >> 20} MiB"
                    )
            self.parser.Parse(b"", True)
        except expat.ExpatError as error:
            if self.may_be_cut and self.open and error.code in _ENDED:
                return
            where = f"line {error.lineno + self.skipped}, column {error.offset + 1}"
            raise UsageError(
                f"{self.name}, {where}: not XML: {expat.ErrorString(error.code)}",
                self.hint(error.code),
            ) from None
        except UnicodeEncodeError:
            raise UsageError(f"{self.name}: holds characters that no file can hold") from None

    def refusal(self, what: str, hint: str = "") -> UsageError:
        return UsageError(f"{self.name}, line {self.line}: {what}", hint)

    def hint(self, code: int) -> str:
        if not self.open:
            return "is the file cut off?" if code in _ENDED else ""
        return (
            f"<{self.open[-1].tag}> of line {self.open[-1].line} is still open: is the file cut"
            " off?"
        )

    def doctype(
        self, name: str, system: str | None, public: str | None, has_internal_subset: int
    ) -> None:
        if has_internal_subset or public or (name, system) not in _DOCTYPES:
            raise self.refusal(
                f"a document type (<!DOCTYPE {name[:40]}) that could define entities is refused",
                "no tool whose files are read here writes one but hwloc, whose own is accepted",
            )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        values = {key: escaped(value) for key, value in attributes.items()}
        element = Element(tag=tag, attributes=values, file=self.name, line=self.line)
        self.count += 1
        if len(self.open) == _MAX_DEPTH:
            raise self.refusal(f"elements nest more than {_MAX_DEPTH} deep")
        if self.count > _MAX_ELEMENTS:
            raise self.refusal(f"more than {_MAX_ELEMENTS} elements")
        if len(attributes) > _MAX_ATTRIBUTES:
            raise self.refusal(
                f"<{tag[:40]}> has {len(attributes)} attributes, more than {_MAX_ATTRIBUTES}"
            )
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root.append(element)
        self.open.append(element)
        if self.is_root_enough:
            raise _Stop

    def end(self, tag: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        if self.open and not text.isspace():
            texts = text.split()
            self.texts += len(texts)
            if self.texts > _MAX_TEXTS:
                raise self.refusal(f"more than {_MAX_TEXTS} words between elements")
            self.open[-1].texts.extend(texts)
