"""Runs a command line in this process."""

import pytest

from collbench.cli import run

MODEL = ["sweep", "--backend", "model", "--ranks", "4", "--repeats", "1"]
ONE_REPEAT = ("sweep", "--backend", "cpu", "--ranks", "2", "--algo", "ring", "--repeats", "1")


def invoke(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run(list(args))
    out, err = capfd.readouterr()
    return code, out, err
