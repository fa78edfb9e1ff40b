"""What other processes have of the processors: read from a made-up /proc and from this one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.core.limits import FOREIGN_LEAST_S
from collbench.launch.local import own_processes
from collbench.machine.others import Census, Look, demand, look

STAT = """cpu  100 10 50 9000 30 5 5 30 7 0
cpu0 60 0 30 4000 30 5 5 0 7 0
cpu1 40 10 20 5000 0 0 0 30 0 0
intr 12 0 0
procs_running {running}
procs_blocked 1
"""


def proc(root: Path, running: int, **states: str) -> Path:
    (root / "stat").write_text(STAT.format(running=running))
    for pid, state in states.items():
        (root / pid[1:]).mkdir(exist_ok=True)
        (root / pid[1:] / "stat").write_text(f"{pid[1:]} (a b) {state} 1 " + "0 " * 40)
    return root


def test_a_look_counts_all_work_and_the_tasks_that_are_not_ours(tmp_path: Path) -> None:
    root = proc(tmp_path, 5, p1000001="R", p1000002="S")
    seen = look((1000001, 1000002), root=root)
    assert seen is not None
    tick = os.sysconf("SC_CLK_TCK")
    assert (seen.busy_s, seen.queued) == (200 / tick, 4)
    of_one = look((), (1,), root)
    assert of_one is not None
    assert (of_one.busy_s, of_one.queued) == (100 / tick, None)


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e f g h", "cpu 1 2 3 4 5 6 7 8 9 10"])
def test_nothing_is_known_where_the_kernel_says_nothing(tmp_path: Path, text: str) -> None:
    assert look((), root=tmp_path / "no") is None
    (tmp_path / "stat").write_text(text)
    assert look((), root=tmp_path) is None


def at(when_s: float, foreign_s: float, queued: int | None = 0) -> Look:
    return Look(when_s=when_s, busy_s=foreign_s + 2 * when_s, own_s=2 * when_s, queued=queued)


def test_the_demand_is_what_was_had_or_waited_for() -> None:
    assert demand([]) == 0.0
    assert demand([(at(0, 0), at(10, 5))]) == 0.5
    assert demand([(at(0, 0, 9), at(10, 5, 7))]) == 7.0
    # a task that is there at one moment alone, or in one span of three
    assert demand([(at(0, 0, 9), at(10, 0, 0))]) == 0.0
    assert demand([(at(0, 0, 9), at(1, 0, 9)), *[(at(0, 0), at(1, 0))] * 2]) == 0.0
    # less than the kernel's counters can tell
    assert demand([(at(0, 0, None), at(0.01, FOREIGN_LEAST_S / 2, None))]) == 0.0


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A process that computes, and is nobody's rank."""
    program = "print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=-1, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_busy_process_is_found_and_named_but_not_our_own(busy: "subprocess.Popen[str]") -> None:
    """It is our child, and so our own, until it is left out."""
    census, own = Census(), own_processes() - {busy.pid}
    tick = Path(f"/proc/{busy.pid}/stat")

    def ticks() -> int:
        return int(tick.read_text().rpartition(")")[2].split()[11])

    before, first = look(own), ticks()
    while ticks() < first + 30:
        pass
    after = look(own)
    assert before is not None
    assert after is not None
    assert demand([(before, after)]) > 0
    (named,) = [one for one in census.busiest(own, 1000) if one.pid == busy.pid]
    assert "-c" in named.command
    assert named.cores > 0
    assert busy.pid in own_processes()
    assert busy.pid not in {one.pid for one in census.busiest(own_processes(), 1000)}


def test_a_census_names_what_has_no_command_by_its_name(tmp_path: Path) -> None:
    census = Census(tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (x) R 1 " + "0 " * 9 + "900000 0 " + "0 " * 30)
    (tmp_path / "7" / "cmdline").write_bytes(b"")
    (tmp_path / "7" / "comm").write_text("kworker\x1b/0\n")
    (named,) = census.busiest(())
    assert (named.pid, named.command) == (7, "[kworker\\x1b/0]")
    assert census.busiest((7,)) == []
