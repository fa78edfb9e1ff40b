"""The text of `rocm-smi --showtopo` and of `amd-smi topology`: which GPUs are joined by xGMI, which
through their CPUs.

A weight of 15 is one xGMI hop, 30 are two; their `hops` are 1 for both (KFD's io_link). Neither
tells how many links a pair has: bandwidths of amd-smi do, and an MI300 or later has one to every
other.
The CPUs are made up from NUMA nodes, else from hops: 2 is one socket, 3 are two. Source: the
documentation of amd-smi, its topology.py, rocm_smi.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from collbench.core.errors import UsageError
from collbench.core.pasted import WORD, joined
from collbench.core.text import some_of
from collbench.machine.formats import _paste
from collbench.machine.formats._build import limit_cpus, socket_links
from collbench.machine.topology import rates
from collbench.machine.topology.gpu_models import named_model
from collbench.machine.topology.model import Link, Node, Topology, facts_of

_TITLE = re.compile(
    r"[=\s]*(?:(weight|hops|link type) between two GPUs"
    r"|(weight|hops|link type|access|numa bw|cache cohe\w+|atomics|dma|bi-directional)\s+table:?)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"GPU\d{1,4}|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE
)
_NUMA = re.compile(r"\s*GPU\[(\d{1,4})\]\s*:.{0,40}Numa Node:\s*(-?\d{1,4})", re.IGNORECASE)
_BANDWIDTH = re.compile(r"(?:\d{1,9}-)?(\d{1,9})")  # least and most MB/s in one direction
_MAX_GPUS = 256
_MAX_TEXT_CHARS = 4 << 20
_MINE = re.compile(r"link type (?:between two GPUs|table)|^ *access table:?", re.I | re.M)
_HIDDEN = (("hidden", "yes"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Cells by (row, column), of GPUs by their places."""

    labels: tuple[str, ...]
    cells: Mapping[tuple[int, int], str]


def is_mine(text: str) -> bool:
    """Whether the text has the table of link types, or that of access.

    >>> is_mine("=== Link Type between two GPUs ==="), is_mine("LINK TYPE TABLE:"), is_mine("GPU0")
    (True, True, False)
    """
    return _MINE.search(text[:_MAX_TEXT_CHARS]) is not None


def read(text: str, name: str) -> Topology:
    """The topology of one output. Raises UsageError with the line."""
    lines = list(_paste.lines(text))
    # a terminal may have broken them
    whole = [line for line in joined("\n".join(lines), WORD).split("\n") if line]
    found = (_tables(one) for one in (whole, lines))
    tables = max(found, key=lambda read: sum(len(one.cells) for one in read.values()))
    types = tables.get("link type") or tables.get("access")
    if types is None or len(types.labels) > _MAX_GPUS or len(text) > _MAX_TEXT_CHARS:
        raise UsageError(f"{name}: no whole table of link types between GPUs, or of too many")
    model = named_model(text)
    nodes = [
        Node(
            id=f"gpu{place}",
            kind="gpu",
            index=place,
            name=model.name if model is not None else "AMD GPU",
            address="" if label.upper().startswith("GPU") else label.lower(),
            facts=facts_of({"vendor": "0x1002", "gcn": model.arch if model is not None else ""}),
        )
        for place, label in enumerate(types.labels)
    ]
    bundles = _bundles(tables, model.arch if model is not None else "")
    cpus, links = _cpus(lines, tables, len(nodes))
    limit_cpus(cpus, name)
    p2p = _access(tables, len(nodes))
    notes = ["the text tells no widths and no speeds of PCIe", *_lost(types), *_refused(p2p)]
    if cpus and not any(map(_NUMA.match, lines)):
        notes.append("NUMA nodes are made up from the hops between GPUs: the text has none")
    if any(link.usable_gbs is None for link in bundles):
        notes.append("neither number nor generation of xGMI links is told: their rates are unknown")
    return Topology(
        name=name.rpartition("/")[2],
        nodes=(*cpus, *nodes),
        links=(*links, *socket_links(cpus), *bundles),
        notes=tuple(notes),
        p2p=p2p,
    )


def _access(tables: Mapping[str, _Table], gpus: int) -> dict[tuple[str, str, str], str]:
    """Whether so many GPUs reach each other, by the table of access of amd-smi, which may be torn
    and have more.
    """
    if "access" not in tables:
        return {}
    return {
        (f"gpu{row}", f"gpu{column}", what): "OK" if cell.upper() == "ENABLED" else "NS"
        for (row, column), cell in tables["access"].cells.items()
        if row != column and max(row, column) < gpus and cell.upper() in ("ENABLED", "DISABLED")
        for what in ("read", "write")
    }


