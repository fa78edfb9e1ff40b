"""What is wrong with the variables that are set. Pure: settings, a version and facts of the machine
in, problems out. Whether a setting costs speed is for an experiment to say; here stands which
could.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from collbench.machine.settings.files import Setting
from collbench.machine.settings.table import (
    Condition,
    Contradiction,
    Fact,
    Known,
    Severity,
    Variable,
    known,
)
from collbench.machine.settings.values import (
    chosen,
    fault,
    is_before,
    is_one_of,
    number,
    of_version,
    shown,
    version_of,
)

ProblemKind = Literal[
    "unknown",
    "bad-value",
    "not-in-this-version",
    "contradiction",
    "leftover",
    "overridden",
    "costs",
]
_RANKS: dict[Severity, int] = {"error": 0, "cost": 1, "remark": 2}
_OURS = "NCCL_"
# families with how similar two names are of which one was meant; CUDA_ is also others' prefix
_NEAR = {_OURS: 0.8, "CUDA_": 0.9}
_WORDS = ("choice", "list", "tuning", "path")  # of numbers and texts blanks do no harm
_UNREAD = "A variable that nobody reads does nothing, and nobody is told."
_MOST_NAME = 80  # the longest known name has 62 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingProblem:
    """names: the variables that it is about; value and source: of the first. seen: what is set, or
    what is wrong with a name; why: what that does. may_cost: whether the settings may cost speed,
    which measuring with and without them shows.
    """

    kind: ProblemKind
    severity: Severity
    names: tuple[str, ...]
    value: str
    source: str
    seen: str
    why: str
    fix: str
    may_cost: bool = False


def judge(
    settings: Sequence[Setting], version: str | None = None, facts: Collection[Fact] = ()
) -> list[SettingProblem]:
    """The problems of the settings, the worst first. settings: what wins first, as `gather` gives
    them; version: of NCCL, as "2.28.9"; facts: what is known of the machine.

    >>> (problem,) = judge([Setting("NCCL_BUFFSIZE", "abc")])
    >>> problem.seen, problem.why
    ('NCCL_BUFFSIZE=abc', 'The value is no number, and NCCL reads 0.')
    """
    tables = known()
    effective: dict[str, Setting] = {}
    problems: list[SettingProblem] = []
    for setting in settings:
        winner = effective.setdefault(setting.name, setting)
        if winner is not setting and winner.value != setting.value:
            problems.append(_overridden(setting, winner))
    for setting in effective.values():
        problems += _of_one(setting, tables, version)
    values = {name: setting.value for name, setting in effective.items() if setting.value}
    for rule in tables.contradictions:
        if _holds(rule, values, tables, version, facts):
            problems.append(_contradiction(rule, effective))
    return sorted(problems, key=lambda problem: _RANKS[problem.severity])


def _of_one(setting: Setting, tables: Known, version: str | None) -> Iterator[SettingProblem]:
    variable = tables.find(setting.name)
    if variable is None:
        yield from _unknown(setting, tables)
        return
    variable = of_version(variable, version)
    if missing := _not_in(variable, version):
        newer = variable.replaced_by
        fix = f"Use {newer} instead." if newer else _removal(setting)
        yield _problem("not-in-this-version", "remark", setting, _named(setting), missing, fix)
    elif wrong := _untrimmed(setting, variable) or fault(variable, setting.value, version):
        text, fix = wrong
        yield _problem(
            "bad-value",
            "error",
            setting,
            _named(setting),
            f"The value {text}.",
            fix or _removal(setting),
            variable.may_cost and not variable.costs_at,
        )
    elif (value := setting.value.strip()) and not (
        value.startswith("-") and value in variable.special  # which leaves the choice to the reader
    ):
        yield from _of_value(setting, variable)


def _of_value(setting: Setting, variable: Variable) -> Iterator[SettingProblem]:
    may_cost = variable.may_cost and is_one_of(variable, setting.value, variable.costs_at or ("*",))
    seen, why = _named(setting), f"{variable.meaning} {variable.hurts}".rstrip()
    fix = _removal(setting)[:-1] + (", unless it is meant." if variable.is_deliberate else ".")
    severity: Severity = "cost" if may_cost and not variable.is_deliberate else "remark"
    if variable.leftover and is_one_of(variable, setting.value, variable.leftover):
        seen += " is for debugging"
        yield _problem("leftover", severity, setting, seen, why, fix, may_cost)
    elif may_cost:
        yield _problem("costs", severity, setting, seen, why, fix, may_cost)


def _problem(
    kind: ProblemKind,
    severity: Severity,
    setting: Setting,
    seen: str,
    why: str,
    fix: str,
    may_cost: bool = False,
) -> SettingProblem:
    return SettingProblem(
        kind=kind,
        severity=severity,
        names=(setting.name,),
        value=setting.value,
        source=setting.source,
        seen=seen,
        why=why,
        fix=fix,
        may_cost=may_cost,
    )


def _named(setting: Setting) -> str:
    place = f" in {setting.source}" if setting.is_of_a_file else ""
    return f"{shown(setting.name)}={shown(setting.value)}{place}"


def _removal(setting: Setting) -> str:
    if setting.is_of_a_file:
        return f"Remove it from {setting.source}."
    return f"Unset {shown(setting.name)}."


def _overridden(setting: Setting, winner: Setting) -> SettingProblem:
    place = f" of {winner.source}" if winner.is_of_a_file else " of the environment"
    why = f"It has no effect: {shown(winner.value)!r}{place} wins."
    return _problem("overridden", "remark", setting, _named(setting), why, _removal(setting))


def _untrimmed(setting: Setting, variable: Variable) -> tuple[str, str] | None:
    """Quotation marks, which files of containers keep as well, or blanks at an end of a word."""
    value = setting.value
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return "keeps its quotation marks, which belong to the value", f"Write {value[1:-1]}."
    if setting.is_of_a_file and variable.kind in _WORDS and value.strip() != value:
        return "keeps its blanks, because NCCL trims nothing", f"Write {value.strip()}."
    return None


def _not_in(variable: Variable, version: str | None) -> str:
    """That this version of NCCL does not read it; empty if it does, or if that is not known. Where
    the version is not known, what newer ones dropped is told.
    """
    name = variable.name
    if not version and variable.until:
        return f"NCCL newer than {variable.until} does not read {name}."
    if version and variable.since and is_before(version, variable.since):
        return f"NCCL {version} does not read {name}, which came with {variable.since}."
    asked = version_of(version or "")
    if variable.until and asked > version_of(variable.until)[: len(asked)]:
        return f"NCCL {version} does not read {name}; the last that did is {variable.until}."
    return ""


def _unknown(setting: Setting, tables: Known) -> Iterator[SettingProblem]:
    name = setting.name
    bare = (name.split() or [""])[-1]  # of " NAME" or "export NAME"
    if bare != name and tables.find(bare):
        what = f"{shown(name)!r} is not {bare}: blanks and words in front belong to the name"
        yield _misspelt(setting, what, f"Write {bare}={shown(setting.value)}.")
    elif bare in tables.unread:
        what = f"NCCL does not read {bare}"
        yield _misspelt(setting, what, tables.unread[bare])
    elif near := _nearest(bare, tables):
        what = f"{shown(name)}: did you mean {near}? No program is known to read the first"
        yield _misspelt(setting, what, f"Write {near} if it was meant, or else unset it.")
    elif name.startswith(_OURS):
        what = f"No program is known to read {shown(name)}"
        yield _problem("unknown", "remark", setting, what, _UNREAD, _removal(setting))


def _misspelt(setting: Setting, what: str, fix: str) -> SettingProblem:
    return _problem("unknown", "error", setting, what, _UNREAD, fix)


def _nearest(name: str, tables: Known) -> str:
    """The known name that was probably meant; empty if none is near, or the name is of others."""
    if len(name) > _MOST_NAME:
        return ""
    family = name.partition("_")[0].upper()
    is_ours = name.startswith(_OURS) or ("_" in name and set(family) == set("NCL"))
    prefix = _OURS if is_ours else next((one for one in _NEAR if name.startswith(one)), "")
    if not prefix:
        return ""
    # without the prefix, which makes all names of a family alike
    rests = {
        known_name.removeprefix(prefix): known_name
        for known_name in tables.suggestions
        if known_name.startswith(prefix)
    }
    near = get_close_matches(name.partition("_")[2].upper(), rests, n=1, cutoff=_NEAR[prefix])
    return rests[near[0]] if near else ""


def _holds(
    rule: Contradiction,
    values: Mapping[str, str],
    tables: Known,
    version: str | None,
    facts: Collection[Fact],
) -> bool:
    if rule.needs and rule.needs not in facts:
        return False
    return all(
        _is_met(condition, values, tables)
        and not (condition.name in values and _not_in(tables.by_name[condition.name], version))
        for condition in rule.when
    )


def _is_met(condition: Condition, values: Mapping[str, str], tables: Known) -> bool:
    variable = tables.by_name[condition.name]
    value = values.get(condition.name)
    if condition.test == "unset":
        return value is None
    if value is None:
        return False
    operands = condition.operands
    match condition.test:
        case "is":
            return is_one_of(variable, value, operands)
        case "names":
            return not {operand.lower() for operand in operands}.isdisjoint(chosen(variable, value))
        case "begins":
            entries = [entry.removeprefix("=") for entry in chosen(variable, value)]
            return any(entry.startswith(operands) for entry in entries)
        case "above":
            return _is_above(_value(condition.name, values, tables), operands[0], values, tables)
        case "differs":
            one, other = (_value(name, values, tables) for name in (condition.name, operands[0]))
            return one is not None and other is not None and one != other
        case "times":
            one, other = (_value(name, values, tables) for name in (condition.name, operands[0]))
            product = None if one is None or other is None else one * other
            return _is_above(product, operands[2], values, tables)
        case _:
            return True


def _is_above(number_: int | None, limit: str, values: Mapping[str, str], tables: Known) -> bool:
    other = _value(limit, values, tables)
    return number_ is not None and other is not None and number_ > other


def _value(name: str, values: Mapping[str, str], tables: Known) -> int | None:
    """The number of a variable, of its default, or of a number itself; None if there is none, or if
    the value leaves the choice to NCCL.
    """
    variable = tables.by_name.get(name)
    text: str | None = name
    if variable:
        text = values.get(name, variable.default)
        if text is not None and text.strip() in variable.special:
            return None
    found = number(text) if text is not None else None
    return found[0] if found and not found[1] else None


def _contradiction(rule: Contradiction, effective: Mapping[str, Setting]) -> SettingProblem:
    names = [condition.name for condition in rule.when]
    names += [
        operand
        for condition in rule.when
        for operand in condition.operands
        if operand in effective and condition.test in ("above", "differs", "times")
    ]
    names = list(dict.fromkeys(names))
    first = effective[names[0]]
    return SettingProblem(
        kind="contradiction",
        severity=rule.severity,
        names=tuple(names),
        value=first.value,
        source=first.source,
        seen=" and ".join(_named(effective[name]) for name in names if name in effective),
        why=rule.text,
        fix=rule.fix,
        may_cost=rule.severity == "cost",
    )
