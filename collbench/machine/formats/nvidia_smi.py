"""The text of `nvidia-smi topo -m`, `nvidia-smi topo -p2p r|w|a|n|p` and `nvidia-smi nvlink -s`, as
people copy it: with escapes, prompts, legends, quoted, tagged, wrapped, cut.

Such text has classes, no widths and no speeds; _smi_tree constructs a machine with those classes.
Several outputs in one file are one topology: the names or the speeds of GPUs give NVLinks their
rates. Source: outputs of drivers 375 to 580; their legends.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from collbench.core.errors import UsageError
from collbench.core.text import some_of
from collbench.machine.formats import _paste, rocm_smi
from collbench.machine.formats._build import arch_of_name
from collbench.machine.formats._contradictions import checked, names
from collbench.machine.formats._smi_matrix import OF_OPTION, SmiMatrix, headed, is_header, matrices
from collbench.machine.formats._smi_tree import Cells, Device, machine
from collbench.machine.topology import rates
from collbench.machine.topology.model import (
    P2P,
    P2P_MEANINGS,
    Link,
    Node,
    NodeKind,
    Topology,
    facts_of,
)

_GPU_LINE = re.compile(r"\s*GPU (\d{1,4}): (.{0,100}?)(?: \(UUID: ([\w-]{1,64})\))?\s*$")
_LINK_LINE = re.compile(r"\s*Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|<inactive>)\s*$")
_ALL_INACTIVE = re.compile(r"all links are in-?active", re.IGNORECASE)
# of p2pBandwidthLatencyTest and of simpleP2P
_ACCESS = re.compile(
    r"Device=(\d{1,3}) CAN(NOT)? Access Peer Device=(\d{1,3})\b"
    r"|Peer access from .{0,80}\(GPU(\d{1,3})\) -> .{0,80}\(GPU(\d{1,3})\) : (?:Yes|(No))"
)
_COPIED = re.compile(r"Memcpy between GPU(\d{1,3}) and GPU(\d{1,3}): (\d{1,5}\.\d{1,3}) ?GB/s")
_HIDDEN_NICS = re.compile(r"(\d{1,6}) NICs found in the topology, only displaying (\d{1,6})")
_MAX_TEXT_CHARS = 4 << 20  # a matrix of 100 devices has 60,000


def is_mine(text: str) -> bool:
    r"""Whether the text holds a matrix with GPUs, or the state of NVLinks.

    >>> is_mine("\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X "), is_mine("hello")
    (True, False)
    """
    if len(text) > _MAX_TEXT_CHARS or rocm_smi.is_mine(text):
        return False
    lines = list(_paste.lines(text))
    is_told = any(map(is_header, lines)) or any(map(_GPU_LINE.match, lines))
    return is_told or _ACCESS.search(text) is not None or len(headed(lines)) > len(lines)


def read(text: str, name: str) -> Topology:
    r"""The topology of one or several outputs. Raises UsageError with the line.

    >>> read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-3\nGPU1\tNV2\t X \t0-3", "m.txt").links[
    ...     -1
    ... ].count
    2
    """
    pasted = list(_paste.lines(text))
    lines = headed(pasted)
    tables = list(matrices(lines, name))
    access = _access(text)
    connections = [table for table in tables if table.query == "m"]
    short = name.rpartition("/")[2]
    gpus, notes = _nvlink_speeds(lines, name, is_alone=not connections)
    if len(lines) > len(pasted):
        notes.append(
            "the heading is missing: which column is whose is told by the X of the rows"
            " and by NVLinks; others are left out"
        )
    if hidden := _HIDDEN_NICS.search(text):
        notes.append(
            f"{hidden[2]} of {hidden[1]} NICs are in the matrix: nvidia-smi left out the rest"
        )
    if access:
        able = sum(code == "OK" for code in access.values())
        note = f"CUDA says that peer access works for {able} of {len(access)} ordered pairs of GPUs"
        refused = [f"GPU{a} to GPU{b}" for (a, b), code in access.items() if code != "OK"]
        notes.append(f"{note} here" + (f", not for {some_of(refused, 4)}" if refused else ""))
    for a, b, rate in _COPIED.findall(text)[:4]:
        link = rates.pcie_of_rate(float(rate))
        notes.append(f"GPU{a} to GPU{b}: {rate} GB/s" + (f", as {link} gives" if link else ""))
    if "Verification error @" in text:
        notes.append(
            "simpleP2P met wrong data: peer access is allowed and does not work (log says why)"
        )
    if connections:
        first = connections[0]
        place = f"{name}, line {first.line}"
        legend = (re.fullmatch(r"\s*(NIC\d{1,4}): (\S{1,64})\s*", line) for line in lines)
        devices = _devices(first, {nic[1]: nic[2] for nic in legend if nic}, name)
        cells, doubtful = _agreeing(first.cells, notes)
        topology = machine(devices, cells, place, short, first.lost, doubtful)
        notes += [
            f"line {other.line}: a further matrix of connections,"
            f" {'which is the same' if other.cells == first.cells else 'another one: left out'}"
            for other in connections[1:]
        ]
    elif tables or access:
        labels = {label for table in tables for label in table.labels}
        known = {_number(label) for label in labels if label.startswith("GPU")}
        numbers = sorted(known.union(*access))
        nodes = tuple(Node(id=f"gpu{number}", kind="gpu", index=number) for number in numbers)
        note = "the text tells what GPUs may do to each other, not how they are connected"
        note += " (nvidia-smi topo -m does)"
        topology = Topology(name=short, nodes=nodes, links=(), notes=(note,))
    elif any(gpu.fact("nvlinks") for gpu in gpus.values()):
        bare = tuple(replace(gpu, name="", facts=()) for gpu in gpus.values())
        topology = Topology(name=short, nodes=bare, links=())
    elif gpus:
        raise UsageError(
            f"{name} names GPUs, but neither their NVLinks nor a matrix",
            "nvidia-smi topo -m tells what is wired to what",
        )
    else:
        raise UsageError(f"{name}: neither a matrix of nvidia-smi topo nor links of nvlink -s")
    nodes = tuple(
        replace(node, name=gpus[node.id].name, facts=(*node.facts, *gpus[node.id].facts))
        if node.id in gpus
        else node
        for node in topology.nodes
    )
    topology = _rated(replace(topology, nodes=nodes, notes=(*topology.notes, *notes)))
    if not any(gpu.fact("untold") for gpu in topology.gpus):
        topology = checked(topology) if connections else topology
    topology = _with_p2p(topology, tables, name, is_alone=not connections)
    ends = {gpu.index: gpu.id for gpu in topology.gpus}
    told = {
        (ends[a], ends[b], what): code
        for (a, b), code in access.items()
        for what in ("read", "write")
        if a in ends and b in ends
    }
    return replace(topology, p2p=told | dict(topology.p2p))


def _access(text: str) -> dict[tuple[int, int], str]:
    """Whether GPUs reach each other's memory, as programs of CUDA print it."""
    found = (
        (one, [cell for cell in one.groups() if cell and cell.isdigit()])
        for one in _ACCESS.finditer(text)
    )
    return {(int(a), int(b)): "NS" if one[2] or one[6] else "OK" for one, (a, b) in found}


