"""What is told NCCL of rows whose gains are worked out by hand (told.toml), and of made-up ones."""

import tomllib
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.core import record
from collbench.core.errors import UsageError
from collbench.core.record import Record
from collbench.tune.nccl_file import env_lines, tuner_lines
from collbench.tune.nccl_gains import gains
from tests.support import frames
from tests.support.frames import records, row, rows_of

K, M = 1 << 10, 1 << 20
VERSIONS = "collbench 0.1.0; nccl 2.28.9 with NCCL_NVLS_ENABLE=0 NCCL_VERSION=2.28.3-1"


def nccl(size: int, time_us: float, *setting: str | int) -> dict[str, Any]:
    """A row of NCCL's own choice, or of a setting: algorithm, protocol, channels."""
    times = (time_us, time_us * 1.002, time_us * 0.998)
    forced = dict(zip(("algo", "proto", "channels"), setting, strict=False))
    told = {"notes": "unregistered", "versions": VERSIONS}
    return row(times, backend="nccl", size_bytes=size, **told, **forced)


def parsed(lines: list[str]) -> list[list[str]]:
    return [line.split(",") for line in lines if not line.startswith("#")]


def test_ranges_do_not_overlap() -> None:
    rows = []
    for step in range(24):
        for algo, proto in (("ring", "ll"), ("ring", "simple")):
            rows.append(
                nccl(3 << step, 5.0 if (step // 2) % 2 == (proto == "ll") else 6.0, algo, proto, 8)
            )
        rows.append(nccl(3 << step, 10.0))
    found = [(int(first), int(last)) for _, first, last, *_ in parsed(tuner_lines(records(*rows)))]
    assert len(found) == 12
    assert all(first <= last for first, last in found)
    assert all(before[1] + 1 == after[0] for before, after in pairwise(found))
    assert (found[0][0], found[-1][1]) == (0, 4294967295)


def swept(rng: "np.random.Generator", spread: float, gain_at: range = range(0)) -> list[Record]:
    """Twenty sizes, NCCL's own choice beside nine settings that take the same time, but for the
    first at some sizes, which gains 15 %; rows move by t as from run to run, repeats agree.
    """
    rows = []
    for step in range(20):
        for channels in (0, 8, 16, 32):
            for proto in ("ll", "ll128", "simple") if channels else ("",):
                moved = float(rng.standard_t(3)) * spread / 3**0.5
                time_us = (5 + (1 << step) / 1e3) * exp(moved)
                if (channels, proto) == (8, "ll") and step in gain_at:
                    time_us /= 1.15
                rows.append(
                    nccl(K << step, time_us, "ring" if channels else "library", proto, channels)
                )
    return records(*rows)


@pytest.mark.parametrize("spread", [0.005, 0.03])
def test_the_luckiest_of_many_settings_is_no_gain(spread: float) -> None:
    """Each file has 20 sizes where the best of nine is faster in every repeat."""
    rng = np.random.default_rng(5)
    for _ in range(4):
        given = swept(rng, spread)
        assert parsed(tuner_lines(given)) == []
        said = " ".join(env_lines(given))
        assert "NCCL_ALGO" not in said
    assert "which proves nothing where 180 were tried" in said


@pytest.mark.parametrize("spread", [0.005, 0.03])
def test_a_gain_at_neighbouring_sizes_is_found_among_many_settings(spread: float) -> None:
    given = swept(np.random.default_rng(6), spread, gain_at=range(4, 16))
    ((_, sizes),) = gains(given).items()
    found = [
        size
        for size, here in sizes.items()
        if any(one.is_better and one.setting.proto == "ll" for one in here)
    ]
    assert len(found) >= 9
    assert set(found) <= {K << step for step in range(4, 16)}


def test_without_forced_rows_it_says_so() -> None:
    given = record.read(frames.H200)
    for lines in (tuner_lines, env_lines):
        with pytest.raises(UsageError, match="forced") as told:
            lines(given)
        assert "collbench sweep --backend nccl" in (told.value.hint or "")


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
