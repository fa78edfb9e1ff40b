"""The structures and enumerations of the kernels' sources, read from their text, so that tests
unpack what the host packs as C++ would.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from collbench.device.compile import SOURCES

_PLAIN = {"u16": "<u2", "u32": "<u4", "u64": "<u8", "*": "<u8"}


@cache
def declarations(file: str = "types.cuh") -> dict[str, list[tuple[str, str, str]]]:
    """The structures of a source: the type ("*" for a pointer), name and count, as written, of
    every field.
    """
    text = re.sub(r"//.*", "", (SOURCES / file).read_text())
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, body in re.findall(
        r"^struct (?:alignas\(\d+\) )?(\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL
    ):
        found[name] = []
        for line in filter(None, map(str.strip, body.split(";"))):
            kind, rest = _parts(r"(?:const )?(\w+)\s*(.*)", line)
            for one in rest.split(","):
                field, count = _parts(r"[*\s]*(?:const\*\s*)?(\w+)(?:\[(.+)\])?", one.strip())
                found[name].append(("*" if "*" in one else kind, field, count))
    return found


def _parts(pattern: str, text: str) -> tuple[str, str]:
    found = re.fullmatch(pattern, text, re.DOTALL)
    assert found is not None, f"cannot read '{text}'"
    return found[1], found[2] or ""


@cache
def enumerators(name: str, file: str = "types.cuh") -> dict[str, int]:
    """The enumerators of an enumeration; those without a value continue the count."""
    (body,) = re.findall(
        rf"^enum {name}(?: : u16)? \{{(.*?)\}};",
        (SOURCES / file).read_text(),
        re.MULTILINE | re.DOTALL,
    )
    found: dict[str, int] = {}
    for one in body.split(","):
        key, _, value = one.strip().partition(" = ")
        found[key] = int(value) if value else len(found)
    return found


def structure(name: str, sizes: dict[str, int], file: str = "types.cuh") -> "np.dtype[Any]":
    """A structure as C++ lays it out, with the macros that size its arrays."""
    fields: list[Any] = []
    for kind, field, count in declarations(file)[name]:
        one = _PLAIN[kind] if kind in _PLAIN else structure(kind, sizes, file)
        length, _, floor = count.partition(" + !")  # N + !N: at least one
        fields.append(
            (field, one, (max(sizes[length], 1 if floor else 0),)) if count else (field, one)
        )
    return np.dtype(fields, align=True)


def unpack(data: bytes, name: str, sizes: dict[str, int]) -> SimpleNamespace:
    """A structure of types.cuh from its bytes, not to be changed: equal bytes may share it."""
    return _unpacked(data, name, tuple(sorted(sizes.items())))


@lru_cache(maxsize=256)
def _unpacked(data: bytes, name: str, sizes: tuple[tuple[str, int], ...]) -> SimpleNamespace:
    kind, read = _reader_of(name, sizes)
    assert len(data) == kind.itemsize, f"{len(data)} bytes packed for {name} of {kind.itemsize}"
    structure_read: SimpleNamespace = read(np.frombuffer(data, kind)[0].item())
    return structure_read


@cache
def _reader_of(
    name: str, sizes: tuple[tuple[str, int], ...]
) -> tuple["np.dtype[Any]", Callable[[Any], Any]]:
    kind = structure(name, dict(sizes))
    return kind, _reader(kind)


def _reader(kind: "np.dtype[Any]") -> Callable[[Any], Any]:
    """A function from NumPy's value of a type to numbers, lists and namespaces."""
    if kind.subdtype is not None:
        element = _reader(kind.subdtype[0])
        return lambda array: [element(one) for one in array.tolist()]
    if kind.names is None:
        return int
    names, readers = kind.names, [_reader(kind[name]) for name in kind.names]
    return lambda record: SimpleNamespace(
        **{name: read(value) for name, read, value in zip(names, readers, record, strict=True)}
    )
