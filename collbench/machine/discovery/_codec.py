"""Frozen dataclasses to JSON and back: every value is checked against its declared type, and an
error names the place of what is wrong.

Known are str, int, float, bool, None in unions, tuples of any length, mappings by strings, and
dataclasses of these. Not a schema language.
"""

import dataclasses
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from collbench.util.errors import UsageError

_MAX_INT = 1 << 63
_TYPE_NAMES: dict[object, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


T = TypeVar("T")


def encode(value: object) -> object:
    """A value as JSON's own types; fields that hold an empty mapping are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: encode(one) for name, one in fields.items() if one != {}}
    if isinstance(value, tuple):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {key: encode(value[key]) for key in sorted(value)}
    return value


def decode(kind: type[T], value: object, place: str) -> T:
    """The value of JSON as that type. Raises UsageError that begins with the place.

    >>> decode(tuple[int | None, ...], [1, None], "file")
    (1, None)
    >>> decode(tuple[int, ...], [1, "2"], "file: links")
    Traceback (most recent call last):
    collbench.util.errors.UsageError: file: links[1] is '2', not a whole number
    """
    decoded: T = _decode(kind, value, place)
    return decoded


def _decode(kind: Any, value: object, place: str) -> Any:  # Any: a type of annotations, its value
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, place)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in get_args(kind):
            return None
        return _decode(next(one for one in get_args(kind) if one is not type(None)), value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(value, "a list", place)
        item = get_args(kind)[0]
        return tuple(_decode(item, one, f"{place}[{number}]") for number, one in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _wrong(value, "an object", place)
        item = get_args(kind)[1]
        return {key: _decode(item, one, f"{place}.{key}") for key, one in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise _wrong(value, _TYPE_NAMES[kind], place)
    if type(value) is int and not -_MAX_INT <= value < _MAX_INT:
        raise UsageError(f"{place} is {str(value)[:20]}.., more than 64 bits hold")
    return value


def _decode_fields(kind: Any, value: object, place: str) -> Any:  # Any: a dataclass, its object
    if not isinstance(value, dict):
        raise _wrong(value, "an object", place)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = next((key for key in value if key not in fields), None)
    if unknown is not None:
        raise UsageError(
            f"{place} has an unknown key '{unknown[:40]}'", f"known are {', '.join(fields)}"
        )
    for name, field in fields.items():
        is_needed = field.default is field.default_factory is dataclasses.MISSING
        if is_needed and name not in value:
            raise UsageError(f"{place} lacks the key '{name}'")
    hints = _hints(kind)
    return kind(
        **{
            name: _decode(hints[name], value[name], f"{place}.{name}")
            for name in fields
            if name in value
        }
    )


_hints = lru_cache(maxsize=64)(get_type_hints)


def _wrong(value: object, wanted: str, place: str) -> UsageError:
    names: dict[type, str] = {list: "a list", dict: "an object", type(None): "null"}
    return UsageError(f"{place} is {names.get(type(value), repr(value)[:40])}, not {wanted}")
