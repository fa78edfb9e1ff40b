"""The text of `nvidia-smi topo -m`, `nvidia-smi topo -p2p r|w|a|n` and `nvidia-smi nvlink -s`, as
people copy it: with escapes, prompts, legends.

Such text has classes, no widths and no speeds; _smi_tree constructs a machine with those classes.
Several outputs in one file are one topology. Source: outputs of drivers 375 to 580; their legends.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from collbench.machine.formats._build import arch_of_name
from collbench.machine.formats._smi_tree import Device, machine
from collbench.machine.topology import rates
from collbench.machine.topology.model import P2P, P2P_MEANINGS, Node, Topology, facts_of
from collbench.util.errors import UsageError
from collbench.util.text import printable

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])"
)
# the last: NICs by their names, before driver 515
_DEVICE = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|[a-z]\w{1,30}\d")
_CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NV[1-9]\d?")
_STATUS = re.compile("|".join(("X", *P2P_MEANINGS)))
_P2P_OF_OPTION = {what[0]: what for what in P2P}
_COMMAND = re.compile(r"-p2p\s{1,9}([rwan])\b|topo\s{1,9}(?:-m\b|--matrix)")
_P2P_FILE_NAME = re.compile(r"p2p[-_. ]{0,2}([rwan])(?![a-z])", re.IGNORECASE)
_GPU_LINE = re.compile(r"\s*GPU (\d{1,4}): (.{0,100}?)(?: \(UUID: ([\w-]{1,64})\))?\s*$")
_LINK_LINE = re.compile(r"\s*Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|<inactive>)\s*$")
_OLD = {"SOC": "SYS", "PSB": "PIX"}  # names of drivers before 384; PSB: both GPUs of one K80 board
_MAX_DEVICES = 256
_MAX_TEXT_CHARS = 4 << 20  # a matrix of 100 devices has 60,000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrix:
    """One table. cells: by (row, column). rest: the cells behind the matrix, by row. query: "m", or
    r, w, a, n of -p2p; empty if the text does not say which.
    """

    line: int
    labels: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    rest: Mapping[str, tuple[str, ...]]
    query: str


def is_mine(text: str) -> bool:
    r"""Whether the text holds a matrix with GPUs, or the state of NVLinks.

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
    connections = [matrix for matrix in matrices if matrix.query == "m"]
    if len(connections) > 1:
        raise UsageError(
            f"{name}, line {connections[1].line}: a second matrix of connections: one file is one"
            " machine"
        )
    short = name.rpartition("/")[2]
    gpus, notes = _nvlink_speeds(lines, name)
    if connections:
        topology = machine(
            _devices(connections[0], _nic_names(lines), name),
            connections[0].cells,
            f"{name}, line {connections[0].line}",
            short,
        )
    elif matrices:
        labels = {label for matrix in matrices for label in matrix.labels}
        numbers = sorted(_number(label) for label in labels if label.startswith("GPU"))
        note = (
            "the text tells what GPUs may do to each other, not how they are connected (nvidia-smi"
            " topo -m does)"
        )
        topology = Topology(
            name=short,
            nodes=tuple(Node(id=f"gpu{number}", kind="gpu", index=number) for number in numbers),
            links=(),
            notes=(note,),
        )
    elif any(gpu.fact("nvlinks") for gpu in gpus.values()):
        bare = tuple(replace(gpu, name="", facts=()) for gpu in gpus.values())
        topology = Topology(name=short, nodes=bare, links=())
    elif gpus:
        raise UsageError(
            f"{name} names GPUs, but neither their NVLinks nor a matrix",
            "nvidia-smi topo -m tells what is wired to what",
        )
    else:
        raise UsageError(
            f"{name}: neither a matrix of nvidia-smi topo nor links of nvidia-smi nvlink -s"
        )
    nodes = tuple(
        replace(node, name=gpus[node.id].name, facts=(*node.facts, *gpus[node.id].facts))
        if node.id in gpus
        else node
        for node in topology.nodes
    )
    topology = replace(topology, nodes=nodes, notes=(*topology.notes, *notes))
    return replace(topology, p2p=_p2p(matrices, topology, name))


def _lines(text: str) -> Iterator[str]:
    """Lines without what a terminal would have swallowed."""
    return (
        printable(line.replace("\t", " ").replace("\ufeff", ""))
        for line in _ESCAPE.sub("", text).replace("\r", "").split("\n")
    )


