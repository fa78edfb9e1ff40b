"""What is known of every variable: the tables of profiles/settings as values. Nothing here reads
the environment.

    [variables.NCCL_X]      a name that ends with * stands for all that begin so
    kind                    flag (0 or 1), integer, size (bytes), switch (a word or 0 or 1), choice,
                            list, tuning (lists by collective, as NCCL_ALGO), text or path
    values, values_since    of a choice, a list or tuning; the version that a value came with
    special                 further values; a negative one leaves the choice to the reader
    min, max, multiple      of a number
    case                    whether capitals matter
    units                   whether a size may have a unit, or be auto or inf
    separator               of a list; a comma if absent
    default                 of the newest version; absent where the reader chooses
    default_before          versions of NCCL with the default that those before it have
    since, until            the first and the last version of NCCL that read it; absent if unknown
    reader                  who reads it, if not the reader of the file
    may_cost, costs_at      whether it may cost speed, and at which values; absent: at all others
                            than the default
    deliberate              whether such a value is often set on purpose
    leftover                values that are for debugging; "*" is any but the default

    [[contradictions]]      settings that do not go together (see nccl.toml)
    [unread]                names that nobody reads, and what to set instead
    [others]                names by who alone reads them, of which no more is known
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from collbench.core import catalog
from collbench.core.errors import UsageError
from collbench.machine.topology.profile_table import ProfileTable

Kind = Literal["flag", "integer", "size", "switch", "choice", "list", "tuning", "text", "path"]
Use = Literal["debugging", "tuning", "selection", "network", "paths"]
Severity = Literal["error", "cost", "remark"]
Fact = Literal["several hosts", "mixed GPUs"]
Test = Literal["set", "unset", "is", "names", "begins", "above", "differs", "times"]

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_KEYS = (
    *("kind", "values", "values_since", "special", "min", "max", "multiple", "case", "units"),
    *(
        "separator",
        "default",
        "default_before",
        "since",
        "until",
        "reader",
        "replaced_by",
        "may_cost",
        "costs_at",
    ),
    *("deliberate", "leftover", "use", "meaning", "hurts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable, or all that begin with a name that ends with *."""

    name: str
    reader: str
    kind: Kind
    values: tuple[str, ...] = ()
    values_since: Mapping[str, str]
    special: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    multiple: int = 1
    is_exact: bool = False
    has_units: bool = False
    separator: str = ","
    default: str | None = None
    default_before: Mapping[str, str]
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
    head = ProfileTable(where=f"[{name}]", values=data)
    keys = ("title", "sources", "reader", "variables", "contradictions", "unread", "others")
    _only(head, keys)
    reader = head.text("reader")
    return SettingsFile(
        name=name,
        title=head.text("title"),
        sources=head.texts("sources"),
        reader=reader,
        variables=tuple(
            _variable(key, ProfileTable(where=f"[{name}.{key}]", values=table), reader)
            for key, table in head.table("variables").values.items()
        ),
        others=tuple(_others(head.table("others"))),
        unread=head.mapping("unread"),
        contradictions=tuple(
            _contradiction(ProfileTable(where=f"[{name}.contradictions]", values=table))
            for table in data.get("contradictions", [])
        ),
    )


def _variable(name: str, table: ProfileTable, reader: str) -> Variable:
    _only(table, _KEYS)

    def number(key: str) -> int | None:
        return table.whole(key, _LEAST, _MOST) if key in table.values else None

    return Variable(
        name=name,
        reader=table.text("reader", reader),
        kind=_one_of(table, "kind", get_args(Kind)),
        values=table.texts("values", ()),
        values_since=table.mapping("values_since"),
        special=table.texts("special", ()),
        least=number("min"),
        most=number("max"),
        multiple=table.whole("multiple", 1, _MOST, 1),
        is_exact=table.truth("case"),
        has_units=table.truth("units"),
        separator=table.text("separator", ","),
        default=table.text("default") if "default" in table.values else None,
        default_before=table.mapping("default_before"),
        since=table.text("since", ""),
        until=table.text("until", ""),
        replaced_by=table.text("replaced_by", ""),
        use=_one_of(table, "use", get_args(Use)),
        may_cost=table.truth("may_cost"),
        costs_at=table.texts("costs_at", ()),
        is_deliberate=table.truth("deliberate"),
        leftover=table.texts("leftover", ()),
        meaning=table.text("meaning"),
        hurts=table.text("hurts", ""),
    )


def _others(table: ProfileTable) -> Iterator[Variable]:
    for reader in table.values:
        for name in table.texts(reader):
            yield Variable(
                name=name,
                reader=reader,
                kind="text",
                values_since={},
                default_before={},
                use="tuning",
                meaning=f"A setting of {reader}.",
            )


def _contradiction(table: ProfileTable) -> Contradiction:
    _only(table, ("when", "needs", "severity", "text", "fix"))
    return Contradiction(
        when=tuple(_condition(table, name, text) for name, text in table.mapping("when").items()),
        needs=_one_of(table, "needs", get_args(Fact)) if "needs" in table.values else None,
        severity=_one_of(table, "severity", get_args(Severity)),
        text=table.text("text"),
        fix=table.text("fix"),
    )


def _condition(table: ProfileTable, name: str, text: str) -> Condition:
    test, *operands = text.split()
    if test not in get_args(Test):
        raise UsageError(f"{table.where} {name} = {text!r} is no condition")
    return Condition(name=name, test=cast(Test, test), operands=tuple(operands))


def _one_of(table: ProfileTable, key: str, allowed: Sequence[Any]) -> Any:  # Any: a Literal
    value = table.text(key)
    if value not in allowed:
        raise UsageError(f"{table.where} {key} = {value!r} is none of {', '.join(allowed)}")
    return value


def _only(table: ProfileTable, keys: Sequence[str]) -> None:
    if unknown := sorted(set(table.values) - set(keys)):
        raise UsageError(f"{table.where} has {', '.join(unknown)}, which nobody reads")
