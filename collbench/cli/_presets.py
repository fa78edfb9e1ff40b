"""Presets of `sweep`: options from a TOML file, each read as the command line reads it. Options on
the command line win.
"""

from collections.abc import Sequence

import click

from collbench.core import catalog
from collbench.core.errors import CollbenchError, UsageError, unknown
from collbench.core.rules import Options

# A preset says what to measure; these say what to do with the rows.
_NOT_IN_PRESETS = ("preset", "csv", "resume", "dry_run", "color", "soak", "seed", "trace")
_RANGE_OPTIONS = ("minbytes", "maxbytes", "stepfactor", "stepbytes")


def with_preset(explicit: Options, params: Sequence[click.Parameter]) -> Options:
    """The given options and those of the preset that they name. Sizes on the command line replace
    those of the preset, whether either has them as a list or as a range.
    """
    if "preset" not in explicit:
        return explicit
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
            shown = sorted(name for name, param in types.items() if not _is_hidden(param))
            raise unknown(f"option of presets (in {name})", key, shown)
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            options[key] = types[key].type.convert(text, types[key], None)
        except CollbenchError as error:
            raise UsageError(f"preset {name}: {error.message}", error.hint) from None
        except click.BadParameter as error:
            raise UsageError(f"preset {name}: {key} = {value!r}: {error.message}") from None
    return options


def _is_hidden(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and param.hidden
