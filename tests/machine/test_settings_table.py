"""The tables of variables: every row is well-formed, and every contradiction can be found."""

import json
import re
from dataclasses import replace

import pytest

from collbench.core.errors import UsageError
from collbench.machine.settings.files import Setting
from collbench.machine.settings.judge import judge
from collbench.machine.settings.table import (
    Condition,
    Contradiction,
    Variable,
    known,
    settings_file,
    settings_files,
)
from collbench.machine.settings.values import fault, number, version_of
from tests.support.tables import cells_of

VARIABLES = [variable for file in settings_files() for variable in (*file.variables, *file.others)]
RULES = [rule for file in settings_files() for rule in file.contradictions]
NUMBERS = ("flag", "integer", "size")


def wrong_with(variable: Variable) -> list[str]:
    """What is not as it should be in a row."""
    given = [value for value in (*variable.costs_at, *variable.leftover) if value != "*"]
    if variable.default is not None:
        given.append(variable.default)
    wants = {
        "name": re.fullmatch(r"[A-Z][A-Za-z0-9]*(_[A-Za-z0-9]+)*_?\*?", variable.name),
        "meaning": re.fullmatch(r"[A-Z0-9].*[^ .]\.", variable.meaning),
        "hurts": not variable.hurts or re.fullmatch(r"[A-Z0-9].*[^ .]\.", variable.hurts),
        "one line": not re.search(r"\s\s|\n", variable.meaning + variable.hurts),
        "values that it allows": not [value for value in given if fault(variable, value)],
        "hurts if it may cost": variable.hurts or not variable.may_cost,
        "costs_at if it may cost": variable.may_cost or not variable.costs_at,
        "deliberate if it may cost": variable.may_cost or not variable.is_deliberate,
        "values": bool(variable.values) or variable.kind not in ("choice", "tuning"),
        "kind of values": not variable.values or variable.kind in ("choice", "list", "tuning"),
        "values_since": set(variable.values_since) <= set(variable.values),
        "limits": variable.kind in NUMBERS
        or (variable.least, variable.most, variable.multiple) == (None, None, 1),
        "min <= max": variable.least is None
        or variable.most is None
        or variable.least <= variable.most,
        "flag": variable.kind != "flag" or variable.default in (None, "0", "1"),
        "since <= until": not variable.since
        or not variable.until
        or version_of(variable.since) <= version_of(variable.until),
        "versions": all(
            not text or re.fullmatch(r"2\.\d+\.\d+", text)
            for text in (variable.since, variable.until, *variable.values_since.values())
        ),
        "replaced_by": not variable.replaced_by or known().find(variable.replaced_by),
    }
    return [what for what, holds in wants.items() if not holds]


def test_every_row_is_well_formed() -> None:
    wrong = {variable.name: wrong_with(variable) for variable in VARIABLES}
    assert {name: what for name, what in wrong.items() if what} == {}


def test_names_are_unique_and_cover_the_four_families() -> None:
    names = [variable.name for variable in VARIABLES]
    assert len(set(names)) == len(names)
    assert [file.name for file in settings_files()] == ["cuda", "mpi", "nccl", "ucx"]
    assert sum(name.startswith("NCCL_") for name in names) > 280
    assert {name for name in known().unread if known().find(name)} == set()
    assert all(advice.endswith(".") for advice in known().unread.values())


@pytest.mark.parametrize(("name", "reader"), cells_of(__file__, "readers.tsv"))
def test_what_looks_like_nccls_has_its_reader(name: str, reader: str) -> None:
    variable = known().find(name)
    assert variable is not None and variable.reader == reader


def test_versions_are_those_of_nccls_sources() -> None:
    spans = {
        name: (known().by_name[name].since, known().by_name[name].until)
        for name in ("NCCL_DEBUG", "NCCL_CHECK_MODE", "NCCL_TREE_THRESHOLD", "NCCL_IB_HCA")
    }
    assert spans == {
        "NCCL_DEBUG": ("", ""),
        "NCCL_CHECK_MODE": ("2.29.7", ""),
        "NCCL_TREE_THRESHOLD": ("2.4.2", "2.4.8"),
        "NCCL_IB_HCA": ("", ""),
    }


def satisfying(condition: Condition) -> dict[str, str]:
    """Values of which a condition holds."""
    name, operands = condition.name, condition.operands
    match condition.test:
        case "unset":
            return {}
        case "set":
            return {name: "1"}
        case "above":
            other = operands[0]
            return {name: "9", **({} if number(other) else {other: "3"})}
        case "differs":
            return {name: "9", operands[0]: "3"}
        case "times":
            return {name: "16", operands[0]: "16"}
        case _:
            return {name: operands[0]}


def found(rule: Contradiction, values: dict[str, str]) -> bool:
    settings = [Setting(name, value) for name, value in values.items()]
    problems = judge(settings, facts=[rule.needs] if rule.needs else [])
    return rule.text in [problem.why for problem in problems if problem.kind == "contradiction"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "+".join(one.name for one in rule.when))
def test_a_contradiction_is_found_with_all_its_conditions_and_not_with_fewer(
    rule: Contradiction,
) -> None:
    values = {key: value for one in rule.when for key, value in satisfying(one).items()}
    assert {name for one in rule.when for name in (one.name,)} <= set(known().by_name)
    assert found(rule, values)
    for name in values:
        assert not found(rule, {key: value for key, value in values.items() if key != name})
    for condition in rule.when:
        if condition.test == "unset":
            assert not found(rule, {**values, condition.name: "PCI_BUS_ID"})
    if rule.needs:
        assert not found(replace(rule, needs=None), values)
    assert rule.text.endswith(".") and rule.fix.endswith(".")


ROW = {"kind": "flag", "use": "tuning", "meaning": "Does something."}


@pytest.mark.parametrize(("change", "message"), cells_of(__file__, "wrong-rows.tsv"))
def test_a_wrong_row_is_named(change: str, message: str) -> None:
    data = {"title": "T", "sources": ["S"], "reader": "NCCL"}
    with pytest.raises(UsageError, match=rf"NCCL_X\].*{re.escape(message)}"):
        settings_file("nccl", {**data, "variables": {"NCCL_X": {**ROW, **json.loads(change)}}})
    with pytest.raises(UsageError, match="'sometimes' is no condition"):
        rule = {"when": {"NCCL_X": "sometimes"}, "severity": "cost", "text": "T.", "fix": "F."}
        settings_file("nccl", {**data, "variables": {"NCCL_X": ROW}, "contradictions": [rule]})
