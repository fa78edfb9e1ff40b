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
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from tests.support.tiers import in_turns, pairwise_of

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,  # so more examples repeat what passed before; tests/attack draws anew
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

# plans are many small tuples that live on: looking for cycles among them took a third of the time
# of a proof
gc.set_threshold(50_000)

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-case",
        action="store_true",
        help="also cases of exhaustive tests whose pairs of values others have, and more draws",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests with the marker daily the first cases alone stay in the quick tier. Of those in the
    exhaustive tier every pair of values of three parameters or more is tried, and each kernel on
    two architectures, and cases with the marker more are not.
    """
    cases: Counter[str] = Counter()
    by_test: dict[str, dict[tuple[str, ...], pytest.Item]] = {}
    spared: list[pytest.Item] = []
    for item in items:
        mark, test = item.get_closest_marker("daily"), item.nodeid.partition("[")[0]
        if mark is not None and item.get_closest_marker("exhaustive") is None:
            cases[test] += 1
            if cases[test] > mark.args[0]:
                item.add_marker("exhaustive")
        is_exhaustive = item.get_closest_marker("exhaustive") is not None
        if item.get_closest_marker("more") is not None:
            spared.append(item)
        elif is_exhaustive and isinstance(item, pytest.Function):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            values = params.values()
            if len(values) > 2 or (len(values) == 2 and "arch" in params):
                words = tuple(re.sub(r" at 0x\w+", "", repr(value)) for value in values)
                by_test.setdefault(test, {})[words] = item
    is_quick = "not exhaustive" in config.option.markexpr
    if is_quick or config.getoption("every_case", False):
        return
    rows = [
        (by_case, set((in_turns if len(next(iter(by_case))) == 2 else pairwise_of)(by_case)))
        for by_case in by_test.values()
    ]
    spared += [one[words] for one, chosen in rows for words in one if words not in chosen]
    config.hook.pytest_deselected(items=spared)
    left = set(spared)
    items[:] = [item for item in items if item not in left]


def pytest_collection_finish() -> None:
    """Modules and thousands of tests live to the end: no look for cycles goes through them."""
    gc.freeze()


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
