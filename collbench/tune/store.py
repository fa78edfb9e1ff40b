"""What tuning has found here: points in the user's state, and the file made of them."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path

from collbench.core.codec import dumps, loads
from collbench.core.errors import UnavailableError, UsageError
from collbench.core.files import state_folder, user_folder, write_whole
from collbench.core.limits import LEAST_GAIN
from collbench.core.reading import read_state
from collbench.core.units import exact_size
from collbench.planning.tuning import Machine, Value

_MOST_BYTES = 16 << 20
_PREFIX = "tuned-"
_SIZED = ("chunk",)  # values that are bytes


PointKey = tuple[str, int, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedPoint:
    """A collective and size on this machine. asked: the transport that was asked for, or auto.
    values: of the row that is best, none where the choice before is kept; carrier: the transport of
    its connections. choice, former: in words. gain, gain_low, gain_high: the time of the choice
    before over that of the best; 0 where nothing else was faster. source: what measured it.
    """

    op: str
    size: int
    ranks: int
    hosts: int
    asked: str
    values: Mapping[str, Value]
    carrier: str
    choice: str
    former: str
    gain: float
    gain_low: float
    gain_high: float
    pairs: int
    tried: int
    day: str
    source: str

    @property
    def key(self) -> PointKey:
        """What it is about."""
        return self.op, self.ranks, self.hosts, self.asked, self.size

    @property
    def is_open(self) -> bool:
        """Whether the interval has both no gain and one that counts: noise decided."""
        has_both = self.gain_low <= 1 and self.gain_high >= LEAST_GAIN
        return not self.values and self.pairs > 0 and has_both


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The points of one machine. machine: as tuning files describe it."""

    machine: Machine
    points: tuple[TunedPoint, ...]

    @property
    def name(self) -> str:
        """Of its files."""
        words = f"{self.machine.kind} {self.machine.model} {self.machine.joined}".lower()
        return _PREFIX + re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:80]

    @property
    def tuning_file(self) -> Path:
        """The file that `auto` reads. Raises UnavailableError if there is no home."""
        with _home():
            return user_folder("tuning") / f"{self.name}.toml"

    @property
    def state_file(self) -> Path:
        """The file of the points. Raises UnavailableError if there is no home."""
        with _home():
            return state_folder() / "tuned" / f"{self.name}.json"

    def known(self) -> dict[PointKey, TunedPoint]:
        """The points by what they are about."""
        return {point.key: point for point in self.points}

    def with_point(self, point: TunedPoint) -> "Store":
        """The same with one more point, which replaces one about the same."""
        points = {**self.known(), point.key: point}
        return replace(self, points=tuple(points[key] for key in sorted(points)))

    @property
    def has_rows(self) -> bool:
        """Whether any choice before is replaced."""
        return any(point.values for point in self.points)

    def save(self, out: Path | None) -> None:
        """Write the state, and the tuning file to another place or to its own, where it is only if
        it has rows. Raises OSError.
        """
        for file in (self.state_file, self.tuning_file):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self.state_file, dumps(_State(machine=tuple(self.machine), points=self.points)))
        if self.has_rows or (out is not None and self.points):
            write_whole(out or self.tuning_file, document(self).encode())
        else:
            self.tuning_file.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A store as its file has it."""

    machine: tuple[str, ...]
    points: tuple[TunedPoint, ...]


@contextmanager
def _home() -> Iterator[None]:
    """Turns the lack of a home into our error."""
    try:
        yield
    except RuntimeError:
        raise UnavailableError(
            "there is no home folder to keep what is found in", "set HOME"
        ) from None


def stored(machine: Machine) -> Store:
    """What is known of a machine. Raises UsageError where its file is broken."""
    empty = Store(machine=machine, points=())
    file = empty.state_file
    found = _read(file)
    if found is None:
        return empty
    if found.machine != machine:
        raise UsageError(f"{file}: machine: it is of {found.machine}")
    return found


def all_stored() -> tuple[list[Store], list[str]]:
    """What is known of every machine whose points are here, and what is wrong with broken files."""
    folder = Store(machine=Machine("cpu"), points=()).state_file.parent
    files: list[Path] = []
    with suppress(OSError):
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json")
    stores, broken = [], []
    for file in files:
        try:
            stores.append(_read(file))
        except UsageError as error:
            broken.append(error.message)
    return [store for store in stores if store is not None], broken


def set_aside(machine: Machine) -> Path:
    """Give the broken file of a machine another name, and return it. Raises OSError."""
    file = Store(machine=machine, points=()).state_file
    return file.replace(file.with_name(f"{file.name}.broken"))


def _read(file: Path) -> Store | None:
    """The points of a file, if it is there. Raises UsageError where it is broken."""
    try:
        text = read_state(file, _MOST_BYTES).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text") from None
    state = loads(_State, text, str(file), _MOST_BYTES)
    if not 0 < len(state.machine) <= len(Machine._fields):
        raise UsageError(f"{file}: machine: it is not {', '.join(Machine._fields)}")
    return Store(machine=Machine(*state.machine), points=state.points)


def forget(store: Store) -> list[Path]:
    """Remove the files of a machine; returns those that were there. Raises OSError."""
    files = [file for file in (store.tuning_file, store.state_file) if file.exists()]
    for file in files:
        file.unlink()
    return files


# ------------------------------------------------------------------------------- the tuning file


def document(store: Store) -> str:
    """The tuning file of the points: rows by ranges of sizes."""
    machine, ranks = store.machine, sorted({point.ranks for point in store.points})
    lines = [
        "# Written by `collbench tune`, which will write it anew; `--forget` removes it.",
        "# docs/explanation/choices.md has the form.",
        f"title = {_text(f'tuned on this machine: {machine.model or machine.kind}')}",
        "",
        "[machine]",
        f"kind = {_text(machine.kind)}",
        f"models = {_literal([machine.model] if machine.model else [])}",
        f"joined = {_text(machine.joined)}",
        f"ranks = {_literal(ranks)}",
    ]
    for about, points in groupby(store.points, lambda point: point.key[:-1]):
        lines += _section(about, list(points))
    return "\n".join(lines) + "\n"


def _section(about: tuple[str, int, int, str], points: Sequence[TunedPoint]) -> Iterator[str]:
    """The tables of a collective: where another transport is taken, and by the transport what else
    is. A table inside another has the conditions and the source of that one.
    """
    op, ranks, hosts, asked = about
    name = f"{op}-{ranks}" + (f"-{hosts}-hosts" if hosts != 1 else "")
    name += f"-{asked}" if asked != "auto" else ""
    when = {"op": op, "ranks": ranks, "hosts": hosts}
    spans = list(_spans(points))
    sources = "; ".join(dict.fromkeys(f"{point.source}, {point.day}" for point in points))
    if rows := [
        (first, last, {"transport": values["transport"]})
        for first, last, values, _ in spans
        if "transport" in values
    ]:
        yield from _table(f"{name}.transport", sources, when, rows)
    for carrier in dict.fromkeys(carrier for *_, values, carrier in spans if values):
        rows = [
            (first, last, rest)
            for first, last, values, of in spans
            if of == carrier and (rest := {k: v for k, v in values.items() if k != "transport"})
        ]
        where = f"{name}.{carrier.replace('+', '-')}"
        if rows:
            yield from _table(where, sources, {**when, "transport": carrier}, rows)
        if protocols := [
            (first, last, {"proto": values["proto"]})
            for first, last, values in rows
            if "proto" in values
        ]:  # other files may decide it before the algorithm
            yield from _table(f"{where}.protocol", "", {"asked_algo": "auto"}, protocols)


def _spans(points: Sequence[TunedPoint]) -> Iterator[tuple[int, int, Mapping[str, Value], str]]:
    """First and last size, values and transport of neighbouring points that take the same. Between
    two measured sizes the geometric mean is the border.
    """
    borders = [math.isqrt(before.size * after.size) for before, after in pairwise(points)]
    firsts = [points[0].size, *(border + 1 for border in borders)]
    lasts = [*borders, points[-1].size]
    parts = zip(points, firsts, lasts, strict=True)
    for _, same in groupby(parts, lambda part: (dict(part[0].values), part[0].carrier)):
        (point, first, last), *more = same
        if point.values:
            yield first, more[-1][2] if more else last, point.values, point.carrier


def _table(
    name: str,
    source: str,
    when: Mapping[str, object],
    rows: Sequence[tuple[int, int, Mapping[str, Value]]],
) -> Iterator[str]:
    conditions = ", ".join(f"{key} = {_literal(value)}" for key, value in when.items())
    yield from ("", f"[{name}]", *([f"source = {_text(source)}"] if source else []))
    yield f"when = {{ {conditions} }}"
    yield "rows = ["
    for first, last, values in rows:
        cells = {"from": exact_size(first), "up_to": exact_size(last), **values}
        yield f"    {{ {', '.join(f'{key} = {_cell(key, cells[key])}' for key in cells)} }},"
    yield "]"


def _cell(name: str, value: Value) -> str:
    if name in _SIZED and isinstance(value, int):
        return _text(exact_size(value))
    return _literal(value)


def _literal(value: object) -> str:
    """A value of TOML."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value)


def _text(text: str) -> str:
    """A basic string of TOML, which has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
