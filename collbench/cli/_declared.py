"""Command-line options from their declarations, core/knobs.py and core/options.py, and presets of
`sweep`: options from a TOML file, read as the command line reads them, which wins.
"""

from collections.abc import Callable, Sequence
from typing import Any

import click

from collbench.bench.sweep import backend_names, kernel_name
from collbench.cli._options import (
    MAX_RANKS,
    F,
    Finite,
    ListOf,
    OneOf,
    Profile,
    Size,
    Whole,
    natural,
    positive,
    some_bytes,
    whole,
)
from collbench.core import catalog
from collbench.core.catalog import names
from collbench.core.collectives import OPS, collective
from collbench.core.errors import CollbenchError, UsageError, unknown
from collbench.core.knobs import Knob, Value
from collbench.core.options import Option, Options
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS
from collbench.schedules.formats import is_file

_REGISTRIES = {
    "algo": ("auto", *ALGORITHMS.names()),
    "backend": backend_names(),
    "proto": ("auto", *PROTOCOLS.names()),
    "transport": ("auto", *TRANSPORTS.names()),
}
_READERS: dict[str, Callable[[str], int]] = {
    "count": positive,
    "bytes": some_bytes,
    "rank": natural,
    "ranks": whole(1, "for example 4", MAX_RANKS, "number of ranks"),
}
# A preset says what to measure; these say what to do with the rows.
_NOT_IN_PRESETS = ("preset", "csv", "resume", "dry_run", "color", "soak", "seed")
_RANGE_OPTIONS = ("minbytes", "maxbytes", "stepfactor", "stepbytes")


class AlgorithmList(ListOf[str]):
    """A comma list of algorithms, each by its name or as a file."""

    def _read_other(self, item: str, param: click.Parameter | None) -> str:
        return item if is_file(item) else super()._read_other(item, param)


class BackendList(ListOf[str]):
    """A comma list of backends, each by its name or as a file with a kernel."""

    def __init__(self) -> None:
        super().__init__("backend", str, backend_names())

    def _read_other(self, item: str, param: click.Parameter | None) -> str:
        return kernel_name(item) if item.endswith(".py") else super()._read_other(item, param)


def knob_option(knob: Knob) -> Callable[[F], F]:
    """The option of a knob or an axis: a list of its values."""
    choices = knob.choices or _REGISTRIES.get(knob.name, ())
    read: Callable[[str], Value] = _READERS.get(knob.unit, knob.spelled)
    values: ListOf[Any] = (
        AlgorithmList(knob.name, str, choices)
        if knob.name == "algo"
        else BackendList()
        if knob.name == "backend"
        else ListOf("bytes" if knob.unit == "bytes" else knob.name, read, choices, knob.all_choices)
    )
    return click.option(
        *knob.flags, knob.name, type=values, help=knob.help.format(choices=", ".join(choices))
    )


def setting_option(option: Option) -> Callable[[F], F]:
    """The option of a field of Settings."""
    is_flag = option.type is bool and option.low is None
    # an option with a value for its bare form, be it None, is one that needs no value
    bare: dict[str, Any] = {} if option.bare is None else {"flag_value": str(option.bare)}
    return click.option(
        *option.flags,
        option.key,
        type=None if is_flag else _type_of(option),
        is_flag=is_flag,
        default=None,
        help=option.help,
        hidden=option.is_hidden,
        **bare,
    )


# Any: the types of click 8.1 have no parameter, and those of 8.4 have two.
def _type_of(option: Option) -> "click.ParamType[Any]":
    if option.choices:
        return OneOf(option.choices)
    if option.unit == "GPU":
        return ListOf("gpu", natural, keeps_repeats=True)
    if option.unit == "bytes":
        return Size()
    if option.unit == "machine":
        return Profile("machine", lambda: names("machines"))
    if option.type is float:
        return Finite(option.low, option.high)
    if option.low is not None:
        return Whole(int(option.low), None if option.high is None else int(option.high))
    return click.STRING


def op_option() -> Callable[[F], F]:
    """The option of one collective, whose blocks are equal."""
    return click.option(
        "--op",
        default="allreduce",
        show_default=True,
        callback=lambda context, param, value: collective(value, OPS).name,
        metavar="OP",
        help=f"The collective, one of {', '.join(OPS)}.",
    )


def with_preset(explicit: Options, params: Sequence[click.Parameter]) -> Options:
    """The given options and those of the preset that they name. Sizes on the command line replace
    those of the preset, whether either has them as a list or as a range.
    """
    preset = read_preset(explicit["preset"], params)
    if {"sizes", *_RANGE_OPTIONS} & set(explicit) and "sizes" in {**preset, **explicit}:
        preset = {name: preset[name] for name in preset if name not in ("sizes", *_RANGE_OPTIONS)}
    return {**preset, **explicit}


def read_preset(name: str, params: Sequence[click.Parameter]) -> Options:
    """The options of a shipped preset or of a TOML file. Raises UsageError."""
    loaded = catalog.load("sweeps", name)
    table = loaded.get("sweep")
    if not isinstance(table, dict) or len(loaded) > 1:
        raise UsageError(
            f"preset {name} holds {', '.join(sorted(loaded)) or 'nothing'}",
            "a preset holds one table, [sweep], with options",
        )
    types = {str(param.name): param for param in params if param.name not in _NOT_IN_PRESETS}
    options = {}
    for key, value in table.items():
        if key not in types:
            shown = sorted(name for name in types if not getattr(types[name], "hidden", False))
            raise unknown(f"option of presets (in {name})", key, shown)
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            options[key] = types[key].type.convert(text, types[key], None)
        except CollbenchError as error:
            raise UsageError(f"preset {name}: {error.message}", error.hint) from None
        except click.BadParameter as error:
            raise UsageError(f"preset {name}: {key} = {value!r}: {error.message}") from None
    return options
