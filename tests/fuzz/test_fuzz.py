"""No input of any kind ends in a traceback: the exit code is a documented one, a failure is two
lines, and nothing is written elsewhere.
"""

from pathlib import Path

import pytest

from tests.fuzz.cases import Case, case
from tests.fuzz.judge import Outcome, fault, outcome
from tests.support.tables import cells_of
from tests.support.tiers import tiered

FEW, MANY = 100, 300
SEED = 1


@pytest.mark.timeout(900)
@tiered(("first", "count"), [(0, FEW), *((first, MANY) for first in range(FEW, 1600, MANY))], 1)
def test_no_input_ends_in_a_traceback(tmp_path: Path, first: int, count: int) -> None:
    """A fault is seen again with: python -m tests.attack --seed SEED --only NUMBER."""
    print(f"seed {SEED}, cases {first} to {first + count - 1}")
    faults = {}
    for number in range(first, first + count):
        if found := fault(outcome(case(SEED, number), tmp_path), tmp_path):
            faults[number] = found
    assert faults == {}


def test_a_case_is_the_same_in_every_run() -> None:
    for number in range(100):
        assert case(SEED, number) == case(SEED, number)
    assert case(SEED, 0) != case(SEED + 1, 0)


@pytest.mark.parametrize(
    ("code", "err", "escaped", "forbidden", "words"), cells_of(__file__, "judged.tsv")
)
def test_the_judge_sees_what_must_not_be(
    tmp_path: Path, code: str, err: str, escaped: str, forbidden: str, words: str
) -> None:
    events = (forbidden,) if forbidden else ()
    seen = Outcome(code=int(code), out="", err=err, escaped=escaped, forbidden=events)
    assert fault(seen, tmp_path).startswith(words)
    assert bool(words) == bool(fault(seen, tmp_path))


def test_the_judge_sees_files_elsewhere(tmp_path: Path) -> None:
    args = ("topo", "--machine", "pcie-4", "--svg", "../x.svg")
    seen = outcome(Case(name="planted", args=args), tmp_path)
    assert fault(seen, tmp_path).startswith("forbidden: open")
