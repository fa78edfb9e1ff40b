"""The command blocks of a page: how they are found, run and filled in.

A fenced block whose language is `console` shows commands behind `$ ` and what they print; one whose
language is `sh` has commands only. A page is run from top to bottom by bash, in an empty directory
that has the repository's `profiles` and the examples of `docs/examples`. A block that says after
its language what it `needs=` (GPUs, MPI, time) or that it was `recorded` is not run. Its command
lines must still parse.
"""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from collbench import cli
from collbench.core.errors import UNJUDGED_CODE

ROOT = Path(__file__).parent.parent
LANGUAGES = ("console", "sh", "python", "toml", "yaml", "text")
LIMIT_S = 120
# times and names of the tool itself, others in each run
_OWN_TIME = re.compile(
    r"(?:; about \d.*|(?<=predicted), \d+ s\.|(?<=Saved as )@\S+: .*)$", re.MULTILINE
)
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = set("|&;<>$`*")
_SEPARATORS = {"|", "&&", "||", ";", ">", ">>"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page. start and end: offsets of its body in the page's text."""

    language: str
    words: tuple[str, ...]
    body: str
    start: int
    end: int

    @property
    def is_run(self) -> bool:
        """Whether its commands are run, and its output compared."""
        return self.language in ("console", "sh") and not self.words

    @property
    def commands(self) -> list[str]:
        """The command lines, each in one piece."""
        if self.language == "console":
            return [line[2:] for line in self.body.splitlines() if line.startswith("$ ")]
        joined = self.body.replace("\\\n", " ")
        lines = [
            line.strip().removeprefix("- ").removeprefix("run: ") for line in joined.split("\n")
        ]
        return [line for line in lines if line and not line.startswith("#")]


def pages() -> list[Path]:
    """Every page for people."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    r"""The fenced blocks of a page's text, in order.

    >>> [block.commands for block in blocks("```console\n$ collbench algos\nout\n```\n")]
    [['collbench algos']]
    """
    return [
        Block(
            language=found[1],
            words=tuple(found[2].split()),
            body=found[3],
            start=found.start(3),
            end=found.end(3),
        )
        for found in _FENCE.finditer(text)
    ]


def collbench_arguments(command: str) -> Iterator[list[str]]:
    """The arguments of every call of collbench in a command line, behind launchers and in pipes.

    >>> list(collbench_arguments("mpirun -n 4 collbench sweep --csv - | collbench compare -"))
    [['sweep', '--csv', '-'], ['compare', '-']]
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    call: list[str] = []
    for word in (*lexer, ";"):
        if word not in _SEPARATORS:
            call.append(word)
            continue
        names = [Path(item).name for item in call]
        if "collbench" in names:
            yield call[names.index("collbench") + 1 :]
        call = []


def furnish(place: Path) -> dict[str, str]:
    """Make a directory ready for the commands of a page; returns the environment to run them in."""
    for folder in ("profiles", "docs"):
        (place / folder).symlink_to(ROOT / folder)
    for example in sorted((ROOT / "docs/examples").iterdir()):
        (place / example.name).symlink_to(example)
    tools = place / ".bin"
    tools.mkdir()
    script = tools / "collbench"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m collbench "$@"\n')
    script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    path = f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": paths}


def run(command: str, place: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """Run a command line; returns its exit code, its stdout and its stderr. A plain call of
    collbench, also one at the head of a pipe, runs in this process, which saves its start.
    """
    first, _, rest = command.partition(" | ")
    code, out, err = 0, "", ""
    if first.startswith("collbench ") and not set(first) & _SHELL:
        code, out, err = _run_here(shlex.split(first)[1:], place)
        if not rest:
            return code, out, err
        command = rest
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        input=out,
        check=False,
    )
    return done.returncode or code, done.stdout, err + done.stderr


def _run_here(arguments: list[str], place: Path) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with chdir(place), patch.dict(os.environ), redirect_stdout(out), redirect_stderr(err):
        os.environ.pop("COLUMNS", None)
        code = cli.run(arguments)
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1]


def _output(block: Block, place: Path, environment: dict[str, str]) -> str:
    """What a block shows once its commands have run. Raises RuntimeError if a command of a block
    that shows no output fails; to be unable to judge, as on a busy machine, is no failure.
    """
    shown = []
    for command in block.commands:
        code, out, err = run(command, place, environment)
        if block.language == "sh" and code not in (0, UNJUDGED_CODE):
            raise RuntimeError(f"{command} ends with {code}: {err or out}")
        lines = "".join(f"{line.rstrip()}\n" for line in out.rstrip().splitlines())
        # of a pipe a shell has the code of its last command
        is_seen = code and "collbench" in command.rpartition(" | ")[2]
        shown.append(f"$ {command}\n{lines}" + (f"(exit code {code})\n" if is_seen else ""))
    return "".join(shown) if block.language == "console" else block.body


def filled(text: str, place: Path) -> str:
    """A page's text with the output of every block that is run as the tool prints it now, its own
    times apart.
    """
    environment = furnish(place)
    parts, at = [], 0
    for block in blocks(text):
        if block.is_run:
            output = _output(block, place, environment)
            is_same = _OWN_TIME.sub("", output) == _OWN_TIME.sub("", block.body)
            parts += [text[at : block.start], block.body if is_same else output]
            at = block.end
    return "".join(parts) + text[at:]
