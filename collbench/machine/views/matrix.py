"""The link matrix, as nvidia-smi topo -m prints it, with NICs, what CPUs are near, and a
legend of the classes that appear.

Where it is wider than the screen, the affinities go below it, and then the columns fall into
blocks. Hosts that are equal are shown once.
"""

import re
from collections.abc import Sequence

from collbench.core.grouping import grouped
from collbench.core.text import table
from collbench.machine.topology.model import Node, Topology, spans
from collbench.machine.topology.paths import path
from collbench.machine.views.labels import (
    CLASSES,
    MOST_DEVICES,
    UNKNOWN,
    UNTOLD,
    Alike,
    Paint,
    alike,
    between,
    class_label,
    ends,
    heading,
    labels,
    left_out,
    near_cpus,
    plain,
)

_NOT_AVAILABLE = "N/A"  # as nvidia-smi says it
_GAP = "  "
_NEAR = ("CPU Affinity", "NUMA Affinity")


def matrix(topology: Topology, columns: int, paint: Paint = plain) -> list[str]:
    r"""The whole view: for each kind of host its matrix, then the legend.

    >>> from collbench.machine.topology.rates import nvlink_link
    >>> gpus = Node(id="gpu0", kind="gpu", index=0), Node(id="gpu1", kind="gpu", index=1)
    >>> two = Topology(name="two", nodes=gpus, links=(nvlink_link("gpu0", "gpu1", 4, 6),))
    >>> print("\n".join(matrix(two, 80)[:3]))
          GPU0  GPU1  CPU Affinity  NUMA Affinity
    GPU0   X    NV6   N/A           N/A
    GPU1  NV6    X    N/A           N/A
    """
    groups = alike(topology)
    lines: list[str] = []
    shown: set[str] = set()
    for group in groups:
        if len(groups) > 1 or len(group.hosts) > 1:
            lines += [heading(group)]
        lines += [*_block(group.part, columns, paint, shown), ""]
    over = between(topology, groups)
    lines += [*over, ""] if over else []
    shown |= {_kind(line.partition(": ")[2].split(",")[0]) for line in over}
    return (lines + _legend(shown, groups, columns, paint)) if shown else lines[:-1]


def _block(one: Topology, columns: int, paint: Paint, shown: set[str]) -> list[str]:
    """One host. Adds the classes that appear to `shown`."""
    if one.gpus:
        return _ends(one, columns, paint, shown)
    return [*_cpus(one), "", *_ends(one, columns, paint, shown)] if ends(one) else _cpus(one)


def _ends(one: Topology, columns: int, paint: Paint, shown: set[str]) -> list[str]:
    """The matrix of GPUs and NICs."""
    every = ends(one)
    nodes = every[:MOST_DEVICES]
    names = [labels(one)[node.id] for node in nodes]
    cells = [[_cell(one, row, column) for column in nodes] for row in nodes]
    every_cell = [cell for row in cells for cell in row]
    shown |= {_kind(cell) for cell in every_cell} | {cell[-1] for cell in every_cell} & {UNTOLD}
    affinity = [_near(one, node) for node in nodes]
    lead = max(map(len, names))
    widths = [
        len(_GAP) + max(len(name), *(len(row[place]) for row in cells))
        for place, name in enumerate(names)
    ]

    def rows(places: range, *, has_near: bool) -> list[str]:
        lines = [
            [name, *[paint(row[k], _painted(_kind(row[k]))) for k in places], *near * has_near]
            for name, row, near in zip(names, cells, affinity, strict=True)
        ]
        heads = ["", *[names[place] for place in places], *_NEAR * has_near]
        return table(heads, lines, columns=columns)

    left = left_out(len(every) - len(nodes), "device")
    near = sum(len(_GAP) + max(map(len, column)) for column in zip(_NEAR, *affinity, strict=True))
    if lead + sum(widths) + near <= columns:
        return [*rows(range(len(nodes)), has_near=True), *left]
    lines: list[str] = []
    first = 0
    while first < len(nodes):
        last, used = first, lead
        while last < len(nodes) and (last == first or used + widths[last] <= columns):
            used += widths[last]
            last += 1
        lines += [*rows(range(first, last), has_near=False), ""]
        first = last
    return lines + _affinities(names, affinity, columns) + left


