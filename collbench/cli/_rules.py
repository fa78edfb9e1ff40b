"""Options that have no effect, or that contradict each other: tables of rules, and what applies
them. An option is refused rather than ignored.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from collbench.cli._options import flag
from collbench.core.errors import UsageError

# Any: click has read each value, which has the type of its option.
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Options (parameter names) that are refused where `when` holds. The message may name values of
    other options in braces.
    """

    options: tuple[str, ...]
    when: Callable[[Options], object] = lambda options: True
    message: str
    hint: str


def refuse(rules: Iterable[Rule], explicit: Collection[str], options: Options) -> None:
    """Raise UsageError for the first rule that holds for one of the given options."""
    flags = {param.name: flag(param) for param in click.get_current_context().command.params}
    for rule in rules:
        named = [flags[name] for name in rule.options if name in explicit]
        if named and rule.when(options):
            raise UsageError(f"{', '.join(named)}: {rule.message.format_map(options)}", rule.hint)
