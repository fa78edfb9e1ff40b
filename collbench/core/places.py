"""Values of TOML files that anyone may write: each is read at its place, and an error names it."""

from typing import NamedTuple

from collbench.core.errors import UsageError
from collbench.core.units import parse_size

_MOST = 1 << 62


class DocumentPlace(NamedTuple):
    """The place of a value in a file of TOML: the file, what kind of file it is, and the keys that
    lead to the value.
    """

    file: str
    kind: str
    path: str = ""

    def of(self, key: str) -> "DocumentPlace":
        """The place of a key of the table that is here."""
        return self._replace(path=f"{self.path}.{key}" if self.path else key)

    def error(self, what: str) -> UsageError:
        """The refusal of the value."""
        section, _, key = self.path.rpartition(".")
        place = f"[{section}] {key}" if section else f"[{key}]" if key else "the file"
        return UsageError(f"{self.kind} {self.file}: {place}: {what}")

    def name(self, value: object, *known: str) -> str:
        """A text, one of those that are known if any are."""
        if not isinstance(value, str) or (known and value not in known):
            raise self.error(
                f"{value!r} is " + (f"none of {', '.join(known)}" if known else "no text")
            )
        return value

    def size(self, value: object) -> int:
        """A whole number, zero included, or a size with a unit."""
        if isinstance(value, str):
            try:
                return parse_size(value)
            except UsageError as error:
                raise self.error(error.message) from None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise self.error(f"{value!r} is not a whole number")
        return value

    def numbers(self, value: object) -> tuple[int, ...]:
        """One whole number or several."""
        return tuple(self.size(one) for one in (value if isinstance(value, list) else [value]))