def _rated(topology: Topology) -> Topology:
    """The topology with rates of NVLinks, where names or speeds of GPUs tell their generation; with
    a remark where fewer links are active than the matrix has.
    """
    links = tuple(_rated_link(topology, link) for link in topology.links)
    short = []
    for gpu in topology.gpus:
        told = gpu.fact("nvlinks")
        counted = sum(link.count for link in topology.bundles(gpu.id))
        if told and counted and int(told) != counted:
            short.append(f"{names([gpu])} has {told} active NVLinks, {counted} in the matrix")
    return replace(topology, links=links, notes=(*topology.notes, *short[:4]))


def _rated_link(topology: Topology, link: Link) -> Link:
    if link.kind != "nvlink" or link.generation:
        return link
    gpu = next(topology.by_id[end] for end in (link.a, link.b) if end.startswith("gpu"))
    arch = arch_of_name(gpu.name)
    speeds = gpu.fact("nvlink_gbs").split(", ")
    generation = rates.nvlink_generation(arch) or rates.nvlink_generation_of_speed(speeds[0])
    return rates.nvlink_link(link.a, link.b, generation, link.count, link.note, arch)


def _number(label: str) -> int:
    return int(label[3:])


def _agreeing(cells: Cells, notes: list[str]) -> tuple[Cells, Cells]:
    """The cells that have no other class in the mirror, of two numbers of NVLinks the least; and
    those that have one, which the notes tell.
    """
    odd = {pair: cell for pair, cell in cells.items() if cells.get(pair[::-1], cell) != cell}
    least = {
        (a, b): min(cell, odd[b, a], key=lambda links: int(links[2:]))
        for (a, b), cell in odd.items()
        if cell.startswith("NV") and odd[b, a].startswith("NV")
    }
    for taken, pairs in (("the least", least), ("neither", odd.keys() - least)):
        if told := [f"{a} to {b} {odd[a, b]}, back {odd[b, a]}" for a, b in sorted(pairs) if a < b]:
            notes.append(f"rows contradict each other, {taken} is taken: {some_of(told, 4)}")
    return {pair: cell for pair, cell in cells.items() if pair not in odd} | least, odd


