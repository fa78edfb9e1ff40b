"""How a rank ends all ranks, with a fake in MPI's place; with MPI, and who is named, in test_faults_mpi."""

import signal
import subprocess
import sys
import time

import pytest

from tests._runs import ROOT, environment

WORDS = "Error: rank 0 waited in vain"
# The fake ends the process with 10 more than it was told to if the words were taken by then, with 20 more if not.
PROGRAM = f"""
import os, time
from collbench.group import _watchdog

class Comm:
    def Abort(self, code):
        CHANGE
        os._exit(code + (20 if _watchdog._is_unread(2) else 10))

_watchdog._READ_S, _watchdog._END_S = LIMITS
_watchdog.end_all(Comm(), 4, "{WORDS}")
"""


@pytest.mark.parametrize(
    ("late_s", "limits", "change", "code"),
    [(1.0, "60, 90", "pass", 14), (None, "0.2, 90", "pass", 24), (0.0, "60, 2", "time.sleep(60)", -signal.SIGALRM)],
    ids=["a late reader", "no reader", "an MPI that hangs"],
)
def test_all_end_once_the_words_are_taken(late_s: float | None, limits: str, change: str, code: int) -> None:
    program = PROGRAM.replace("CHANGE", change).replace("LIMITS", limits)
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()) as process:
        if late_s is None:
            process.wait()
        else:
            time.sleep(late_s)
        assert process.communicate()[1] == f"{WORDS}\n"
        assert process.returncode == code