def _refused(p2p: Mapping[tuple[str, str, str], str]) -> list[str]:
    """A remark on pairs that do not reach each other."""
    pairs = sorted({(a, b) for (a, b, what), code in p2p.items() if code != "OK"})
    if not pairs:
        return []
    both = [f"{a} and {b} both ways" for a, b in pairs if a < b and (b, a) in pairs]
    shown = some_of(both or [f"{a} to {b}" for a, b in pairs], 4)
    return [f"access is disabled for {len(pairs)} ordered pairs of GPUs: {shown}"]


def _tables(lines: Sequence[str]) -> dict[str, _Table]:
    """Tables by their titles in small letters."""
    tables: dict[str, _Table] = {}
    for number, line in enumerate(lines):
        title = _TITLE.match(line)
        if title and (table := _table(lines, number + 1)):
            tables.setdefault((title[1] or title[2]).lower(), table)
    return tables


def _table(lines: Sequence[str], first: int) -> _Table | None:
    """The table whose header is the next line with labels; None if that has something else."""
    rows = [line.split() for line in lines[first : first + _MAX_GPUS + 8]]
    head = next((n for n, row in enumerate(rows) if row), len(rows))
    labels = tuple(rows[head]) if head < len(rows) else ()
    if not labels or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    cells: dict[tuple[int, int], str] = {}
    for row in rows[head + 1 :]:
        if not row or row[0] not in labels or len(row) < len(labels) + 1:
            break
        cells |= {(labels.index(row[0]), column): cell for column, cell in enumerate(row[1:])}
    return _Table(labels=labels, cells=cells)


def _lost(types: _Table) -> list[str]:
    """A remark on rows that the table of link types lacks."""
    rows = {row for row, _ in types.cells}
    lost = [f"GPU{place}" for place in range(len(types.labels)) if place not in rows]
    if not lost:
        return []
    shown = some_of(lost, 4)
    return [f"the rows of {shown} are missing or cut: links between two of them are not known"]


def _bundles(tables: Mapping[str, _Table], gfx: str) -> list[Link]:
    """XGMI links of pairs that are one hop apart."""
    types, weights = tables.get("link type", _Table(labels=(), cells={})), tables.get("weight")
    pairs = [
        (a, b)
        for a, b in combinations(range(len(types.labels)), 2)
        if types.cells.get((a, b), types.cells.get((b, a), "")).upper() == "XGMI"
    ]
    weighed = {pair: weights.cells.get(pair, "") for pair in pairs} if weights else {}
    far = {pair: int(text) for pair, text in weighed.items() if re.fullmatch(r"[1-9]\d{0,4}", text)}
    nearest = min(far.values(), default=0)
    is_mesh = len(pairs) == len(types.labels) * (len(types.labels) - 1) // 2
    bandwidths = tables.get("numa bw")
    links = []
    for a, b in pairs:
        if far.get((a, b), nearest) > nearest:
            continue  # through other GPUs
        told = bandwidths.cells.get((a, b), "") if bandwidths is not None else ""
        match = _BANDWIDTH.fullmatch(told)
        raw = int(match[1]) / 1000 if match and int(match[1]) else None
        one = rates.xgmi_link(f"gpu{a}", f"gpu{b}", gfx, 1)
        count = 1 if gfx in rates.ONE_XGMI and is_mesh else 0
        if raw and one.raw_gbs:
            count = max(1, round(raw / one.raw_gbs))
        if count:
            links.append(rates.xgmi_link(one.a, one.b, gfx, count))
        else:
            source = "amd-smi's bandwidth" if raw else ""
            links.append(Link(a=one.a, b=one.b, kind="xgmi", count=0, raw_gbs=raw, source=source))
    return links


def _cpus(
    lines: Sequence[str], tables: Mapping[str, _Table], count: int
) -> tuple[list[Node], list[Link]]:
    """CPUs and the GPUs at them, by NUMA nodes, else by hops; none where neither is told."""
    matches = (_NUMA.match(line) for line in lines)
    numa = {int(match[1]): max(int(match[2]), 0) for match in matches if match}
    if not numa and "hops" in tables:
        hops = tables["hops"].cells
        for a in range(count):
            near = [b for b in range(a) if hops.get((a, b)) == "2" and b in numa]
            is_told = any(hops.get((a, b)) in ("2", "3") for b in range(count))
            if near or is_told:
                numa[a] = numa[near[0]] if near else len(set(numa.values()))
    cpus = [
        Node(id=f"cpu{number}", kind="cpu", index=number, facts=_HIDDEN)
        for number in sorted(set(numa.values()))
    ]
    links = [
        rates.pcie_link(f"cpu{number}", f"gpu{gpu}", 0, 0)
        for gpu, number in sorted(numa.items())
        if gpu < count
    ]
    return cpus, links