def _devices(matrix: SmiMatrix, nics: Mapping[str, str], name: str) -> list[Device]:
    """The devices of the rows. The columns behind the matrix are CPU Affinity, NUMA Affinity and
    GPU NUMA ID, as far as the driver knows them.
    """
    place = f"{name}, line {matrix.line}"
    for (row, column), cell in matrix.cells.items():
        if cell.startswith("NV") and not row.startswith("GPU"):
            raise UsageError(f"{place}: {row} to {column} is {cell}: NICs have no NVLinks")
    devices = []
    nic_labels = [label for label in matrix.labels if not label.startswith("GPU")]
    for label in matrix.labels:
        is_gpu, is_numbered = label.startswith("GPU"), label.startswith(("GPU", "NIC"))
        kind: NodeKind = "gpu" if is_gpu else "nic"
        index = _number(label) if is_numbered else nic_labels.index(label)
        behind = matrix.rest[label] if is_gpu else ()
        lists = [cell if re.fullmatch(r"[\d,-]{1,4000}", cell) else "" for cell in behind]
        affinity, numa, gpu_numa = (*lists, "", "", "")[:3]
        devices.append(
            Device(
                label=label,
                id=f"{kind}{index}",
                kind=kind,
                index=index,
                name=nics.get(label, "" if is_numbered else label),
                affinity=affinity,
                numa=numa,
                gpu_numa=gpu_numa,
            )
        )
    if len({device.id for device in devices}) < len(devices):
        raise UsageError(f"{place}: two devices have one number")
    return devices


