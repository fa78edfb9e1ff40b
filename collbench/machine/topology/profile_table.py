"""A table of a profile: returns values of the requested kind, and names the key of a wrong one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collbench.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTable:
    """where: which profile and which table, for messages. Every method raises UsageError, naming
    the key and the value.
    """

    where: str
    values: Mapping[str, Any]  # Any: values of TOML

    def only(self, *keys: str) -> None:
        """Refuse keys other than these, and a table without its source."""
        if unknown := sorted(set(self.values) - set(keys)):
            raise UsageError(
                f"{self.where} has {', '.join(unknown)}, which nobody reads",
                f"it may have: {', '.join(keys)}",
            )
        if self.values:
            self.text("source")

    def table(self, key: str) -> "ProfileTable":
        """A table inside; empty if there is none."""
        inner = self.values.get(key, {})
        if not isinstance(inner, dict) or (key in self.values and not inner):
            raise self._wrong(key, inner, "a table with something in it")
        return ProfileTable(where=f"{self.where[:-1]}.{key}]", values=inner)

    def text(self, key: str, default: str | None = None) -> str:
        """A text of one line that is not empty."""
        value = self._value(key, default)
        if (
            not isinstance(value, str)
            or not value.isprintable()
            or (not value.strip() and key in self.values)
        ):
            raise self._wrong(key, value, "a text of one line")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of texts of one line."""
        value = self._value(key, default)
        if (
            not isinstance(value, list | tuple)
            or not all(isinstance(one, str) and one.strip() for one in value)
            or not all(map(str.isprintable, value))
            or (not value and key in self.values)
        ):
            raise self._wrong(key, value, "a list of texts")
        return tuple(value)

    def mapping(self, key: str) -> dict[str, str]:
        """Texts by names; empty if the key is not there."""
        value = self.values.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise self._wrong(key, value, "texts by names")
        return value

    def whole(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """A whole number between two."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, value, f"a whole number from {least} to {most}")
        return value

    def rate(self, key: str) -> float | None:
        """A positive number; None if the key is not there."""
        value = self.values.get(key)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < math.inf:
            raise self._wrong(key, value, "a positive number")
        return float(value)

    def truth(self, key: str) -> bool:
        """True or false; false if the key is not there."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def _wrong(self, key: str, value: object, wanted: str) -> UsageError:
        return UsageError(f"{self.where} {key} = {value!r} is not {wanted}")

    def _value(self, key: str, default: object) -> object:
        value = self.values.get(key, default)
        if value is None:
            raise UsageError(
                f"{self.where} has no {key}" if self.values else f"{self.where} is missing"
            )
        return value
