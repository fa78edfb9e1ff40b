"""What is told NCCL of rows whose gains are worked out by hand: told.toml."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from collbench.core.errors import UsageError
from collbench.core.record import Record
from collbench.tune.nccl_file import env_lines, tuner_lines
from tests.support.frames import rows_of

FILE = tomllib.loads(Path(__file__).with_name("told.toml").read_text())
BASE = FILE.pop("base")


def told(lines: Callable[[Sequence[Record]], list[str]], rows: Sequence[Record]) -> list[str]:
    """The lines of a file, or a refusal."""
    try:
        return lines(rows)
    except UsageError as error:
        return [f"! {error.message} {error.hint}"]


@pytest.mark.parametrize("what", FILE)
def test_what_is_told(what: str) -> None:
    case = FILE[what]
    rows = rows_of([one if "backend=" in one else f"{one} {BASE}" for one in case["rows"]])
    tuner, env = told(tuner_lines, rows), told(env_lines, rows)
    is_file = tuner[0][0] != "!"
    assert not is_file or max(map(len, tuner)) < 255  # the plugin's MAX_LINE_LENGTH
    rules = [line for line in tuner if line[0] not in "#!"]
    assert rules == case.get("rules", [])
    for text, says in (("\n".join(tuner), "tuner"), ("\n".join(env), "env")):
        assert [words for words in case.get(says, ()) if words not in text] == [], text
