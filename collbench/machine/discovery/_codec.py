"""Frozen dataclasses to JSON and back: every value is checked against its declared type, and an
error names the place of what is wrong.

Known are str, int, float, bool, None in unions, tuples of any length, mappings by strings, and
dataclasses of these. Not a schema language.
"""

import dataclasses
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from collbench.util.errors import UsageError

_MAX_INT = 1 << 63
_TYPE_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def encode(value: object) -> Any:
    """A value as JSON's own types; fields that hold an empty mapping are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: encode(one) for name, one in fields.items() if one != {}}
    if isinstance(value, tuple):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {key: encode(value[key]) for key in sorted(value)}
    return value


def decode(kind: Any, value: object, place: str) -> Any:
    """The value of JSON as that type. Raises UsageError that begins with the place.

    >>> decode(tuple[int | None, ...], [1, None], "file")
    (1, None)
    >>> decode(tuple[int, ...], [1, "2"], "file: links")
    Traceback (most recent call last):
    collbench.util.errors.UsageError: file: links[1] is '2', not a whole number
    """
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, place)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in get_args(kind):
            return None
        return decode(next(one for one in get_args(kind) if one is not type(None)), value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(value, "a list", place)
        return tuple(
            decode(get_args(kind)[0], one, f"{place}[{number}]") for number, one in enumerate(value)
        )
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", place)
        return {key: decode(get_args(kind)[1], one, f"{place}.{key}") for key, one in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise _wrong(value, _TYPE_NAMES[kind], place)
    if type(value) is int and not -_MAX_INT <= value < _MAX_INT:
        raise UsageError(f"{place} is {str(value)[:20]}.., more than 64 bits hold")
    return value


def _decode_fields(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(value, "an object", place)
    fields = _fields(kind)
    strange = next((key for key in value if key not in fields), None)
    if strange is not None:
        raise UsageError(
            f"{place} has an unknown key '{strange[:40]}'", f"known are {', '.join(fields)}"
        )
    lost = next(
        (
            name
            for name, (_, has_default) in fields.items()
            if name not in value and not has_default
        ),
        None,
    )
    if lost is not None:
        raise UsageError(f"{place} lacks the key '{lost}'")
    return kind(
        **{
            name: decode(of, value[name], f"{place}.{name}")
            for name, (of, _) in fields.items()
            if name in value
        }
    )


@lru_cache(maxsize=64)
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Fields of a dataclass: their types, and whether they may be left out."""
    hints = get_type_hints(kind)
    none = dataclasses.MISSING
    return {
        field.name: (
            hints[field.name],
            field.default is not none or field.default_factory is not none,
        )
        for field in dataclasses.fields(kind)
    }


def _wrong(value: object, wanted: str, place: str) -> UsageError:
    shown = (
        "a list"
        if isinstance(value, list)
        else (
            "an object"
            if isinstance(value, dict)
            else "null"
            if value is None
            else repr(value)[:40]
        )
    )
    return UsageError(f"{place} is {shown}, not {wanted}")
