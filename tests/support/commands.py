"""Runs a command line in this process."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
import pytest

from collbench.cli import _COMMANDS, run
from collbench.cli._command import StrictCommand
from collbench.planning import tuning
from collbench.tune.store import Store, TunedPoint
from tests.support.json_shape import check_shape

MODEL = ["sweep", "--backend", "model", "--ranks", "4", "--repeats", "1"]
Capture = pytest.CaptureFixture[str]
Invoke = Callable[..., tuple[int, str, str]]  # the fixture of that name, see tests/conftest.py
Says = Callable[..., "Said"]  # and of that one
ONE_REPEAT = ("sweep", "--backend", "cpu", "--ranks", "2", "--algo", "ring", "--repeats", "1")


def invoke(capfd: Capture, *args: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it says."""
    code = run(list(args))
    out, err = capfd.readouterr()
    return code, out, err


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def words(self) -> str:
        """What went to stdout, with single blanks."""
        return " ".join(self.out.split())

    @property
    def result(self) -> Any:
        """The data of a document of --json on stdout."""
        return result_of(self.out)


def says(invoke: Invoke, code: int, *args: str | Path, **variables: str) -> Said:
    """What a command prints that must end with that code. variables: of its environment."""
    with patch.dict(os.environ, variables):
        found, *told = invoke(*map(str, args))
    assert found == code, told
    return Said(*told)


def options() -> Iterator[tuple[str, click.Option]]:
    """Every option, with the name of its command."""
    for name in _COMMANDS:
        command = import_module(f"collbench.cli.{name}").command
        assert isinstance(command, StrictCommand)
        yield from ((name, param) for param in command.params if isinstance(param, click.Option))


def forget_tuning() -> None:
    """What this process has read of tuning files, which a test writes."""
    tuning.read.cache_clear()
    tuning.tuning_of.cache_clear()


def keep_tuned(machine: tuning.Machine, *points: TunedPoint) -> Store:
    """Points as tune keeps them, which all that is planned in this process then follows."""
    store = Store(machine=machine, points=())
    for point in points:
        store = store.with_point(point)
    store.save(None)
    forget_tuning()
    return store


@contextmanager
def stdin_of(path: Path) -> Iterator[None]:
    """A file as the standard input of this process."""
    kept = os.dup(0)
    try:
        with path.open("rb") as file:
            os.dup2(file.fileno(), 0)
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def result_of(text: str) -> Any:
    """What a document of --json has as its data, with the verdict where that is an object."""
    document = json.loads(text)
    check_shape(document)
    data = document["data"]
    return {"verdict": document["verdict"], **data} if isinstance(data, dict) else data
