"""The numbers of the house, what they must not exceed, and what they should come to.

    python -m tests.numbers

tests/test_house.py holds `most` with a margin of 2 %: it is what was reached, and goes down with
it.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "collbench"
MARGIN = 1.02
GENERATED = "<!-- Made by `python -m docs.generate`"
NOT_WRITTEN = re.compile(r"<!-- (\w+) -->.*?<!-- /\1 -->|^```.*?^```", re.MULTILINE | re.DOTALL)
IMPORTS = re.compile(r"^ *(?:from [\w.]+ )?import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE)
SWEEP = "sweep --backend cpu --op allreduce --algo ring --ranks 2 --sizes 1M --repeats 1"
CHECK = "doctor --only shm-size"  # which finds nothing where the file system is large
# Runs a command twice: in the second run nothing is imported, so the functions that are called
# are those that a reader follows.
TRACE = """
import sys, threading
from collbench.cli import run
files = set()
def called(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and "/collbench/" in code.co_filename:
        files.add(code.co_filename)
run(sys.argv[1:])
threading.setprofile(called)
sys.setprofile(called)
run(sys.argv[1:])
sys.setprofile(None)
print("FILES", len(files))
"""


class Number(NamedTuple):
    """A number of the house. most: what was reached; goal: what it should come to."""

    name: str
    measure: Callable[[], float]
    most: float
    goal: float


@cache
def lines_of(folder: Path) -> tuple[str, ...]:
    """The lines of Python under a folder."""
    return tuple(
        line for file in sorted(folder.rglob("*.py")) for line in file.read_text().splitlines()
    )


@cache
def imports(file: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All imports in a file, parsed alone: whole files take five seconds."""
    found = ast.parse("\n".join(one.strip() for one in IMPORTS.findall(file.read_text()))).body
    return tuple(one for one in found if isinstance(one, ast.Import | ast.ImportFrom))


@cache
def arrows() -> frozenset[tuple[str, str]]:
    """Which room imports from which other room."""
    return frozenset(_arrows())


def _arrows() -> Iterator[tuple[str, str]]:
    for file in PACKAGE.glob("*/**/*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        for node in imports(file):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("collbench."):
                assert node.module is not None
                other = node.module.split(".")[1]
                if other != room:
                    yield room, other


def files_followed(command: str) -> int:
    """Files of the package that have a function which a command calls."""
    done = subprocess.run(
        [sys.executable, "-c", TRACE, *command.split()],
        capture_output=True, text=True, timeout=120, check=True, cwd=ROOT,
    )  # fmt: skip
    return int(done.stdout.rpartition("FILES")[2])


def mean_line() -> float:
    """Characters of a line that is not empty, in the package."""
    lengths = [len(line) for line in lines_of(PACKAGE) if line]
    return sum(lengths) / len(lengths)


def written_words() -> int:
    """Words that people wrote: without generated pages and parts, commands and what they print."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = [page.read_text() for page in pages]
    return sum(
        len(NOT_WRITTEN.sub("", text).split()) for text in texts if not text.startswith(GENERATED)
    )


NUMBERS = (
    Number("lines of Python in collbench/", lambda: len(lines_of(PACKAGE)), 86_100, 60_000),
    Number("lines of Python in tests/", lambda: len(lines_of(ROOT / "tests")), 43_000, 38_000),
    Number("lines of Python in cli/", lambda: len(lines_of(PACKAGE / "cli")), 3_310, 3_500),
    Number("hand-written words", written_words, 41_854, 42_000),
    Number("rooms", lambda: len(list(PACKAGE.glob("*/__init__.py"))), 13, 13),
    Number("arrows between rooms", lambda: len(arrows()), 45, 45),
    Number("rooms that cli imports", lambda: len([1 for a, _ in arrows() if a == "cli"]), 8, 9),
    Number("files of a case of sweep", lambda: files_followed(SWEEP), 55, 55),
    Number("files of doctor --only shm-size", lambda: files_followed(CHECK), 15, 15),
    Number("characters of a line", mean_line, 46.2, 46),
)


def main() -> None:
    """Print what each number is, what it may be, and what it should come to."""
    print(f"{'':32}{'now':>9}{'most':>9}{'goal':>9}")
    for number in NUMBERS:
        now = number.measure()
        print(f"{number.name:32}{now:9,.5g}{number.most:9,.5g}{number.goal:9,.5g}")


if __name__ == "__main__":
    main()