def _cell(one: Topology, row: Node, column: Node) -> str:
    text = class_label(one, path(one, row.id, column.id))
    return " X" if text == "X" else text


def _kind(cell: str) -> str:
    """The class of a cell as the legend has it: NV18 is an NV#."""
    text = cell.strip().removesuffix(UNTOLD)
    return "NV#" if text.startswith("NV") and text[2:].isdecimal() else text


def _painted(kind: str) -> str:
    return "NVL" if kind == "NV#" else kind


def _affinities(
    names: Sequence[str], affinity: Sequence[tuple[str, str]], columns: int
) -> list[str]:
    """The CPUs and NUMA nodes of each device; devices that share them have one line."""
    lines: list[str] = []
    for (cpus, nodes), of in grouped(zip(affinity, names, strict=True)).items():
        lines += wrapped_after(
            f"{', '.join(runs(of))}: NUMA Affinity {nodes}, CPU Affinity {cpus}", columns, ", "
        )
    return lines


def wrapped_after(text: str, columns: int, marks: str) -> list[str]:
    """A text broken after marks, or where none comes, its further lines set in.

    >>> wrapped_after("  a: 1,2,3", 8, ",")
    ['  a: 1,', '    2,3']
    """
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    columns = max(columns, len(indent) + 1)  # or nothing would be left of the screen
    lines, rest = [], text
    while len(rest) > columns:
        cut = max(rest.rfind(mark, len(indent), columns) for mark in marks)
        cut = columns - 1 if cut < 0 else cut
        lines.append(rest[: cut + 1].rstrip())
        rest = indent + rest[cut + 1 :].lstrip()
    return [*lines, rest]


def runs(names: Sequence[str]) -> list[str]:
    """Names of which neighbours are counted through, in short.

    >>> runs(["GPU0", "GPU1", "GPU2", "NIC0", "NIC2"])
    ['GPU0-GPU2', 'NIC0', 'NIC2']
    """
    groups: list[list[str]] = []
    for name in names:
        if groups and _follows(groups[-1][-1], name):
            groups[-1].append(name)
        else:
            groups.append([name])
    return [name for run in groups for name in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)]


def _follows(before: str, name: str) -> bool:
    """Whether a name is the next number of the same kind."""
    one, other = (re.fullmatch(r"(.*?)(\d{1,9})", text) for text in (before, name))
    return (
        one is not None
        and other is not None
        and one[1] == other[1]
        and int(other[2]) == int(one[2]) + 1
    )


def _near(one: Topology, node: Node) -> tuple[str, str]:
    cpus = near_cpus(one, node.id)
    affinity = node.affinity or ",".join(
        dict.fromkeys(cpu.affinity for cpu in cpus if cpu.affinity)
    )
    numa = spans(cpu.index for cpu in cpus if cpu.index >= 0)
    return affinity or _NOT_AVAILABLE, numa or _NOT_AVAILABLE


def _cpus(one: Topology) -> list[str]:
    """The CPUs of a host that has no GPU."""
    rows = [
        (labels(one)[node.id], node.name or UNKNOWN, node.affinity or _NOT_AVAILABLE)
        for node in one.of_kind("cpu")
    ]
    return (
        table(("NUMA", "CPU", "CPU Affinity"), rows) if rows else ["nothing is known of this host"]
    )


def _legend(shown: set[str], groups: Sequence[Alike], columns: int, paint: Paint) -> list[str]:
    lines = ["Legend:"]
    lines += [
        f"  {paint(f'{name:<4}', _painted(name))} = {meaning}"
        for name, meaning in CLASSES.items()
        if name in shown
    ]
    for group in groups:
        nics = [
            f"{labels(group.part)[node.id]}: {node.name}"
            for node in group.part.of_kind("nic")
            if node.name
        ]
        if nics:
            lines += ["", "NICs:" if len(groups) == 1 else f"NICs of {group.names[0]}:"]
            lines += wrapped_after("  " + ", ".join(nics), columns, ",")
    return lines
