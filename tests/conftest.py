"""What tests share: hypothesis settled for CI, and the problems that batteries run.

A good test here says what must hold of results, plans or records, for every registered thing and
awkward numbers of ranks; never how long something takes. Inputs are written by us; anything that
needs a launcher runs as a subprocess with a time limit.
"""

import atexit
import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings

from collbench.compare.readers import own
from collbench.core import frame
from collbench.core.record import Record
from tests.support import commands
from tests.support.tiers import in_turns, pairwise_of

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,  # so more examples repeat what passed before; tests/attack draws anew
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("ci")

gc.disable()  # until all tests are collected: they and their modules stay

# as shells start what goes on in the background, and children inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes are started: each would compile the package anew where none writes bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# where kernels lie that were compiled; workers inherit it
if "COLLBENCH_COMPILED" not in os.environ:
    os.environ["COLLBENCH_COMPILED"] = tempfile.mkdtemp(prefix="collbench-compiled-")
    atexit.register(shutil.rmtree, os.environ["COLLBENCH_COMPILED"], ignore_errors=True)

# where sweeps are saved, and whence tuning files come: not the user's own
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="collbench-state-")
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"]
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    """With several workers: one that is done takes tests from others, so that none ends late."""
    if config.getoption("numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test in the exhaustive tier every pair of values of three parameters or more is tried,
    and each kernel on one architecture, which take turns.
    """
    if "not exhaustive" in config.option.markexpr:
        return
    by_test: dict[str, dict[tuple[str, ...], pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("exhaustive") is not None and hasattr(item, "callspec"):
            values = item.callspec.params.values()
            if len(values) > 2 or (len(values) == 2 and "arch" in item.callspec.params):
                words = tuple(re.sub(r" at 0x\w+", "", repr(value)) for value in values)
                by_test.setdefault(item.nodeid.partition("[")[0], {})[words] = item
    spared: set[pytest.Item] = set()
    for cases in by_test.values():
        choose = in_turns if len(next(iter(cases))) == 2 else pairwise_of
        spared |= {cases[words] for words in cases.keys() - set(choose(cases))}
    config.hook.pytest_deselected(items=list(spared))
    items[:] = [item for item in items if item not in spared]


def pytest_collection_finish() -> None:
    """Modules and thousands of tests live to the end: no look for cycles goes through them. Plans
    are many small tuples that live on: looking among them took a third of the time of a proof.
    """
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, since many tests wait; hunts over real links need cores."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(autouse=True)
def _other_workers_are_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that tests measure in this process do not say that tests beside them had the cores, so
    nothing looks for a while at what others have of them.
    """
    for module in ("collbench.bench.runner", "collbench.bench.busy"):
        monkeypatch.setattr(f"{module}.look", lambda *own: None)
    monkeypatch.setattr("collbench.bench.runner._WATCHED_S", 0.0)


@pytest.fixture(autouse=True, scope="session")
def _files_of_results_are_parsed_once() -> Iterator[None]:
    """Hundreds of tests hold something against one of four shipped files: rows that were read from
    the same bytes are the same rows, and their table is a copy.
    """
    read, frame_of = lru_cache(maxsize=16)(own.read), frame.frame_of
    tables: dict[int, tuple[Sequence[Record], pd.DataFrame]] = {}

    def table_of(records: Sequence[Record]) -> "pd.DataFrame":
        known, table = tables.get(id(records), (None, None))
        if known is not records or table is None:
            table = frame_of(records)
            if len(records) > 500:
                tables[id(records)] = records, table
        return table.copy()

    with patch.object(own, "read", read), patch.object(frame, "frame_of", table_of):
        yield


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for states and tuning files of a test's own."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    commands.forget_tuning()
    yield tmp_path
    monkeypatch.undo()
    commands.forget_tuning()


@pytest.fixture
def invoke(capfd: commands.Capture) -> commands.Invoke:
    """Run a command in this process: its exit code, and what it says."""
    return partial(commands.invoke, capfd)


@pytest.fixture
def says(invoke: commands.Invoke) -> commands.Says:
    """Run a command that must end with a code: what it prints."""
    return partial(commands.says, invoke)
