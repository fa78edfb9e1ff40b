"""What tests share: hypothesis settled for CI, and the problems that batteries run.

A good test here says what must hold of results, plans or records, for every registered thing and
awkward numbers of ranks; never how long something takes. Inputs are written by us; anything that
needs a launcher runs as a subprocess with a time limit.
"""

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests with the marker daily the first cases alone stay in the quick tier."""
    cases: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("daily")
        if mark is not None and item.get_closest_marker("exhaustive") is None:
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > mark.args[0]:
                item.add_marker("exhaustive")


def pytest_collection_finish() -> None:
    """Modules and thousands of tests live to the end: no look for cycles goes through them."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, since many tests wait."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(autouse=True)
def _other_workers_are_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that tests measure in this process do not say that tests beside them had the cores."""
    for module in ("collbench.bench.runner", "collbench.bench.busy"):
        monkeypatch.setattr(f"{module}.look", lambda *own: None)
