"""The text of `nvidia-smi topo -m`, `nvidia-smi topo -p2p r|w|a|n` and `nvidia-smi nvlink -s`, as
it was copied: with escapes, prompts, legends.

Such text has classes, no widths and no speeds; _smi_tree constructs a machine with those
classes. Several outputs in one file are one topology. Source: outputs of drivers 375 to 580; their
legends.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from collbench.machine.formats._build import arch_of_name, printable
from collbench.machine.formats._smi_tree import Device, machine
from collbench.machine.topology import rates
from collbench.machine.topology.model import P2P, P2P_MEANINGS, Node, Topology
from collbench.util.errors import UsageError

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])"
)
# the last: NICs by their names, before driver 515
_DEVICE = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|[a-z]\w{1,30}\d")
_CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV[1-9]\d?")
_STATUS = re.compile("|".join(("X", *P2P_MEANINGS)))
_P2P_KINDS = {what[0]: what for what in P2P}
_ASKED = re.compile(r"-p2p\s{1,9}([rwan])\b|topo\s{1,9}(?:-m\b|--matrix)")
_ASKED_IN_NAME = re.compile(r"p2p[-_. ]{0,2}([rwan])(?![a-z])", re.IGNORECASE)
_GPU_LINE = re.compile(r"\s*GPU (\d{1,4}): (.{0,100}?)(?: \(UUID: ([\w-]{1,64})\))?\s*$")
_LINK_LINE = re.compile(r"\s*Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|<inactive>)\s*$")
_OLD = {"SOC": "SYS", "PSB": "PIX"}  # names of drivers before 384; PSB: both GPUs of one K80 board
_MAX_DEVICES = 256
_MAX_TEXT_CHARS = 4 << 20  # a matrix of 100 devices has 60,000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """One table: labels, cells by (row, column), what follows the cells of a row by the names of
    its columns.
    """

    line: int
    labels: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    rest: Mapping[str, tuple[str, ...]]
    asked: str  # "m", or r, w, a, n of -p2p; nothing if the text does not say


def is_mine(text: str) -> bool:
    r"""Whether the text holds a matrix with GPUs, or says what NVLinks do.

    >>> is_mine("\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X "), is_mine("hello")
    (True, False)
    """
    return len(text) <= _MAX_TEXT_CHARS and any(
        _is_header(line) or _GPU_LINE.match(line) for line in _lines(text)
    )


def read(text: str, name: str) -> Topology:
    r"""The topology of one or several outputs. Raises UsageError with the line.

    >>> read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-3\nGPU1\tNV2\t X \t0-3", "m.txt").links[
    ...     -1
    ... ].count
    2
    """
    lines = list(_lines(text))
    matrices = list(_matrices(lines, name))
    connected = [matrix for matrix in matrices if matrix.asked == "m"]
    if len(connected) > 1:
        raise UsageError(
            f"{name}, line {connected[1].line}: a second matrix of connections: one file is one"
            " machine"
        )
    short = name.rpartition("/")[2]
    gpus, notes = _nvlink_speeds(lines, name)
    if connected:
        topology = machine(
            _devices(connected[0], _nic_names(lines), name),
            connected[0].cells,
            f"{name}, line {connected[0].line}",
            short,
        )
    elif matrices:
        labels = sorted(
            {label for matrix in matrices for label in matrix.labels if label.startswith("GPU")},
            key=_number,
        )
        note = (
            "the text tells what GPUs may do to each other, not how they are connected (nvidia-smi"
            " topo -m does)"
        )
        topology = Topology(
            name=short,
            nodes=tuple(Node(id=f"gpu{_number(x)}", kind="gpu", index=_number(x)) for x in labels),
            links=(),
            notes=(note,),
        )
    elif any(gpu.fact("nvlinks") for gpu in gpus.values()):
        topology = Topology(
            name=short,
            nodes=tuple(replace(gpu, name="", facts=()) for gpu in gpus.values()),
            links=(),
        )
    elif gpus:
        raise UsageError(
            f"{name} names GPUs, but neither their NVLinks nor a matrix",
            "nvidia-smi topo -m tells what is wired to what",
        )
    else:
        raise UsageError(
            f"{name}: neither a matrix of nvidia-smi topo nor links of nvidia-smi nvlink -s"
        )
    merged = tuple(
        (
            replace(node, name=gpus[node.id].name, facts=(*node.facts, *gpus[node.id].facts))
            if node.id in gpus
            else node
        )
        for node in topology.nodes
    )
    topology = replace(topology, nodes=merged, notes=(*topology.notes, *notes))
    return replace(topology, p2p=_p2p(matrices, topology, name))


def _lines(text: str) -> Iterator[str]:
    """Lines without what a terminal would have swallowed."""
    return (
        printable(line.replace("\t", " ").replace("\ufeff", ""))
        for line in _ESCAPE.sub("", text).replace("\r", "").split("\n")
    )


def _is_header(line: str) -> bool:
    words = line.split(maxsplit=2)
    return (
        bool(words)
        and re.fullmatch(r"GPU\d{1,4}", words[0]) is not None
        and (len(words) == 1 or not _is_cell(words[1]))
    )


def _is_cell(word: str) -> bool:
    return _CLASS.fullmatch(word) is not None or _STATUS.fullmatch(word) is not None


def _matrices(lines: list[str], name: str) -> Iterator[_Matrix]:
    """Every table of the text; a command line before it, or else the file's name, says what of -p2p
    it is.
    """
    asked = ""
    place = 0
    while place < len(lines):
        commands = list(_ASKED.finditer(lines[place]))
        if commands:
            asked = commands[-1][1] or "m"
        if not _is_header(lines[place]):
            place += 1
            continue
        header = place
        labels = _labels(lines[place], f"{name}, line {place + 1}")
        cells: dict[tuple[str, str], str] = {}
        rest: dict[str, tuple[str, ...]] = {}
        place += 1
        while place < len(lines) and len(rest) < len(labels):
            words = lines[place].split()
            if words and words[0] not in labels:
                break
            if words:
                if words[0] in rest:
                    raise UsageError(f"{name}, line {place + 1}: a second row {words[0]}")
                cells |= _row(words, labels, f"{name}, line {place + 1}")
                rest[words[0]] = tuple(words[1 + len(labels) :])
            place += 1
        missing = [label for label in labels if label not in rest]
        if missing:
            raise UsageError(
                f"{name}, line {header + 1}: the row of {missing[0]} is missing: is the text cut"
                " off?"
            )
        kinds = set(cells.values()) - {"X"}
        is_p2p = all(_STATUS.fullmatch(kind) for kind in kinds) and (
            kinds or asked not in ("", "m")
        )
        if not is_p2p and not all(_CLASS.fullmatch(kind) for kind in kinds):
            raise UsageError(
                f"{name}, line {header + 1}: the matrix mixes connections and P2P states"
            )
        if is_p2p and asked in ("", "m"):
            in_name = _ASKED_IN_NAME.search(name.rpartition("/")[2])
            asked = in_name[1].lower() if in_name else ""
        yield _Matrix(
            line=header + 1, labels=labels, cells=cells, rest=rest, asked=asked if is_p2p else "m"
        )
        asked = ""


def _labels(line: str, place: str) -> tuple[str, ...]:
    words = re.split(r"\b(?:CPU|NUMA|GPU NUMA)\b", line, maxsplit=1)[0].split()
    for word in words:
        if not _DEVICE.fullmatch(word):
            raise UsageError(f"{place}: column '{word[:20]}' is neither a GPU nor a NIC")
    if len(set(words)) < len(words) or len(words) > _MAX_DEVICES:
        raise UsageError(
            f"{place}: "
            + (
                f"more than {_MAX_DEVICES} columns"
                if len(words) > _MAX_DEVICES
                else "two columns have one name"
            )
        )
    return tuple(words)


def _row(words: list[str], labels: tuple[str, ...], place: str) -> dict[tuple[str, str], str]:
    cells = words[1 : 1 + len(labels)]
    if len(cells) < len(labels):
        raise UsageError(
            f"{place}: row {words[0]} has {len(cells)} cells for {len(labels)} columns: is the text"
            " cut off?"
        )
    for label, cell in zip(labels, cells, strict=True):
        if not _is_cell(cell) or (cell == "X") != (label == words[0]):
            raise UsageError(
                f"{place}: '{cell[:20]}' from {words[0]} to {label}",
                "known: X to itself, NV#, PIX, PXB, PHB, NODE, SYS; with -p2p OK and codes",
            )
    return {
        (words[0], label): _OLD.get(cell, cell) for label, cell in zip(labels, cells, strict=True)
    }


def _number(label: str) -> int:
    return int(label[3:])


def _nic_names(lines: list[str]) -> dict[str, str]:
    """The NIC legend: NIC0: mlx5_0."""
    matches = (re.fullmatch(r"\s*(NIC\d{1,4}): (\S{1,64})\s*", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def _devices(matrix: _Matrix, nics: Mapping[str, str], name: str) -> list[Device]:
    """What the rows are of; the columns behind the matrix are CPU Affinity, NUMA Affinity and GPU
    NUMA ID, as far as the driver knows them.
    """
    for row in matrix.labels:
        for column in matrix.labels:
            if matrix.cells[row, column].startswith("NV") and not row.startswith("GPU"):
                raise UsageError(
                    f"{name}, line {matrix.line}: {row} to {column} is {matrix.cells[row, column]}:"
                    " NICs have no NVLinks"
                )
            if matrix.cells[row, column] != matrix.cells[column, row]:
                raise UsageError(
                    f"{name}, line {matrix.line}: {row} to {column} is {matrix.cells[row, column]},"
                    f" but {column} to {row} {matrix.cells[column, row]}"
                )
    devices = []
    for place, label in enumerate(label for label in matrix.labels if not label.startswith("GPU")):
        index = int(label[3:]) if label.startswith("NIC") else place
        devices.append(
            Device(
                label=label,
                id=f"nic{index}",
                kind="nic",
                index=index,
                name=nics.get(label, "" if label.startswith("NIC") else label),
            )
        )
    for label in matrix.labels:
        if label.startswith("GPU"):
            near, numa, own = (
                *(
                    word if re.fullmatch(r"[\d,-]{1,4000}", word) else ""
                    for word in matrix.rest[label]
                ),
                "",
                "",
                "",
            )[:3]
            devices.append(
                Device(
                    label=label,
                    id=f"gpu{_number(label)}",
                    kind="gpu",
                    index=_number(label),
                    affinity=near,
                    numa=numa,
                    gpu_numa=own,
                )
            )
    ids = [device.id for device in devices]
    if len(set(ids)) < len(ids):
        raise UsageError(f"{name}, line {matrix.line}: two devices have one number")
    order = {label: place for place, label in enumerate(matrix.labels)}
    return sorted(devices, key=lambda device: order[device.label])


def _p2p(matrices: list[_Matrix], topology: Topology, name: str) -> dict[tuple[str, str, str], str]:
    """The codes of every -p2p matrix."""
    found_all: dict[tuple[str, str, str], str] = {}
    for matrix in matrices:
        if matrix.asked == "m":
            continue
        if not matrix.asked:
            raise UsageError(
                f"{name}, line {matrix.line}: a P2P matrix that does not say whether it is of"
                " reads, writes, atomics or NVLink",
                "keep the command (nvidia-smi topo -p2p r) in the text above it, or name the file"
                " ...p2p-r.txt (or w, a, n)",
            )
        for (a, b), code in matrix.cells.items():
            ends = tuple(f"gpu{_number(label)}" for label in (a, b) if label.startswith("GPU"))
            if len(ends) < 2 or not all(end in topology.by_id for end in ends):
                raise UsageError(
                    f"{name}, line {matrix.line}: {a} or {b} is no GPU of the matrix of connections"
                )
            if a != b:
                found_all[ends[0], ends[1], _P2P_KINDS[matrix.asked]] = code
    return found_all


def _nvlink_speeds(lines: list[str], name: str) -> tuple[dict[str, Node], list[str]]:
    """GPUs of nvidia-smi nvlink -s with their links' speeds as facts: where the links end, it does
    not say. Raises UsageError for -e and others.
    """
    gpus: dict[str, Node] = {}
    speeds: dict[str, dict[int, str]] = {}
    for number, line in enumerate(lines, 1):
        gpu, link = _GPU_LINE.match(line), _LINK_LINE.match(line)
        if gpu:
            id_ = f"gpu{int(gpu[1])}"
            generation = rates.nvlink_generation(arch_of_name(gpu[2]))
            facts = [("uuid", gpu[3] or ""), ("nvlink_generation", str(generation or ""))]
            gpus[id_] = Node(
                id=id_,
                kind="gpu",
                index=int(gpu[1]),
                name=gpu[2].strip(),
                facts=tuple(fact for fact in facts if fact[1]),
            )
            speeds[id_] = {}
        elif link and gpus:
            speeds[id_][int(link[1])] = link[2] or "inactive"
        elif gpus and re.match(r"\s*Link \d", line):
            raise UsageError(
                f"{name}, line {number}: '{line.strip()[:40]}' is of nvidia-smi nvlink, but not its"
                " speeds (-s)",
                "counters and remote ends are no topology: give nvidia-smi topo -m, or nvidia-smi"
                " nvlink -s",
            )
    for id_, links in speeds.items():
        distinct = sorted({speed for speed in links.values() if speed != "inactive"}, key=float)
        active = sum(speed != "inactive" for speed in links.values())
        dead = [str(link) for link, speed in links.items() if speed == "inactive"]
        facts = [
            ("nvlinks", str(active) if links else ""),
            ("nvlink_gbs", ", ".join(distinct)),
            ("nvlinks_inactive", ", ".join(dead)),
        ]
        gpus[id_] = replace(
            gpus[id_], facts=(*gpus[id_].facts, *(fact for fact in facts if fact[1]))
        )
    note = (
        "nvidia-smi nvlink -s tells how many NVLinks are active and how fast, not where they end"
        " (nvidia-smi topo -m does)"
    )
    return gpus, [note] if gpus else []
