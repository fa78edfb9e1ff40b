"""The ceilings of recorded rows, as the tool computes them today.

    python -m tests.benchmarks.recorded_ceilings

writes the columns ceiling_gbs, percent and limit of every recorded file of GPUs again, from what
the row says of itself and from the links of its machine. It is run when a rate of a link changes;
no other column is touched. tests/bench/test_recorded_ceilings.py says when that was forgotten.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from collbench.core.case import Case
from collbench.core.collectives import collective
from collbench.core.peers import is_peer
from collbench.machine.topology.machines import machine_topology
from collbench.planning.limits import Limits
from collbench.planning.links import RankLinks
from collbench.planning.planner import resolve

ROOT = Path(__file__).parent.parent.parent
MACHINE = "h200x4-vm"  # H100s have the same links at the same switch
RECORDED = (
    *(ROOT / "profiles" / "results" / f"{name}.csv" for name in ("h100x2", "h200x2", "h200x4")),
    *(ROOT / "docs" / "examples" / f"{name}-run.csv" for name in ("first", "second", "slower")),
)


def links_of(machine: str) -> RankLinks:
    """The links of a rank on each of the machine's GPUs."""
    topology = machine_topology(machine)
    return RankLinks(topology, [gpu.id for gpu in topology.gpus])


def with_ceilings(rows: Iterator[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Rows whose ceiling is that of today, where they have one. NVLS was off in all of them."""
    ceilings = links_of(MACHINE)
    for row in rows:
        if row["ceiling_gbs"]:
            row |= _ceiling(row, ceilings)
        yield row


def _ceiling(row: Mapping[str, str], ceilings: RankLinks) -> dict[str, str]:
    case = Case(
        op=collective(row["op"]).name,
        backend=row["backend"],
        algo=row["algo"],
        ranks=int(row["ranks"]),
        root=int(row["root"]),
        size_bytes=int(row["size_bytes"]),
        proto=row["proto"] or "auto",
        transport=row["transport"],
    )
    plan = None if is_peer(case.backend) else resolve(case, Limits()).plan
    top = ceilings.ceiling(case, plan)
    assert top is not None
    return {
        "ceiling_gbs": f"{top.gbs:.6g}",
        "percent": f"{100 * float(row['busbw_gbs']) / top.gbs:.6g}",
        "limit": top.text,
    }


def rewritten(text: str) -> str:
    """A file with the ceilings of today."""
    rows = csv.DictReader(io.StringIO(text))
    out = io.StringIO()
    writer = csv.DictWriter(out, rows.fieldnames or (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(with_ceilings(iter(rows)))
    return out.getvalue()


if __name__ == "__main__":
    import os

    os.environ["NCCL_NVLS_ENABLE"] = "0"
    for file in RECORDED:
        file.write_text(rewritten(file.read_text()))
