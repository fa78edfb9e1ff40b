"""Options that have no effect, or that contradict each other: tables of rules, and what applies
them. An option is refused rather than ignored.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from collbench.core.errors import UnavailableError, UsageError

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


def flag(param: click.Parameter) -> str:
    """The option as a user writes it, by its long name."""
    return max(param.opts, key=len)


def refusal(reason: str, hint: str) -> UnavailableError:
    """Why a point cannot run, from its reason: what that advises is the hint, in the place of the
    other one, unless it names an option that the command lacks.
    """
    context = click.get_current_context(silent=True)
    known = {name for one in context.command.params for name in one.opts} if context else set()
    why, _, advice = reason.rpartition("; ")
    named = re.findall(r"--[a-z][a-z0-9-]*", advice)
    if not why or not named:
        return UnavailableError(reason, hint)
    return UnavailableError(why, advice if known.issuperset(named) else hint)