def _is_header(line: str) -> bool:
    cells = line.split(maxsplit=2)
    return (
        bool(cells)
        and re.fullmatch(r"GPU\d{1,4}", cells[0]) is not None
        and (len(cells) == 1 or not _is_cell(cells[1]))
    )


def _is_cell(text: str) -> bool:
    return _CLASS.fullmatch(text) is not None or _STATUS.fullmatch(text) is not None


def _matrices(lines: list[str], name: str) -> Iterator[_Matrix]:
    """Every table of the text. A command line before it, or else the file's name, tells which
    output of -p2p it is.
    """
    query = ""
    number = 0
    while number < len(lines):
        commands = list(_COMMAND.finditer(lines[number]))
        if commands:
            query = commands[-1][1] or "m"
        if _is_header(lines[number]):
            matrix, number = _matrix(lines, number, name, query)
            query = ""
            yield matrix
        else:
            number += 1


def _matrix(lines: list[str], header: int, name: str, query: str) -> tuple[_Matrix, int]:
    """The table below a header, and the number of the line behind it."""
    place = f"{name}, line {header + 1}"
    labels = _labels(lines[header], place)
    cells: dict[tuple[str, str], str] = {}
    rest: dict[str, tuple[str, ...]] = {}
    number = header + 1
    while number < len(lines) and len(rest) < len(labels):
        row = lines[number].split()
        if row and row[0] not in labels:
            break
        if row:
            if row[0] in rest:
                raise UsageError(f"{name}, line {number + 1}: a second row {row[0]}")
            cells |= _row(row, labels, f"{name}, line {number + 1}")
            rest[row[0]] = tuple(row[1 + len(labels) :])
        number += 1
    missing = [label for label in labels if label not in rest]
    if missing:
        raise UsageError(f"{place}: the row of {missing[0]} is missing: is the text cut off?")
    kinds = set(cells.values()) - {"X"}
    is_p2p = all(_STATUS.fullmatch(kind) for kind in kinds) and (kinds or query not in ("", "m"))
    if not is_p2p and not all(_CLASS.fullmatch(kind) for kind in kinds):
        raise UsageError(f"{place}: the matrix mixes connections and P2P states")
    if not is_p2p:
        query = "m"
    elif query in ("", "m"):
        in_name = _P2P_FILE_NAME.search(name.rpartition("/")[2])
        query = in_name[1].lower() if in_name else ""
    return _Matrix(line=header + 1, labels=labels, cells=cells, rest=rest, query=query), number


def _labels(line: str, place: str) -> tuple[str, ...]:
    labels = re.split(r"\b(?:CPU|NUMA|GPU NUMA)\b", line, maxsplit=1)[0].split()
    for label in labels:
        if not _DEVICE.fullmatch(label):
            raise UsageError(f"{place}: column '{label[:20]}' is neither a GPU nor a NIC")
    if len(labels) > _MAX_DEVICES:
        raise UsageError(f"{place}: more than {_MAX_DEVICES} columns")
    if len(set(labels)) < len(labels):
        raise UsageError(f"{place}: two columns have one name")
    return tuple(labels)


def _row(row: list[str], labels: tuple[str, ...], place: str) -> dict[tuple[str, str], str]:
    cells = row[1 : 1 + len(labels)]
    if len(cells) < len(labels):
        raise UsageError(
            f"{place}: row {row[0]} has {len(cells)} cells for {len(labels)} columns: is the text"
            " cut off?"
        )
    for label, cell in zip(labels, cells, strict=True):
        if not _is_cell(cell) or (cell == "X") != (label == row[0]):
            raise UsageError(
                f"{place}: '{cell[:20]}' from {row[0]} to {label}",
                "known: X to itself, NV#, PIX, PXB, PHB, NODE, SYS; with -p2p OK and codes",
            )
    return {
        (row[0], label): _OLD.get(cell, cell) for label, cell in zip(labels, cells, strict=True)
    }


def _number(label: str) -> int:
    return int(label[3:])


