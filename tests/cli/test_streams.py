"""What a shell may do to a process before it starts: streams that are closed or full, little
memory, warnings as errors.
"""

import os
import signal
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from collbench.core.interrupt import exit_code_of, text_of
from collbench.core.record import read
from tests.support.commands import Says
from tests.support.runs import said_by
from tests.support.tiers import tiered

MODEL = "sweep --backend model --sizes 1K --ranks 2 --repeats 1 --algo ring"
CPU = MODEL.replace("model", "cpu")
ROWS = Path(__file__).parent.parent.parent / "profiles" / "results" / "h100-pciex2-published.csv"


def shell(words: str, folder: Path, before: str = "", flags: str = "") -> tuple[int, str]:
    """The exit code and stderr of a command line of bash, in a folder."""
    line = f"{before} exec {sys.executable} {flags} -m collbench {words}"
    done = said_by(["bash", "-c", line], cwd=folder)
    return done.returncode, done.stderr


def lines(err: str) -> list[str]:
    return [line.partition(":")[0] for line in err.splitlines() if not line.startswith("# ")]


@tiered(
    ("words", "code"),
    [
        (f"{MODEL} >/dev/full 2>/dev/full", 3),
        (f"{CPU} --csv rows.csv 2>&-", 0),
        ("topo --machine pcie-4 2>/dev/full", 0),
        ("nosuch 2>/dev/full", 2),
        ("nosuch 2>&-", 2),
        ("--version 2>&-", 0),
        ("--help <&- 2>&-", 0),
        ("--help >&- 2>&-", 3),
        (f"compare {ROWS} <&- 2>&-", 0),
    ],
    1,
)
def test_stderr_that_takes_nothing_changes_no_exit_code(
    tmp_path: Path, words: str, code: int
) -> None:
    assert shell(words, tmp_path) == (code, "")
    file = tmp_path / "rows.csv"
    assert not file.exists() or len(read(file)) == 1


@pytest.mark.exhaustive
def test_a_closed_pipe_is_no_success(tmp_path: Path) -> None:
    """A gate whose reader has gone has not passed; shells show the signal of such an end."""
    gate = f"(sleep 1; exec {sys.executable} -m collbench compare {ROWS}) | true"
    done = said_by(["bash", "-c", gate + "; echo ${PIPESTATUS[0]}"], cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("141", "")


@tiered(
    ("words", "before"),
    [
        (words, f"ulimit -v {limit};")
        for words in (MODEL, CPU, f"compare {ROWS}", f"compare {ROWS} --plot a.svg")
        for limit in (50_000, 100_000, 200_000, 262_143)
    ],
    [(CPU, "ulimit -v 50000;"), (CPU, "ulimit -v 20000;")],
)
def test_too_little_memory_is_said(tmp_path: Path, words: str, before: str) -> None:
    code, err = shell(words, tmp_path, before)
    assert (code, lines(err)) == (3, ["Error", "Hint"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "words",
    [
        CPU,
        CPU.replace("cpu", "mpi"),
        MODEL,
        "topo --machine dgx-1v --svg x.svg",
        f"compare {ROWS} --html x.html",
        f"compare {ROWS} --plot x.svg",
    ],
)
def test_warnings_as_errors_break_nothing(tmp_path: Path, words: str) -> None:
    code, err = shell(words, tmp_path, flags="-W error")
    assert (code, [line for line in err.splitlines() if not line.startswith("# ")]) == (0, [])


def test_a_mistake_of_ours_is_two_lines(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place; the traceback is for those who ask for it."""
    monkeypatch.setattr("collbench.bench.show_topology.matrix", None)
    err = says(1, "topo", "--machine", "pcie-4").err
    assert lines(err) == ["Error", "Hint"]
    assert "a mistake of collbench: TypeError" in err
    assert "(in _show_views, show_topology.py:" in err
    monkeypatch.setenv("COLLBENCH_DEBUG", "1")
    assert "Traceback" in says(1, "topo", "--machine", "pcie-4").err


NOT_LOADED = ImportError("a long\nadvice")
NOT_LOADED.__cause__ = ImportError("libblas.so: failed to map segment")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("can't start new thread"), "cannot start a thread: processes are limited"),
        (NOT_LOADED, "a library cannot be loaded: libblas.so: failed to map segment\n"),
    ],
)
def test_what_the_system_refuses_is_said(
    says: Says, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    monkeypatch.setattr("collbench.bench.show_topology.matrix", Mock(side_effect=error))
    assert f"Error: {why}" in says(3, "topo", "--machine", "pcie-4").err


def test_a_message_is_cut_in_its_middle(says: Says) -> None:
    err = says(2, "sweep", "--sizes", "9" * 5000).err
    assert len(err) < 2000
    assert "9 [...] 9" in err
    assert "more than 8192T" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_a_rank_gets_its_guardian_ends_it_in_order(
    number: signal.Signals,
) -> None:
    script = (
        "import signal, sys; from collbench.cli import main; from collbench.launch import watchdog;"
        f"watchdog.watchdog_of = lambda under: signal.raise_signal({number.value});"
        "sys.argv = ['collbench', 'sweep', '--backend', 'mpi']; main()"
    )
    ranks = {**os.environ, "PMI_RANK": "0", "PMI_SIZE": "2"}
    done = said_by([sys.executable, "-c", script], env=ranks)
    assert (done.returncode, done.stdout) == (exit_code_of(number), ""), done.stderr
    assert done.stderr == f"{text_of(number)}\n"
