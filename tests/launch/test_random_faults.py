"""Signals at random moments to random processes of a run, and what docs/reference/faults.md
promises of them.
"""

from pathlib import Path

import pytest

from tests.support.faults import draw, table, what_is_wrong
from tests.support.runs import library

PROMISED = table(library())


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(11))
def test_a_fault(tmp_path: Path, seed: int) -> None:
    fault = draw(seed, PROMISED)
    promised = PROMISED[fault.start, fault.which][fault.signal]
    assert what_is_wrong(tmp_path, fault, promised) == "", fault
