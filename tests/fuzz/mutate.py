"""Texts and structures made a little wrong, by a generator of random numbers."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any


def values(name: str) -> tuple[str, ...]:
    """Texts of texts.json, of which some say what stands in them how many times."""
    found = json.loads(Path(__file__).with_name("texts.json").read_text())[name]
    return tuple(
        one if isinstance(one, str) else one[0] + one[1] * one[2] + one[3] for one in found
    )


NUMBERS, TEXTS = values("numbers"), values("texts")
# also what a file may hold, but no argument
BYTES = (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\x80", b"\r", b"\r\n", b"\x1a", b"x" * 140_000)
DEEP = 20_000
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"\w+")
MOST_CHARACTERS = 400_000


def nasty(random: Random) -> str:
    """A number or a text that something may stumble over."""
    return random.choice(random.choice((NUMBERS, TEXTS)))


def text(random: Random, before: str) -> str:
    """One to three changes somewhere in a text."""
    for _ in range(random.choice((1, 1, 2, 3))):
        before = random.choice(_CHANGES)(random, before)[:MOST_CHARACTERS]
    return before


def data(random: Random, before: str) -> bytes:
    """A changed text as a file, which now and then is no text."""
    changed = text(random, before).encode(errors="surrogateescape")
    if random.random() < 0.15:
        place = random.randint(0, len(changed))
        changed = changed[:place] + random.choice(BYTES) + changed[place:]
    return changed


def _span(random: Random, before: str) -> tuple[int, int]:
    start = random.randint(0, len(before))
    return start, min(len(before), start + random.choice((1, 1, 3, 20, 300)))


def _delete(random: Random, before: str) -> str:
    start, end = _span(random, before)
    return before[:start] + before[end:]


def _repeat(random: Random, before: str) -> str:
    start, end = _span(random, before)
    return before[:end] + before[start:end] * random.choice((1, 2, 9)) + before[end:]


def _insert(random: Random, before: str) -> str:
    start, _ = _span(random, before)
    return before[:start] + nasty(random) + before[start:]


def _cut(random: Random, before: str) -> str:
    return before[: random.randint(0, len(before))]


def _replaced(
    random: Random, before: str, pattern: re.Pattern[str], value: Callable[[], str]
) -> str:
    """The text with one match, or sometimes all that are alike, replaced."""
    matches = list(pattern.finditer(before))
    if not matches:
        return before + value()
    chosen = random.choice(matches)
    if random.random() < 0.1:
        return before.replace(chosen[0], value())
    return before[: chosen.start()] + value() + before[chosen.end() :]


def _other_number(random: Random, before: str) -> str:
    return _replaced(random, before, _NUMBER, lambda: random.choice(NUMBERS))


def _other_word(random: Random, before: str) -> str:
    words = _WORD.findall(before) or [""]
    return _replaced(random, before, _WORD, lambda: random.choice((random.choice(words), "")))


def _nasty_word(random: Random, before: str) -> str:
    return _replaced(random, before, _WORD, lambda: nasty(random))


def _lines(random: Random, before: str) -> str:
    """A line twice, gone, or at another place; other line ends."""
    lines = before.splitlines(keepends=True)
    if not lines:
        return before
    one = random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            lines.insert(random.randrange(len(lines)), lines[one])
        case 1:
            del lines[one]
        case 2:
            random.shuffle(lines)
        case 3:
            end = random.choice(("\r", "\r\n", "\n\n", ""))
            lines = [line.rstrip("\r\n") + end for line in lines]
        case _:
            lines[one] = lines[one].rstrip("\n")
    return "".join(lines)


def _nested(random: Random, before: str) -> str:
    start, _ = _span(random, before)
    opening = random.choice(("[", "{", '{"a":', "<a>", "(", '"', "a=", "a.", "[[", "{a="))
    return before[:start] + opening * random.choice((1, 70, DEEP)) + before[start:]


_CHANGES: tuple[Callable[[Random, str], str], ...] = (
    _delete,
    _repeat,
    _insert,
    _cut,
    _other_number,
    _other_number,
    _other_number,
    _other_word,
    _nasty_word,
    _nasty_word,
    _lines,
    _nested,
)


def table(random: Random, before: str) -> bytes:
    """A CSV text with other cells, columns or rows, and sometimes other quotes and line ends."""
    rows = [list(row) for row in csv.reader(io.StringIO(before))]
    for _ in range(random.choice((1, 1, 2, 3))):
        row = random.choice(rows)
        column = random.randrange(len(row)) if row else 0
        match random.randrange(13):
            case 0 | 1 | 2 | 3:
                row[column : column + 1] = [nasty(random)]
            case 10 | 11 | 12:  # the last columns are free texts
                row[-5:-1] = [random.choice((*row[-5:-1], nasty(random))) for _ in range(4)]
            case 5:
                rows.append(list(row))
            case 6:
                row[column:] = row[column + 1 :]
            case 7:
                row.insert(column, nasty(random))
            case 8:
                other = random.choice(rows)
                row[column : column + 1] = [random.choice(other or [""])]
            case _:
                for one in rows:
                    del one[column : column + 1]
    out = io.StringIO()
    end = random.choice(("\n", "\n", "\n", "\r\n", "\r"))
    dialect = random.choice((csv.excel, csv.excel, csv.unix_dialect))  # the last quotes all
    csv.writer(out, dialect, lineterminator=end).writerows(rows)
    written = out.getvalue()
    if random.random() < 0.4:
        return data(random, written)
    return written.encode(errors="surrogateescape")


def structure(random: Random, value: Any) -> Any:  # Any: a value of JSON
    """A value of JSON with one to three parts changed, left out or added."""
    value = json.loads(json.dumps(value))
    for _ in range(random.randint(1, 3)):
        places = list(parts(value))
        if not places:
            return _leaf(random)
        holder, key = random.choice(places)
        match random.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = [holder[key]]
            case 2:
                other, place = random.choice(places)
                holder[key] = json.loads(json.dumps(other[place] if _is_in(other, place) else 0))
            case _:
                holder[key] = _leaf(random)
    return value


def _is_in(holder: Any, key: Any) -> bool:  # Any: a list or an object of JSON, and its key
    return isinstance(holder, dict) and key in holder


def parts(value: Any) -> Any:  # Any: pairs of a list or an object of JSON, and a key of it
    if not isinstance(value, dict | list):
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from parts(value[key])


# an infinite number, one that is none, and one that no machine holds
_LEAVES: list[object] = json.loads(
    "[null, true, 0, -1, 7, 1.5, -0.0, 1e308, Infinity, NaN, 2147483648, 9223372036854775808, "
    f'1{"0" * 400}, "", [], {{}}, [1, "2"], {{"a": 1}}]'
)


def _leaf(random: Random) -> object:
    return random.choice((*_LEAVES, nasty(random)))


def document(random: Random, before: str) -> bytes:
    """A JSON text with other parts, or a changed text."""
    if random.random() < 0.5:
        return data(random, before)
    written = json.dumps(structure(random, json.loads(before)), ensure_ascii=random.random() < 0.5)
    return written.encode(errors="surrogateescape")


_TOML_VALUES = values("toml_values")
_TOML_VALUE = re.compile(r"(?<== ).*$", re.MULTILINE)


def toml(random: Random, before: str) -> bytes:
    """A TOML text with other values, or a changed text."""
    if random.random() < 0.4:
        return data(random, before)
    for _ in range(random.randint(1, 3)):
        choice = nasty(random)
        value = random.choice((choice, json.dumps(choice), random.choice(_TOML_VALUES)))
        before = _replaced(random, before, _TOML_VALUE, lambda value=value: value)  # type: ignore[misc]
    return before.encode(errors="surrogateescape")


_ATTRIBUTE = re.compile(r'(?<=")[^"\n]*(?=")')


def xml(random: Random, before: str) -> bytes:
    """An XML text with other attributes, or a changed text."""
    if random.random() < 0.5:
        return data(random, before)
    values = _ATTRIBUTE.findall(before) or [""]
    for _ in range(random.randint(1, 3)):
        before = _replaced(
            random,
            before,
            _ATTRIBUTE,
            lambda: random.choice((nasty(random), random.choice(values))),
        )
    return before.encode(errors="surrogateescape")
