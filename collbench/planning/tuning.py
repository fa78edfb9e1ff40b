"""Choice as data: the files of profiles/tuning, and what they say of a case.

    tuning_of(machine, ranks) -> Tuning      tuning.row("channels", facts) -> {"channels": 32}

A file says on which machine it was measured. Its tables have rows, and a row gives knobs where the
conditions hold that stand in it and in its table. docs/explanation/choices.md has the form. Nothing
here knows a protocol, a transport or an algorithm; what a machine can run is for the planner.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from collbench.core import catalog
from collbench.core.collectives import OPS
from collbench.core.errors import UsageError
from collbench.core.knobs import KNOBS
from collbench.core.units import parse_size
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import FAMILY as TRANSPORTS
from collbench.schedules.algorithms import FAMILY as ALGORITHMS

# What is decided after which facts are known, in this order; a value of a row that is no knob is
# for a formula of gpu_knobs.py or planner.py.
STAGES = (
    (
        "op rooted reduction ranks hosts ranks_of_host even_hosts size open asked_algo asked_proto"
        " algo_given has_marker",
        "transport",
    ),
    ("transport", "algo proto"),
    ("algo proto pipelined hops tracks peers", "direct p2p reload specialize"),
    (
        "direct buffered some_direct share has_clusters may_cluster work",
        "slots slices channels channel_bytes fills fill_least fill_grain pdl loops kernel_ctas",
    ),
    ("channels ctas", "chunk slice cluster gpcs threads thread_bytes"),
    ("thread_share", "unroll"),
)
FACT_STAGE = {name: at for at, (facts, _) in enumerate(STAGES) for name in facts.split()}
VALUE_STAGE = {name: at for at, (_, values) in enumerate(STAGES) for name in values.split()}
_TRUTHS = {
    *("rooted", "reduction", "even_hosts", "open", "algo_given", "has_marker"),
    *("pipelined", "buffered", "some_direct", "has_clusters", "may_cluster"),
}
_NAMES: dict[str, tuple[str, ...]] = {
    "op": OPS,
    "algo": ALGORITHMS.names(),
    "proto": PROTOCOLS.names(),
    "transport": TRANSPORTS.names(),
    "asked_algo": ("auto", *ALGORITHMS.names()),
    "asked_proto": ("auto", *PROTOCOLS.names()),
    "work": ("reduce", "copy"),
    **{knob.name: knob.choices[1:] for knob in KNOBS if knob.choices[:1] == ("auto",)},
}
_WAYS = ("transport", "algo", "proto", "direct")
_OF_MACHINES = {"kind", "models", "joined", "ranks"}
_OF_TABLES = ("when", "by", "source", "note", "rows")
_COMPARED = re.compile(r"([<>]) ?([0-9]{1,15})")
_EVER = 1 << 62  # above every number that is compared
FALLBACK = {"gpu": "h200", "cpu": "cpu"}  # the files that decide where none fits

Fact = str | int | bool
Facts = Mapping[str, Fact]
Value = str | int | tuple[int, ...]
Values = Mapping[str, Value]
Conditions = tuple[tuple[str, Container[object]], ...]
OPEN_ALGORITHM: Conditions = (("asked_algo", frozenset(("auto",))),)  # nobody asked for one


_MOST = 1 << 62  # of a whole number in a file


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


class Machine(NamedTuple):
    """A machine to choose for: gpu or cpu, the name of its model, and what joins the ranks; ""
    where that is not known.
    """

    kind: str
    model: str = ""
    joined: str = ""


class TuningRow(NamedTuple):
    """Values that hold together, and on which conditions beside those of the table."""

    conditions: Conditions
    values: Values


class TuningTable(NamedTuple):
    """Rows of a file, from the top."""

    conditions: Conditions
    rows: tuple[TuningRow, ...]


class TuningFile(NamedTuple):
    """A tuning file, and the machines on which it was measured. models: what their names contain,
    one of these texts, in which * stands for anything.
    """

    name: str
    title: str
    kind: str
    models: tuple[str, ...]
    joined: str
    ranks: tuple[int, ...]
    tables: tuple[TuningTable, ...]

    def fits(self, machine: Machine, ranks: int) -> bool:
        """Whether it was measured on such a machine with that number of ranks."""
        return (
            self.kind == machine.kind
            and ranks in self.ranks
            and (not self.models or any(_is_in(machine.model, text) for text in self.models))
            and machine.joined in ("", self.joined)
        )


class Origin(NamedTuple):
    """Where a choice comes from: the files that fit the machine, by name and title, else the one
    that was measured on another. priced_by: the machine by whose constants the model chose the
    algorithm and the protocol, if it did.
    """

    is_fitting: bool
    files: tuple[tuple[str, str], ...]
    priced_by: str = ""


class Tuning:
    """What several files say: the first one that says anything. fitting: those of them that were
    measured on such a machine. is_whole: one of these decides everything.
    """

    def __init__(self, files: Sequence[TuningFile], fitting: Sequence[TuningFile]) -> None:
        self.origin = Origin(
            bool(fitting), tuple((one.name, one.title) for one in fitting or files)
        )
        self.is_whole = any(file.name in FALLBACK.values() for file in fitting)
        self._tables: dict[str, list[TuningTable]] = {}
        self._measured: dict[str, int] = {}  # how many of these tables are of fitting files
        for source, table in ((file, table) for file in files for table in file.tables):
            for name in dict.fromkeys(name for row in table.rows for name in row.values):
                if rows := tuple(filter(None, (_row_of(row, name) for row in table.rows))):
                    self._tables.setdefault(name, []).append(table._replace(rows=rows))
                    if source in fitting:
                        self._measured[name] = len(self._tables[name])

    def tables(
        self, name: str, facts: Facts, *, only_fitting: bool = False
    ) -> Iterator[tuple[TuningRow, ...]]:
        """Of each table whose conditions hold the rows with a value of that name that hold.
        only_fitting: of tables in files that fit.
        """
        tables = self._tables.get(name, [])
        for table in tables[: self._measured.get(name, 0)] if only_fitting else tables:
            if _hold(table.conditions, facts):
                yield tuple(row for row in table.rows if _hold(row.conditions, facts))

    def row(self, name: str, facts: Facts) -> Values:
        """The values of the first of these rows; none if there is none."""
        for table in self._tables.get(name, ()):
            if _hold(table.conditions, facts):
                for row in table.rows:
                    if _hold(row.conditions, facts):
                        return row.values
        return {}

    def number(self, name: str, facts: Facts, default: int = 1) -> int:
        """A value that is a number."""
        return number(self.row(name, facts), name, default)

    def text(self, name: str, facts: Facts, default: str = "") -> str:
        """A value that is a name."""
        return str(self.row(name, facts).get(name, default))


def _is_in(name: str, text: str) -> bool:
    """Whether a name contains a text, in which * stands for anything.

    >>> _is_in("AMD EPYC 9B14 (2 cores)", "EPYC*(2 cores)"), _is_in("2 EPYC", "EPYC*2")
    (True, False)
    """
    place = 0
    for part in text.split("*"):
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return True


def _hold(conditions: Conditions, facts: Facts) -> bool:
    """Whether each fact is one that is wanted. One that is not known is not."""
    for name, wanted in conditions:  # noqa: SIM110  # half the time of all()
        if facts.get(name) not in wanted:
            return False
    return True


def number(values: Mapping[str, object], name: str, default: int = 1) -> int:
    """A number of a row or of facts."""
    value = values.get(name, default)
    assert isinstance(value, int), name
    return value


def _row_of(row: TuningRow, name: str) -> TuningRow | None:
    """A row as it is asked for one of its values, which holds where the way was taken that stands
    before it; None if the value is not there, or is taken with the algorithm.
    """
    if name not in row.values or (name == "proto" and "algo" in row.values):
        return None
    before = [way for way in _WAYS if VALUE_STAGE[way] < VALUE_STAGE[name] and way in row.values]
    taken = tuple((way, frozenset((row.values[way],))) for way in before)
    return row._replace(conditions=(*row.conditions, *taken))


@lru_cache(maxsize=256)
def tuning_of(machine: Machine, ranks: int) -> Tuning:
    """What decides for so many ranks of a machine: the user's files that fit, then the shipped
    ones, and last the fallback. Raises UsageError that names file, table and key.
    """
    return tuning_without(machine, ranks)


def tuning_without(
    machine: Machine, ranks: int, left_out: str = "", first: Values | None = None
) -> Tuning:
    """The same without the user's file of that path, and with a row before all others whose values
    hold for every case.
    """
    own = (read(str(file)) for file in catalog.user_files("tuning") if str(file) != left_out)
    shipped = (read(name) for name in catalog.names("tuning"))
    fitting = tuple(file for file in (*own, *shipped) if file.fits(machine, ranks))
    files = (*fitting, read(FALLBACK[machine.kind]))
    if first:
        tables = [TuningTable((), (TuningRow((), first),))]
        if "proto" in first:  # as other files may decide it before the algorithm
            tables.append(TuningTable(OPEN_ALGORITHM, (TuningRow((), {"proto": first["proto"]}),)))
        files = (TuningFile("", "", machine.kind, (), "", (ranks,), tuple(tables)), *files)
    return Tuning(files, fitting)


@lru_cache(maxsize=64)
def read(name: str) -> TuningFile:
    """A shipped file by its name, or any file by its path. Raises UsageError as tuning_of does."""
    data, place = catalog.load("tuning", name), DocumentPlace(name, "tuning file")
    machine, title = data.pop("machine", None), data.pop("title", None)
    if not isinstance(machine, dict) or set(machine) != _OF_MACHINES or not isinstance(title, str):
        needed = ", ".join(sorted(_OF_MACHINES))
        raise place.error(f"it must have a title, and [machine] with exactly: {needed}")
    at, models = place.of("machine"), machine["models"]
    if models == "" or (isinstance(models, list) and "" in models):
        raise at.of("models").error("an empty text; [] is any machine")
    return TuningFile(
        name,
        title,
        at.of("kind").name(machine["kind"], *FALLBACK),
        tuple(map(at.of("models").name, models if isinstance(models, list) else [models])),
        at.of("joined").name(machine["joined"]),
        at.of("ranks").numbers(machine["ranks"]),
        tuple(_tables(data, place, (), "size", "")),
    )


def _tables(
    section: Mapping[str, object],
    place: DocumentPlace,
    around: Conditions,
    by: object,
    source: object,
) -> Iterator[TuningTable]:
    """The tables of a section and those in it, which have its conditions, `by` and `source`."""
    conditions = (*around, *_conditions(section.get("when", {}), place.of("when")))
    by, source = section.get("by", by), section.get("source", source)
    if not isinstance(by, str) or by not in FACT_STAGE or by in {*_TRUTHS, *_NAMES}:
        raise place.of("by").error(f"{by!r} is no fact that is a number")
    if "rows" in section:
        if not isinstance(source, str) or not source:
            raise place.error("it has no source: the sweep that gave its numbers")
        yield TuningTable(conditions, _rows(section["rows"], place.of("rows"), by, conditions))
    for key, inner in section.items():
        if key not in _OF_TABLES:
            if not isinstance(inner, dict):
                raise place.of(key).error("there is no such key; values stand in rows")
            yield from _tables(inner, place.of(key), conditions, by, source)


def _rows(
    listed: object, place: DocumentPlace, by: str, around: Conditions
) -> tuple[TuningRow, ...]:
    """The rows of a table, whose sizes do not fall."""
    rows: list[TuningRow] = []
    lasts: dict[str, int] = {}  # of the rows that give the same on the same conditions
    for number, row in enumerate(listed if isinstance(listed, list) else ()):
        at = place._replace(path=f"{place.path}[{number}]")
        if not isinstance(row, dict):
            raise at.error(f"{row!r} is no row")
        values = {key: _value(key, row[key], at.of(key)) for key in row if key in VALUE_STAGE}
        others = {key: row[key] for key in row if key not in (*values, "from", "up_to")}
        first = at.of("from").size(row.get("from", 0))
        up_to = at.of("up_to").size(row.get("up_to", _EVER))
        alike = f"{list(values)} {others}"
        if not lasts.get(alike, 0) <= up_to >= first:
            raise at.error("`up_to` must not fall from row to row, nor be less than `from`")
        lasts[alike] = up_to
        if "slice" in values:  # of which a chunk has as many as the case has slices
            values = {**values, "chunk": values["slice"]}
        own = _conditions(others, at)
        if first or up_to < _EVER:
            own = (*own, (by, range(first, up_to + 1)))
        if not values:
            raise at.error(f"it gives nothing of: {', '.join(VALUE_STAGE)}")
        for fact, _ in (*around, *own):
            if late := [key for key in values if VALUE_STAGE[key] < FACT_STAGE[fact]]:
                raise at.error(f"{late[0]} is decided before {fact} is known")
        rows.append(TuningRow(own, values))
    if not rows:
        raise place.error("it has no row")
    return tuple(rows)


def _conditions(wanted: object, place: DocumentPlace) -> Conditions:
    """The values that each fact may have: one, several, or `> 1` and `< 64` of numbers."""
    if not isinstance(wanted, dict):
        raise place.error(f"{wanted!r} is not a table")
    return tuple((name, _wanted(name, value, place.of(name))) for name, value in wanted.items())


def _wanted(name: str, value: object, place: DocumentPlace) -> Container[object]:
    """The values that a fact may have."""
    if name not in FACT_STAGE:
        raise place.error(f"there is no such key or fact; facts are {', '.join(FACT_STAGE)}")
    if name in _TRUTHS:
        if not isinstance(value, bool):
            raise place.error(f"{value!r} is neither true nor false")
        return frozenset((value,))
    if name in _NAMES:
        return frozenset(
            place.name(one, *(() if "+" in str(one) else _NAMES[name]))
            for one in (value if isinstance(value, list) else [value])
        )
    if isinstance(value, str) and (compared := _COMPARED.fullmatch(value)):
        number = int(compared[2])
        return range(number + 1, _EVER) if compared[1] == ">" else range(number)
    if isinstance(value, str):
        raise place.error(f"{value!r} is no number, nor > or < with one")
    return frozenset(place.numbers(value))


def _value(name: str, value: object, place: DocumentPlace) -> Value:
    """A value of a row."""
    if name in _NAMES:
        return place.name(value, *_NAMES[name])
    numbers = place.numbers(value)
    if 0 in numbers and name != "fills":
        raise place.error("0 is too small")
    return numbers if name == "cluster" else place.size(value)
