"""What is known of every variable: the tables of profiles/settings as values. Nothing here reads
the environment.

    [variables.NCCL_X]      a name that ends with * stands for all that begin so
    kind                    flag (0 or 1), integer, size (bytes), switch (a word or 0 or 1), choice,
                            list, tuning (lists by collective, as NCCL_ALGO), text or path
    values, values_since    of a choice, a list or tuning; the version that a value came with
    special                 further values; a negative one leaves the choice to the reader
    least, most, multiple   of a number
    is_exact                whether capitals matter
    has_units               whether a size may have a unit, or be auto or inf
    separator               of a list; a comma if absent
    default                 of the newest version; absent where the reader chooses
    default_before          versions of NCCL with the default that those before it have
    since, until            the first and the last version of NCCL that read it; absent if unknown
    reader                  who reads it, if not the reader of the file
    may_cost, costs_at      whether it may cost speed, and at which values; absent: at all others
                            than the default
    is_deliberate           whether such a value is often set on purpose
    leftover                values that are for debugging; "*" is any but the default

    [[contradictions]]      settings that do not go together (see nccl.toml)
    [unread]                names that nobody reads, and what to set instead
    [others]                names by who alone reads them, of which no more is known
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from collbench.core import catalog
from collbench.core.codec import decode
from collbench.core.errors import UsageError

Kind = Literal["flag", "integer", "size", "switch", "choice", "list", "tuning", "text", "path"]
Use = Literal["debugging", "tuning", "selection", "network", "paths"]
Severity = Literal["error", "cost", "remark"]
Fact = Literal["several hosts", "mixed GPUs"]
Test = Literal["set", "unset", "is", "names", "begins", "above", "differs", "times"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable, or all that begin with a name that ends with *."""

    name: str
    reader: str
    kind: Kind
    values: tuple[str, ...] = ()
    values_since: Mapping[str, str] = field(default_factory=dict)
    special: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    multiple: int = 1
    is_exact: bool = False
    has_units: bool = False
    separator: str = ","
    default: str | None = None
    default_before: Mapping[str, str] = field(default_factory=dict)
    since: str = ""
    until: str = ""
    replaced_by: str = ""
    use: Use
    may_cost: bool = False
    costs_at: tuple[str, ...] = ()
    is_deliberate: bool = False
    leftover: tuple[str, ...] = ()
    meaning: str
    hurts: str = ""

    @property
    def is_prefix(self) -> bool:
        """Whether it stands for all names that begin so."""
        return self.name.endswith("*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold of a variable; operands are values, names of variables or numbers."""

    name: str
    test: Test
    operands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Settings that do not go together: all conditions hold, and the fact is true."""

    when: tuple[Condition, ...]
    needs: Fact | None = None
    severity: Severity
    text: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """One table of profiles/settings."""

    name: str
    title: str
    sources: tuple[str, ...]
    reader: str
    variables: tuple[Variable, ...]
    others: tuple[Variable, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    unread: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All tables together."""

    by_name: Mapping[str, Variable]
    prefixes: tuple[Variable, ...]
    contradictions: tuple[Contradiction, ...]
    unread: Mapping[str, str]
    suggestions: tuple[str, ...]  # names of which a misspelt one may be meant

    def find(self, name: str) -> Variable | None:
        """The variable of a name, or the longest prefix that it begins with."""
        if name in self.by_name:
            return self.by_name[name]
        return next((one for one in self.prefixes if name.startswith(one.name[:-1])), None)


@functools.cache
def settings_files() -> tuple[SettingsFile, ...]:
    """The shipped tables. Raises UsageError if one of them is wrong."""
    return tuple(
        settings_file(name, catalog.load("settings", name)) for name in catalog.names("settings")
    )


@functools.cache
def known() -> Known:
    """All that the shipped tables say."""
    files = settings_files()
    described = [variable for file in files for variable in file.variables]
    variables = [*described, *(variable for file in files for variable in file.others)]
    prefixes = [variable for variable in variables if variable.is_prefix]
    return Known(
        by_name={variable.name: variable for variable in variables if not variable.is_prefix},
        prefixes=tuple(sorted(prefixes, key=lambda one: -len(one.name))),
        contradictions=tuple(rule for file in files for rule in file.contradictions),
        unread={name: advice for file in files for name, advice in file.unread.items()},
        suggestions=tuple(variable.name for variable in described if not variable.is_prefix),
    )


def settings_file(name: str, data: Mapping[str, Any]) -> SettingsFile:  # Any: values of TOML
    """The table of a file's values. Raises UsageError, naming the key and the value."""
    reader = str(data.get("reader", ""))
    variables = (
        decode(Variable, {"name": key, "reader": reader, **table}, f"[{name}.{key}]")
        for key, table in data["variables"].items()
    )
    others = (
        Variable(name=one, reader=of, kind="text", use="tuning", meaning=f"A setting of {of}.")
        for of, names in data.get("others", {}).items()
        for one in names
    )
    rules = (
        {**rule, "when": [_condition(name, *one) for one in rule["when"].items()]}
        for rule in data.get("contradictions", ())
    )
    place = f"[{name}.contradictions]"
    return SettingsFile(
        name=name,
        title=data["title"],
        sources=tuple(data["sources"]),
        reader=reader,
        variables=tuple(variables),
        others=tuple(others),
        unread=data.get("unread", {}),
        contradictions=tuple(decode(Contradiction, rule, place) for rule in rules),
    )


def _condition(file: str, name: str, text: str) -> dict[str, object]:
    test, *operands = text.split()
    if test not in get_args(Test):
        raise UsageError(f"[{file}.contradictions] {name} = {text!r} is no condition")
    return {"name": name, "test": test, "operands": operands}
