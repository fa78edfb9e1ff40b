"""Files of topologies for tests: our own, and dumps of real machines where they are at hand."""

from pathlib import Path

import pytest

from collbench.machine.topology.model import Topology
from collbench.machine.topology.paths import path
from tests.support.runs import SHARED

OWN = Path(__file__).parent.parent / "data" / "topologies"
REAL = SHARED / "topologies"
needs_real = pytest.mark.skipif(
    not REAL.is_dir(), reason="the dumps of real machines are not at hand"
)


def real_files() -> list[Path]:
    return sorted(file for file in REAL.rglob("*") if file.is_file())


def labels(topology: Topology, *ids: str) -> list[str]:
    """Rows of the link matrix: of those nodes, or of all GPUs."""
    names = ids or tuple(gpu.id for gpu in topology.gpus)
    return [" ".join(path(topology, a, b).label for b in names) for a in names]


def count(topology: Topology, kind: str) -> int:
    return sum(link.kind == kind for link in topology.links)