def _with_p2p(
    topology: Topology, tables: Sequence[SmiMatrix], name: str, *, is_alone: bool
) -> Topology:
    """The topology with the codes of every -p2p matrix. A matrix that does not say of what it is is
    an error where there is nothing else in the text.
    """
    statuses: dict[tuple[str, str, str], str] = {}
    notes = []
    for table in tables:
        if table.query == "m":
            continue
        if not table.query:
            what = f"line {table.line}: a P2P matrix that does not say whether it is of reads"
            if is_alone:
                raise UsageError(
                    f"{name}, {what}",
                    "keep the command (nvidia-smi topo -p2p r) in the text above it, or name the"
                    " file ...p2p-r.txt (or w, a, n, p)",
                )
            codes = sorted({*table.cells.values()} & {*P2P_MEANINGS})
            told = ", ".join(f"{code}: {P2P_MEANINGS[code]}" for code in codes)
            notes.append(f"{what}: left out ({told})")
        for (a, b), code in table.cells.items():
            ends = [f"gpu{_number(label)}" for label in (a, b) if label.startswith("GPU")]
            if len(ends) < 2 or not all(end in topology.by_id for end in ends):
                raise UsageError(
                    f"{name}, line {table.line}: {a} or {b} is no GPU of the matrix of connections"
                )
            if a != b:
                statuses |= {(ends[0], ends[1], OF_OPTION[what]): code for what in table.query}
    for what in P2P if not is_alone else ():
        found = Counter(code for (_, _, one), code in statuses.items() if one == what)
        each = [f"{code} ({P2P_MEANINGS[code]}) for {count}" for code, count in found.items()]
        if each:
            said = f"{', '.join(each)} of {found.total()} ordered pairs of GPUs"
            notes.append(f"peer access, {what}: {said} (--p2p shows which)")
    return replace(topology, p2p=statuses, notes=(*topology.notes, *notes))


def _nvlink_speeds(
    lines: Sequence[str], name: str, *, is_alone: bool
) -> tuple[dict[str, Node], list[str]]:
    """GPUs of nvidia-smi nvlink -s with their links' speeds as facts; that output does not tell
    where the links end. Raises UsageError for -e and others where there is nothing else.
    """
    gpus: dict[str, Node] = {}
    speeds: dict[str, dict[int, str]] = {}
    for number, line in enumerate(lines, 1):
        gpu, link = _GPU_LINE.match(line), _LINK_LINE.match(line)
        if gpu:
            id_ = f"gpu{int(gpu[1])}"
            generation = rates.nvlink_generation(arch_of_name(gpu[2]))
            facts = facts_of({"uuid": gpu[3], "nvlink_generation": generation or None})
            if gpu[3] or id_ not in gpus:  # what has no UUID may be prose about a GPU
                gpus[id_] = Node(
                    id=id_, kind="gpu", index=int(gpu[1]), name=gpu[2].strip(), facts=facts
                )
            speeds.setdefault(id_, {})
        elif link and gpus:
            speeds[id_][int(link[1])] = link[2] or "inactive"
        elif gpus and _ALL_INACTIVE.search(line):
            speeds[next(reversed(speeds))][-1] = "inactive"
        elif gpus and is_alone and re.match(r"\s*Link \d", line):
            raise UsageError(
                f"{name}, line {number}: '{line.strip()[:40]}' is of nvidia-smi nvlink, but not its"
                " speeds (-s)",
                "counters and remote ends are no topology: give nvidia-smi topo -m, or nvidia-smi"
                " nvlink -s",
            )
    for id_, links in speeds.items():
        active = [speed for speed in links.values() if speed != "inactive"]
        inactive = ["all" if link < 0 else str(link)
                    for link, speed in links.items() if speed == "inactive"]  # fmt: skip
        facts = facts_of(
            {
                "nvlinks": len(active) if links else None,
                "nvlink_gbs": ", ".join(sorted(set(active), key=float)),
                "nvlinks_inactive": ", ".join(inactive),
            }
        )
        gpus[id_] = replace(gpus[id_], facts=(*gpus[id_].facts, *facts))
    note = "nvidia-smi nvlink -s tells how many NVLinks are active and how fast, not where they"
    note += " end (nvidia-smi topo -m does)"
    idle_links = {gpu.fact("nvlinks_inactive") for gpu in gpus.values()}
    is_product = len(gpus) > 1 and len(idle_links) == 1 and idle_links - {None, "all"}
    if is_product:
        note = f"{note}; links that all GPUs lack alike are most often not wired in this product"
    down = [
        f"GPU {gpu.index}: links {idle} inactive, {gpu.fact('nvlinks')} others active"
        for gpu in gpus.values()
        if (idle := gpu.fact("nvlinks_inactive"))
    ]
    return gpus, [*([note] if gpus and (is_alone or is_product) else []), *down[:16]]
