"""Frozen dataclasses to JSON and back: every value is checked against its declared type, and an
error names the place of what is wrong.

Known are str, int, float, bool, literals, unions, tuples of any length, mappings by strings,
dataclasses of these, and object for what may be anything. Not a schema language.
"""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from collbench.core.errors import UsageError
from collbench.core.reading import parse_json

_MAX_INT = 1 << 63
_TYPE_NAMES: dict[object, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


T = TypeVar("T")


def dumps(value: object) -> bytes:
    """A value as a text that `loads` reads."""
    return (json.dumps(encode(value), indent=1) + "\n").encode()


def loads(kind: type[T], text: str, name: str, most_chars: int) -> T:
    """The value of a file's text. Raises UsageError with the place of what is wrong."""
    return decode(kind, parse_json(text, name, most_chars), name)


def encode(value: object) -> object:
    """A value as JSON's own types; an empty mapping that is a field's default is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        named = {field.name: getattr(value, field.name) for field in fields}
        has_default = {field.name for field in fields if not _is_needed(field)}
        return {
            name: encode(one) for name, one in named.items() if one != {} or name not in has_default
        }
    if isinstance(value, tuple):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {key: encode(one) for key, one in value.items()}
    return value


def decode(kind: type[T], value: object, place: str) -> T:
    """The value of JSON as that type. Raises UsageError that begins with the place.

    >>> decode(tuple[int | None, ...], [1, None], "file")
    (1, None)
    >>> decode(tuple[int, ...], [1, "2"], "file: links")
    Traceback (most recent call last):
    collbench.core.errors.UsageError: file: links[1] is '2', not a whole number
    """
    decoded: T = _decode(kind, value, place)
    return decoded


def _decode(kind: Any, value: object, place: str) -> Any:  # Any: a type of annotations, its value
    if kind is str and type(value) is str:
        return value  # as most are
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, place)
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in get_args(kind):
            return None
        *others, last = (one for one in get_args(kind) if one is not type(None))
        for one in others:
            with suppress(UsageError):
                return _decode(one, value, place)
        return _decode(last, value, place)
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
    return _scalar(kind, value, place)


def _scalar(kind: Any, value: object, place: str) -> Any:  # Any: a type, its value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise _wrong(value, f"one of {', '.join(get_args(kind))}", place)
        return value
    if kind is object or (kind is type(None) and value is None):
        return value
    is_whole = type(value) is int and kind in (int, float)
    if type(value) is not kind and not is_whole:
        raise _wrong(value, _TYPE_NAMES[kind], place)
    if type(value) is int and not -_MAX_INT <= value < _MAX_INT:
        raise UsageError(f"{place} is {str(value)[:20]}.., more than 64 bits hold")
    if is_whole:
        return kind(value)
    if type(value) is float and not math.isfinite(value):
        raise _wrong(value, "a finite number", place)
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
        if _is_needed(field) and name not in value:
            raise UsageError(f"{place} lacks the key '{name}'")
    hints = _hints(kind)
    return kind(
        **{
            name: _decode(hints[name], value[name], f"{place}.{name}")
            for name in fields
            if name in value
        }
    )


def _is_needed(field: "dataclasses.Field[Any]") -> bool:  # Any: of any type
    return field.default is field.default_factory is dataclasses.MISSING


_hints = lru_cache(maxsize=64)(get_type_hints)


def _wrong(value: object, wanted: str, place: str) -> UsageError:
    names: dict[type, str] = {list: "a list", dict: "an object", type(None): "null"}
    return UsageError(f"{place} is {names.get(type(value), repr(value)[:40])}, not {wanted}")
