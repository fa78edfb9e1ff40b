"""What the planner decides of a case and what it refuses, by a table."""

import re

import pytest

from collbench.core.case import Case
from collbench.core.errors import ScheduleError
from collbench.core.units import parse_size
from collbench.planning.chooser import choice_of_problem
from collbench.planning.limits import Limits
from collbench.planning.planner import resolve
from tests.support.tables import cells_of

BASE = {"op": "allreduce", "backend": "cuda", "ranks": 4, "size_bytes": 1 << 20}
SIZES = ("size_bytes", "chunk", "buffsize", "memory_bytes")


def given(text: str) -> dict[str, object]:
    """What a cell says: names with values."""
    return {name: value_of(name, value) for name, value in re.findall(r"(\S+?)=(\S+)", text)}


def value_of(name: str, text: str) -> object:
    if name == "hosts":
        return tuple(map(int, text.split(",")))
    if text in ("yes", "no"):
        return text == "yes"
    return parse_size(text) if name in SIZES else int(text) if text.isdecimal() else text


@pytest.mark.parametrize(("knobs", "limits", "outcome"), cells_of(__file__, "decided.tsv"))
def test_what_is_decided_and_what_is_refused(knobs: str, limits: str, outcome: str) -> None:
    """Of an allreduce of 1M over four GPUs, unless the case says otherwise. !: the words of a
    refusal; own: whether the tool's own choice of the problem is the same.
    """
    case, where = Case(**(BASE | given(knobs))), Limits(**given(limits))  # type: ignore[arg-type]
    if outcome.startswith("! "):
        with pytest.raises(ScheduleError) as refused:
            resolve(case, where)
        assert outcome[2:] in f"{refused.value.message} {refused.value.hint}"
        return
    found, plan = resolve(case, where)
    assert plan.transport == found.transport
    for name, wanted in given(outcome).items():
        is_own = name == "own" and found == choice_of_problem(found, where)
        value = is_own if name == "own" else getattr(found, name.rstrip("!"))
        assert (value == wanted) != name.endswith("!"), name
