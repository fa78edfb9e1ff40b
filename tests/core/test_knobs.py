"""The tables of knobs and options: what lists their names again agrees with them, and whoever needs
them finds them there.
"""

from dataclasses import fields, replace
from typing import get_type_hints

import click
import pytest

from collbench.bench.sweep import Sweep, cases
from collbench.bench.tables.sweep import table_of
from collbench.cli.sweep import command
from collbench.core import rows
from collbench.core.case import Case
from collbench.core.frame import frame_of
from collbench.core.knobs import AXES, BY_STAGE, FIRST_SCHEMA, KNOB, KNOBS, Knob, Knobs, unheeded
from collbench.core.options import OPTIONS, Option, Settings, settings_of
from collbench.core.peers import PEERS
from collbench.core.record import (
    COLUMNS,
    KINDS,
    SCHEMA,
    SCHEMAS,
    SINCE,
    columns_of,
    header,
    line_of,
    parse,
)
from collbench.planning.protocols import FAMILY as PROTOCOLS
from collbench.planning.transports import FAMILY as TRANSPORTS
from tests.support.frames import records, row

BASE = Case(op="allreduce", backend="cuda", ranks=2, size_bytes=1024)
EVERY = [*KNOBS, *AXES]
ids = [one.name for one in EVERY]


def other(knob: Knob) -> str | int:
    """A value that is not the default."""
    named = next((choice for choice in knob.choices if choice != knob.default), "x")
    return named if knob.unit == "name" else 64


def test_a_case_is_its_knobs_its_axes_and_a_size() -> None:
    assert {of.name for of in fields(Case)} == {*KNOB, "size_bytes", "counts_file", "groups", "mix"}
    assert {of.name for of in fields(Knobs)} == {knob.name for knob in KNOBS}


@pytest.mark.parametrize("knob", AXES, ids=lambda knob: knob.name)
def test_the_axes_of_a_sweep_are_those_of_the_table(knob: Knob) -> None:
    assert getattr(Sweep(sizes=(8,)), knob.name) == (knob.default,)


@pytest.mark.parametrize("knob", EVERY, ids=ids)
def test_a_row_and_the_command_line_have_every_knob(knob: Knob) -> None:
    assert knob.name in COLUMNS
    assert KINDS[knob.name] == ("text" if isinstance(knob.default, str) else "integer")
    option = next(param for param in command.params if param.name == knob.name)
    assert isinstance(option, click.Option)
    assert set(knob.flags) == set(option.opts)
    assert "{" not in (option.help or "{")
    text = "all" if knob.unit == "name" else "1,2"
    assert option.type.convert(text, option, None)


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_sweep_makes_a_case_of_every_value_and_shows_it(knob: Knob) -> None:
    values = (knob.default, other(knob))
    knobs = {"algo": ("ring",), knob.name: values}
    backend = "nccl" if knob.name == "buffers" else "cuda"
    peers = {"nccl": PEERS["nccl"]} if backend == "nccl" else {}
    found = cases(Sweep(sizes=(8,), backend=(backend,), knobs=knobs), peers)
    assert [getattr(case, knob.name) for case in found] == list(values)
    table = table_of(found, found, 80)
    assert knob.name in table.swept or knob.name in ("algo", "buffers")
    assert knob.name == "algo" or knob.short in table.heading().split()


def test_columns_of_knobs_have_room_and_protocols_exist() -> None:
    choices = {"proto": PROTOCOLS.names(), "transport": TRANSPORTS.names()}
    for knob in KNOBS:
        names = (knob.short, *choices.get(knob.name, knob.choices))
        assert max(map(len, names)) <= knob.width, knob.name
        assert set(knob.protocols) <= set(PROTOCOLS.names()), knob.name


def test_what_is_asked_for_and_not_heeded_is_told() -> None:
    assert unheeded(BASE, backend="cpu", proto="ll128") == ()
    asked = Knobs(unroll=4, reload="off", slots=2)
    assert [knob.name for knob in unheeded(asked, backend="cpu")] == ["unroll", "reload"]
    assert [knob.name for knob in unheeded(asked, proto="ll128")] == ["unroll"]
    assert [knob.name for knob in unheeded(asked, proto="ll")] == ["reload"]


def test_a_knob_is_told_apart_after_those_that_it_follows_from() -> None:
    assert [*rows.KNOB_FIELDS] == [knob.name for knob in BY_STAGE][2:]
    stages = [knob.stage for knob in BY_STAGE]
    assert stages == sorted(stages)


def test_schemas_differ_only_in_what_came_later() -> None:
    assert SCHEMAS[COLUMNS] == SCHEMA
    for schema in range(FIRST_SCHEMA, SCHEMA):
        later = {knob.name for knob in KNOBS if knob.since > schema}
        later |= {name for name, since in SINCE.items() if since > schema}
        assert columns_of(schema) == tuple(name for name in COLUMNS if name not in later)


def test_a_file_of_an_older_schema_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that lacks a column of a knob, as one of a schema before the knob."""
    older = tuple(name for name in COLUMNS if name != "cluster")
    monkeypatch.setitem(SCHEMAS, older, 3)
    (old,) = records(row(ctas=1, group="local", status="waived", reason="r", schema=3))
    text = header(older) + line_of(getattr(old, name) for name in older)
    new = replace(old, schema=SCHEMA)
    assert parse("old.csv", text) == [new]
    assert tuple(frame_of([new]).columns) == COLUMNS


def test_the_settings_are_the_options_of_the_command() -> None:
    assert set(OPTIONS) == set(get_type_hints(Settings))
    names = {param.name for param in command.params}
    assert {option.key for option in OPTIONS.values()} <= names


def test_the_command_line_makes_the_settings() -> None:
    assert settings_of({}) == Settings()
    given = {"iters": 5, "check": 0, "blocking": 1, "isolate": True, "net_threads": 2, "op": "x"}
    assert settings_of(given) == Settings(
        iterations=5, is_checked=False, blocking=True, isolated=True, net_threads=2
    )


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_an_option_that_is_not_given_leaves_the_default(option: Option) -> None:
    param = next(param for param in command.params if param.name == option.key)
    assert param.default is None
