"""What the planner decides of a case and what it refuses, by a table."""

from typing import Any

import pytest

from collbench.core.case import Case
from collbench.core.errors import ScheduleError
from collbench.planning.chooser import choice_of_problem
from collbench.planning.limits import Limits, slot_wire_bytes
from collbench.planning.planner import resolve
from tests.support.tables import cells_of, values_of

BASE: dict[str, Any] = {"op": "allreduce", "backend": "cuda", "ranks": 4, "size_bytes": 1 << 20}


@pytest.mark.parametrize(("knobs", "limits", "outcome"), cells_of(__file__, "decided.tsv"))
def test_what_is_decided_and_what_is_refused(knobs: str, limits: str, outcome: str) -> None:
    """Of an allreduce of 1M over four GPUs, unless the case says otherwise. !: the words of a
    refusal; own: whether the tool's own choice of the problem is the same.
    """
    case, where = Case(**(BASE | values_of(knobs))), Limits(**values_of(limits))
    if outcome.startswith("! "):
        with pytest.raises(ScheduleError) as refused:
            resolve(case, where)
        assert outcome[2:] in f"{refused.value.message} {refused.value.hint}"
        return
    found, plan = resolve(case, where)
    assert plan.transport == found.transport
    assert plan.kernel is None or found.buffsize == plan.slots * slot_wire_bytes(plan)
    for name, wanted in values_of(outcome).items():
        is_own = name == "own" and found == choice_of_problem(found, where)
        value = is_own if name == "own" else getattr(found, name.rstrip("!"))
        assert (value == wanted) != name.endswith("!"), name
