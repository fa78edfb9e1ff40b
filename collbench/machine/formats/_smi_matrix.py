"""Tables of nvidia-smi topo in a text, also where lines were wrapped or lost."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collbench.core.errors import UsageError
from collbench.machine.topology.model import P2P, P2P_MEANINGS

# the last: NICs by their names, before driver 515
_DEVICE = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|[a-z]\w{1,30}\d")
_CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV[1-9]\d?")
_HEADLESS = re.compile(
    r"\s*(?P<label>(?:GPU|NIC)\d{1,4})(?P<cells>(?:\s+(?:X|PIX|PXB|PHB|NODE|SYS|NV[1-9]\d?)(?!\S))+)"
)
_STATUS = re.compile("|".join(("X", *P2P_MEANINGS)))
# cells and labels that lost the space between them
_CELLS = re.compile(r"PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV[1-9]\d?|OK|CNS|GNS|TNS|X")
# NV1 may be of NV18
_CUT_LAST = re.compile(r"P|PI|PX|PH|N|NO|NOD|NV\d?|S|SY|SO|O|C|CN|G|GN|T|TN|D")
_CUT_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # each told by its first two letters
_CUT_CELL = re.compile("[A-Z]{1,3}")
_LABELS = re.compile(r"(?:GPU|NIC)\d{1,4}")
_HEADS = ("CPU", "NUMA", "GPU", "Affinity", "ID")  # of the columns behind the matrix
_BEHIND = re.compile(r"[\d,-]{1,4000}|N(?:/A?)?|/?A")
OF_OPTION = {what[0]: what for what in P2P}
_COMMAND = re.compile(r"-p2p\s{1,9}([rwanp]{1,5})\b|topo\s{1,9}(?:-m\b|--matrix)")
_P2P_FILE_NAME = re.compile(r"p2p[-_. ]{0,2}([rwanp]{1,5})(?![a-z])", re.IGNORECASE)
_OLD = {"SOC": "SYS", "PSB": "PIX"}  # names of drivers before 384; PSB: both GPUs of one K80 board
_MAX_DEVICES = 256
_MAX_HEADER_CHARS = 8192  # of all lines that a terminal made of it


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiMatrix:
    """One table. cells: by (row, column), as far as it has them, those of lost rows from the
    columns. rest: the cells behind the matrix, by row. query: "m", or letters of r, w, a, n, p of
    -p2p; empty if the text does not say which. lost: labels without a row or a column.
    """

    line: int
    labels: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    rest: Mapping[str, tuple[str, ...]]
    query: str
    lost: tuple[str, ...] = ()


def is_header(line: str) -> bool:
    """Whether a line is the header of a matrix.

    >>> is_header(" GPU0 GPU1 CPU Affinity"), is_header("GPU0 X NV4"), is_header("GPU0 is slow")
    (True, False, False)
    """
    cells = line.split(maxsplit=2)
    return (
        bool(cells)
        and re.fullmatch(r"GPU\d{1,4}", cells[0]) is not None
        and (len(cells) == 1 or _is_label(_parted(cells[1], _LABELS)[0]))
    )


def headed(lines: Sequence[str]) -> list[str]:
    """The lines, with a heading above the rows of a matrix that lost it, as far as they tell it:
    each has X in the column of its own, and only GPUs have NVLinks. Columns behind, of which no row
    tells whose they are, get none.

    >>> headed(["GPU1 NV4 X SYS", "NIC0 SYS SYS X"])[0], headed(["GPU0 X NV4 PIX", "GPU1 NV4 X"])[0]
    ('GPU0 GPU1 NIC0', 'GPU0 GPU1')
    """
    found = [(at, row) for at, line in enumerate(lines) if (row := _HEADLESS.match(line))]
    rows = {row["label"]: row["cells"].split() for _, row in found}
    places = {cells.index("X"): label for label, cells in rows.items() if cells.count("X") == 1}
    width = max(map(len, rows.values()), default=0)
    nics = (place - int(label[3:]) for place, label in places.items() if label.startswith("NIC"))
    linked = (at for cells in rows.values() for at, cell in enumerate(cells) if cell[:2] == "NV")
    told_gpus = 1 + max((*places, *linked), default=0)
    first_nic = next(nics, told_gpus)
    width = width if first_nic < told_gpus else told_gpus
    labels = [f"GPU{at}" if at < first_nic else f"NIC{at - first_nic}" for at in range(width)]
    is_told = len(places) > 1 and all(labels[at] == label for at, label in places.items())
    if not is_told or width > _MAX_DEVICES or any(map(is_header, lines)):
        return list(lines)
    return [*lines[: found[0][0]], " ".join(labels), *lines[found[0][0] :]]


def matrices(lines: Sequence[str], name: str) -> Iterator[SmiMatrix]:
    """Every table of the text. A command line before it, or else the file's name, tells which
    output of -p2p it is.
    """
    query = ""
    number = 0
    while number < len(lines):
        commands = list(_COMMAND.finditer(lines[number]))
        if commands:
            query = commands[-1][1] or "m"
        if is_header(lines[number]):
            matrix, number = _Table(lines, number, name).read(query)
            query = ""
            yield matrix
        else:
            number += 1


class _Table:
    """The table below a header."""

    def __init__(self, lines: Sequence[str], header: int, name: str) -> None:
        self._lines, self._header, self._name = lines, header, name
        self._place = f"{name}, line {header + 1}"
        self._width = max(map(len, lines))  # of the terminal, where it broke lines
        self._labels: tuple[str, ...] = ()
        self._cells: dict[tuple[str, str], str] = {}
        self._rest: dict[str, tuple[str, ...]] = {}
        self._lost: list[str] = []  # labels of rows without a column

    def read(self, query: str) -> tuple[SmiMatrix, int]:
        """The matrix, and the number of the line behind it."""
        number = self._read_header()
        while number < len(self._lines) and len(self._rest) < len(self._labels):
            row = self._lines[number].split()
            if row and row[0] not in self._labels:
                break
            number = self._read_row(row[0], number) if row else number + 1
        while number < len(self._lines) and (below := _HEADLESS.match(self._lines[number])):
            if below["label"] in self._rest:
                break
            self._lost.append(below["label"])  # its column is cut off
            number = self._read_row(below["label"], number)
        if len(self._rest) < len(self._labels) and not self._has_a_pair():
            lost = [label for label in self._labels if label not in self._rest]
            raise UsageError(
                f"{self._place}: the row of {lost[0]} is missing: is the text cut off?"
            )
        kinds = set(self._cells.values()) - {"X"}
        is_p2p = all(_STATUS.fullmatch(kind) for kind in kinds) and (
            kinds or query not in ("", "m")
        )
        if not is_p2p and not all(_CLASS.fullmatch(kind) for kind in kinds):
            raise UsageError(f"{self._place}: the matrix mixes connections and P2P states")
        if not is_p2p:
            query = "m"
        elif query in ("", "m"):
            in_name = _P2P_FILE_NAME.search(self._name.rpartition("/")[2])
            query = in_name[1].lower() if in_name else ""
        return self._matrix(query), number

    def _matrix(self, query: str) -> SmiMatrix:
        lost = (*(label for label in self._labels if label not in self._rest), *self._lost)
        back = {(b, a): cell for (a, b), cell in self._cells.items() if a in lost or b in lost}
        return SmiMatrix(
            line=self._header + 1,
            labels=(*self._labels, *self._lost),
            cells=self._cells | back | {(label, label): "X" for label in lost},
            rest=dict.fromkeys(lost, ()) | self._rest,
            query=query,
            lost=lost,
        )

    def _has_a_pair(self) -> bool:
        return any(a != b for a, b in self._cells)

    def _read_header(self) -> int:
        """Read the labels, also of lines that continue the header; returns the next line."""
        number, text = self._header + 1, self._lines[self._header]
        while (
            number < len(self._lines)
            and len(text) < _MAX_HEADER_CHARS
            and (words := self._lines[number].split())
        ):
            is_row = len(words) > 1 and _is_cell(_parted(words[1], _CELLS)[0])
            further = self._glued(text, number)
            if not _are_labels(further):
                # another line of the text is wider than the terminal was
                further = f"{text}{self._lines[number]}"
                self._width = min(self._width, len(self._lines[number - 1]))
            if is_row or not _are_labels(further):
                break
            text, number = further, number + 1
        words = re.split(r"\b(?:CPU|NUMA|GPU NUMA)\b", text, maxsplit=1)[0].split()
        labels = [part for word in words for part in _parted(word, _LABELS)]
        for label in labels:
            if not _DEVICE.fullmatch(label):
                raise UsageError(f"{self._place}: column '{label[:20]}' is neither a GPU nor a NIC")
        if len(labels) > _MAX_DEVICES:
            raise UsageError(f"{self._place}: more than {_MAX_DEVICES} columns")
        if len(set(labels)) < len(labels):
            raise UsageError(f"{self._place}: two columns have one name")
        self._labels = tuple(labels)
        return number

    def _read_row(self, label: str, number: int) -> int:
        """Read a row, also from lines that continue it; returns the next line."""
        place = f"{self._name}, line {number + 1}"
        if label in self._rest:
            raise UsageError(f"{place}: a second row {label}")
        text = self._lines[number]
        number += 1
        while number < len(self._lines) and self._continues(text, number):
            text = self._glued(text, number)
            number += 1
        row = self._split(text)
        if len(row) <= len(self._labels) and self._is_cut(text, number):
            row[-1:] = [one for one in _CUT_CLASSES if len(row[-1]) > 1 and one.startswith(row[-1])]
        cells = row[: len(self._labels)]
        for column, cell in zip(self._labels, cells, strict=False):
            if not _is_cell(cell) or (cell == "X") != (column == label):
                raise UsageError(
                    f"{place}: '{cell[:20]}' from {label} to {column}",
                    "known: X to itself, NV#, PIX, PXB, PHB, NODE, SYS; with -p2p OK and codes",
                )
            self._cells[label, column] = _OLD.get(cell, cell)
        is_short = len(cells) < len(self._labels)
        if is_short and (self._is_more_below(number) or not self._has_a_pair()):
            raise UsageError(
                f"{place}: row {label} has {len(cells)} cells for {len(self._labels)} columns: is"
                " the text cut off?"
            )
        if not is_short:
            self._rest[label] = tuple(row[len(self._labels) :])
        return number

    def _is_cut(self, text: str, number: int) -> bool:
        """Whether the text ends in a cell of a row, which may then lack its last letters."""
        last = text.rsplit(maxsplit=1)[-1]
        is_end = text[-1] != " " and not any(line.strip() for line in self._lines[number:])
        return is_end and _CUT_LAST.fullmatch(last) is not None

    def _glued(self, text: str, number: int) -> str:
        """A text and the line that continues it: a terminal breaks full lines anywhere, and spaces
        at the end of others are lost.
        """
        is_full = len(self._lines[number - 1]) >= self._width
        return f"{text}{'' if is_full else ' '}{self._lines[number]}"

    def _split(self, text: str) -> list[str]:
        """Cells of a row, those that lost the space between them taken apart."""
        row: list[str] = []
        for word in text.split()[1:]:
            row += _parted(word, _CELLS) if len(row) < len(self._labels) else [word]
        return row

    def _continues(self, text: str, number: int) -> bool:
        """Whether a line goes on with a row: with cells that it lacks, or with what is behind."""
        further = self._lines[number].split()
        if not further or further[0] in self._labels:
            return False
        row, size = self._split(self._glued(text, number)), len(self._labels)
        cells = row[:-1] if len(row) <= size and _CUT_CELL.fullmatch(row[-1]) else row[:size]
        return (
            len(row) <= size + len(_HEADS)
            and all(_is_cell(cell) for cell in cells)
            and all(_BEHIND.fullmatch(word) for word in row[size:])
        )

    def _is_more_below(self, number: int) -> bool:
        """Whether rows follow: a row that is too short is then no cut end."""
        return any(
            words and words[0] in self._labels
            for words in (line.split() for line in self._lines[number : number + 2])
        )


def _parted(word: str, parts: re.Pattern[str]) -> list[str]:
    """The parts of a word that is made of such parts alone, else the word."""
    found = parts.findall(word)
    return found if len(found) > 1 and "".join(found) == word else [word]


def _are_labels(header: str) -> bool:
    """Whether a header holds labels and heads alone; the last may be cut."""
    parts = [part for word in header.split() for part in _parted(word, _LABELS)]
    is_cut = any(head.startswith(parts[-1]) for head in (*_HEADS, "NIC"))
    return all(_is_label(part) for part in (parts[:-1] if is_cut else parts))


def _is_label(text: str) -> bool:
    return _DEVICE.fullmatch(text) is not None or text in _HEADS


def _is_cell(text: str) -> bool:
    return _CLASS.fullmatch(text) is not None or _STATUS.fullmatch(text) is not None
