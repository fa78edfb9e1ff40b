"""Files of topologies for tests: our own, and dumps of real machines where they are at hand."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from collbench.core import catalog
from collbench.machine.topology.machines import has_links, machine_topology
from collbench.machine.topology.model import Link, Node, Topology
from collbench.machine.topology.paths import path
from collbench.machine.topology.rings import ring_rate_gbs, rings, trees
from collbench.machine.views.matrix import matrix as matrix_view
from collbench.machine.views.tables import links
from tests.support.runs import SHARED

OWN = Path(__file__).parent.parent / "data" / "topologies"
REAL = SHARED / "topologies"
EMPTY = ("", None)
WIRED = tuple(name for name in catalog.names("machines") if has_links(name))
needs_real = pytest.mark.skipif(
    not REAL.is_dir(), reason="the dumps of real machines are not at hand"
)


def of_few_gpus() -> list[str]:
    """Machines of the catalogue of which a plan of all GPUs is quickly made."""
    return [name for name in WIRED if 1 < len(machine_topology(name).gpus) <= 16]


def real_files() -> list[Path]:
    return sorted(file for file in REAL.rglob("*") if file.is_file())


def labels(topology: Topology, *ids: str) -> list[str]:
    """Rows of the link matrix: of those nodes, or of all GPUs."""
    names = ids or tuple(gpu.id for gpu in topology.gpus)
    return [" ".join(path(topology, a, b).label for b in names) for a in names]


def count(topology: Topology, kind: str) -> int:
    return sum(link.kind == kind for link in topology.links)


def matrix(cells: str, behind: str = "") -> str:
    """Text of nvidia-smi for rows of cells, all devices GPUs."""
    rows = [row.split() for row in cells.split("/")]
    head = "\t" + "\t".join(f"GPU{n}" for n in range(len(rows)))
    return "\n".join(
        [
            f"{head}\tCPU Affinity\tNUMA Affinity",
            *("\t".join([f"GPU{n}", *row, behind]) for n, row in enumerate(rows)),
        ]
    )


def fact(topology: Topology, words: str) -> str:
    """What a table of topologies says by such words: `labels` of all GPUs or of some devices, the
    `way` between two, `kinds` of nodes and links, attributes of all `nodes` or `links` of a kind.
    """
    match words.split():
        case ["labels", *ids]:
            return " / ".join(labels(topology, *ids))
        case ["way", a, b]:
            way = path(topology, a, b)
            return " ".join([way.label, *map(_shown, _rates(way.limit))])
        case ["rings"]:
            orders = rings(topology)
            rate = _shown(ring_rate_gbs(topology, orders))
            return f"{len(orders)} rings, {len(trees(topology))} chains, {rate} GB/s"
        case ["order"]:
            [ring], [chain] = rings(topology), trees(topology)
            return " ".join(map(str, ring)) if ring == chain else "no order for both"
        case ["kinds"]:
            every: list[Node | Link] = [*topology.nodes, *topology.links]
            found = Counter(one.kind for one in every)
            return " ".join(f"{kind} {count}" for kind, count in sorted(found.items()))
        case [("nodes" | "links") as what, kind, *keys]:
            all_of_them: Sequence[Node | Link] = getattr(topology, what)
            some = (one for one in all_of_them if one.kind == kind)
            return ", ".join(" ".join(_shown(_value(one, key)) for key in keys) for one in some)
        case ["hosts"]:
            return " ".join(topology.hosts)
        case ["p2p"]:
            return ", ".join(f"{' '.join(ends)} {state}" for ends, state in topology.p2p.items())
        case ["remarks"]:
            return str(len(topology.notes))
        case ["matrix" | "table" as view, row]:
            lines = matrix_view(topology, 100) if view == "matrix" else links(topology)
            return " ".join(lines[int(row)].split())
    raise AssertionError(words)


def _rates(limit: Link | None) -> Sequence[object]:
    return (limit.usable_gbs, limit.kind) if limit else ("?",)


def _value(one: Node | Link, key: str) -> object:
    return getattr(one, key) if hasattr(one, key) else one.fact(key)  # type: ignore[union-attr]


def _shown(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else "-" if value in EMPTY else str(value)
