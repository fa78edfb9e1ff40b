"""Signals at random moments to random processes of a run, and what docs/reference/faults.md
promises of them.
"""

from pathlib import Path

from tests.support.faults import draw, table, what_is_wrong
from tests.support.runs import library
from tests.support.tiers import tiered

PROMISED = table(library())


@tiered("seed", list(range(16)), [0])
def test_a_fault(tmp_path: Path, seed: int) -> None:
    fault = draw(seed, PROMISED)
    promised = PROMISED[fault.start, fault.which][fault.signal]
    assert what_is_wrong(tmp_path, fault, promised) == "", fault