def _nic_names(lines: list[str]) -> dict[str, str]:
    """The NIC legend: NIC0: mlx5_0."""
    matches = (re.fullmatch(r"\s*(NIC\d{1,4}): (\S{1,64})\s*", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def _devices(matrix: _Matrix, nics: Mapping[str, str], name: str) -> list[Device]:
    """The devices of the rows. The columns behind the matrix are CPU Affinity, NUMA Affinity and
    GPU NUMA ID, as far as the driver knows them.
    """
    place = f"{name}, line {matrix.line}"
    for (row, column), cell in matrix.cells.items():
        if cell.startswith("NV") and not row.startswith("GPU"):
            raise UsageError(f"{place}: {row} to {column} is {cell}: NICs have no NVLinks")
        back = matrix.cells[column, row]
        if cell != back:
            raise UsageError(f"{place}: {row} to {column} is {cell}, but {column} to {row} {back}")
    devices = []
    nic_labels = [label for label in matrix.labels if not label.startswith("GPU")]
    for label in matrix.labels:
        if label.startswith("GPU"):
            lists = [
                cell if re.fullmatch(r"[\d,-]{1,4000}", cell) else "" for cell in matrix.rest[label]
            ]
            affinity, numa, gpu_numa = (*lists, "", "", "")[:3]
            devices.append(
                Device(
                    label=label,
                    id=f"gpu{_number(label)}",
                    kind="gpu",
                    index=_number(label),
                    affinity=affinity,
                    numa=numa,
                    gpu_numa=gpu_numa,
                )
            )
        else:
            is_numbered = label.startswith("NIC")
            index = _number(label) if is_numbered else nic_labels.index(label)
            nic = nics.get(label, "" if is_numbered else label)
            devices.append(Device(label=label, id=f"nic{index}", kind="nic", index=index, name=nic))
    if len({device.id for device in devices}) < len(devices):
        raise UsageError(f"{place}: two devices have one number")
    return devices


def _p2p(matrices: list[_Matrix], topology: Topology, name: str) -> dict[tuple[str, str, str], str]:
    """The codes of every -p2p matrix."""
    statuses: dict[tuple[str, str, str], str] = {}
    for matrix in matrices:
        if matrix.query == "m":
            continue
        if not matrix.query:
            raise UsageError(
                f"{name}, line {matrix.line}: a P2P matrix that does not say whether it is of"
                " reads, writes, atomics or NVLink",
                "keep the command (nvidia-smi topo -p2p r) in the text above it, or name the file"
                " ...p2p-r.txt (or w, a, n)",
            )
        for (a, b), code in matrix.cells.items():
            ends = [f"gpu{_number(label)}" for label in (a, b) if label.startswith("GPU")]
            if len(ends) < 2 or not all(end in topology.by_id for end in ends):
                raise UsageError(
                    f"{name}, line {matrix.line}: {a} or {b} is no GPU of the matrix of connections"
                )
            if a != b:
                statuses[ends[0], ends[1], _P2P_OF_OPTION[matrix.query]] = code
    return statuses


def _nvlink_speeds(lines: list[str], name: str) -> tuple[dict[str, Node], list[str]]:
    """GPUs of nvidia-smi nvlink -s with their links' speeds as facts; that output does not tell
    where the links end. Raises UsageError for -e and others.
    """
    gpus: dict[str, Node] = {}
    speeds: dict[str, dict[int, str]] = {}
    for number, line in enumerate(lines, 1):
        gpu, link = _GPU_LINE.match(line), _LINK_LINE.match(line)
        if gpu:
            id_ = f"gpu{int(gpu[1])}"
            generation = rates.nvlink_generation(arch_of_name(gpu[2]))
            facts = facts_of({"uuid": gpu[3], "nvlink_generation": generation or None})
            gpus[id_] = Node(
                id=id_, kind="gpu", index=int(gpu[1]), name=gpu[2].strip(), facts=facts
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
        active = [speed for speed in links.values() if speed != "inactive"]
        inactive = [str(link) for link, speed in links.items() if speed == "inactive"]
        facts = facts_of(
            {
                "nvlinks": len(active) if links else None,
                "nvlink_gbs": ", ".join(sorted(set(active), key=float)),
                "nvlinks_inactive": ", ".join(inactive),
            }
        )
        gpus[id_] = replace(gpus[id_], facts=(*gpus[id_].facts, *facts))
    note = (
        "nvidia-smi nvlink -s tells how many NVLinks are active and how fast, not where they end"
        " (nvidia-smi topo -m does)"
    )
    return gpus, [note] if gpus else []
